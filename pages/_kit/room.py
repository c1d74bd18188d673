"""Room for what is still loading, so that nothing below it jumps when it comes.

Streamlit loads the script of a widget or a component when the first one is drawn, and shows a grey bar for
it meanwhile. A custom property, ``--room``, tells the height of what comes to that bar (assets/head.html) and
to its element. Our components set it to 0 once they are drawn (`arrived`, streamlit.js), so that what is kept
for them need not be exact.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core import AttentionTrace, LayerTrace
from mha_core.analysis.frames import longest

PHONE = 640  # pixels; narrower screens have one column
MAIN, NARROW = 1000, 350  # how wide a page is on a desk and on a phone, about
TOKEN_ROW, STRIP_EDGE, STRIP_MOST = 70.5, 2, 256  # of a strip of tokens, in pixels
LETTER, TOKEN_EDGES, TOKEN_GAP = 9.2, 24, 4
LINE_ROW, LINES_MOST = 24, 600  # of the head view's drawing, as drawing.js has them
VIEW_AROUND, VIEW_AROUND_PHONE, VIEW_TITLE = 173, 243, 25  # its buttons and the sentence under it
# The overview: how much narrower than a page it is, its buttons, the words beside or below the pictures, and
# what stands in its fold besides.
OVERVIEW_INSET, OVERVIEW_ORDERS, OVERVIEW_ASIDE, OVERVIEW_FOLD = (54, 26), (39, 71), (422, 235), (190, 257)
GRID_SAVE = 30
ASIDE_WIDTH, LARGEST, SMALLEST, TALLEST, LEFT, TOP = 256, 96, 10, 720, 26, 18  # as overview_plan.js has them


class Room(NamedTuple):
    """Pixels in height, on a desk and on a phone."""

    wide: int
    narrow: int


def of_sentences(
    traces: Mapping[str, AttentionTrace], layer: LayerTrace | None = None, *, shown_in: str = "head_view"
) -> None:
    """Keep room for the strip of each sentence, by its key, and with a `layer` for its view and its heads.

    `shown_in` is the key of the view.
    """
    kept = {}
    for key, trace in traces.items():
        sides = trace.sides
        kept[key] = strip(sides.queries.labels, len(traces))
        if not sides.same:
            kept[f"{key}_keys"] = strip(sides.keys.labels, len(traces))
    if layer is not None:
        kept[shown_in] = view([longest(trace) for trace in traces.values()])
        kept["head_grid"] = grid(layer.n_heads)
    # The class says that they are there (assets/head.html).
    _keep({f".st-key-{key}": room for key, room in kept.items()}, "rooms")


def of_overview(counts: Sequence[int], *, empty: bool) -> DeltaGenerator:
    """A place for the fold with `counts` heads in each layer, with room also while there is nothing in it."""
    kept = overview(counts)
    whole = Room(*(sum(both) for both in zip(kept, OVERVIEW_FOLD, strict=True)))
    before = {".st-key-glance:not(:has(.st-key-overview))": whole} if empty else {}
    _keep({".st-key-overview": kept, **before})
    return st.container(key="glance")


def _keep(rooms: Mapping[str, Room], name: str = "") -> None:
    wide, narrow = (
        " ".join(f"{at} {{ --room: {room[nth]}px; min-height: var(--room); }}" for at, room in rooms.items())
        for nth in (0, 1)
    )
    # Our own words alone.
    st.html(f'<style class="{name}">{wide} @media (max-width: {PHONE}px) {{ {narrow} }}</style>')


def strip(labels: Sequence[str], beside: int = 1) -> Room:
    """What a strip of tokens will take, where `beside` of them share the width."""
    widths = [_letters(label) * LETTER + TOKEN_EDGES + TOKEN_GAP for label in labels]
    return Room(*(_strip(widths, width) for width in (MAIN / beside, NARROW)))


def _strip(widths: Sequence[float], width: float) -> int:
    rows, used = 1, 0.0
    for own in widths:
        rows, used = (rows, used + own) if used + own <= width else (rows + 1, own)
    return min(round(rows * TOKEN_ROW) + STRIP_EDGE, STRIP_MOST)


def _letters(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def view(lengths: Sequence[int]) -> Room:
    """What a head view of sentences of so many tokens will take; on a phone they stand below each other."""
    drawn = [min(length * LINE_ROW, LINES_MOST) for length in lengths]
    title = VIEW_TITLE if len(lengths) > 1 else 0
    below = sum(high + title + 74 for high in drawn)
    return Room(VIEW_AROUND + title + max(drawn), VIEW_AROUND_PHONE - 74 + below)


def overview(counts: Sequence[int]) -> Room:
    """What the pictures of so many heads in each layer take, with their buttons and the words about one."""
    columns, rows = max(counts), len(counts)
    high = []
    for width in (MAIN - OVERVIEW_INSET[0] - ASIDE_WIDTH, NARROW - OVERVIEW_INSET[1]):
        fits, tall = (width - LEFT) // columns, max(SMALLEST, TALLEST // rows)
        high.append(TOP + rows * max(3, min(LARGEST, fits, tall)))
    return Room(
        OVERVIEW_ORDERS[0] + max(high[0], OVERVIEW_ASIDE[0]),
        OVERVIEW_ORDERS[1] + high[1] + OVERVIEW_ASIDE[1],
    )


def grid(heads: int) -> Room:
    """What the pictures of all heads will take: squares of their least width or more, two lines below."""
    return Room(*(_grid(heads, 108 if heads <= 8 else 88, width) for width in (MAIN, NARROW)))


def _grid(heads: int, least: int, width: int) -> int:
    across = max(1, int((width + 10) // (min(least, 0.28 * width) + 10)))
    side = (width - 10 * (across - 1)) / across
    return math.ceil(heads / across) * round(side + 50) - 10 + GRID_SAVE
