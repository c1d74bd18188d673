"""The controls of the page Shapes and cost: a layer's sizes, from well-known models or by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mha_core import AttentionSpec, MhaError
from mha_core.analysis.published import PublishedSizes, published_sizes
from mha_core.attention.latent import LatentSpec
from mha_core.attention.module import MAX_D_MODEL, MAX_HEADS
from pages._kit import refusals
from pages._kit.formulas import FormulaSizes
from pages._kit.text import t

BYTES = {"fp32": 4, "bf16": 2}
# The sizes and their values at first; None stands for what follows from the others.
DEFAULTS = {
    "tokens": 10,
    "d_model": 512,
    "h": 8,
    "d_k": None,
    "d_v": None,
    "kv_rank": None,
    "n_kv_heads": None,
    "q_rank": None,
    "rotary_width": None,
    "batch": 1,
}
# The text of an empty control: the size that the layer then has.
FOLLOWS = {
    "d_k": "d_model / h",
    "d_v": "d_k",
    "kv_rank": "–",
    "n_kv_heads": "h",
    "q_rank": "–",
    "rotary_width": "d_k / 2",
}
LIMITS = {"tokens": 1 << 20, "h": MAX_HEADS, "n_kv_heads": MAX_HEADS, "batch": 1024}
FIRST = ("tokens", "d_model", "h")  # beside each other; the others are in a menu
# Controls that are there only for keys and values from a latent vector, and only for others.
LATENT, UNSHARED = ("q_rank", "rotary_width"), ("n_kv_heads",)
TWO_TOKENS = {"tokens": 2, "d_model": 512, "h": 8, "d_k": 64, "d_v": 100}


@dataclass(frozen=True)
class LayerSizes:
    """A layer's sizes, the text that passes through it, and the format of its numbers."""

    spec: AttentionSpec | LatentSpec
    tokens: int
    batch: int
    dtype: str

    @property
    def bytes(self) -> int:
        """The bytes of a number."""
        return BYTES[self.dtype]


def chosen() -> LayerSizes:
    """The layer of the controls. If its sizes do not fit together, the page says so and stops."""
    known = {model.name: _sizes_of(model) for model in published_sizes()}
    presets = {t("cost.two_tokens"): TWO_TOKENS} | known
    with st.container(horizontal=True, vertical_alignment="bottom", key="cost_sizes"):
        st.selectbox(
            t("cost.preset"),
            list(presets),
            index=None,
            key="cost_preset",
            placeholder=t("cost.preset_empty"),
            on_change=_take,
            args=(presets,),
            width=300,
        )
        values: dict[str, Any] = {name: _number(name) for name in FIRST}
        menu = st.popover(t("cost.more"), type="tertiary", key="cost_more").grid(2, min_column_width=120)
    for name in DEFAULTS:
        if name not in FIRST:
            # Out of sight if this layer has no use for it, and still in the link.
            unused = name in (UNSHARED if values.get("kv_rank") else LATENT)
            with menu.container(key=f"unseen_{name}" if unused else None):
                values[name] = _number(name)
    with menu.container():
        label, help_text = t("cost.dtype"), t("cost.dtype_help")
        dtype = st.selectbox(label, list(BYTES), key="cost_dtype", help=help_text, bind="query-params")
    try:
        return LayerSizes(_spec(values), values["tokens"], values["batch"], dtype)
    except MhaError as error:
        refusals.misfit(error, "cost_", error.fixes)
        st.stop()


def of_formulas(layer: LayerSizes) -> FormulaSizes:
    """The sizes below the symbols of the formulas; a latent layer's d_k has its position part."""
    spec = layer.spec
    rank, rotary = (spec.kv_rank, spec.rotary_width) if isinstance(spec, LatentSpec) else (None, 0)
    sizes = (layer.tokens, layer.tokens, spec.d_model, spec.n_heads, spec.d_k + rotary, spec.d_v)
    return FormulaSizes(*sizes, kv_rank=rank)


def _number(name: str) -> int | None:
    return st.number_input(
        t(f"cost.{name}"),
        0 if name == "rotary_width" else 1,
        LIMITS.get(name, MAX_D_MODEL),
        DEFAULTS[name],
        width=140 if name in FIRST else "stretch",
        key=f"cost_{name}",
        help=t(f"cost.{name}_help"),
        placeholder=FOLLOWS.get(name),
        bind="query-params",
    )


def _spec(values: Mapping[str, Any]) -> AttentionSpec | LatentSpec:
    is_latent = values["kv_rank"] is not None
    names = ("d_model", "d_k", "d_v", *(("kv_rank", *LATENT) if is_latent else UNSHARED))
    sizes = {name: values[name] for name in names if values[name] is not None}
    if is_latent:
        return LatentSpec(n_heads=values["h"], **sizes)
    return AttentionSpec(n_heads=values["h"], bias=False, **sizes)


def _sizes_of(model: PublishedSizes) -> dict[str, int | None]:
    """The sizes of a model as the controls have them; what follows from the others is left out."""
    spec = model.spec
    sizes: dict[str, int | None] = {"d_model": spec.d_model, "h": spec.n_heads}
    if spec.d_k * spec.n_heads != spec.d_model:
        sizes["d_k"] = spec.d_k
    if isinstance(spec, LatentSpec):
        return sizes | {name: getattr(spec, name) for name in ("kv_rank", *LATENT)}
    if spec.n_kv_heads < spec.n_heads:
        sizes["n_kv_heads"] = spec.n_kv_heads
    return sizes


def _take(presets: Mapping[str, Mapping[str, int | None]]) -> None:
    """Set the controls to the sizes of the chosen model; the text stays as long as it is."""
    if sizes := presets.get(st.session_state.cost_preset):
        for name in DEFAULTS:
            if name in sizes or name not in ("tokens", "batch"):
                st.session_state[f"cost_{name}"] = sizes.get(name)
