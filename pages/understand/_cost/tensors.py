"""Every tensor of a layer, to scale, in the formula that makes it: rows are tokens, columns are numbers."""

from collections.abc import Iterator, Sequence
from functools import partial

import streamlit as st

from mha_core.analysis.cost import TensorShape, shapes
from mha_core.attention.latent import LatentSpec
from pages._kit import heatmaps
from pages._kit.text import t
from pages.understand._cost.sizes import LayerSizes

LONGEST, SHORTEST = 112, 6  # pixels of the longest side of all, and of the shortest that is drawn
NARROWEST = 3  # pixels of a head of which the edges are drawn
ARROW = "→"
# The sides of a rectangle are `--unit` times its sizes: three of the longest in a line on a phone, and
# on a wide screen three lines of three. Names stand on one level.
STYLE = """
.tensors {{ container-type: inline-size; }}
.tensors > div {{ display: flex; flex-wrap: wrap; gap: .9rem 2.4rem;
  --unit: calc(min(26cqw, {longest}px) / var(--longest)); }}
@container (min-width: 55rem) {{
  .tensors > div {{ --unit: calc(min((100cqw - 20rem) / 9, {longest}px) / var(--longest)); }}
}}
.tensors .line {{ display: flex; flex-wrap: wrap; gap: .6rem .5rem; }}
.tensors .part {{ display: flex; gap: .5rem; }}
.tensors .part > * {{ display: flex; flex-direction: column; margin: 0; }}
.tensors .part > * > div {{ flex: 1; display: flex; align-items: center; white-space: nowrap; }}
.tensors .box {{ display: flex; box-sizing: border-box; border: 1px solid currentColor;
  background: color-mix(in srgb, currentColor 10%, transparent);
  min-width: {shortest}px; min-height: {shortest}px; }}
.tensors .box > i {{ flex: 1; border-inline-start: 1px solid currentColor; }}
.tensors .box > i:first-child {{ border: 0; }}
.tensors .learned .box {{ color: {learned}; background: color-mix(in srgb, currentColor 40%, transparent); }}
.tensors figcaption, .tensors .sign::after {{ content: ""; height: 2.7rem; }}
.tensors figcaption {{ font-size: .875rem; line-height: 1.2rem; padding-top: .2rem; white-space: nowrap; }}
.tensors sup {{ line-height: 0; }}
.tensors figcaption span {{ display: block; opacity: .75; font-variant-numeric: tabular-nums; }}
"""


def draw(layer: LayerSizes) -> None:
    """The formula, a line for each product, with symbol and shape of each tensor."""
    tensors = shapes(layer.spec, layer.tokens, batch=layer.batch)
    longest = max(max(_sides(tensor)[:2]) for tensor in tensors)
    lines = "".join(f'<div class="line">{"".join(parts)}</div>' for parts in _lines(layer, tensors, longest))
    light, dark = (st.get_option(f"theme.{theme}.primaryColor") for theme in ("light", "dark"))
    style = STYLE.format(longest=LONGEST, shortest=SHORTEST, learned=f"light-dark({light}, {dark})")
    figure = f'<div class="tensors"><div style="--longest: {longest}">{lines}</div></div>'
    with st.container(key="tensors"):
        st.html(f"<style>{style}</style>{figure}")
    st.caption(t("cost.scale", shortest=SHORTEST))


def _lines(layer: LayerSizes, tensors: Sequence[TensorShape], longest: int) -> Iterator[list[str]]:
    """The parts of each line: X · W → its product, for each learned matrix; A · V before the last."""
    spec = layer.spec
    rotated = spec.rotary_width if isinstance(spec, LatentSpec) else 0
    named = {tensor.symbol: tensor for tensor in tensors}
    part = partial(_part, longest=longest)
    for at, matrix in enumerate(tensors):
        if not matrix.learned:
            continue
        made = tensors[at + 1]
        if made.symbol == "Z":
            width = spec.d_k + rotated
            yield [
                part(named["S"], f"{_written('Q')} · {_written('K')}<sup>T</sup> {ARROW}"),
                part(named["A"], f"÷ √{width}, softmax {ARROW}"),
                part(named["head_i"], f"· {_written('V')} {ARROW}"),
            ]
        multiplied = next(one for one in reversed(tensors[:at]) if one.axes[-1] == matrix.axes[0])
        beside = f", {_written('k^R')} {ARROW}" if made.symbol == "K" and "k^R" in named else ARROW
        yield [part(multiplied), part(matrix, "·"), part(made, beside)]


def _sides(tensor: TensorShape) -> tuple[int, int, int]:
    """Rows and columns of the rectangle, and its heads, side by side; texts of a batch are not repeated."""
    *_, rows, columns = tensor.sizes
    heads = tensor.sizes[1] if len(tensor.sizes) == 4 else 1
    return rows, heads * columns, heads


def _part(tensor: TensorShape, sign: str = "", *, longest: int) -> str:
    """A rectangle with its name and size below it, and the sign before it."""
    rows, columns, heads = _sides(tensor)
    if heads * NARROWEST > LONGEST * columns / longest:
        heads = 1
    sizes = tensor.sizes if tensor.learned or tensor.sizes[0] > 1 else tensor.sizes[1:]  # one text is no axis
    size = " × ".join(map("{:,}".format, sizes))
    style = f"width: calc(var(--unit) * {columns}); height: calc(var(--unit) * {rows})"
    kind = ' class="learned"' if tensor.learned else ""
    before = f'<div class="sign"><div><span>{sign}</span></div></div>' if sign else ""
    return (
        f'<div class="part">{before}'
        f'<figure{kind}><div><div class="box" style="{style}">{"<i></i>" * heads}</div></div>'
        f"<figcaption>{_written(tensor.symbol)}<span>{size}</span></figcaption></figure></div>"
    )


def _written(symbol: str) -> str:
    name, _, power = heatmaps.symbol(symbol).partition("^")
    return f"<b>{name}<sup>{power}</sup></b>" if power else f"<b>{name}</b>"
