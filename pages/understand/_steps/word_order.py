"""The order of words: four position encodings, each explained in words, as a formula and in two pictures."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import streamlit as st

from mha_core import MhaError
from mha_core.analysis import position_codes
from mha_core.analysis.frames import Origin
from mha_core.analysis.position_codes import PositionCode
from mha_core.attention.module import MAX_HEADS
from mha_core.sources import mini
from pages._kit import choice, components, heatmaps, refusals
from pages._kit.heatmaps import Heatmap
from pages._kit.text import language, t

FIRST = "sinusoidal"
TALL = 420  # pixels of a picture


class Code(NamedTuple):
    """A position code as a function of its sizes, and the symbol of its first picture."""

    symbol: str
    sizes: tuple[str, ...]
    of: Callable[..., PositionCode]


def page() -> None:
    st.title(t("word_order.heading"), anchor=False)
    st.caption(t("word_order.intro"))
    words, formula = st.columns(2)
    with words:
        choice.draw(
            st.segmented_control, t("word_order.code"), "code", list(CODES), FIRST, words=_word, required=True
        )
        name = st.session_state.code
        code = CODES[name]
        sizes = _sizes(name, code)
        st.markdown(t(f"word_order.{name}_why"))
    try:
        pictured = code.of(*sizes)
    except MhaError as error:
        refusals.show(error)
        st.stop()
    with formula:
        st.latex(pictured.formula)
        st.caption(t(f"word_order.{name}_source"), text_alignment="center")
        components.code(pictured.code)
    signed: dict[str, Any] = {"kind": "signed", "origin": Origin(note=_word(name))}
    matrices = [
        Heatmap(code.symbol, code.symbol, t(f"word_order.{name}_table"), pictured.table, **signed),
        Heatmap("m · n", "m · n", t(f"word_order.{name}_meeting"), pictured.effect, **signed),
    ]
    heatmaps.draw(matrices, key="positions", tall=TALL, stacked=True)


def _sizes(name: str, code: Code) -> Iterable[int]:
    """The sizes of a code, from controls that URL parameters can set."""
    sizes: dict[str, int] = {}
    cells = st.grid(3, min_column_width=140)
    for size in code.sizes:
        maximum, default = LIMITS[size]
        if size == "head":
            maximum = sizes["h"]
        with cells.container():
            sizes[size] = st.number_input(
                t(f"word_order.{size}"),
                1,
                maximum,
                min(default, maximum),
                step=2 if (name, size) == ("rotary", "width") else 1,
                key=f"positions_{size}",
                bind="query-params",
            )
    return sizes.values()


def _word(code: str) -> str:
    return choice.word("position", code.lower())


def _learned() -> PositionCode:
    trained = mini.model(mini.find(language(), "glass-box", 4, 64))
    return position_codes.of_vectors(trained.model.position.detach().numpy())


CODES = {
    "sinusoidal": Code("PE", ("length", "width"), position_codes.sinusoidal),
    "learned": Code("P", (), _learned),
    "rotary": Code("cos", ("length", "width"), position_codes.rotary),
    "ALiBi": Code(
        "bias", ("length", "h", "head"), lambda length, h, head: position_codes.alibi(length, h, head - 1)
    ),
}
# The largest and the first value of each size.
LIMITS = {
    "length": (256, 32),
    "width": (512, 64),
    "h": (MAX_HEADS, 8),
    "head": (MAX_HEADS, 1),
}
