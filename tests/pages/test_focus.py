"""The focus as the server holds it: a run that another message stops loses nothing of it."""

import pytest
import streamlit as st

import mha_core as mha
from mha_core.focus.focus import Focus
from mha_core.scene.scene import DEFAULTS
from pages._kit import state

ACCESSES = 40  # of the session, more than any of these makes


class Stopped(Exception):
    """Another message stopped the run."""


class Session(dict):
    """A session that stops the run before one of its accesses, as Streamlit's does."""

    left: int | None = None

    def _access(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Stopped


def _stopping(name: str):
    def method(session: Session, *arguments):
        session._access()
        return getattr(dict, name)(session, *arguments)

    return method


for _name in ("__getitem__", "__setitem__", "__contains__", "get", "pop"):
    setattr(Session, _name, _stopping(_name))


class Link(dict):
    def get_all(self, name: str) -> list[str]:
        return [self[name]]


TEXT = "The dog slept because it was tired"
SENT = {"count": 1, "link": Focus(token="animal", head=2).link()}


def sent() -> None:
    state.begin()
    st.session_state["address"] = {"focus": SENT}


@pytest.mark.parametrize(
    ("link", "held", "before", "run", "token", "head"),
    [
        ({}, {}, sent, state.focus, "animal", 2),
        # A link whose heads are others.
        ({"token": "animal", "head": "2", "weights": "0"}, {}, None, state.begin, "animal", 1),
        (
            {"token": "dog"},
            {"text": TEXT, "texts_of_token": (DEFAULTS.text, ""), "twin": ""},
            state.begin,
            lambda: state.name_tokens(mha.trace(TEXT, source="mini")),
            "dog",
            1,
        ),
    ],
    ids=["sent by the browser", "of a link", "named in a link with its text"],
)
def test_a_focus_is_taken_up_after_a_stop(monkeypatch, link, held, before, run, token, head):
    stops = 0
    for left in range(ACCESSES):
        session = Session(held)
        monkeypatch.setattr(st, "session_state", session)
        monkeypatch.setattr(st, "query_params", Link(link))
        if before is not None:
            before()
        session.left = left
        try:
            run()
        except Stopped:
            stops += 1
            run()
        session.left = None
        assert (state.focus().token, state.focus().head) == (token, head)
        if before is sent:
            assert state.address()["received"]["token"] == token
    assert 0 < stops < ACCESSES
