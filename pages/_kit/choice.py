"""A choice between names that a link keeps and the reader sees as words of their language."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from pages._kit.text import DEFAULT, catalogue, t

WORDED = ("architecture", "kind", "mask", "position")  # fields of a scene whose values have translated words
SHOWN = "shown_"  # prefix of the visible control's key; the invisible one has the key of the field


def draw(
    control: Callable, label: str, field: str, names: Sequence[str], default: str | list[str], **options: Any
) -> None:
    """Draw a field as two controls, because Streamlit would write the visible control's words into the link.

    `hold` draws the invisible control, and `show` the visible one, which gets the `options`.
    """
    hold(field, names, default)
    show(control, label, field, names, **options)


def hold(field: str, names: Sequence[str], default: str | list[str]) -> None:
    """Draw the invisible control, which keeps the chosen name under `field` in the session and the link.

    If `default` is a list, several names can be chosen.
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
    """Draw the visible control, one of Streamlit's, such as ``st.selectbox``.

    `words` translates a name, by default with the catalogue. `on_change` is called with the chosen name
    before the field takes it.
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
    """The reader's word for a value of a field; a mask may be followed by its size, as in "window:2".

    A value that the field does not know, such as one from a link, stays as it is.
    """
    kind, _, size = name.partition(":")
    if f"option.{field}.{kind}" not in catalogue(DEFAULT):
        return name
    found = t(f"option.{field}.{kind}")
    return t("option.sized", word=found, size=size) if size else found


def setting(field: str, value: object) -> str:
    """A field and its value, as a button shows them: "h 4", "mask causal"."""
    return t(f"option.{field}", word=word(field, str(value))) if field in WORDED else f"{field} {value}"
