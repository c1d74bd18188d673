"""Everything that computes: one cached, bounded door from a scene to its trace."""

import json

import streamlit as st

import mha_core as mha
from mha_core.device import Device, pick
from pages._kit import state

MAX_TRACES = 16


def trace(scene: state.Scene) -> mha.AttentionTrace:
    """The scene's trace; where its settings do not fit, say so and end the page."""
    try:
        # One canonical string is the key: separate arguments can collide in the cache's hash.
        return _trace(json.dumps(scene.settings(), sort_keys=True))
    except mha.MhaError as error:
        state.show_error(error)
        st.stop()


@st.cache_resource(max_entries=MAX_TRACES, show_spinner=False)
def _trace(settings: str) -> mha.AttentionTrace:
    return mha.trace(source="random", limit=state.MAX_TOKENS, **json.loads(settings))


@st.cache_resource
def device() -> Device:
    return pick()
