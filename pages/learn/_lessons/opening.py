"""A teacher opens a room for a class: with which lessons, when answers are revealed, how long it is kept."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from mha_core import MhaError
from mha_core.lessons.lesson import Lesson
from pages._kit.text import literal, said, t
from pages._server import rooms
from pages.learn._lessons import library, place, texts

SECRETS = "desk_secrets"  # of the session: the secrets of the teacher's desks, by the codes of their rooms
DELETED = "room_deleted"  # in the session: the code of the room that was deleted just now
# The fields of the link to leave out: back to the cards.
LEAVE = dict.fromkeys(("desk", "lesson", "projector", library.FILE), "")


def way(lesson: str) -> dict[str, object]:
    """The fields of the link that opens a room which begins with the lesson of that name."""
    return {"desk": place.NEW, "lesson": lesson, "screen": "", "answers": ""}


def page() -> None:
    """The form that opens a room."""
    from mha_core.room.rooms import MAX_LESSONS

    every, first = library.lessons(), st.query_params.get("lesson", "")
    if first not in every:
        st.info(t("lessons.file_gone"), icon=":material/upload_file:")
        return
    st.title(t("room.desk_new"), anchor=False)
    st.caption(t("room.desk_new_what"))
    names = st.multiselect(
        t("room.desk_lessons"),
        list(every),
        default=[first],
        format_func=lambda name: texts.title(every[name]),
        key="room_lessons",
        max_selections=MAX_LESSONS,
    )
    chosen = [every[name] for name in names]
    if chosen:
        minutes, count = sum(one.minutes for one in chosen), sum(len(one.screens) for one in chosen)
        st.caption(t("lessons.size", minutes=minutes, count=count))
    together = together_field(True, key="room_together")
    days = days_field("room_days")
    with st.container(horizontal=True):
        if st.button(
            t("room.desk_open"),
            key="room_open",
            type="primary",
            icon=":material/co_present:",
            disabled=not chosen,
        ):
            _open(chosen, together=together, days=days)
        st.button(t("lessons.all"), key="room_leave", on_click=place.go, kwargs=LEAVE)


def _open(lessons: Sequence[Lesson], *, together: bool, days: int) -> None:
    try:
        key = rooms.open_room(*lessons, together=together, days=days)
    except MhaError as error:
        st.error(literal(said(error)))
        return
    st.session_state.setdefault(SECRETS, {})[key.code] = key.secret
    place.go(**LEAVE | {"desk": key.code})
    st.rerun()


def together_field(together: bool, **options: Any) -> bool:
    """The choice whether the teacher reveals answers to all together, or each student sees their own."""
    return st.radio(
        t("room.desk_reveal_when"),
        (True, False),
        index=0 if together else 1,
        format_func=lambda value: t(f"room.desk_together_{'yes' if value else 'no'}"),
        **options,
    )


def days_field(key: str) -> int:
    """The number of days for which a room is kept."""
    from mha_core.room.rooms import DAYS, MAX_DAYS

    return st.number_input(t("room.desk_days"), 1, MAX_DAYS, DAYS, key=key, width=220)
