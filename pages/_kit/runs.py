"""The trainings that a visitor can look at: those of this session, and the one that a link names."""

import streamlit as st

from pages._kit import compute


def remember(name: str) -> None:
    """Note that the visitor trained this model, opened it from a file, or went to look at it."""
    names = st.session_state.setdefault("runs", [])
    if name not in names:
        names.insert(0, name)


def names() -> list[str]:
    """The models of this session that are still there, the latest first, and the one that is asked for.

    That one may be gone: then the page says so, and no other is shown in its place.
    """
    here = [name for name in st.session_state.get("runs", []) if compute.trainings().steps(name)]
    asked = st.session_state.get("run") or st.query_params.get("run")
    return here if not asked or asked in here else [asked, *here]
