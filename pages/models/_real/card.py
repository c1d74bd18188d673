"""The card of a third-party model: its facts, and its attention to special tokens."""

import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis import patterns
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface.loaded import LoadedModel
from mha_core.traces.source import ModelSource
from pages._kit import model_info, model_source
from pages._kit.text import joined, literal, t

MOST = 0.5  # of the weight of a layer


def show(trace: AttentionTrace, scene: Scene) -> None:
    """The card: name, sizes, device, exactness, and the share of the weights on special tokens."""
    entry = model_source.loaded_model(scene)
    source = trace.source
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header(literal(model_info.short(source.name)), width="content", anchor=False)
        model_info.exact(trace)
    model_facts = facts(trace, entry)
    cells = st.grid(2 if len(model_facts) < 3 else 5, min_column_width=150)
    for label, value in model_facts:
        with cells.container(gap=None):
            st.caption(label)
            st.markdown(f"**{literal(value)}**")
    if known := model_source.known(scene.model):
        st.markdown(literal(model_source.notice(known)))
    if sentence := special_share(trace):
        st.markdown(sentence)
    model_info.skipped(trace)


def facts(trace: AttentionTrace, entry: LoadedModel | None) -> list[tuple[str, str]]:
    """The known facts about the model, each with its label."""
    source, layers = trace.source, trace.layers
    assert isinstance(source, ModelSource)
    known = [layer for layer in layers if layer.knows("q")]
    labelled = [(t("real.fact_architecture"), f"{source.architecture} ({source.family})")]
    if layers:
        heads = model_info.counted({layer.n_heads for layer in layers})
        labelled.append((t("real.fact_layers"), f"{len(layers)} × {heads}"))
    if trace.mixers:
        labelled.append((t("real.fact_mixers"), f"{len(trace.mixers)}"))
    if entry is not None and len(entry.kinds) > 1:
        labelled.append((t("real.fact_kinds"), joined(entry.kinds)))
    if known:
        labelled.append((t("real.fact_kv"), model_info.counted({layer.n_kv_heads for layer in known})))
        if widths := {layer.d_model for layer in known if layer.d_model}:
            labelled.append(("d_model", model_info.counted(widths)))
        labelled.append(("d_k", model_info.counted({layer.d_k for layer in known})))
    if entry is not None:
        labelled.append((t("real.fact_parameters"), f"{entry.parameters:,}"))
        labelled.append((t("real.fact_limit"), f"{model_source.longest(entry):,}"))
    labelled.append((t("real.fact_dtype"), f"{source.dtype}, {source.device}"))
    if source.revision:
        labelled.append((t("control.revision"), source.revision[:12]))
    return labelled


def special_share(trace: AttentionTrace) -> str:
    """A sentence on the share of the weights on special tokens: the mean, and the layer with the most.

    "" where no layer gives them most of its weight: its heads do something else.
    """
    special = trace.tokens.special or (0,)
    known = [patterns.special_share(layer, special) for layer in trace.layers]
    shares = [share for share in known if share is not None]
    if not shares or len(shares) < len(known) or len(trace.tokens) < 2 or max(shares) < MOST:
        return ""
    largest = shares.index(max(shares))
    names = dict.fromkeys(literal(trace.tokens.pieces[at]) for at in special)
    return t(
        "real.rests",
        tokens=joined(f"**{name}**" for name in names),
        share=f"{sum(shares) / len(shares):.0%}",
        layer=largest + 1,
        maximum=f"{shares[largest]:.0%}",
    )
