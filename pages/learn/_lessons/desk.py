"""The teacher's desk of a room: its code for the class, its pace, who has answered what, and the spread."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from mha_core import MhaError
from pages._kit import components
from pages._kit.text import literal, said, t, templates
from pages._server import logs, rooms
from pages.learn._lessons import acts, desk_after, desk_answers, opening, place, texts
from pages.learn._lessons.place import Place

if TYPE_CHECKING:
    from mha_core.room.rooms import Desk, KeptAnswer, Room, Student

KEY, DOOR = "desk", "desk_door"
SECONDS = 2  # between two drawings
HEIGHT = 700  # pixels until it is drawn
ACTS: acts.Acts = {
    "screen": {"number": int},
    "helped": {"number": int},
    "projector": {"shown": bool},
    **{
        what: {}
        for what in ("free", "here", "pause", "reveal", "conceal", "again", "hide", "code", "spread", "leave")
    },
}
DOOR_ACTS: acts.Acts = {"enter": {"secret": str}}
_door = components.component(DOOR, "room/door.js")
_desk = components.component(KEY, "room/desk.js", "lesson/lesson.css", "room/desk.css", box="lesson desk")


def page() -> None:
    if not rooms.offered():
        st.info(t("room.not_offered"), icon=":material/groups:")
        return
    try:
        store = rooms.rooms()
    except MhaError as error:
        st.error(literal(said(error)))
        return
    if place.desk_code() == place.NEW:
        if rooms.may_open():
            opening.page()
        else:
            st.info(t("room.desk_elsewhere"), icon=":material/groups:")
        return
    from mha_core.room.rooms import Unavailable

    code = rooms.code_of(place.desk_code() or "")
    secret = st.session_state.setdefault(opening.SECRETS, {}).get(code)
    desk, is_wrong = None, False
    try:
        desk = store.desk(code, secret) if secret else None
    except MhaError as error:
        is_wrong = not isinstance(error, Unavailable)
    with st.container(key="unseen_desk_door"):
        _door(
            key=DOOR,
            data={"code": code, "secret": None if is_wrong else secret, "known": secret is not None},
            on_acted_change=lambda: _enter(code),
        )
    if secret is None:
        return
    if is_wrong or not secret:
        # The same for any code: nobody finds rooms by trying.
        st.error(t("room.desk_wrong") if is_wrong else t("room.desk_no_secret"))
        st.button(t("lessons.all"), key="desk_leave", on_click=place.go, kwargs=opening.LEAVE)
        return
    projected = place.projected()
    if desk is not None and not projected:
        desk_after.link(desk)
    _live(code, projected)
    if desk is not None and not projected:
        desk_after.page(desk)


def _enter(code: str) -> None:
    """The browser has sent the secret of the link, or "" where that has none."""
    if (acted := acts.read(DOOR, DOOR_ACTS)) is not None:
        st.session_state[opening.SECRETS][code] = acted["secret"]


def _now(code: str) -> dict[str, Any]:
    return place.until_left(
        "desk_now",
        code,
        screen=1,
        hidden=False,
        problem="",
        known={},
        answers=(-1, []),
        shows_code=True,
        spread=set(),  # the votes whose spread is shown on the projector
    )


@st.fragment(run_every=SECONDS)
def _live(code: str, projected: bool) -> None:
    """The part of the desk that changes while the class works, drawn anew every two seconds."""
    from mha_core.room.rooms import Unavailable, Unknown, WrongSecret

    acts.begin()
    now = _now(code)
    if now.pop("whole", False):
        st.rerun()
    try:
        desk = rooms.rooms().desk(code, st.session_state[opening.SECRETS].get(code) or "")
        now["data"] = _data(desk, now, projected)
        if now.pop("away", False):  # all of the page is there again
            now["problem"] = ""
            st.rerun()
        problem = now["problem"]
    except Unavailable as error:
        now["away"], problem = True, said(error)
    except (Unknown, WrongSecret):  # only then the whole page finds the same, and draws no desk
        st.rerun()
    except MhaError as error:
        problem = said(error)
    if "data" not in now:
        st.caption(literal(problem))
        return
    data = now["data"] | {"problem": problem}
    _desk(key=KEY, data=data, height=HEIGHT, on_acted_change=lambda: _act(code))


def _act(code: str) -> None:
    """Carry out an act of the teacher; the desk says what the room refuses."""
    from mha_core.room.rooms import Unavailable

    acted, now = acts.read(KEY, ACTS), _now(code)
    if acted is None:
        return
    now["problem"] = ""
    try:
        desk = rooms.rooms().desk(code, st.session_state[opening.SECRETS].get(code) or "")
        _do(desk, now, acted)
    except MhaError as error:
        now["problem"], now["away"] = said(error), isinstance(error, Unavailable)


def _do(desk: "Desk", now: dict[str, Any], acted: dict[str, Any]) -> None:
    from mha_core.room.rooms import Pace

    room = desk.room()
    screen = _screen(room, now)
    match acted["do"]:
        case "screen":
            now["screen"] = min(max(acted["number"], 1), len(room.lesson.screens))
            now["shows_code"] = False
            if room.pace.screen is not None:
                desk.set_pace(room.pace._replace(screen=now["screen"]))
        case "free":
            desk.set_pace(Pace(None, room.pace.paused))
        case "here":
            desk.set_pace(Pace(screen, room.pace.paused))
        case "pause":
            desk.set_pace(Pace(room.pace.screen, not room.pace.paused))
        case "reveal":
            desk.reveal(screen)
        case "conceal":
            desk.conceal(screen)
        case "again":
            desk.vote_again(screen)
        case "helped":
            desk.helped(acted["number"])
        case "hide":
            now["hidden"] = not now["hidden"]
        case "code":
            now["shows_code"] = not now["shows_code"]
        case "spread":
            now["spread"] ^= {(screen, room.vote(screen))}
        case "projector":
            place.go(projector=1 if acted["shown"] else "")
            now["shows_code"] = not desk.answer_count()  # the class is still coming
            now["whole"] = True
        case "leave":
            place.go(**opening.LEAVE)
            now["whole"] = True


def _screen(room: "Room", now: dict[str, Any]) -> int:
    """The screen that is shown: where the class is, else the one last looked at."""
    return room.pace.screen or min(now["screen"], len(room.lesson.screens))


def invitation(code: str) -> dict[str, object]:
    """The invitation that the class is shown: its way in, the link that joins the room, and its picture.

    `warning` says that this machine alone can open them.
    """
    from mha_core.room import qr

    page = rooms.for_others(place.page_address())
    link = f"{page}?room={rooms.rooms().invitation(code)}"
    warning = "" if rooms.is_for_others(page) else t("room.desk_local")
    way_in = t("room.desk_way_in", page=page.partition("://")[2], code=code)
    return {"way_in": way_in, "link": link, "qr": qr.drawn(link), "warning": warning}


def _data(desk: "Desk", now: dict[str, Any], projected: bool) -> dict[str, object]:
    room, students = desk.room(), desk.students()
    if now["answers"][0] != (count := desk.answer_count()):
        now["answers"] = count, desk.answers()
    answers: list[KeptAnswer] = now["answers"][1]
    desk_answers.learn_signs(now["known"], room.lesson, answers)
    screen, n_screens = _screen(room, now), len(room.lesson.screens)
    vote = room.vote(screen)
    number = len({one.student for one in answers if (one.screen, one.vote) == (screen, vote)})
    told = {
        "code": room.code,
        "title": texts.title(room.lesson),
        "invitation": invitation(room.code),
        "students": t(f"room.desk_students_{'one' if len(students) == 1 else 'other'}", count=len(students)),
        "projector": projected,
        "texts": templates("room.desk_js_"),
        "pace": {"screen": room.pace.screen, "paused": room.pace.paused},
        "number": screen,
        "count": n_screens,
        "place": t("lessons.place", number=screen, count=n_screens),
        "part": texts.title(room.part(screen)) if len(room.lessons) > 1 else "",
        "ask": texts.ask(Place(room.lesson, screen, {})),
        "revealed": screen in room.revealed,
        "vote": vote,
        "answered": t("room.desk_answered", answered=number, count=len(students)),
    }
    if projected:
        return told | {"shows_code": now["shows_code"]} | _wall(room, screen, answers, now, number)
    return told | {
        "hidden": now["hidden"],
        "spreads": _guarded(lambda: desk_answers.spreads(room, screen, answers, now["known"])),
        "table": _table(room, students, answers, now),
    }


def _wall(
    room: "Room", screen: int, answers: Sequence["KeptAnswer"], now: dict[str, Any], number: int
) -> dict[str, object]:
    """The scenes of a screen for the class: the spread once the teacher shows it, the runs once revealed."""
    revealed = screen in room.revealed
    shown = revealed or (screen, room.vote(screen)) in now["spread"]
    typed = room.lesson.screens[screen - 1].question.kind in desk_answers.TYPED

    def scenes() -> list[dict[str, object]]:
        spreads = desk_answers.spreads(room, screen, answers, now["known"])
        if not shown or typed:
            spreads = [one | {"votes": []} for one in spreads]
        if not revealed:
            return spreads
        runs = desk_answers.runs(room, screen, answers)
        return [one | {"runs": of_scene} for one, of_scene in zip(spreads, runs, strict=True)]

    return {
        "shows_spread": shown and not typed,
        "note": t("room.desk_typed", count=number) if shown and typed else "",
        "spreads": _guarded(scenes),
    }


def _guarded(tell: Callable[[], list[dict[str, object]]]) -> list[dict[str, object]]:
    """A screen's answers as they are told; whatever is wrong with one, the desk keeps its controls."""
    try:
        return tell()
    except MhaError as error:
        reason = said(error)
    except Exception as error:
        reason = f"error {logs.failure(error)}"
    return [{"refusal": t("lessons.cannot_be_asked", reason=reason)}]


def _table(
    room: "Room", students: Sequence["Student"], answers: Sequence["KeptAnswer"], now: dict[str, Any]
) -> dict[str, object]:
    """A row for each student, raised hands first, with the sign of the latest vote on each screen.

    A row holds each sign as its position in the list of signs.
    """
    screens = range(1, len(room.lesson.screens) + 1)
    latest: dict[tuple[int, int], KeptAnswer] = {}
    for one in answers:  # votes in their order
        latest[one.student, one.screen] = one

    answered: desk_answers.Sign = "answered", t("room.desk_sign_answered")
    places: dict[desk_answers.Sign, int] = {}

    def sign(student: int, screen: int) -> desk_answers.Sign:
        one = latest.get((student, screen))
        if one is None:
            return "empty", ""
        if now["hidden"] and screen not in room.revealed:
            return answered
        kind, words = now["known"].get((screen, one.language, one.answer), answered)
        return kind, f"{words} · {t(f'room.desk_late_{one.late}')}" if one.late else words

    rows = [
        {
            "number": one.number,
            "name": "" if now["hidden"] else one.name,
            "screen": one.screen,
            "help": one.needs_help,
            "signs": [places.setdefault(sign(one.number, screen), len(places)) for screen in screens],
        }
        for one in sorted(students, key=lambda one: (not one.needs_help, one.number))
    ]
    parts = [[texts.title(one), len(one.screens)] for one in room.lessons] if len(room.lessons) > 1 else []
    return {"rows": rows, "screens": len(screens), "parts": parts, "signs": list(places)}
