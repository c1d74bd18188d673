"""A student's seat in a room: joining, the lesson at the pace of the class, and answers that the room keeps.

A student is known by a token that the browser holds and sends (components/lesson/seat.js). An answer
comes as the act "lock" of this component, again and again until the data of the room name it as kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import streamlit as st

from mha_core import MhaError
from mha_core.lessons.item import Locked
from mha_core.lessons.lesson import shipped
from pages._kit import components
from pages._kit.text import after_link, language, languages, literal, said, t, templates
from pages._server import rooms
from pages.learn._lessons import acts, ending, items, library, place, screen, texts
from pages.learn._lessons.place import Place

if TYPE_CHECKING:  # rooms are an extra
    from mha_core.room.rooms import Room, Seat, Student

KEY = "room"  # of the component
HEIGHT = 60  # pixels until it is drawn
TYPED, WRONG = "room_typed", "room_wrong"  # the code in the field, and why it opens nothing
TOKENS = "room_tokens"  # of the session: what the browser has sent, by the codes of rooms
SEEN = "room_seen"  # of the session: the room as it was read last, for when the database does not answer
DEVICE = "room_device"  # of the session: whether the link to another device is looked at
PROBLEM, REFUSED = "room_problem", "room_refused"  # of one act, told in the run that it causes

ACTS: acts.Acts = {
    "look": {},
    "leave": {},
    "device": {},
    "enter": {"token": str},
    "join": {"name": str, "asked": str},
    "lock": {"screen": int, "vote": int, "answer": str, "language": str},
    "help": {"needs_help": bool},
}
_component = components.component(KEY, "lesson/seat.js", "lesson/lesson.css", box="seat lesson")


@dataclass(frozen=True)
class Sitting:
    """A student in a room, as the database has them: the answers by screen and vote."""

    room: "Room"
    seat: "Seat"
    student: "Student"
    invitation: str
    kept: Mapping[tuple[int, int], Locked]


def page() -> None:
    """The room that the link names: its door, a screen, or the end of the lesson."""
    if not rooms.offered():
        st.info(t("room.not_offered"))
        return
    try:
        rooms.rooms()
    except MhaError as error:
        _draw("", {"problem": said(error), "asks_again": True})
        return
    code = rooms.code_of(place.room_code())
    token = st.session_state.get(TOKENS, {}).get(code)
    if token is None:
        _door(code)
    else:
        _seated(code, token)


def join_field() -> None:
    """The field for the code of a room, which opens a page of its own."""
    with st.form("room_join", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            t("room.seat_code"), key=TYPED, placeholder=t("room.seat_code_like"), max_chars=40, width=240
        )
        st.form_submit_button(t("room.seat_join"), on_click=_open, icon=":material/groups:")
    if wrong := st.session_state.pop(WRONG, ""):
        st.error(literal(wrong))


def _open() -> None:
    try:
        room = rooms.find(st.session_state[TYPED])
        invitation = rooms.rooms().invitation(room.code)
    except MhaError as error:
        st.session_state[WRONG] = said(error)
    else:
        place.go(room=invitation, lesson="", screen="", answers="", like="")


def _door(code: str, refusal: str = "") -> None:
    """The door, where students join; a browser that already holds a token sends it and is let in.

    `refusal` says why that token opens nothing.
    """
    from mha_core.room.rooms import Unavailable

    try:
        room = rooms.find(place.room_code())
    except Unavailable as error:
        _draw(code, {"problem": said(error), "asks_again": True})
        return
    except MhaError as error:
        _gone(code, said(error))
        return
    _draw(
        code,
        {
            "heading": t("room.seat_heading", title=texts.title(room.lesson)),
            "goal": texts.goal(room.lessons[0]),
            "what": t("room.seat_what", date=_day(room.expires)),
            "is_refused": bool(refusal),
            "problem": refusal or st.session_state.pop(PROBLEM, ""),
        },
    )


def _gone(code: str, reason: str) -> None:
    """There is no such room, or no longer: the browser may have answers to take along."""
    st.title(t("lessons.title"), anchor=False)
    _draw(code, {"gone": reason})
    join_field()


def _seated(code: str, token: str) -> None:
    from mha_core.room.rooms import Unavailable, Unknown

    try:
        sitting = _read(code, token)
    except Unavailable as error:
        seen = st.session_state.get(SEEN)
        if seen is None or seen.room.code != code:
            _draw(code, {"problem": said(error), "asks_again": True})
            return
        sitting = seen
    except Unknown:
        _gone(code, t("room.seat_closed"))
        return
    except MhaError as error:  # a token that nobody was given here
        st.session_state[TOKENS].pop(code)
        _door(code, said(error))
        return
    st.session_state[SEEN] = sitting
    here = _place(sitting)
    if here.number > len(here.lesson.screens):
        _line(sitting, here)
        ending.page(here, _receipt(sitting))
    else:
        screen.page(here, lambda: _line(sitting, here))


def _read(code: str, token: str) -> Sitting:
    every = rooms.rooms()
    seat = every.enter(code, token)
    room = every.room(code)
    number = place.number_in(room.lesson)
    student = seat.student()
    at = min(room.pace.screen or number, len(room.lesson.screens))
    if student.screen != at:
        seat.at(at)
        student = replace(student, screen=at)
    return Sitting(room, seat, student, every.invitation(code), seat.answers())


def _place(sitting: Sitting) -> Place:
    """The student's place in the lesson: the screen of the class, if that is on one."""
    room, kept = sitting.room, sitting.kept
    fixed = room.pace.screen
    if fixed is not None and st.query_params.get("screen") != str(fixed):
        place.go(screen=fixed, like="")  # it stays there once the class is let go
    number = place.number_in(room.lesson)
    latest = {at: answer for (at, _), answer in sorted(kept.items())}
    # Once a screen is revealed the vote is over, also for who has not voted again.
    now = {at: one for at, one in latest.items() if (at, room.vote(at)) in kept or at in room.revealed}
    like = place.like_case() if number in now else (0, None)
    return Place(room.lesson, number, now, *like, room, latest)


def _line(sitting: Sitting, here: Place) -> None:
    """The line of the seat, below the question: who sits there, help, and what is not kept yet."""
    from mha_core.room import qr

    room, student = sitting.room, sitting.student
    number = t("room.seat_number", number=student.number)
    token = st.session_state[TOKENS][room.code]
    page = rooms.for_others(place.page_address())
    link = f"{page}?room={sitting.invitation}{after_link()}#{token}"
    _draw(
        room.code,
        {
            "token": token,
            "link": link,
            "qr": qr.drawn(link) if st.session_state.get(DEVICE) else None,
            "invitation": sitting.invitation,
            "version": room.version,
            "kept": {f"{at}.{vote}": one.answer for (at, vote), one in sitting.kept.items()},
            "not_taken": st.session_state.pop(REFUSED, None),
            "needs_help": student.needs_help,
            "you": t("room.seat_you", name=student.name) if student.name else number,
            "until": t("room.seat_until", code=room.code, date=_day(room.expires)),
            "along": _along(room, here.first),
            "problem": st.session_state.pop(PROBLEM, ""),
        },
        sitting,
    )


def _receipt(sitting: Sitting) -> dict[str, object] | None:
    """The receipt of the student's work, as a code and a picture; None while the database does not answer."""
    room = sitting.room
    try:
        code, late = sitting.seat.receipt(), sitting.seat.late()
    except MhaError:
        return None
    done = t(
        "room.seat_done",
        count=len({number for number, _ in sitting.kept}),
        all=len(room.lesson.screens),
    )
    done += t("room.late", count=late) if late else ""
    return {
        "heading": t("room.seat_receipt"),
        "what": t("room.seat_receipt_what", date=_day(room.expires)),
        "titles": [texts.title(one) for one in room.lessons],
        "lines": [*filter(None, [sitting.student.name]), done, _day(datetime.now(UTC))],
        "code": code,
        "save": t("room.seat_save"),
    }


def _day(when: datetime) -> str:
    return f"{when:%Y-%m-%d}"


def _along(room: "Room", locked: Mapping[int, Locked]) -> list[dict[str, object]]:
    """The lessons with which a student can go on alone, each with its answers."""
    told = []
    for lesson, before in room.parts:
        same = shipped().get(lesson.name)
        if same is None or library.version(same) != library.version(lesson):
            continue  # only its teacher has it
        count = len(lesson.screens)
        own = {at - before: one for at, one in locked.items() if 0 < at - before <= count}
        title = texts.title(lesson) if len(room.lessons) > 1 else ""
        place_of = {"lesson": lesson.name, "title": title, "before": before, "count": count}
        told.append(place_of | {"answers": place.write_answers(own)})
    return told


def _draw(code: str, data: Mapping[str, object], sitting: Sitting | None = None) -> None:
    data = {"code": code, "texts": templates("room.seat_"), "fields": after_link(), **data}
    _component(key=KEY, data=data, height=HEIGHT, on_acted_change=lambda: _act(code, sitting))


def _act(code: str, sitting: Sitting | None) -> None:
    """Carry out an act of the browser in the room; "look" only reruns the page, as when the teacher acts."""
    acted = acts.read(KEY, ACTS)
    if acted is None:
        return
    tokens = st.session_state.setdefault(TOKENS, {})
    try:
        match acted["do"]:
            case "enter":
                rooms.find(place.room_code())  # a guessed code counts, whatever it is sent with
                tokens[code] = acted["token"]
            case "leave":
                tokens.pop(code, None)
                st.session_state.pop(DEVICE, None)
            case "device":
                st.session_state[DEVICE] = True
            case "join" if code not in tokens:
                rooms.find(place.room_code())
                tokens[code] = rooms.join(code, acted["name"], acted["asked"])
                place.go(room=rooms.rooms().invitation(code))
            case "lock" if sitting is not None:
                spoken = acted["language"] if acted["language"] in languages() else language()
                _keep(sitting, acted["screen"], acted["vote"], Locked(acted["answer"], spoken))
            case "help" if sitting is not None and sitting.student.needs_help != acted["needs_help"]:
                sitting.seat.ask_for_help(acted["needs_help"])
    except MhaError as error:
        st.session_state[PROBLEM] = said(error)


def _keep(sitting: Sitting, number: int, vote: int, locked: Locked) -> None:
    """Write an answer. An invalid one is refused with the reason, and the browser drops it."""
    from mha_core.room.rooms import Unavailable, Unknown, writable

    answer, spoken = writable(locked.answer), locked.language
    try:
        if 1 <= number <= len(sitting.room.lesson.screens):
            items.item(Place(sitting.room.lesson, number, {number: locked})).check(answer)
        sitting.seat.keep(number, vote, answer, language=spoken)
    except Unavailable as error:
        rooms.note_unavailable(error)  # the browser sends it again
    except Unknown:
        pass  # the page says that the room is gone
    except MhaError as error:
        st.session_state[REFUSED] = {
            "key": f"{number}.{vote}",
            "answer": answer,
            "reason": t("room.seat_not_taken", reason=said(error)),
        }
