"""Guests: each is entered when its condition holds, and only then."""

import pytest
import streamlit as st

import mha_core as mha
from mha_core import resources
from pages._kit import guests

# For each guest a link that switches it on, and the key of what it shows.
LINKS = {
    "case": ({"case": 3}, "case"),
    "invitation": ({}, "invitation"),
    "replacement": ({"h": 3, "d_model": 64}, "instead_sizes"),
    "unknown words": ({"text": "The flonk slept.", "twin": ""}, None),
}


@pytest.fixture
def entered(monkeypatch):
    """The names of the guests that have been entered, in order."""
    names: list[str] = []

    def recorder(name, guest):
        return guest._replace(show=lambda *arguments: (names.append(name), guest.show(*arguments)))

    for name, guest in guests.GUESTS.items():
        monkeypatch.setitem(guests.GUESTS, name, recorder(name, guest))
    return names


@pytest.mark.parametrize("name", LINKS)
def test_a_guest_is_entered_when_its_condition_holds_and_only_then(
    name, entered, opened, english, monkeypatch
):
    link, key = LINKS[name]
    if name == "invitation":  # only a browser without our cookie is here for the first time
        monkeypatch.setattr(type(st.context), "cookies", {})
    app = opened(**link)
    assert set(entered) == {name}
    if key is not None:
        assert app.get_by_key(key)
    else:
        assert english("unknown.line") in " ".join(caption.value for caption in app.caption)


def test_the_file_of_the_command_is_opened_once(entered, opened, monkeypatch, tmp_path):
    path = tmp_path / "trace.safetensors"
    mha.trace("a b c", h=2, d_model=8).save(path)
    monkeypatch.setenv(resources.OPENED, str(path))
    app = opened()
    assert app.session_state.source == "file"
    app.run()
    assert entered.count("file of the command") == 1


def test_every_guest_is_switched_on_here():
    assert guests.GUESTS.keys() == LINKS.keys() | {"file of the command"}
