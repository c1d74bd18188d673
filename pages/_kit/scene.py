"""The scene of a page and its traces; if one cannot be computed, the page says why and stops."""

from dataclasses import replace

import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.scene.scene import Scene
from pages._kit import compute, refusals, state
from pages._kit.text import literal, said, t


def scene_and_trace(
    asked: Scene | None = None, *, heading: str = "", vectors: bool = False
) -> tuple[Scene, AttentionTrace]:
    """The scene and the trace of its sentence; without a trace the page ends below its `heading`.

    The scene is that of the controls, unless a view has another one. Pages that have drawn their heading
    already give none. If what was asked for cannot be traced, both belong to the nearest sizes, or to the
    part of the text that the source reads, and a note says so. With `vectors` the page shows words by their
    vectors, which unknown words do not have.
    """
    asked = asked or state.current()
    try:
        found = compute.nearest(asked)
    except MhaError as error:
        if heading:
            st.title(heading, anchor=False)
        refusals.no_trace(error, asked)
        st.stop()
    _note(found, asked, "text", vectors=vectors)
    return found.scene, found.trace


def _note(found: compute.Nearest, asked: Scene, field: str, *, vectors: bool = False) -> None:
    """Say where the trace is not the one that was asked for, and which of its words are unknown."""
    if found.reasons or f"{refusals.WHOLE}{field}" in st.session_state:
        refusals.instead(found, asked, field)
    if found.trace.tokens.unknown:
        refusals.unknown_words(found, asked, field, vectors=vectors)


def in_fragment(asked: Scene | None = None) -> tuple[Scene, AttentionTrace]:
    """The same inside a fragment of the page, which runs alone when the focus has moved."""
    try:
        scene, trace, _ = compute.nearest(asked or state.current())
    except MhaError:  # it is no longer there
        st.rerun()
    state.name_tokens(trace)
    return replace(scene, focus=state.focus()), trace


def second_trace(scene: Scene, *, explains: bool = True) -> AttentionTrace | None:
    """The trace of the second sentence; None without one, or if it cannot be computed.

    With `explains` the page says why it is not what was asked for; a fragment does not repeat it.
    """
    if scene.source == "file" or not scene.twin.strip():
        return None
    try:
        found = compute.nearest(scene, field="twin")
    except MhaError as error:
        if explains:
            st.caption(t("error.twin", reason=literal(said(error))))
        return None
    if explains:
        _note(found, scene, "twin")
    return found.trace
