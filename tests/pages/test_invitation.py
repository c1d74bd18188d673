"""The invitation to the first lesson stands on the page of a browser that is here for the first time."""

import pytest
import streamlit as st


def test_only_a_newcomer_is_invited(component, opened, monkeypatch):
    monkeypatch.setattr(type(st.context), "cookies", {})
    assert component(opened(), "invitation")["href"].startswith("./lessons?lesson=heads")
    monkeypatch.setattr(type(st.context), "cookies", {"headscope_invited": "1"})
    with pytest.raises(KeyError):
        component(opened(), "invitation")
