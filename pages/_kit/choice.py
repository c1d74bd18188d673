"""A choice between names that a link keeps and the reader sees as words of their language."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from pages._kit.language import DEFAULT
from pages._kit.text import catalogue, t

WORDED = ("architecture", "kind", "mask", "position")  # fields of a scene whose names are words
SHOWN = "shown_"  # begins the key of the control that is seen; the invisible one has the key of the field


def draw(
    control: Callable, label: str, field: str, names: Sequence[str], default: str | list[str], **options: Any
) -> None:
    """Two controls of one field: Streamlit would write the words of the visible one into the link.

    The invisible one is that of `hold`, the visible one that of `show`, which gets the `options`.
    """
    hold(field, names, default)
    show(control, label, field, names, **options)


def hold(field: str, names: Sequence[str], default: str | list[str]) -> None:
    """The invisible control: the session and the link have the chosen name under `field`.

    A list as `default` lets several be chosen.
    """
    with st.container(key=f"unseen_{field}"):
        if isinstance(default, list):
            st.multiselect(field, names, default, key=field, bind="query-params")
        else:
            st.selectbox(field, names, names.index(default), key=field, bind="query-params")


def show(
    control: Callable,
    label: str,
    field: str,
    names: Sequence[str],
    *,
    words: Callable[[str], str] | None = None,
    on_change: Callable[[str], None] | None = None,
    **options: Any,
) -> None:
    """The visible control, one of Streamlit's, such as ``st.selectbox``.

    `words` gives the word of a name, by default the catalogue's. `on_change` is called with what is chosen,
    before it takes its place.
    """

    def take() -> None:
        if on_change is not None:
            on_change(st.session_state[shown])
        st.session_state[field] = st.session_state[shown]

    shown = f"{SHOWN}{field}"
    st.session_state[shown] = st.session_state[field]
    words = words or (lambda name: word(field, name))
    control(label, names, format_func=words, key=shown, on_change=take, **options)


def word(field: str, name: str) -> str:
    """The reader's word for a name that a field can have; a mask may have its size behind it, "window:2".

    A name of a link that the field cannot have stays as it is.
    """
    kind, _, size = name.partition(":")
    if f"option.{field}.{kind}" not in catalogue(DEFAULT):
        return name
    found = t(f"option.{field}.{kind}")
    return t("option.sized", word=found, size=size) if size else found


def setting(field: str, value: object) -> str:
    """A field and its value, as a button says it: "h 4", "mask causal"."""
    return t(f"option.{field}", word=word(field, str(value))) if field in WORDED else f"{field} {value}"
