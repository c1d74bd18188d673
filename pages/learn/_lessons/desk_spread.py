"""The spread of a screen's answers, drawn on the scene; without the truth until it is revealed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mha_core.lessons.item import Item
from mha_core.lessons.question import Find
from mha_core.lessons.spread import spread
from pages._kit.text import catalogue, joined, language, t, template
from pages.learn._lessons import items, question_data, reveal, signs, texts

if TYPE_CHECKING:
    from mha_core.room.rooms import KeptAnswer, Room


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
    room: "Room", screen: int, answers: Sequence["KeptAnswer"], known: signs.Known
) -> list[dict[str, object]]:
    """A spread for each scene that was asked about, with its votes. Raises as `scenes`."""
    asked = scenes(room, screen, answers)
    several = len(asked) > 1
    return [_of_scene(one, room, screen, known, named=several) for one in asked]


def _of_scene(
    scene: AskedScene, room: "Room", screen: int, known: signs.Known, *, named: bool
) -> dict[str, object]:
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
