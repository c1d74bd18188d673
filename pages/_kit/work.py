"""Everything that computes: one cached, bounded door from a scene to its trace."""

import json

import streamlit as st

import mha_core as mha
from mha_core.device import Device, pick
from mha_core.training.grammar import MAX_WORDS
from pages._kit.state import Scene

SOURCES = ("mini", "random", "run")
MAX_TOKENS = {"mini": MAX_WORDS, "random": 256, "run": MAX_WORDS}
MAX_TRACES = 32


def trace(scene: Scene, *, text: str | None = None) -> mha.AttentionTrace:
    """The trace of the scene's text, or of another with the same settings.

    Raises `MhaError` where the settings do not fit.
    """
    # One canonical string is the key: separate arguments can collide in the cache's hash.
    return _trace(json.dumps(scene.settings(text), sort_keys=True))


def peek(scene: Scene) -> mha.AttentionTrace | None:
    """The scene's trace, or None where its settings do not fit."""
    try:
        return trace(scene)
    except mha.MhaError:
        return None


def finished_runs() -> dict:
    """The models that were trained on this server, by name."""
    return {}


@st.cache_resource(max_entries=MAX_TRACES, show_spinner=False)
def _trace(settings: str) -> mha.AttentionTrace:
    asked = json.loads(settings)
    return mha.trace(limit=MAX_TOKENS[asked["source"]], **asked)


@st.cache_resource
def device() -> Device:
    return pick()
