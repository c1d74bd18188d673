"""The answers of a room as its teacher and the class see them: their signs, their spread, and runs of them.

The spread of a screen is drawn on its scene, without the truth until it is revealed; then its most frequent
answers run in the model, beside the model's own.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_core import MhaError
from mha_core.lessons.item import Item
from mha_core.lessons.lesson import Lesson
from mha_core.lessons.question import Find, read_row, written_row
from mha_core.lessons.spread import spread
from pages._kit.pair import PairSide
from pages._kit.text import catalogue, joined, language, said, t, template
from pages.learn._lessons import interpretation, items, question_data, reveal, texts

if TYPE_CHECKING:
    from mha_core.room.rooms import KeptAnswer, Room

SECONDS = 0.5  # in which signs are computed before the desk is drawn; the others come with the next drawing
MOST = 2  # answers that are run; of each scene one where there are several
TYPED = ("find", "why")  # kinds whose answers are a student's own words: the class is not shown these
Sign = tuple[str, str]  # its name in room/table.js, and what it says
Known = dict[tuple[int, str, str], Sign]  # by screen, language and answer


def learn_signs(known: Known, lesson: Lesson, answers: Iterable["KeptAnswer"]) -> None:
    """Compute the signs of answers that have none yet, as far as time allows."""
    until, asked = time.monotonic() + SECONDS, dict[tuple[int, str], Item]()
    for one in answers:
        key = one.screen, one.language, one.answer
        if key in known:
            continue
        if time.monotonic() > until:
            return
        at = one.screen, one.language
        try:
            if at not in asked:
                asked[at] = items.asked(lesson.screens[one.screen - 1], one.language)
            known[key] = _sign(asked[at], one.answer)
        except MhaError as error:
            known[key] = "unchecked", t("room.desk_sign_unchecked", reason=said(error))


def _sign(asked: Item, answer: str) -> Sign:
    """Nothing to check, right, another answer, or misread. Raises `MhaError` for what is no answer."""
    right = items.is_right(asked, answer)
    if right is None:
        return "unchecked", t("room.desk_sign_reason")
    if right:
        return "right", t("room.desk_js_right")
    if asked.misreads(answer):
        return "misread", t(f"room.desk_misread_{asked.question.kind}")
    return "other", t("room.desk_js_other")


class AskedScene(NamedTuple):
    """A scene about which a screen asks, with the answers of those who were asked in these languages."""

    item: Item
    answers: list["KeptAnswer"]
    languages: list[str]


def scenes(room: "Room", screen: int, answers: Sequence["KeptAnswer"]) -> list[AskedScene]:
    """The scenes of a screen; languages may have their own. Raises `MhaError` where nothing can be asked."""
    here = [one for one in answers if one.screen == screen]
    by_scene: dict[str, AskedScene] = {}
    for spoken in sorted({one.language for one in here} or {language()}):
        asked = items.asked(room.lesson.screens[screen - 1], spoken)
        scene = by_scene.setdefault(asked.scene.link(), AskedScene(asked, [], []))
        scene.answers.extend(one for one in here if one.language == spoken)
        scene.languages.append(spoken)
    return list(by_scene.values())


def spreads(
    room: "Room", screen: int, answers: Sequence["KeptAnswer"], known: Known
) -> list[dict[str, object]]:
    """A spread for each scene that was asked about, with its votes. Raises as `scenes`."""
    asked = scenes(room, screen, answers)
    several = len(asked) > 1
    return [_spread(one, room, screen, known, named=several) for one in asked]


def _spread(scene: AskedScene, room: "Room", screen: int, known: Known, *, named: bool) -> dict[str, object]:
    asked, answers, languages = scene
    revealed = screen in room.revealed
    spoken = {one.answer: one.language for one in answers}

    def is_right(answer: str) -> bool | None:
        sign, _ = known.get((screen, spoken[answer], answer), ("", ""))
        return sign == "right" if sign else items.is_right(asked, answer)

    votes = []
    for vote in range(1, room.vote(screen) + 1):
        given = [one.answer for one in answers if one.vote == vote]
        told = spread(asked, given, is_right if revealed else None)
        if isinstance(listed := told.get("answers"), list):
            told["answers"] = [_in_words(asked, *one) for one in listed]
        heading = t("room.desk_vote", number=vote) if room.vote(screen) > 1 else ""
        lost = sum(items.problem(asked, answer) is not None for answer in given)
        votes.append(told | {"heading": heading, "lost": t("room.desk_lost", count=lost) if lost else ""})
    names = joined(catalogue(one)["language.name"] for one in languages)
    return {
        "heading": t("room.desk_asked_in", language=names) if named else "",
        "question": question_data.data(asked),
        "votes": votes,
        "titles": {name: template(f"lessons.js_{name}") for name in ("matrix_rows", "matrix_columns")},
    }


def _in_words(asked: Item, answer: str, count: int) -> dict[str, object]:
    """An answer of a list; a sentence with the pages on which it is run."""
    question = asked.question
    return {
        "answer": answer,
        "count": count,
        "text": texts.answer(asked, answer),
        "links": reveal.looks(question.posed(asked, answer).scene) if isinstance(question, Find) else [],
    }


def runs(room: "Room", screen: int, answers: Sequence["KeptAnswer"]) -> list[list[dict[str, object]]]:
    """The runs of a screen's latest vote, by its scenes. Raises `MhaError` where nothing can be asked."""
    every = scenes(room, screen, answers)
    told = []
    for asked, kept, _ in every:
        latest = [one.answer for one in kept if one.vote == room.vote(screen)]
        given = Counter(one for one in latest if items.problem(asked, one) is None)
        runs = _runs(asked, given, MOST if len(every) == 1 else 1)
        told.append(runs if len(every) == 1 else [run | {"side": None} for run in runs])  # they fit beside
    return told


def _runs(asked: Item, given: Counter[str], most: int) -> list[dict[str, object]]:
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
