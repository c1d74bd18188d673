"""The order of words: four position encodings, each explained in words, as a formula and in two pictures."""

from collections.abc import Callable, Iterable

import streamlit as st

from mha_core import MhaError
from mha_core.analysis import position_codes
from mha_core.analysis.frames import Origin
from mha_core.analysis.position_codes import PositionCode
from mha_core.attention.module import MAX_HEADS
from mha_core.sources import mini
from pages._kit import choice, heatmaps, refusals
from pages._kit.heatmaps import Heatmap
from pages._kit.text import language, t

FIRST = "sinusoidal"
MAX_POSITIONS, MAX_WIDTH = 256, 512
TALL = 420  # pixels of a picture


def page() -> None:
    st.title(t("word_order.heading"), anchor=False)
    st.caption(t("word_order.intro"))
    words, formula = st.columns(2)
    with words:
        name, sizes = _chosen()
        st.markdown(t(f"word_order.{name}_why"))
    try:
        pictured = CODES[name](*sizes)
    except MhaError as error:
        refusals.show(error)
        st.stop()
    with formula:
        _formula(name, pictured)
    _draw(name, pictured)


def _chosen() -> tuple[str, Iterable[int]]:
    """The code and its sizes, from controls that URL parameters can set."""
    choice.draw(
        st.segmented_control, t("word_order.code"), "code", list(CODES), FIRST, words=_word, required=True
    )
    name = st.session_state.code
    sizes: dict[str, int] = {}
    cells = st.grid(3, min_column_width=140)
    for size in SIZES[name]:
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
    return name, sizes.values()


def _word(code: str) -> str:
    return choice.word("position", code.lower())


def _formula(name: str, pictured: PositionCode) -> None:
    """The code as a formula, with its source, and in torch."""
    st.latex(pictured.formula)
    st.caption(t(f"word_order.{name}_source"), text_alignment="center")
    st.code(pictured.code, language=None)


def _draw(name: str, pictured: PositionCode) -> None:
    """The code itself, and how it relates every two positions."""
    origin = Origin(note=_word(name))
    pictures = {
        SYMBOLS[name]: (t(f"word_order.{name}_table"), pictured.table),
        "m · n": (t(f"word_order.{name}_meeting"), pictured.effect),
    }
    matrices = [
        Heatmap(symbol, symbol, meaning, frame, "signed", origin=origin)
        for symbol, (meaning, frame) in pictures.items()
    ]
    heatmaps.draw(matrices, key="positions", tall=TALL, stacked=True)


def _learned() -> PositionCode:
    trained = mini.model(mini.find(language(), "glass-box", 4, 64))
    return position_codes.of_vectors(trained.model.position.detach().numpy())


CODES: dict[str, Callable[..., PositionCode]] = {  # functions of their `SIZES`
    "sinusoidal": position_codes.sinusoidal,
    "learned": _learned,
    "rotary": position_codes.rotary,
    "ALiBi": lambda length, h, head: position_codes.alibi(length, h, head - 1),
}
# The symbol of each code's first picture, and the sizes that the code has.
SYMBOLS = {"sinusoidal": "PE", "learned": "P", "rotary": "cos", "ALiBi": "bias"}
SIZES = {
    "sinusoidal": ("length", "width"),
    "learned": (),
    "rotary": ("length", "width"),
    "ALiBi": ("length", "h", "head"),
}
# The largest and the first value of each size.
LIMITS = {
    "length": (MAX_POSITIONS, 32),
    "width": (MAX_WIDTH, 64),
    "h": (MAX_HEADS, 8),
    "head": (MAX_HEADS, 1),
}
