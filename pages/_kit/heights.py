"""The height of a component on the page while the browser still fetches its script, in pixels.

A component that states its height at once does not push what is below it when it is drawn. Its script then
lifts the height (`drawn` in assets/components/streamlit.js), so an estimate is enough.
"""

import math
import unicodedata
from collections.abc import Sequence

import streamlit as st

DESK_WIDTH, PHONE_WIDTH = 980, 358  # of the page without its sidebar
# chooser.css: a row of tokens, the width of a letter, a word's edges, and the same on a phone; the greatest
# width of a word, the greatest height of a text, the line above one of two; a row of layers or heads, its
# name, and a number in it.
TOKEN_ROW, LETTER, TOKEN_EDGES = 71, 9.2, 28
TOKEN_ROW_ON_PHONE, LETTER_ON_PHONE, TOKEN_EDGES_ON_PHONE = 60, 7.3, 22
MAX_WORD, MAX_STRIP, STRIP_NAME = 224, 256, 26
ROW, ROW_NAME, ROW_NUMBER = 40, 60, 36
# The head view: a row of its drawing, its greatest height, and what stands around it: the buttons above, on a
# phone in more lines; below each sentence what is said about it; its title, on a phone the names of several
# that are swiped, in one line or two; and the buttons below all.
LINE_ROW, MAX_DRAWING, MAX_DRAWING_ABOVE = 22, 600, 320
BUTTONS, BUTTONS_ON_PHONE, SAID, TITLE, FOOT = 99, 169, 74, 25, 42
NAMES, NAMES_IN_TWO_LINES = 42, 48
# The head view of the page Heads: a row of words above each drawing, a letter, the edges of a word and the
# greatest height of the words; then the six matrices with their buttons and the number below them; then the
# other heads, so many beside each other; and a note.
WORD_ROW, WORD_LETTER, WORD_EDGES, MAX_WORDS = 47, 7.4, 17, 150
HEAD_BUTTONS, HEAD_BUTTONS_ON_PHONE, HEAD_SAID, HEAD_SAID_ON_PHONE = 43, 121, 70, 101
MATRICES, MATRICES_ON_PHONE = 275, 415
GRID, HEADS_ACROSS, HEADS_ACROSS_ON_PHONE, HEAD_PICTURE, NOTE, NOTE_ON_PHONE = 52, 8, 3, 165, 50, 90
# Matrices with their names (matrix_pictures.css): a row of one, the least and the greatest height of all its
# rows, the names of its columns; the words above a picture, and above one of so many in a row that they take
# twice as many lines; the gap between two, and the number below all.
MATRIX_ROW, MIN_MATRIX, MAX_MATRIX, NAMES_ABOVE = 22, 170, 360, 84
MATRIX_WORDS, MATRIX_WORDS_ON_PHONE, MANY_WORDS, MANY_ACROSS = 42, 48, 73, 4
MATRIX_GAP, MATRIX_READING = 12, 27
# Of the page Steps: the drawing, and the first step in words.
RIVER, RIVER_ON_PHONE, STEP, STEP_ON_PHONE = 95, 109, 266, 578
CODE_LINE, CODE_EDGES = 23, 33
# The overview: its buttons, the words about one head beside or below the pictures (overview.css), the button
# for the table, and the sizes of pictures (overview_plan.js).
ORDERS, ORDERS_ON_PHONE, ASIDE, ASIDE_ON_PHONE, TABLE = 39, 71, 422, 235, 56
FOLD_EDGES, ASIDE_WIDTH, MIN_PICTURE, MAX_PICTURE, MAX_PICTURES, NUMBERS = 54, 256, 10, 96, 720, (26, 18)


def chooser(texts: Sequence[Sequence[str]], counts: Sequence[int] = ()) -> int:
    """The height of the words of one text or of two named ones below rows of so many layers and heads."""
    desk, phone = (LETTER, TOKEN_EDGES), (LETTER_ON_PHONE, TOKEN_EDGES_ON_PHONE)
    word, row = (phone, TOKEN_ROW_ON_PHONE) if on_phone() else (desk, TOKEN_ROW)
    strips = [min(_rows(labels, 1, *word) * row, MAX_STRIP) for labels in texts]
    names = STRIP_NAME * len(texts) if len(texts) > 1 else 0
    page, lines, used = PHONE_WIDTH if on_phone() else DESK_WIDTH, 0, math.inf
    for count in counts:
        width = ROW_NAME + count * ROW_NUMBER
        lines, used = (
            (lines, used + width) if used + width <= page else (lines + math.ceil(width / page), width)
        )
    return sum(strips) + names + lines * ROW


def view(lengths: Sequence[int]) -> int:
    """The height of a head view of sentences with so many tokens; on a phone they are swiped."""
    buttons, names = (BUTTONS_ON_PHONE, NAMES_IN_TWO_LINES) if on_phone() else (BUTTONS, TITLE)
    return buttons + (names if len(lengths) > 1 else 0) + min(max(lengths) * LINE_ROW, MAX_DRAWING) + SAID


def heads(sentences: Sequence[Sequence[str]], n_heads: int) -> int:
    """The height of the head view of the page Heads: of sentences of these tokens, with so many heads."""
    across = HEADS_ACROSS_ON_PHONE if on_phone() else HEADS_ACROSS
    grid = GRID + math.ceil(n_heads / across) * HEAD_PICTURE
    below = MATRICES_ON_PHONE + NOTE_ON_PHONE if on_phone() else MATRICES + NOTE
    return _drawings(sentences, MAX_DRAWING_ABOVE) + grid + below


def worded_view(sentences: Sequence[Sequence[str]]) -> int:
    """The height of a head view of named sentences that stand above their drawings word by word."""
    names = NAMES_IN_TWO_LINES - NAMES if on_phone() else TITLE
    return _drawings(sentences, MAX_DRAWING) + names + FOOT


def _drawings(sentences: Sequence[Sequence[str]], tallest: int) -> int:
    """The height of buttons and of sentences, each with its drawing and what is said about it."""
    phone = on_phone()
    columns = len(sentences)
    said = HEAD_SAID_ON_PHONE if phone else HEAD_SAID
    panels = [
        min(_rows(labels, columns, WORD_LETTER, WORD_EDGES) * WORD_ROW, MAX_WORDS)
        + min(len(labels) * LINE_ROW, tallest)
        + said
        for labels in sentences
    ]
    names = NAMES if phone and columns > 1 else 0
    return (HEAD_BUTTONS_ON_PHONE if phone else HEAD_BUTTONS) + names + max(panels)


def heatmap(rows: int) -> int:
    """The height of a matrix of so many rows, with the names of its columns."""
    return NAMES_ABOVE + min(max(rows * MATRIX_ROW, MIN_MATRIX), MAX_MATRIX)


def heatmaps(count: int, across: int, tall: int, stacked: bool = False) -> int:
    """The height of so many matrices of that height; on a phone they are one row, or a stack."""
    lines = (count if stacked else 1) if on_phone() else math.ceil(count / across)
    on_desk = MANY_WORDS if min(count, across) >= MANY_ACROSS else MATRIX_WORDS
    words = MATRIX_WORDS_ON_PHONE if on_phone() else on_desk
    return lines * (words + tall) + (lines - 1) * MATRIX_GAP + MATRIX_READING


def river() -> int:
    """The height of the drawing of the steps."""
    return RIVER_ON_PHONE if on_phone() else RIVER


def step() -> int:
    """The height of the words of a step."""
    return STEP_ON_PHONE if on_phone() else STEP


def code(lines: str) -> int:
    """The height of lines of code."""
    return CODE_EDGES + CODE_LINE * (lines.count("\n") + 1)


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


def _rows(labels: Sequence[str], columns: int, letter: float, edges: float) -> int:
    """How many rows words take in one of so many columns; on a phone one column is in sight."""
    width = PHONE_WIDTH if on_phone() else DESK_WIDTH / columns
    rows, used = 0, math.inf
    for label in labels:
        token = min(_letters(label) * letter, MAX_WORD) + edges
        rows, used = (rows, used + token) if used + token <= width else (rows + 1, token)
    return rows


def _letters(text: str) -> int:
    """The width of a text in letters; a wide character, such as a Chinese one, has the width of two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
