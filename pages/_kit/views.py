"""The views of a page that has several, of which one is open, and folds that are computed once opened."""

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages._kit import state
from pages._kit.text import t


def choose(field: str, names: Sequence[str]) -> str:
    """Draw the row; returns the open view, which the link names in that field, else the first."""
    asked = st.query_params.get(field, names[0])
    view = asked if asked in names else names[0]
    if asked != view:
        state.say_instead(field, view)
    key = f"{field}s"

    def chosen() -> None:
        st.query_params.pop(field, None)
        if (now := st.session_state[key]) != names[0]:
            st.query_params[field] = now

    st.session_state[key] = view  # Back changes the link alone
    st.segmented_control(
        t(f"{field}s"),
        names,
        required=True,
        format_func=lambda name: t(f"{field}.{name}"),
        key=key,
        on_change=chosen,
        label_visibility="collapsed",
    )
    return view


def fold(title: str, *, key: str, expanded: bool = False, in_link: bool = False) -> DeltaGenerator | None:
    """A fold of the page, to be filled; None while it is closed, so that nothing is computed for it.

    With `in_link` the link says under the key whether it is open.
    """
    expander = st.expander(
        title, expanded=expanded, key=key, on_change="rerun", bind="query-params" if in_link else None
    )
    return expander if expander.open else None
