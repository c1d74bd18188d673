"""The teacher's tasks besides the lesson: the room's table, its end, its secret link, receipts."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from mha_core import MhaError
from mha_core.analysis.frames import csv
from pages._kit import components
from pages._kit.text import literal, said, t
from pages._server import rooms
from pages.learn._lessons import items, opening, place

if TYPE_CHECKING:
    from mha_core.room.rooms import Desk

DAYS, RECEIPT, TOGETHER = "desk_days", "desk_receipt", "desk_together"
CLOSED, REMOVED = "desk_closed", "desk_removed"  # whether the door is closed, and the student to remove
RENEWED = "desk_renewed"  # in the session: whether the link is a new one since just now
ENDINGS = {"csv": ".csv", "students": "-students.csv", "json": ".json"}  # of files
TOLD = "desk_told"  # in the session: what came of the last act


def link(desk: "Desk") -> None:
    """The link back to the desk, which nobody else can give its teacher."""
    with st.popover(t("room.desk_link"), icon=":material/key:", type="tertiary"):
        st.caption(t("room.desk_link_what"))
        address, secret = place.page_address(), st.session_state[opening.SECRETS][desk.code]
        if rooms.is_overheard(address):
            st.warning(t("room.desk_overheard"))
        # No server sees what is behind the "#".
        components.code(f"{address}?desk={desk.code}#{secret}", wraps=True)
        st.button(t("room.desk_renew"), key="desk_renew", on_click=lambda: _try(lambda: _renew(desk)))
        if st.session_state.pop(RENEWED, False):
            st.info(t("room.desk_renewed"))


def page(desk: "Desk") -> None:
    try:
        room = desk.room()
    except MhaError:  # deleted in this moment
        st.rerun()
    with st.expander(t("room.desk_more"), key="desk_more"):
        st.text_input(
            t("room.desk_check"),
            key=RECEIPT,
            placeholder="K7QM2X-17-6-20261126-8ZKQ3MWY2B",
            on_change=lambda: _try(lambda: _check(desk)),
        )
        with st.container():  # whatever is said here, what follows keeps its place
            if told := st.session_state.pop(TOLD, ""):
                st.info(told)
        st.caption(t("room.desk_kept_until", day=f"{room.expires:%Y-%m-%d}"))
        opening.together_field(
            room.together,
            key=TOGETHER,
            on_change=lambda: _try(lambda: desk.set_together(st.session_state[TOGETHER])),
            horizontal=True,
        )
        _door(desk, room.closed)
        st.markdown(f"**{t('room.desk_export')}**")
        _export(desk)
        _end(desk)


def _door(desk: "Desk", closed: bool) -> None:
    """Whether others can join, and who has to go."""
    st.session_state[CLOSED] = closed
    st.toggle(
        t("room.desk_closed"),
        key=CLOSED,
        on_change=lambda: _try(lambda: desk.close_door(st.session_state[CLOSED])),
    )
    names = {one.number: _name(one.number, one.name) for one in desk.students()}
    if not names:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        number = st.selectbox(
            t("room.desk_remove_whom"),
            names,
            index=None,
            format_func=lambda one: names[one],
            key=REMOVED,
            width=320,
        )
        st.button(
            t("room.desk_remove"),
            key="desk_remove",
            disabled=number is None,
            help=t("room.desk_remove_what"),
            on_click=lambda: _try(lambda: desk.remove(st.session_state[REMOVED])),
        )


def _name(number: int, name: str) -> str:
    numbered = t("room.desk_js_student", number=number)
    return f"{name} ({numbered})" if name else numbered


def files(desk: "Desk") -> dict[str, Callable[[], bytes]]:
    """The functions that write the tables of the room, by kind of file."""
    from mha_core.room.export import rows, students

    return {
        "csv": lambda: csv(pd.DataFrame(rows(desk, items.trace))),
        "students": lambda: csv(pd.DataFrame(students(desk, rows(desk, items.trace)))),
        "json": lambda: json.dumps(rows(desk, items.trace), ensure_ascii=False, indent=1).encode(),
    }


def _export(desk: "Desk") -> None:
    with st.container(horizontal=True):
        for kind, written in files(desk).items():
            st.download_button(
                t(f"room.desk_{kind}"),
                written,
                file_name=f"room-{desk.code}{ENDINGS[kind]}",
                mime="application/json" if kind == "json" else "text/csv",
                key=f"desk_{kind}",
                icon=":material/download:",
                on_click="ignore",
            )


def _end(desk: "Desk") -> None:
    st.markdown(f"**{t('room.desk_end')}**")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        opening.days_field(DAYS)
        st.button(
            t("room.desk_keep"),
            key="desk_keep",
            on_click=lambda: _try(lambda: desk.keep_for(st.session_state[DAYS])),
        )
    if st.checkbox(t("room.desk_delete"), key="desk_ends"):
        st.caption(t("room.desk_delete_what"))
        st.button(
            t("room.desk_delete_now"),
            key="desk_delete",
            type="primary",
            icon=":material/delete:",
            on_click=lambda: _try(lambda: _delete(desk)),
        )


def _try(act: Callable[[], None]) -> None:
    """Carry out an act; if the room refuses it, the desk says why."""
    try:
        act()
    except MhaError as error:
        st.session_state[TOLD] = literal(said(error))


def _renew(desk: "Desk") -> None:
    st.session_state[opening.SECRETS][desk.code] = desk.renew()
    st.session_state[RENEWED] = True


def _check(desk: "Desk") -> None:
    if text := st.session_state[RECEIPT].strip():
        found = desk.check_receipt(text)
        names = {one.number: one.name for one in desk.students()}
        name = names.get(found.number) or t("room.desk_js_student", number=found.number)
        late = desk.late(found.number)
        st.session_state[TOLD] = t(
            "room.desk_receipt",
            name=literal(name),
            count=found.answered,
            total=len(desk.room().lesson.screens),
            late=t("room.late", count=late) if late else "",
            day=f"{found.day:%Y-%m-%d}",
        )
        st.session_state[RECEIPT] = ""  # for the next one


def _delete(desk: "Desk") -> None:
    desk.delete()
    st.session_state[opening.SECRETS].pop(desk.code, None)
    st.session_state[opening.DELETED] = desk.code
    place.go(**opening.LEAVE)
