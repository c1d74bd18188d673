"""One screen of a lesson: a question, and after the lock the answer run in the model beside its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import urlencode

import streamlit as st

from mha_core import MhaError
from mha_core.lessons.item import Item, Locked
from pages._kit import components, state
from pages._kit.text import in_link, said, t, templates
from pages.learn._lessons import acts, interpretation, items, library, place, question_data, reveal, texts
from pages.learn._lessons.place import Place

KEY = "lesson"  # of the component
HEIGHT, ON_PHONE, ANSWERED = 420, 690, 84  # pixels until it is drawn
HINTS, PROBLEM = "hints", "problem"  # what is true of a screen now
ACTS: acts.Acts = {
    "go": {"number": int},
    "lock": {"answer": str},
    "resume": {"code": str},
    "lesson": {"name": str},
    **{what: {} for what in ("again", "back", "cards", "hint", "like", "projector", "sheet")},
}

_screen = components.component(KEY, "lesson/screen.js", "lesson/lesson.css")


def page(here: Place, below: Callable[[], None] | None = None) -> None:
    """Draw the screen; `below` draws what stands between the question and the outcome of the answer."""
    now = place.now(here)
    try:
        item = items.asked(here.screen, here.language)
        if here.like:
            like = items.like(item, here.like)
            here, item = (here, like) if like else (replace(here, like=0), item)
    except MhaError as refusal:
        _ask(here, {"refusal": t("lessons.cannot_be_asked", reason=said(refusal))}, below)
        return
    answer = _answer(here, item, now)
    _look_at(here, item, now)
    question: dict[str, object] = {"question": question_data.data(item)}
    if here.like:
        question["ask"] = texts.ask_of(item.question, item.scene)
    if answer is not None:
        _ask(here, question | {"answer": answer}, below)
        if here.is_shown:
            reveal.show(here, item, answer, on_act=lambda: act(here, reveal.KEY))
    elif here.like:  # the hints are about the lesson's own sentence
        _ask(here, question, below)
    else:
        _ask(here, question | _hints(here, item, now), below)


def _hints(here: Place, item: Item, now: dict) -> dict[str, object]:
    """The hints that were asked for, the last of which is a like case, and whether there are more."""
    pulled, hints = now.get(HINTS, 0), texts.hints(here)
    told: list[dict[str, object]] = [{"text": one} for one in hints[:pulled]]
    other = items.like(item, 1) if pulled >= len(hints) else None
    if other is not None and pulled > len(hints):
        told.append({"pieces": interpretation.like_case(other)})
    more = pulled < len(hints) or (pulled == len(hints) and other is not None)
    return {"hints": told, "more_hints": more}


def _answer(here: Place, item: Item, now: dict) -> str | None:
    """The locked answer of the screen, or of its like case. The page names an invalid one and drops it."""
    answer = here.answer
    if answer is None or (problem := items.problem(item, answer)) is None:
        return answer
    now[PROBLEM] = t("lessons.answer_of_link", reason=said(problem))
    return None


def _look_at(here: Place, item: Item, now: dict) -> None:
    """Move the focus of the page's pictures to that of the screen's scene, once the screen has changed."""
    at = (library.version(here.lesson), item.scene.link())
    if now.get("looks_at") != at:
        now["looks_at"] = at
        focus = item.scene.focus
        st.session_state["focus"] = replace(focus, heads=focus.heads or str(focus.head))


def _ask(here: Place, more: Mapping[str, object], below: Callable[[], None] | None) -> None:
    now, count = place.now(here), len(here.lesson.screens)
    _screen(
        key=KEY,
        data={
            "lesson": progress_of(here),
            "number": here.number,
            "like": here.like,
            "code": place.write_answers(here.answers),
            "answered": len(here.answers),
            "title": texts.title(here.part),
            "place": t("lessons.place", number=here.number, count=count),
            "ask": texts.ask(here),
            "problem": now.get(PROBLEM, ""),
            "projector": place.projected(),
            "cards": f"./lessons?{urlencode(in_link())}".rstrip("?"),
            "focus": state.address(),
            "texts": templates("lessons.js_"),
            "room": _in_room(here),
            **more,
        },
        height=_height(more),
        on_acted_change=lambda: act(here, KEY),
    )
    if below is not None:
        below()


def progress_of(here: Place) -> dict[str, str]:
    """The name under which the browser stores progress: per room, so that a class leaves one's own alone."""
    name = here.lesson.name if here.room is None else f"room-{here.room.code}"
    return {"name": name, "version": library.version(here.lesson)}


def _in_room(here: Place) -> dict[str, object] | None:
    """The data by which a class changes a screen; None without a class."""
    room = here.room
    if room is None:
        return None
    vote, is_asked = room.vote(here.number), here.answer is None and not here.like
    first = here.first.get(here.number)
    return {
        "code": room.code,
        "vote": vote,
        "language": here.language,
        "first": first.answer if first and first.language == here.language else None,
        "paused": t("room.seat_paused") if room.pace.paused and is_asked else "",
        "fixed": room.pace.screen is not None,
        "told": "" if is_asked or here.is_shown else t("room.seat_kept"),
        "second": t("room.seat_second") if vote > 1 and is_asked else "",
    }


def _height(more: Mapping) -> int:
    if "answer" in more:
        return ANSWERED
    return ON_PHONE if state.on_phone() and "question" in more else HEIGHT


def act(here: Place, key: str) -> None:
    """Carry out an act on the screen; `key` is that of the component on which it happens."""
    acted, now = acts.read(key, ACTS), place.now(here)
    if acted is None:
        return
    now.pop(PROBLEM, None)
    match acted["do"]:
        case "go" if here.room is None or here.room.pace.screen is None:
            place.go(screen=min(max(acted["number"], 1), len(here.lesson.screens) + 1), like="")
        case "hint":
            now[HINTS] = now.get(HINTS, 0) + 1
        case "lock" if here.room is None or here.like:  # else the room keeps it (seat.py)
            _lock(here, now, acted["answer"])
        case "again" if here.like:
            place.go(like=here.like)
        case "again" if here.room is None:
            kept = {at: one for at, one in here.answers.items() if at != here.number}
            place.go(answers=place.write_answers(kept))
        case "like" if items.like(items.item(here), here.like + 1) is None:
            now[PROBLEM] = t("lessons.no_like")
        case "like":
            place.go(like=here.like + 1)
        case "back":  # from a like case to the lesson's own
            place.go(like="")
        case "resume" if not here.answers and here.room is None:
            place.go(answers=place.write_answers(place.read_answers(acted["code"])))
        case "projector":
            place.go(projector="" if place.projected() else 1)
        case "lesson" if acted["name"] in library.lessons():
            place.go(lesson=acted["name"], screen="", answers="", like="")
        case "sheet":
            place.go(worksheet=1)
        case "cards":
            place.go(lesson="", room="", screen="", answers="", like="", projector="")


def _lock(here: Place, now: dict, answer: str) -> None:
    item = items.item(here)
    if here.like:
        item = items.like(item, here.like) or item
    if (problem := items.problem(item, answer)) is not None:
        now[PROBLEM] = said(problem)
    elif here.like:
        place.go(like=place.write_answers({here.like: Locked(answer, "")}))
    else:
        place.go(answers=place.write_answers({**here.answers, here.number: Locked(answer, here.language)}))
