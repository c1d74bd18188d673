"""The reveal that a class is shown: its most frequent answers run in the model, beside the model's own."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mha_core.lessons.item import Item
from mha_core.lessons.question import read_row, written_row
from pages._kit.pair import PairSide
from pages._kit.text import t
from pages.learn._lessons import desk_spread, interpretation, items, reveal

if TYPE_CHECKING:
    from mha_core.room.rooms import KeptAnswer, Room

MOST = 2  # answers that are run; of each scene one where there are several
TYPED = ("find", "why")  # kinds whose answers are a student's own words: the class is not shown these


def runs(room: "Room", screen: int, answers: Sequence["KeptAnswer"]) -> list[list[dict[str, object]]]:
    """The runs of a screen's latest vote, by its scenes. Raises `MhaError` where nothing can be asked."""
    scenes = desk_spread.scenes(room, screen, answers)
    told = []
    for asked, kept, _ in scenes:
        latest = [one.answer for one in kept if one.vote == room.vote(screen)]
        given = Counter(one for one in latest if items.problem(asked, one) is None)
        runs = _of_scene(asked, given, MOST if len(scenes) == 1 else 1)
        told.append(runs if len(scenes) == 1 else [run | {"side": None} for run in runs])  # they fit beside
    return told


def _of_scene(asked: Item, given: Counter[str], most: int) -> list[dict[str, object]]:
    kind = asked.question.kind
    if kind in TYPED:
        shown = []
    elif kind == "draw" and given:  # hardly two rows are the same
        rows = [read_row(answer, len(asked.words)) * count for answer, count in given.items()]
        shown = [(written_row(np.sum(rows, 0)), t("room.desk_js_mean"))]
    else:
        frequent = given.most_common(most)
        shown = [(one, t("room.desk_gave", count=count, total=given.total())) for one, count in frequent]
    told = []
    for answer, heading in shown:
        sentences, sides = _run(asked, answer)
        yours = sentences if kind == "choose" else sentences[:1]  # a picture is told beside the other one
        right = items.is_right(asked, answer)
        told.append(_told(asked, heading, yours, sides[0] if len(sides) > 1 else None, right))
    if kind in TYPED or (shown and kind != "choose"):
        sentences, sides = _run(asked, shown[0][0] if shown else asked.scene.text)
        told.append(_told(asked, t("lessons.side_own"), sentences[-1:], sides[-1]))
    return told


def _run(asked: Item, answer: str) -> tuple[list[list[str]], list[PairSide]]:
    run = asked.run(answer)
    return interpretation.sentences(asked, answer, run), reveal.sides_of(asked, answer, run)


def _told(
    asked: Item, heading: str, sentences: list[list[str]], side: PairSide | None, right: bool | None = None
) -> dict[str, object]:
    """A run as the browser draws it, with its row of weights where these are what is asked about.

    A cell is asked about in the whole matrix, beside which there is no place for rows.
    """
    row = side and asked.question.kind != "cell" and reveal.shows_weights(asked.question)
    return {
        "heading": heading,
        "sentences": sentences,
        "side": reveal.row_of(side) if side and row else None,
        "right": right,
    }
