"""Every tensor of a layer as a rectangle, all of them to one scale: rows are tokens, columns are numbers."""

import streamlit as st

from mha_core.analysis.cost import TensorShape, shapes
from pages._kit.text import t
from pages.understand._cost.sizes import Layer

WIDEST = 180  # pixels of the longest side of all
# Of one figure for each tensor the sides are `--unit` times its sizes. Learned matrices are shaded.
STYLE = """
.tensors { container-type: inline-size; }
.tensors > div { display: flex; flex-wrap: wrap; gap: 1.1rem 1.6rem; align-items: flex-end; }
.tensors figure { margin: 0; }
.tensors figcaption { font-size: .875rem; margin-top: .3rem; white-space: nowrap; }
.tensors figcaption span { opacity: .75; font-variant-numeric: tabular-nums; margin-inline-start: .35rem; }
.tensors figure > div { display: flex; box-sizing: content-box; border: 1px solid currentColor; }
.tensors figure > div > i { flex: 1; border-inline-start: 1px solid currentColor; }
.tensors figure > div > i:first-child { border: 0; }
.tensors .learned > div { background: color-mix(in srgb, currentColor 22%, transparent); }
"""


def draw(layer: Layer) -> None:
    """The tensors in the order in which they come about, with symbol and shape."""
    tensors = shapes(layer.spec, layer.tokens, batch=layer.batch)
    longest = max(max(_sides(tensor)) for tensor in tensors)
    figures = "".join(map(_figure, tensors))
    # Two of the largest stand beside each other on a phone.
    unit = f"--unit: calc(min(50cqw - 1rem, {WIDEST}px) / {longest})"
    with st.container(key="tensors"):
        st.html(f'<style>{STYLE}</style><div class="tensors"><div style="{unit}">{figures}</div></div>')
    st.caption(t("cost.scale"))


def _sides(tensor: TensorShape) -> tuple[int, int]:
    """Rows and columns of the rectangle: heads stand side by side, texts of a batch are not repeated."""
    if len(tensor.sizes) == 4:
        _, heads, rows, columns = tensor.sizes
        return rows, heads * columns
    return tensor.sizes[-2:]


def _figure(tensor: TensorShape) -> str:
    rows, columns = _sides(tensor)
    heads = tensor.sizes[1] if len(tensor.sizes) == 4 else 1
    name, _, power = tensor.symbol.partition("^")
    symbol = f"<b>{name}<sup>{power}</sup></b>" if power else f"<b>{name}</b>"
    sizes = tensor.sizes if tensor.learned or tensor.sizes[0] > 1 else tensor.sizes[1:]  # one text is no axis
    size = " × ".join(map("{:,}".format, sizes))
    style = f"width: max(2px, calc(var(--unit) * {columns})); height: max(2px, calc(var(--unit) * {rows}))"
    kind = ' class="learned"' if tensor.learned else ""
    return (
        f'<figure{kind}><div style="{style}">{"<i></i>" * heads}</div>'
        f"<figcaption>{symbol}<span>{size}</span></figcaption></figure>"
    )
