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

    def __getitem__(self, name):
        self._access()
        return super().__getitem__(name)

    def __setitem__(self, name, value):
        self._access()
        super().__setitem__(name, value)

    def __contains__(self, name):
        self._access()
        return super().__contains__(name)

    def get(self, name, default=None):
        self._access()
        return super().get(name, default)

    def pop(self, name, default=None):
        self._access()
        return super().pop(name, default)


class Link(dict):
    def get_all(self, name: str) -> list[str]:
        return [self[name]]


def stopped_and_again(run, session: Session, before: int) -> bool:
    """Whether the run was stopped, after which it runs a second time."""
    session.left = before
    try:
        run()
    except Stopped:
        run()
        return True
    session.left = None
    return False


@pytest.fixture
def open_session(monkeypatch):
    def begin(link: dict[str, str], **held) -> Session:
        session = Session(held)
        monkeypatch.setattr(st, "session_state", session)
        monkeypatch.setattr(st, "query_params", Link(link))
        return session

    return begin


def test_a_focus_that_the_browser_sent_is_taken_up_after_a_stop(open_session):
    sent = {"count": 1, "link": Focus(token="animal", head=2).link()}
    stops = 0
    for before in range(ACCESSES):
        session = open_session({})
        state.begin()
        session["address"] = {"focus": sent}
        stops += stopped_and_again(state.focus, session, before)
        assert (state.focus().token, state.focus().head) == ("animal", 2)
        assert state.address()["received"]["token"] == "animal"
    assert 0 < stops < ACCESSES


def test_a_link_is_taken_up_after_a_stop(open_session):
    stops = 0
    for before in range(ACCESSES):
        session = open_session({"token": "animal", "head": "2", "weights": "0"})  # whose heads are others
        stops += stopped_and_again(state.begin, session, before)
        assert (state.focus().token, state.focus().head) == ("animal", 1)
    assert 0 < stops < ACCESSES


def test_a_token_that_a_link_names_with_its_text_stays_after_a_stop(open_session):
    text = "The dog slept because it was tired"
    trace = mha.trace(text, source="mini")
    stops = 0
    for before in range(ACCESSES):
        session = open_session({"token": "dog"}, text=text, texts_of_token=(DEFAULTS.text, ""), twin="")
        state.begin()
        stops += stopped_and_again(lambda: state.name_tokens(trace), session, before)
        assert state.focus().token == "dog"
    assert 0 < stops < ACCESSES
