"""The scene of a page and its traces; where one cannot be computed, the page says why and stops."""

import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis import frames
from pages._kit import compute, model_source, refusals, state, uploads
from pages._kit.text import literal, t


def scene_and_trace(max_tokens: int | None = frames.WHOLE) -> tuple[state.Scene, AttentionTrace]:
    """The scene and the trace of its sentence.

    The page stops with a note for a text of more than `max_tokens` tokens, the most that it can draw; None
    takes texts of every length.
    """
    scene = state.current()
    if scene.source == "file" and uploads.trace(scene) is None:
        refusals.no_file()
        st.stop()
    if scene.source == "model" and not model_source.ready(scene):
        refusals.no_model(scene)
        st.stop()
    try:
        trace = compute.trace(scene)
    except MhaError as error:
        refusals.show(error, page_offers=scene.source == "model")
        if scene.source == "model":
            refusals.offer_models(scene)
        if any({"h", "d_model"} <= set(fix) for fix in error.fixes):  # no shipped model has these sizes
            refusals.offer_training(scene)
        st.stop()
    tokens = frames.longest(trace)
    if max_tokens is not None and tokens > max_tokens:
        st.info(t("long.elsewhere", count=f"{tokens:,}", longest=max_tokens), icon=":material/notes:")
        st.stop()
    return scene, trace


def second_trace(scene: state.Scene) -> AttentionTrace | None:
    """The trace of the second sentence; None where there is none or it cannot be computed."""
    if scene.source == "file" or not scene.twin.strip():
        return None
    try:
        return compute.trace(scene, text=scene.twin)
    except MhaError as error:
        st.warning(t("error.twin", reason=literal(error)))
        return None
