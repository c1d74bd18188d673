"""The formulas of a layer in one line, each symbol a link to its step on the page Steps."""

import re
from collections.abc import Collection
from typing import NamedTuple

from mha_core import LayerTrace
from mha_core.analysis import derivation
from pages._kit import components
from pages._kit.text import t

STEPS = tuple(step.__name__ for step in derivation.STEPS)
HEIGHT = 36  # pixels until it is drawn
SYMBOL = re.compile(r"(?P<base>[^^_]+)(?:\^(?P<up>[^_]+))?(?:_(?P<down>.+))?")

_formulas = components.component(
    "formulas", "pictures/formula.js", html='<div class="formulas"></div>', styles=("pictures/formula.css",)
)


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
    formulas = [
        [_part(symbols, step if step in steps else "", shape) for symbols, step, shape in formula]
        for formula in _written(sizes)[: 1 if alone else None]
    ]
    _formulas(key=key, data={"formulas": formulas, "here": here, "lit": list(lit)}, height=HEIGHT)


def _written(sizes: FormulaSizes) -> list[list[tuple[str, str, tuple]]]:
    """The parts of each formula: symbols separated by |, as in ``X|W^Q_i``, their step, their shape.

    Sources: Vaswani et al. 2017, section 3.2; DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    """
    rows, keys, d_model, h, d_k, d_v, rank = sizes
    score, output = (rows, keys), (rows, d_v)
    source, memory = ("c^KV", (keys, rank)) if rank else ("X", (keys, d_model))
    up = "U" if rank else ""
    attention = [
        ("Attention(", "", ()),
        ("Q", "split", (rows, d_k)),
        (", ", "", ()),
        ("K", "split", (keys, d_k)),
        (", ", "", ()),
        ("V", "split", (keys, d_v)),
        (") = ", "", ()),
        ("softmax", "softmax", score),
        (" ( ", "", ()),
        ("Q|K^⊤", "scores", score),
        (" ", "", ()),
        ("/ √|d_k", "scale", score),
        (" ", "", ()),
        ("+ |M", "mask", score),
        (" ) ", "", ()),
        ("V", "mix", output),
    ]
    heads = [
        ("MultiHead(", "", ()),
        ("X", "tokens", (rows, d_model)),
        (") = ", "", ()),
        (_heads(h), "concat", (rows, h * d_v)),
        (" ", "", ()),
        ("W^O", "output", (h * d_v, d_model)),
    ]
    head = [
        ("head_i", "mix", output),
        (" = Attention( ", "", ()),
        ("X|W^Q_i", "project", (rows, d_k)),
        (", ", "", ()),
        (f"{source}|W^{up}K_i", "project", (keys, d_k)),
        (", ", "", ()),
        (f"{source}|W^{up}V_i", "project", (keys, d_v)),
        (" )", "", ()),
    ]
    width = rank or d_model
    matrices = {
        "W^Q_i": (d_model, d_k),
        f"W^{up}K_i": (width, d_k),
        f"W^{up}V_i": (width, d_v),
        "W^O": (h * d_v, d_model),
    }
    shapes = [
        (f"{', |' if at else ''}{name}| ∈ |ℝ^{size[0]}×{size[1]}", "", ())
        for at, (name, size) in enumerate(matrices.items())
    ]
    latent = [
        (source, "project", memory),
        (" = RMSNorm( ", "", ()),
        ("X|W^DKV", "project", memory),
        (" )", "", ()),
    ]
    return [attention, heads, head, *([latent] if rank else []), shapes]


def _heads(h: int) -> str:
    return "Concat(|head_1|)" if h == 1 else f"Concat(|head_1|{', ' if h == 2 else ', …, '}|head_{h}|)"


def _part(symbols: str, step: str, shape: tuple) -> dict[str, object]:
    size = " × ".join(map(str, shape))
    title = t("formula.title", step=t(f"steps.{step}.title"), size=size) if step else ""
    matches = (SYMBOL.fullmatch(symbol) for symbol in symbols.split("|"))
    return {
        "symbols": [[match["base"], match["up"] or "", match["down"] or ""] for match in matches if match],
        "step": step,
        "title": title,
    }
