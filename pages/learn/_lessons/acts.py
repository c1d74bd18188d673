"""The acts that a browser sends from a desk, a seat or a screen: the one place where they are checked."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

MAX_ACTS = 20  # of one message; a page sends one at a time
MAX_NUMBER = 10_000
COUNT = "acts"  # of the session: how many acts this run has carried out
Acts = Mapping[str, Mapping[str, type]]  # the fields of each act, with their types


def read(key: str, acts: Acts) -> dict[str, Any] | None:
    """The act that the component with this key has sent; None for one that no page sends."""
    count = st.session_state[COUNT] = st.session_state.get(COUNT, 0) + 1
    sent = st.session_state[key].acted
    if count > MAX_ACTS or not isinstance(sent, Mapping):
        return None
    what = sent.get("do")
    fields = acts.get(what) if isinstance(what, str) else None
    if fields is None or not all(_is(sent.get(name), kind) for name, kind in fields.items()):
        return None
    return {"do": what} | {name: sent[name] for name in fields}


def _is(value: object, kind: type) -> bool:
    return type(value) is kind and (not isinstance(value, int) or 0 <= value <= MAX_NUMBER)


def begin() -> None:
    """Start the run of a page, after the acts of its message."""
    st.session_state[COUNT] = 0
