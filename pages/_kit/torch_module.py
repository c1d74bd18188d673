"""The fold with a layer in PyTorch: as one module, with its weights on request, or as all its steps."""

from collections.abc import Sequence

import streamlit as st

from mha_core import AttentionSpec, AttentionTrace, MhaError
from mha_core.analysis import pytorch
from mha_core.analysis.derivation import Step
from mha_core.analysis.frames import MAX_ALL_PAIRS
from mha_core.analysis.published import kind
from mha_core.analysis.torch_module import COMMENTS, module, spec_of, state
from mha_core.attention.latent import LatentAttention, LatentSpec
from mha_core.traces.source import TrainedSource
from mha_core.traces.storage import as_bytes
from pages._kit import compute, views
from pages._kit.text import t

LOADED = """\
from safetensors.torch import load_file

weights = load_file("{file}")
X, Z, mask = (weights.pop(name)[None] for name in ("X", "Z", "mask"))
layer = MultiHeadAttention()
layer.load_state_dict(weights)
print((layer(X, mask) - Z).abs().max().item())
"""


def fold(spec: AttentionSpec | LatentSpec, biases: str = "") -> None:
    """The module for these sizes."""
    if opened := views.fold(t("code.title"), key="module"):
        opened.code(written(spec, biases), language=None)


def written(spec: AttentionSpec | LatentSpec, biases: str = "") -> str:
    """The code, with comments in the reader's language."""
    rank = spec.kv_rank if isinstance(spec, LatentSpec) else 0
    shared = 0 if isinstance(spec, LatentSpec) else spec.n_kv_heads
    about = t(f"code.{kind(spec)}", h=spec.n_heads, n_kv=shared, rank=rank)
    return module(spec, about, {name: t(f"code.{name}") for name in COMMENTS}, biases)


def of_layer(trace: AttentionTrace, layer: int, steps: Sequence[Step]) -> None:
    """The module of a layer, with its weights, X and Z as a file; of a layer that does more, its steps."""
    found = _found(trace, layer)
    title = t("code.title") if found else t("code.steps_title")
    if not (opened := views.fold(title, key="module")):
        return
    if found is None:
        opened.caption(t("code.steps"))
        codes = [step.code for step in steps if step.name in pytorch.STEPS]
        opened.code(pytorch.of_layer(codes, trace.layers[layer], layer), language=None)
        return
    spec, biases, latent = found
    file = f"headscope-layer-{layer + 1}.safetensors"
    with opened:
        st.code(written(spec, biases), language=None)
        if trace.sides.length <= MAX_ALL_PAIRS:  # the file has the mask
            st.download_button(
                t("code.weights"),
                lambda: _file(trace, layer, latent),
                file_name=file,
                mime="application/octet-stream",
                on_click="ignore",
            )
            st.code(LOADED.format(file=file), language=None)


def _found(
    trace: AttentionTrace, layer: int
) -> tuple[AttentionSpec | LatentSpec, str, LatentAttention | None] | None:
    """The sizes of a layer, its biases, and for latent attention our own module."""
    source = trace.source
    if isinstance(source, TrainedSource):
        try:
            attention = compute.small_model(source).model.layers[layer].attention
        except MhaError:  # a model that is gone since the trace was computed
            return None
        if isinstance(attention, LatentAttention):
            return attention.spec, "", attention
    plain = compute.once(trace.layers[layer], spec_of)
    return None if plain is None else (*plain, None)


def _file(trace: AttentionTrace, layer: int, latent: LatentAttention | None) -> bytes:
    of = trace.layers[layer]
    x = of.tensors["x"].float()
    results = {"X": x, "Z": x.new_tensor(of.result()), "mask": x.new_tensor(of.allowed()).bool()}
    return as_bytes(state(of, latent) | results)
