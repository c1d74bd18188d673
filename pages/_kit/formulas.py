"""A layer written down: as formulas, each symbol a link to its step on the page Steps, and in PyTorch."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import streamlit as st

from mha_core import AttentionSpec, AttentionTrace, LayerTrace, MhaError
from mha_core.analysis import derivation, pytorch
from mha_core.analysis.frames import MAX_ALL_PAIRS
from mha_core.analysis.published import kind
from mha_core.analysis.torch_module import COMMENTS, module, spec_of
from mha_core.analysis.torch_module import state as state_of
from mha_core.attention.latent import LatentAttention, LatentSpec
from mha_core.traces.source import TrainedSource
from mha_core.traces.storage import as_bytes
from pages._kit import components, compute, state, views
from pages._kit.text import t

STEPS = tuple(step.__name__ for step in derivation.STEPS)
HEIGHT, ALL, ALL_ON_PHONE = 36, 70, 110  # pixels until it is drawn: of attention alone, and of all formulas
PART = re.compile(r"([^{}]+)|\{([^@]+)@(\w*)\}")
SYMBOL = re.compile(r"(?P<base>[^^_]+)(?:\^(?P<up>[^_]+))?(?:_(?P<down>.+))?")

LOADED = """\
from safetensors.torch import load_file

weights = load_file("{file}")
X, Z, mask = (weights.pop(name)[None] for name in ("X", "Z", "mask"))
layer = MultiHeadAttention()
layer.load_state_dict(weights)
print((layer(X, mask) - Z).abs().max().item())
"""

_formulas = components.component("formulas", "pictures/formula.js", "pictures/formula.css")


class FormulaSizes(NamedTuple):
    """The sizes below the symbols; `kv_rank` is the length of the latent vector that K and V come from."""

    n_query: int
    n_key: int
    d_model: int | str
    h: int
    d_k: int
    d_v: int
    kv_rank: int | None = None


def of_layer(layer: LayerTrace) -> FormulaSizes:
    """The sizes of a layer of a trace."""
    d_model = layer.d_model or "d"
    rank = None if layer.about.latent is None else layer.about.latent.kv_rank
    return FormulaSizes(layer.n_query, layer.n_key, d_model, layer.n_heads, layer.d_k, layer.d_v, rank)


def draw(
    sizes: FormulaSizes,
    *,
    key: str,
    steps: Collection[str],
    lit: Collection[str] = (),
    here: bool = False,
    alone: bool = False,
) -> None:
    """Draw the formulas: attention, which may stand `alone`, all heads, one head, the shapes of its matrices.

    A symbol links to its step if it is one of `steps`. On the page Steps, which is `here`, the symbols of the
    step in focus are lit, elsewhere those of the steps that are `lit`.
    """
    written, shapes = _written(sizes)
    formulas = [_parts(formula, shapes, steps) for formula in written[: 1 if alone else None]]
    height = HEIGHT if alone else ALL_ON_PHONE if state.on_phone() else ALL
    _formulas(key=key, data={"formulas": formulas, "here": here, "lit": list(lit)}, height=height)


def _written(sizes: FormulaSizes) -> tuple[list[str], dict[str, tuple]]:
    """The formulas, and the shape of what is between braces, by its symbols or by its step.

    Braces have symbols, separated by |, and the step that they lead to: ``{X|W^Q_i@project}``.
    Sources: Vaswani et al. 2017, section 3.2; DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    """
    rows, keys, d_model, h, d_k, d_v, rank = sizes
    source, up, width = ("c^KV", "U", rank) if rank else ("X", "", d_model)
    k, v = f"{source}|W^{up}K_i", f"{source}|W^{up}V_i"
    heads = {1: "head_1", 2: "head_1|, |head_2"}.get(h, f"head_1|, …, |head_{h}")
    matrices: dict[str, tuple] = {
        "W^Q_i": (d_model, d_k),
        f"W^{up}K_i": (width, d_k),
        f"W^{up}V_i": (width, d_v),
    }
    matrices["W^O"] = (h * d_v, d_model)
    shapes: dict[str, tuple] = dict.fromkeys(("softmax", "scores", "scale", "mask"), (rows, keys))
    shapes |= dict.fromkeys(("Q", "X|W^Q_i"), (rows, d_k)) | dict.fromkeys(("K", k), (keys, d_k))
    shapes |= {"V": (keys, d_v), v: (keys, d_v), "mix": (rows, d_v), "X": (rows, d_model)}
    shapes |= {"concat": (rows, h * d_v), "output": matrices["W^O"], "project": (keys, rank)}
    written = [
        "Attention({Q@split}, {K@split}, {V@split}) = "
        "{softmax@softmax} ( {Q|K^⊤@scores} {/ √|d_k@scale} {+ |M@mask} ) {V@mix}",
        f"MultiHead({{X@tokens}}) = {{Concat(|{heads}|)@concat}} {{W^O@output}}",
        f"{{head_i@mix}} = Attention( {{X|W^Q_i@project}}, {{{k}@project}}, {{{v}@project}} )",
        *(["{c^KV@project} = RMSNorm( {X|W^DKV@project} )"] if rank else []),
        ", ".join(f"{{{name}| ∈ |ℝ^{m}×{n}@}}" for name, (m, n) in matrices.items()),
    ]
    return written, shapes


def _parts(formula: str, shapes: Mapping[str, tuple], steps: Collection[str]) -> list[dict[str, object]]:
    parts = []
    for text, symbols, step in PART.findall(formula):
        matches = (SYMBOL.fullmatch(symbol) for symbol in (symbols or text).split("|"))
        shape = shapes.get(symbols if step in ("split", "project", "tokens") else step, shapes.get(step, ()))
        size = " × ".join(map(str, shape))
        known = step in steps
        parts.append(
            {
                "symbols": [[one["base"], one["up"] or "", one["down"] or ""] for one in matches if one],
                "step": step if known else "",
                "title": t("formula.title", step=t(f"steps.{step}.title"), size=size) if known else "",
            }
        )
    return parts


def written(spec: AttentionSpec | LatentSpec, biases: str = "") -> str:
    """The PyTorch module for these sizes, with comments in the reader's language."""
    rank = spec.kv_rank if isinstance(spec, LatentSpec) else 0
    shared = 0 if isinstance(spec, LatentSpec) else spec.n_kv_heads
    about = t(f"code.{kind(spec)}", h=spec.n_heads, n_kv=shared, rank=rank)
    return module(spec, about, {name: t(f"code.{name}") for name in COMMENTS}, biases)


def code_of_layer(trace: AttentionTrace, layer: int, steps: Sequence[derivation.Step]) -> None:
    """The fold with the module of a layer and its weights as a file; of a layer that does more, its steps."""
    found = _found(trace, layer)
    title = t("code.title") if found else t("code.steps_title")
    if not (opened := views.fold(title, key="module")):
        return
    if found is None:
        codes = [step.code for step in steps if step.name in pytorch.STEPS]
        with opened:
            st.caption(t("code.steps"))
            components.code(pytorch.of_layer(codes, trace.layers[layer], layer))
        return
    spec, biases, latent = found
    file = f"headscope-layer-{layer + 1}.safetensors"
    with opened:
        components.code(written(spec, biases))
        if trace.sides.length <= MAX_ALL_PAIRS:  # the file has the mask
            st.download_button(
                t("code.weights"),
                lambda: _file(trace, layer, latent),
                file_name=file,
                mime="application/octet-stream",
                on_click="ignore",
            )
            components.code(LOADED.format(file=file))


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
    return as_bytes(state_of(of, latent) | results)
