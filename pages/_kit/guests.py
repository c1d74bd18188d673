"""Guests of a page, which are there only sometimes: each is entered only when its condition holds.

A guest stands at one point of a run: at the "start", before the controls; at the "top" of the page; beside
the "title" of Heads; below a "trace" that a page has just found. Guests at one point get the same arguments.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

import streamlit as st

from mha_core import resources
from mha_core.scene.scene import Scene
from pages._kit import cases, components, refusals, uploads
from pages._kit.compute import Nearest
from pages._kit.text import after_link, t

INVITED = "headscope_invited"  # cookie: whether the browser has followed or closed the invitation
FIRST_LESSON = "./lessons?lesson=heads&screen=1"

_invitation = components.component(
    "invitation",
    "lesson/invitation.js",
    html='<div class="invitation"></div>',
    styles=("lesson/lesson.css",),
)


class Guest(NamedTuple):
    """One guest: where it stands, its condition, and the function that shows it."""

    point: str
    is_here: Callable[..., bool]
    show: Callable[..., object]


def _has_file(*_: object) -> bool:
    """Whether `headscope open` started the server with a file that this session has not opened yet."""
    return bool(os.environ.get(resources.OPENED)) and "opened_trace" not in st.session_state


def _is_replaced(found: Nearest, asked: Scene, field: str, vectors: bool) -> bool:
    """Whether a trace is not the one that was asked for, or is a part of a longer text."""
    return bool(found.reasons) or f"{refusals.WHOLE}{field}" in st.session_state


def is_newcomer() -> bool:
    """Whether the browser has neither followed nor closed the invitation."""
    return not st.context.cookies.get(INVITED)


def _invite() -> None:
    """Invite first-time visitors to the first minute of lesson 1."""
    href = FIRST_LESSON + after_link()
    texts = {"text": t("lessons.invitation"), "close": t("lessons.no_invitation")}
    with st.container(key="invited", width="content"):
        _invitation(key="invitation", data={"cookie": INVITED, "href": href, **texts}, height=32)


GUESTS = {
    "file of the command": Guest("start", _has_file, uploads.begin),
    "case": Guest("top", lambda: bool(st.query_params.get(cases.FIELD)), cases.show),
    "invitation": Guest("title", is_newcomer, _invite),
    "replacement": Guest("trace", _is_replaced, refusals.instead),
    "unknown words": Guest(
        "trace", lambda found, *_: bool(found.trace.tokens.unknown), refusals.unknown_words
    ),
}


def receive(point: str, *arguments: object) -> None:
    """Show the guests of a point whose conditions hold, in the order of the table."""
    for guest in GUESTS.values():
        if guest.point == point and guest.is_here(*arguments):
            guest.show(*arguments)
