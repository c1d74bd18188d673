"""The scene of a page and its traces; where something does not fit, the page says so and ends."""

import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis import frames
from pages._kit import compute, model_source, refusals, state, uploads
from pages._kit.text import t


def scene_and_trace(longest: int | None = frames.WHOLE) -> tuple[state.Scene, AttentionTrace]:
    """The scene and the trace of its sentence.

    A page that draws whole matrices takes texts of at most `longest` tokens, and says so of others.
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
        refusals.show(error, own=scene.source == "model")
        if scene.source == "model":
            refusals.offer_models(scene)
        if any({"h", "d_model"} <= set(fix) for fix in error.fixes):  # no shipped model has these sizes
            refusals.offer_training(scene)
        st.stop()
    tokens = frames.longest(trace)
    if longest is not None and tokens > longest:
        st.info(t("long.elsewhere", count=f"{tokens:,}", longest=longest), icon=":material/notes:")
        st.stop()
    return scene, trace


def second_trace(scene: state.Scene) -> AttentionTrace | None:
    """The trace of the second sentence, if there is one."""
    if scene.source == "file" or not scene.twin.strip():
        return None
    try:
        return compute.trace(scene, text=scene.twin)
    except MhaError as error:
        st.warning(refusals.short(error))
        return None
