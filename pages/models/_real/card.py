"""The card of a third-party model: what it is, what its heads rest on, and what it keeps of each token."""

from collections.abc import Callable

import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis import kv_cache
from pages._kit import model_info, model_source, state
from pages._kit.text import literal, t


def show(trace: AttentionTrace, scene: state.Scene) -> None:
    """The model's card: what it is, its sizes, where it runs, how it is seen, and where its heads rest."""
    entry = model_source.at_hand(scene)
    source = trace.source
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"#### {literal(model_info.short(source.name))}", width="content")
        model_info.exact(trace)
    cells = st.grid(2 if len(facts(trace, entry)) < 3 else 5, min_column_width=150)
    for label, value in facts(trace, entry):
        with cells.container(gap=None):
            st.caption(label)
            st.markdown(f"**{literal(value)}**")
    if told := model_source.notice(scene):
        st.markdown(literal(told))
    if rests := _rests(trace):
        st.markdown(rests)
    model_info.skipped(trace)


def facts(trace: AttentionTrace, entry) -> list[tuple[str, str]]:
    """What there is to say about the model, in the order in which one asks."""
    source, layers = trace.source, trace.layers
    known = [layer for layer in layers if layer.knows("q")]
    several = entry is not None and len(entry.kinds) > 1
    told = [
        (t("real.fact_architecture"), f"{source.architecture} ({source.family})"),
        (t("real.fact_layers"), f"{len(layers)} × {model_info.counted({layer.n_heads for layer in layers})}"),
    ]
    if several:
        told.append((t("real.fact_kinds"), ", ".join(entry.kinds)))
    if known:
        told.append((t("real.fact_kv"), model_info.counted({layer.n_kv_heads for layer in known})))
        if widths := {layer.d_model for layer in known if layer.d_model}:
            told.append(("d_model", model_info.counted(widths)))
        told.append(("d_k", model_info.counted({layer.d_k for layer in known})))
    if entry is not None:
        told.append((t("real.fact_parameters"), f"{entry.parameters:,}"))
        told.append((t("real.fact_limit"), f"{entry.model.limit:,}"))
    told.append((t("real.fact_dtype"), f"{source.dtype}, {source.device}"))
    if source.revision:
        told.append((t("control.revision"), source.revision[:12]))
    return told


def kept(trace: AttentionTrace, *, layer: int, draw: Callable[[], None]) -> None:
    """How many numbers of each token a layer keeps while a text grows, against other ways to share heads.

    `draw` draws who shares what, between the sentence about it and the numbers.
    """
    shown = trace.layers[layer]
    found = kv_cache.cache_sizes(shown)
    if found is None:
        return
    st.subheader(t("real.kept", layer=layer + 1), help=t("real.kept_help"))
    if (latent := shown.about.latent) is not None:
        st.markdown(t("real.latent", kv_rank=latent.kv_rank, rotary_width=latent.rotary_width or "–"))
        if latent.q_rank is not None:
            st.caption(t("real.latent_q", q_rank=latent.q_rank))
    elif shown.n_kv_heads == 1 < shown.n_heads:
        st.markdown(t("real.shared_one", heads=shown.n_heads))
    elif shown.n_kv_heads < shown.n_heads:
        st.markdown(t("real.shared", heads=shown.n_heads, kv=shown.n_kv_heads))
    elif shown.n_heads > 1:
        st.markdown(t("real.own", heads=shown.n_heads))
    draw()
    names = {"all": t("real.kept_all"), "shared": t("real.kept_shared"), "one": t("real.kept_one")}
    names["latent"] = t("real.kept_latent")
    if found.get("shared") in (found["all"], found["one"]):  # every head has its own, or all have one
        found.pop("shared")
    ours = next(way for way in ("latent", "shared", "all", "one") if found.get(way) == found["own"])
    rows = [
        {
            t("real.kept_way"): names[way],
            t("real.kept_numbers"): found[way],
            t("real.kept_share"): f"{found[way] / found['all']:.1%}",
            t("real.kept_here"): "✓" if way == ours else "",
        }
        for way in ("all", "shared", "latent", "one")
        if way in found
    ]
    st.dataframe(rows, hide_index=True, key="kept_table", width="content")
    if "latent" in found:
        st.markdown(
            t(
                "real.kept_latent_sum",
                parts=" + ".join(str(n) for n in (latent.kv_rank, latent.rotary_width) if n is not None),
                kept=found["latent"],
                heads=shown.n_heads,
                d_k=shown.d_k,
                d_v=shown.d_v,
                all=found["all"],
            )
        )


def _rests(trace: AttentionTrace) -> str:
    """How much of the weights rests on special tokens, on the mean and in the layer where it is most."""
    special = trace.tokens.special or (0,)
    shares = [kv_cache.special_share(layer, special) for layer in trace.layers]
    if None in shares or len(trace.tokens) < 2:
        return ""
    most = max(range(len(shares)), key=shares.__getitem__)
    names = dict.fromkeys(literal(trace.tokens.pieces[at]) for at in special)
    return t(
        "real.rests",
        tokens=", ".join(f"**{name}**" for name in names),
        share=f"{sum(shares) / len(shares):.0%}",
        layer=most + 1,
        most=f"{shares[most]:.0%}",
    )
