"""The height of a component on the page while the browser still fetches its script, in pixels.

A component that states its height at once does not push what is below it when it is drawn. Its script then
lifts the height (`drawn` in assets/components/streamlit.js), so an estimate is enough.
"""

import math
import unicodedata
from collections.abc import Sequence

import streamlit as st

DESK_WIDTH, PHONE_WIDTH = 980, 350  # of the page without its sidebar
# token_strip.css: a row of tokens, the width of a letter, the greatest width of a word, its edges, and the
# greatest height of the strip.
TOKEN_ROW, LETTER, MAX_WORD, TOKEN_EDGES, MAX_STRIP = 71, 9.2, 224, 28, 256
# The head view: a row of its drawing and the greatest height (drawing.js), and what stands around it: the
# buttons above, on a phone in more lines; below each sentence what is said about it; and its title.
LINE_ROW, MAX_DRAWING = 22, 600
BUTTONS, BUTTONS_ON_PHONE, SAID, TITLE = 99, 169, 74, 25
# The overview: its buttons, the words about one head beside or below the pictures (overview.css), the button
# for the table, and the sizes of pictures (overview_plan.js).
ORDERS, ORDERS_ON_PHONE, ASIDE, ASIDE_ON_PHONE, TABLE = 39, 71, 422, 235, 56
FOLD_EDGES, ASIDE_WIDTH, MIN_PICTURE, MAX_PICTURE, MAX_PICTURES, NUMBERS = 54, 256, 10, 96, 720, (26, 18)


def strip(labels: Sequence[str], columns: int = 1) -> int:
    """The height of a strip of tokens in one of so many columns; on a phone they stand below each other."""
    width = PHONE_WIDTH if on_phone() else DESK_WIDTH / columns
    rows, used = 0, math.inf
    for label in labels:
        token = min(_letters(label) * LETTER, MAX_WORD) + TOKEN_EDGES
        rows, used = (rows, used + token) if used + token <= width else (rows + 1, token)
    return min(rows * TOKEN_ROW, MAX_STRIP)


def view(lengths: Sequence[int]) -> int:
    """The height of a head view of sentences with so many tokens; on a phone they stand below each other."""
    title = TITLE if len(lengths) > 1 else 0
    panels = [title + min(length * LINE_ROW, MAX_DRAWING) + SAID for length in lengths]
    return BUTTONS_ON_PHONE + sum(panels) if on_phone() else BUTTONS + max(panels)


def overview(counts: Sequence[int]) -> int:
    """The height of the pictures of so many heads in each layer, with the words about one and the table."""
    phone = on_phone()
    width = (PHONE_WIDTH if phone else DESK_WIDTH - ASIDE_WIDTH) - FOLD_EDGES - NUMBERS[0]
    side = min(MAX_PICTURE, width // max(counts), max(MIN_PICTURE, MAX_PICTURES // len(counts)))
    pictures = NUMBERS[1] + len(counts) * side
    return TABLE + (ORDERS_ON_PHONE + pictures + ASIDE_ON_PHONE if phone else ORDERS + max(pictures, ASIDE))


def on_phone() -> bool:
    """Whether the user's browser calls itself that of a phone."""
    return "Mobi" in st.context.headers.get("User-Agent", "")


def _letters(text: str) -> int:
    """The width of a text in letters; a wide character, such as a Chinese one, has the width of two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
