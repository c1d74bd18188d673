"""A trace or a layer in a notebook: its name, its shapes, and its weights as small pictures."""

import html
from itertools import pairwise

import numpy as np

from mha_core.errors import count_of
from mha_core.traces.layer import LayerTrace
from mha_core.traces.trace import AttentionTrace

MAX_HEADS, SIDE, CELL = 8, 24, 4  # pictures of a layer; cells on a side, and pixels of a cell
MAX_LAYERS, MAX_TEXT = 4, 200
NEGATIVE = ' fill="#d6761e"'


def trace_html(trace: AttentionTrace) -> str:
    """HTML: the text, the source of the numbers, and the weights of the first layers."""
    text = trace.title
    text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
    count = len(trace.layers)
    rows = "".join(
        f"<div>{html.escape(_title(layer, number))}{_pictures(layer)}</div>"
        for number, layer in enumerate(trace.layers[:MAX_LAYERS])
    )
    more = f"<div>… and {count_of(count - MAX_LAYERS, 'more layer')}</div>" if count > MAX_LAYERS else ""
    return _framed(
        f"<b>AttentionTrace</b> of {count_of(len(trace.tokens), 'token')}, {count_of(count, 'layer')}"
        f"{f', {len(trace.mixers)} without softmax' if trace.mixers else ''}"
        f"<div><bdi>“{html.escape(text)}”</bdi></div>"
        f"<div>source: {html.escape(repr(trace.source))}</div>{rows}{more}"
    )


def layer_html(layer: LayerTrace) -> str:
    """HTML: the shapes of the recorded tensors, and the weights of the first heads."""
    shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in layer.tensors.items())
    name = f" “{html.escape(layer.name)}”" if layer.name else ""
    return _framed(
        f"<b>LayerTrace</b>{name}, {html.escape(layer.kind)}, {count_of(layer.n_heads, 'head')}"
        f"<div>{html.escape(shapes)}</div>{_pictures(layer)}"
    )


def _title(layer: LayerTrace, number: int) -> str:
    name = f" {layer.name}" if layer.name else ""
    heads = count_of(layer.n_heads, "head")
    return f"layers[{number}]{name}: {layer.kind}, {heads}, {layer.n_query} × {layer.n_key}"


def _framed(inside: str) -> str:
    # Text has the colours of the notebook, light or dark; pictures have a background of their own.
    return f'<div style="font-size:0.9em;line-height:1.5">{inside}</div>'


def _pictures(layer: LayerTrace) -> str:
    heads = range(min(layer.n_heads, MAX_HEADS))
    more = layer.n_heads - len(heads)
    pictures = "".join(_picture(layer, head) for head in heads)
    return (
        f'<div style="display:flex;flex-wrap:wrap;gap:6px;align-items:center;margin:2px 0 8px">{pictures}'
        f"{f'<span>+ {more}</span>' if more > 0 else ''}</div>"
    )


def _picture(layer: LayerTrace, head: int) -> str:
    """A head's weights, darker for larger ones, by square root; for a long text the largest of each cell."""
    rows, keys = (
        np.linspace(0, size, min(size, SIDE) + 1).astype(int) for size in (layer.n_query, layer.n_key)
    )
    cells = np.array(
        [
            np.maximum.reduceat(layer.weights(head, rows=slice(start, stop)).max(0), keys[:-1])
            for start, stop in pairwise(rows)
        ]
    )
    return picture(np.sqrt(np.minimum(cells, 1)), f"head {head}: largest weight {cells.max():.2f}")


def picture(shades: np.ndarray, title: str) -> str:
    """A small picture of a matrix with numbers from −1 to 1, darker for larger ones; orange below 0."""
    height, width = shades.shape
    squares = "".join(
        f'<path d="M{column} {row}h1v1h-1z" fill-opacity="{abs(shades[row, column]):.2f}"'
        f"{NEGATIVE if shades[row, column] < 0 else ''}/>"
        for row, column in zip(*np.nonzero(np.abs(shades) > 0.01), strict=True)
    )
    return (
        f'<svg role="img" viewBox="0 0 {width} {height}" width="{CELL * width}" height="{CELL * height}" '
        f'fill="#205195" shape-rendering="crispEdges" style="background:#f1eee6">'
        f"<title>{html.escape(title)}</title>{squares}</svg>"
    )
