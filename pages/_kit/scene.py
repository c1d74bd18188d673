"""The scene of a page and its traces; where one cannot be computed, the page says why and stops."""

from dataclasses import replace

import streamlit as st

from mha_core import AttentionTrace, MhaError
from pages._kit import compute, model_source, refusals, state, uploads
from pages._kit.text import literal, t


def scene_and_trace(*, heading: str = "", vectors: bool = False) -> tuple[state.Scene, AttentionTrace]:
    """The scene and the trace of its sentence; where there is none the page ends below its `heading`.

    A page whose heading is there already gives none.

    Of a sentence that its source cannot read it is a stand-in, or the trace of its beginning, which is then
    the text of the scene, under a note with what works instead.
    """
    scene = state.current()
    if scene.source == "file" and uploads.trace(scene) is None:
        _name(heading)
        refusals.no_file()
        st.stop()
    if scene.source == "model" and not model_source.ready(scene):
        _name(heading)
        refusals.no_model(scene)
        st.stop()
    try:
        trace, reason = compute.trace_or_stand_in(scene)
    except MhaError as error:
        _name(heading)
        if refusals.is_empty(scene):
            refusals.no_text()
        else:
            refusals.show(error, page_offers=scene.source == "model")
        if scene.source == "model":
            refusals.offer_models(scene)
        st.stop()
    if reason is not None:
        refusals.instead(reason, trace, scene, field="text", vectors=vectors)
    return _as_read(scene, reason), trace


def _name(heading: str) -> None:
    if heading:
        st.title(heading, anchor=False)


def in_fragment() -> tuple[state.Scene, AttentionTrace]:
    """The same in a fragment of the page, which is run alone when the focus has moved."""
    try:
        trace, reason = compute.trace_or_stand_in(state.current())
    except MhaError:  # it is no longer there
        st.rerun()
    state.name_tokens(trace)
    return _as_read(state.current(), reason), trace


def _as_read(scene: state.Scene, reason: MhaError | None) -> state.Scene:
    """The scene with the text that its source has read: what asks the source again asks for the same."""
    if reason is None or scene.source in state.STARTED:
        return scene
    return replace(scene, text=compute.beginning(reason))


def second_trace(scene: state.Scene, *, says: bool = True) -> AttentionTrace | None:
    """The trace of the second sentence; None where there is none or it cannot be computed.

    The page `says` why it is not what was asked for; a fragment of it says nothing again.
    """
    if scene.source == "file" or not scene.twin.strip():
        return None
    try:
        trace, reason = compute.trace_or_stand_in(scene, text=scene.twin)
    except MhaError as error:
        if says:
            st.caption(t("error.twin", reason=literal(error)))
        return None
    if reason is not None and says:
        refusals.instead(reason, trace, scene, field="twin")
    return trace
