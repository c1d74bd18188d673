"""A small picture of each case, drawn from the numbers of its own scene."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import streamlit as st

from mha_core import AttentionSpec, AttentionTrace, LayerTrace
from mha_core.analysis.cost import by_heads, cost, shapes
from mha_core.analysis.embeddings import RELATIONS, agreement, table
from mha_core.analysis.head_count import PUBLISHED
from mha_core.attention.latent import LatentSpec
from mha_core.scene.places import indices
from mha_core.sources import mini
from pages._kit import heatmaps
from pages._kit.cases import Case
from pages._kit.text import language

WIDE, TALL = 280, 128  # of a picture, in units of its own
LETTER = 4.4  # units that a letter of a sentence takes
SMALLEST = 0.04  # weight of an arc that is drawn
STYLE = """
svg { color-scheme: light dark; font-family: sans-serif; }
text { font-size: 9px; fill: currentColor; text-anchor: middle; }
.axis { opacity: .7; }
.frame { fill: none; stroke: currentColor; stroke-opacity: .3; }
.learned { fill: currentColor; fill-opacity: .16; stroke: currentColor; stroke-opacity: .3; }
.hidden { fill: currentColor; fill-opacity: .18; }
"""
SHADES = 10  # of each scale of the theme


@st.cache_data(  # drawn once in each language, from what the shipped weights say
    show_spinner=False, max_entries=64, hash_funcs={Case: lambda case: (case.number, language())}
)
def picture(case: Case) -> str:
    """The picture as SVG, in the colours of the theme around it."""
    drawn = "".join(_PICTURES[case.name](case))
    of_svg = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {TALL}"'
    return f"<svg {of_svg}><style>{STYLE}{_theme()}</style>{drawn}</svg>"


def _theme() -> str:
    """The ink of the theme, and its scales: s0 to s9 for weights, d0 to d9 for signed numbers."""
    light, dark = (st.get_option(f"theme.{theme}.textColor") for theme in ("light", "dark"))
    ink = f"svg {{ color: light-dark({light}, {dark}); }}"
    names = {"s": "Sequential", "d": "Diverging"}
    shades = [(name, scale, at) for name, scale in names.items() for at in range(SHADES)]
    return ink + "".join(f".{name}{at} {{ fill: {_colour(scale, at)}; }}" for name, scale, at in shades)


# The parts of pictures


def _colour(scale: str, at: int) -> str:
    """A colour of the theme, light and dark."""
    light, dark = (st.get_option(f"theme.{theme}.chart{scale}Colors") for theme in ("light", "dark"))
    return f"light-dark({light[at % len(light)]}, {dark[at % len(dark)]})"


def _of_head(head: int) -> str:
    return _colour("Categorical", head)


def _text(x: float, y: float, words: str, more: str = "", *, raised: str = "") -> str:
    above = f'<tspan dy="-3" font-size="7">{raised}</tspan>' if raised else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}{above}</text>'


def _rect(x: float, y: float, wide: float, tall: float, more: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" {more}/>'


def _cells(
    values: np.ndarray,
    *,
    box: tuple[float, float, float, float],
    signed: bool = False,
    limit: float | None = None,
    hidden: np.ndarray | None = None,
) -> Iterable[str]:
    """A matrix in a box: x, y, width and height. Hidden cells have no colour of the scale."""
    x, y, wide, tall = box[0], box[1], box[2] / values.shape[1], box[3] / values.shape[0]
    scale = "d" if signed else "s"
    end = limit or np.abs(values[np.isfinite(values)]).max()
    for (row, column), value in np.ndenumerate(values):
        if hidden is not None and hidden[row, column]:
            paint = 'class="hidden"'
        else:
            share = (value / end + 1) / 2 if signed else value / end
            paint = f'class="{scale}{round(float(np.clip(share, 0, 1)) * (SHADES - 1))}"'
        yield _rect(x + column * wide, y + row * tall, wide + 0.2, tall + 0.2, paint)
    yield _rect(*box, 'class="frame"')


def _two(name: str, values: np.ndarray, other_name: str, other: np.ndarray) -> Iterable[str]:
    """Two matrices beside each other, on one scale."""
    limit = float(np.abs(values).max())
    for x, title, matrix in ((8, name, values), (152, other_name, other)):
        yield from _cells(matrix, box=(x, 24, 120, 84), signed=True, limit=limit)
        yield _text(x + 60, 16, title, 'style="font-weight: 700"')


def _named_cells(
    values: np.ndarray, words: Sequence[str], *, x: float, wide: float, **how: Any
) -> Iterable[str]:
    """A matrix of words and words with their names."""
    tall = TALL - 24
    yield from _cells(values, box=(x, 18, wide, tall), **how)
    for at, word in enumerate(words):
        yield _text(x - 4, 21 + (at + 0.5) * tall / len(words), word, 'style="text-anchor: end"')
        yield _text(x + (at + 0.5) * wide / len(words), 14, word)


def _sentence(layer: LayerTrace, *, heads: Sequence[int], token: int, y: float, tall: float) -> Iterable[str]:
    """A sentence with an arc from its token to each word that the heads look at."""
    words = layer.sides.keys.pieces
    letters = [max(len(word), 1) * (1.9 if any(ord(c) > 0x2E80 for c in word) else 1) + 1 for word in words]
    unit = min(LETTER, (WIDE - 8) / sum(letters))
    ends = np.cumsum(letters) * unit + (WIDE - sum(letters) * unit) / 2
    middles = ends - np.array(letters) * unit / 2
    for nth, head in enumerate(heads):
        for key, weight in enumerate(layer.weights(head, rows=[token])[0]):
            if weight < SMALLEST:
                continue
            start, end = middles[token], middles[key]
            # Arcs to one word stand above each other, so that each of them is seen.
            rise = min(tall, 14 + abs(end - start) * 0.62) - 3 * (nth % 4)
            low, high = y - 9, y - 9 - rise
            path = f"M{start:.1f} {low:.1f} C{start:.1f} {high:.1f} {end:.1f} {high:.1f} {end:.1f} {low:.1f}"
            if key == token:
                path = f"M{start:.1f} {low:.1f} c-7 -12 7 -12 0 0"
            strength = f"stroke-width: {0.6 + 2.4 * weight:.1f}; stroke-opacity: {0.25 + 0.7 * weight:.2f}"
            ink = f"stroke: {_of_head(head)}; {strength}"
            yield f'<path d="{path}" style="fill: none; {ink}"/>'
    for at, word in enumerate(words):
        bold = 'style="font-weight: 700"' if at == token else 'class="axis"'
        size = f'textLength="{(letters[at] - 1) * unit:.1f}" lengthAdjust="spacingAndGlyphs"'
        yield _text(middles[at], y, word, f"{bold} {size}")


def _bars(values: Sequence[float], names: Sequence[str]) -> Iterable[str]:
    step, base, most = WIDE / len(values), TALL - 18, max(values)
    for at, (value, name) in enumerate(zip(values, names, strict=True)):
        tall = (base - 10) * value / most
        yield _rect((at + 0.2) * step, base - tall, 0.6 * step, tall, 'class="s6"')
        yield _text((at + 0.5) * step, TALL - 6, name)


def _tensors(spec: AttentionSpec, tokens: int, *symbols: str) -> Iterable[str]:
    """Some tensors of a layer beside each other, to one scale; the learned ones are shaded."""
    every = [one for one in shapes(spec, tokens) if one.symbol in symbols]
    chosen = [(one, one.sizes[1] if len(one.sizes) == 4 else 1) for one in every]  # with its heads
    sides = [(one.sizes[-2], one.sizes[-1] * heads) for one, heads in chosen]
    gap, names = 16, 22
    unit = min(
        (WIDE - gap * (len(chosen) + 1)) / sum(wide for _, wide in sides),
        (TALL - names - 8) / max(tall for tall, _ in sides),
    )
    x = (WIDE - sum(wide for _, wide in sides) * unit - gap * (len(chosen) - 1)) / 2
    for (one, heads), (tall, wide) in zip(chosen, sides, strict=True):
        high = max(tall * unit, 6)
        for head in range(heads):
            kind = 'class="learned"' if one.learned else 'class="frame"'
            if heads > 1:
                kind = f'style="fill: {_of_head(head)}"'
            yield _rect(x + head * wide * unit / heads, TALL - names - high, wide * unit / heads, high, kind)
        name, _, power = heatmaps.symbol(one.symbol).partition("^")
        size = " × ".join(map(str, one.sizes[-2:] if heads == 1 else one.sizes[1:]))
        yield _text(x + wide * unit / 2, TALL - 12, name, 'style="font-weight: 700"', raised=power)
        yield _text(x + wide * unit / 2, TALL - 2, size, 'class="axis"')
        x += wide * unit + gap


# The pictures


def _cost_spec(case: Case) -> tuple[AttentionSpec, int]:
    """The layer of a case on the page Cost, and the number of its tokens."""
    field = {name.removeprefix("cost_"): int(value) for name, value in case.scene.page.fields}
    spec = AttentionSpec(512, 8, d_k=field.get("d_k"), d_v=field.get("d_v"), bias=False)
    return spec, field.get("tokens", 10)


def _looks(case: Case) -> Iterable[str]:
    """The attention of the drawn heads from the token of the scene, in both sentences."""
    scene = case.scene
    heads = [int(head) - 1 for head in scene.focus.heads.split(",") if head]
    texts = [text for text in (scene.text, scene.twin) if text]
    for nth, text in enumerate(texts):
        layer, head, token = _looking(case, replace(scene, text=text).trace())
        tall = TALL / len(texts)
        y = tall * (nth + 1) - 6
        yield from _sentence(layer, heads=heads or [head], token=token, y=y, tall=tall - 20)


def _looking(case: Case, trace: AttentionTrace) -> tuple[LayerTrace, int, int]:
    """The layer, head and token at which a case looks in a trace, from 0."""
    layer, head, token = indices(trace, case.scene.focus)
    return trace.layers[layer], head, token


def _mixture(case: Case) -> Iterable[str]:
    layer, head, token = _looking(case, case.scene.trace())
    return _bars(layer.weights(head, rows=[token])[0], layer.sides.keys.labels)


def _symbols(case: Case) -> Iterable[str]:
    layer, head, _ = _looking(case, case.scene.trace())
    return _named_cells(layer.scores(head), layer.sides.keys.labels, x=66, wide=168, signed=True)


def _one_head(case: Case) -> Iterable[str]:
    layer, head, _ = _looking(case, case.scene.trace())
    yield from _two("head₁", layer.output(head), "Z", layer.result())
    yield _text(140, 70, "=", 'style="font-size: 14px"')


def _equal_cost(case: Case) -> Iterable[str]:
    spec, tokens = _cost_spec(case)
    costs = by_heads(spec.d_model, tokens)
    return _bars(list(costs["parameters"]), [f"h = {h}" for h in costs.index])


def _published(_case: Case) -> Iterable[str]:
    bleu = PUBLISHED["bleu"]
    across = np.linspace(24, WIDE - 24, len(bleu))
    up = np.interp(bleu, (bleu.min(), bleu.max()), (TALL - 34, 22))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True))
    yield f'<polyline points="{line}" style="fill: none; stroke: {_of_head(0)}; stroke-width: 2"/>'
    for x, y, h, value in zip(across, up, bleu.index, bleu, strict=True):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" style="fill: {_of_head(0)}"/>'
        yield _text(x, y - 7, f"{value:.1f}", 'class="axis"')
        yield _text(x, TALL - 6, f"h = {h}")


def _every_pair(case: Case) -> Iterable[str]:
    layer, head, _ = _looking(case, case.scene.trace())
    return _named_cells(layer.weights(head), layer.sides.keys.labels, x=86, wide=128, limit=1.0)


def _search(case: Case) -> Iterable[str]:
    layer, head, token = _looking(case, case.scene.trace())
    for nth, name in enumerate(("q", "k", "v")):
        values = getattr(layer, name)[head, token][None]
        yield from _cells(values, box=(30, 14 + 38 * nth, WIDE - 44, 24), signed=True)
        yield _text(16, 30 + 38 * nth, name.upper(), 'style="font-weight: 700"')


def _stacking(case: Case) -> Iterable[str]:
    below, above = case.scene.trace().layers
    yield from _two("Z¹", below.result(), "X²", above.tensor("x"))
    yield _text(140, 70, "→", 'style="font-size: 12px"')


def _learned(case: Case) -> Iterable[str]:
    settings = case.scene.settings()
    for nth, trace in enumerate((mini.trace(**settings, trained=False), mini.trace(**settings))):
        layer, head, token = _looking(case, trace)
        y = TALL / 2 * (nth + 1) - 6
        yield from _sentence(layer, heads=[head], token=token, y=y, tall=TALL / 2 - 20)


def _masks(case: Case) -> Iterable[str]:
    """The weights with the mask of the scene alone, and with its changes."""
    for x, edits in ((34, ""), (176, case.scene.edits)):
        layer, head, _ = _looking(case, replace(case.scene, edits=edits).trace())
        how = {"limit": 1.0, "hidden": ~layer.allowed(head)}
        yield from _named_cells(layer.weights(head), layer.sides.keys.labels, x=x, wide=98, **how)


def _latent(case: Case) -> Iterable[str]:
    rank = int(dict(case.scene.page.fields)["cost_kv_rank"])
    specs: dict[str, AttentionSpec | LatentSpec] = {
        "MHA": AttentionSpec(512, 8, bias=False),
        "GQA": AttentionSpec(512, 8, n_kv_heads=2, bias=False),
        "MQA": AttentionSpec(512, 8, n_kv_heads=1, bias=False),
        "MLA": LatentSpec(512, 8, rank),
    }
    return _bars([cost(spec, 1).cache for spec in specs.values()], list(specs))


def _words(case: Case) -> Iterable[str]:
    """How much the differences of every two pairs point in the same direction."""
    scene = case.scene
    code = mini.language(scene.text)
    names, matrix = mini.vectors(mini.model(mini.find(code, scene.architecture, scene.h, scene.d_model)))
    pairs = [pair for relation in RELATIONS[code].values() for pair in relation]
    cosines, side = agreement(table(names, matrix.numpy()), pairs), TALL - 12
    yield from _cells(cosines.to_numpy(), box=(104, 6, side, side), signed=True, limit=1.0)
    for row, (first, second) in enumerate(pairs):
        at = 9 + (row + 0.5) * side / len(cosines)
        yield _text(98, at, f"{first} → {second}", 'style="text-anchor: end"')


_PICTURES: dict[str, Callable[[Case], Iterable[str]]] = {
    "base": lambda case: _tensors(*_cost_spec(case), "X", "W^Q", "Q"),
    "widths": lambda case: _tensors(*_cost_spec(case), "concat", "W^O", "Z"),
    "pronoun": _looks,
    "mixture": _mixture,
    "symbols": _symbols,
    "one_head": _one_head,
    "equal_cost": _equal_cost,
    "published": _published,
    "every_pair": _every_pair,
    "search": _search,
    "relations": _looks,
    "stacking": _stacking,
    "learned": _learned,
    "masks": _masks,
    "latent": _latent,
    "words": _words,
    "chinese": _looks,
}
