"""The cost of the layer and of others: with more heads, shared keys and values, in well-known models."""

from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from mha_core import AttentionSpec
from mha_core.analysis.cost import Cost, cost, variants
from mha_core.analysis.cost import by_heads as cost_by_heads
from mha_core.analysis.published import kind, published_sizes
from mha_core.attention.latent import LatentSpec
from mha_core.scene.scene import DEFAULTS
from mha_core.sources import mini
from mha_core.training import checkpoints
from pages._kit import state, views
from pages._kit.text import counted, in_bytes, language, said, t
from pages.understand._cost.sizes import BYTES, LayerSizes

# The small models by kind, all of the same h and d_model.
TRAINED = {"mha": "glass-box", "gqa": "grouped-query", "mqa": "multi-query", "mla": "latent"}
SIZES = (4, 64)
# Heads are dots, and over a bar for each key and value that a token has in the cache.
STYLE = """
.sharing { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 1rem 1.6rem; }
.sharing figure { margin: 0; }
.sharing figcaption { font-size: .875rem; margin-bottom: .4rem; }
.sharing figure > div { display: flex; gap: 3px; }
.sharing figure > div > div { flex: 1; min-width: 1px; }
.sharing .heads { display: flex; justify-content: space-around; margin-bottom: 3px; }
.sharing .heads i { flex: 0 1 9px; min-width: 1px; aspect-ratio: 1; border-radius: 50%;
  background: currentColor; }
.sharing .kept { height: 14px; border: 1px solid currentColor; box-sizing: border-box;
  background: color-mix(in srgb, currentColor 22%, transparent); }
"""


def numbers(layer: LayerSizes) -> None:
    """The four numbers of the layer, and the sums behind them."""
    spec, figures = layer.spec, cost(layer.spec, layer.tokens, batch=layer.batch)
    st.header(t("cost.numbers"))
    with st.container(horizontal=True, gap="medium", key="figures"):
        st.metric(t("cost.parameters"), f"{figures.parameters:,}", width="content")
        st.metric(t("cost.flops"), f"{figures.flops:,}", width="content")
        st.metric(t("cost.activations"), in_bytes(figures.activations * layer.bytes), width="content")
        st.metric(t("cost.cache"), in_bytes(figures.cache * layer.bytes), width="content")
    st.caption(t("cost.sums_latent") if isinstance(spec, LatentSpec) else t("cost.sums"))


def by_heads(layer: LayerSizes) -> None:
    """The same width in more and narrower heads, one row for each h."""
    costs = cost_by_heads(layer.spec.d_model, layer.tokens, batch=layer.batch)
    table = {t("cost.column_h"): [str(h) for h in costs.index], "d_k": costs["d_k"].astype(str)}
    table |= _columns([Cost(**row) for row in costs.drop(columns="d_k").to_dict("records")], layer)
    if state.on_phone():
        table.pop(t("cost.cache"))
    st.table(pd.DataFrame(table), hide_index=True, border="horizontal")
    if len(costs) > 1:
        st.markdown(t("cost.equal", h=len(costs), parameters=f"{costs['parameters'].iloc[0]:,}"))


def sharing(layer: LayerSizes) -> None:
    """The layer with keys and values for each head, for groups of heads, for all, and with short vectors."""
    specs = variants(layer.spec)
    pictures = "".join(_picture(name, spec) for name, spec in specs.items())
    st.html(f'<style>{STYLE}</style><div class="sharing">{pictures}</div>')
    costs = {name: cost(spec, layer.tokens, batch=layer.batch) for name, spec in specs.items()}
    table = {
        t("cost.column_kind"): [name.upper() for name in specs],
        t("cost.column_kept"): [t(f"cost.kept_{name}", **_kept(spec)) for name, spec in specs.items()],
    }
    table |= _columns(list(costs.values()), layer)
    if state.on_phone():  # where a table has room for four columns
        for name in (t("cost.parameters"), t("cost.flops"), t("cost.activations")):
            table.pop(name)
    table[t("cost.column_share")] = [f"{costs[name].cache / costs['mha'].cache:.1%}" for name in specs]
    st.table(pd.DataFrame(table), hide_index=True, border="horizontal")
    st.caption(t("cost.sharing_note"))


def small_models() -> None:
    """Our small models, which differ in what heads share: what each keeps, and whether it answers."""
    rows = []
    for name, architecture in TRAINED.items():
        plan = mini.find(language(), architecture, *SIZES)
        scores = checkpoints.manifest()[checkpoints.name(plan)]["scores"]
        changed = {} if architecture == DEFAULTS.architecture else {"architecture": architecture}
        rows.append(
            {
                t("cost.column_kind"): f"[{name.upper()}](./?{urlencode(changed)})",
                t("cost.column_numbers"): str(cost(plan.spec, 1).cache * len(plan.layers)),
                t("cost.column_answers"): f"{scores['answer']:.1%}",
                t("cost.column_shapes"): f"{scores['shapes']:.1%}",
                t("cost.column_weight"): f"{scores['right']:.2f}",
            }
        )
    st.markdown(t("cost.small", h=SIZES[0], d_model=SIZES[1]))
    st.table(rows, hide_index=True, border="horizontal")


def models(layer: LayerSizes) -> None:
    """Well-known models: what each keeps of a token in all of its layers."""
    rows, short = [], state.on_phone()
    formats = dict.fromkeys([layer.dtype] if short else [layer.dtype, "bf16"])  # published caches are in bf16
    for model in published_sizes():
        spec = model.spec
        kept, full = (model.layers * cost(one, 1).cache for one in (spec, variants(spec)["mha"]))
        row = {t("cost.column_model"): model.name, t("cost.column_kind"): kind(spec).upper()}
        if not short:
            row |= {
                t("cost.column_layers"): str(model.layers),
                "d_model": str(spec.d_model),
                "h": str(spec.n_heads),
                t("cost.column_kv_heads"): "–" if isinstance(spec, LatentSpec) else str(spec.n_kv_heads),
            }
        row |= {t("cost.column_token", dtype=name): in_bytes(kept * BYTES[name], 5) for name in formats}
        row[t("cost.column_share")] = f"{kept / full:.1%}"
        if not short:
            of_text = in_bytes(kept * layer.bytes * layer.tokens * layer.batch)
            row[t("cost.column_text", dtype=layer.dtype)] = of_text
        rows.append(row)
    st.table(rows, hide_index=True, border="horizontal")
    if sources := views.fold(t("cost.sources"), key="sources"):
        sources.markdown(
            "\n".join(
                t("cost.source", model=model.name, source=said(model.source)) for model in published_sizes()
            )
        )


def _picture(name: str, spec: AttentionSpec | LatentSpec) -> str:
    groups = 1 if isinstance(spec, LatentSpec) else spec.n_kv_heads
    heads = "<i></i>" * (spec.n_heads // groups)
    group = f'<div><div class="heads">{heads}</div><div class="kept"></div></div>'
    caption = f"<b>{name.upper()}</b> {t(f'cost.picture_{name}')}"
    return f"<figure><figcaption>{caption}</figcaption><div>{group * groups}</div></figure>"


def _kept(spec: AttentionSpec | LatentSpec) -> dict[str, int]:
    """The numbers in the words on what is kept of a token."""
    if isinstance(spec, LatentSpec):
        return {"rank": spec.kv_rank, "position": spec.rotary_width}
    return {"heads": spec.n_kv_heads, "d_k": spec.d_k, "d_v": spec.d_v}


def _columns(costs: list[Cost], layer: LayerSizes) -> dict[str, list[str]]:
    return {
        t("cost.parameters"): [f"{one.parameters:,}" for one in costs],
        t("cost.flops"): [counted(one.flops) for one in costs],
        t("cost.activations"): [in_bytes(one.activations * layer.bytes) for one in costs],
        t("cost.cache"): [in_bytes(one.cache * layer.bytes) for one in costs],
    }
