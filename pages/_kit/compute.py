"""Everything that computes: one cached, bounded door from a scene to its trace."""

import json
from dataclasses import replace
from threading import Lock

import streamlit as st

import mha_core as mha
from mha_core.device import Device, pick
from mha_core.sources.mini import find, follow, model
from mha_core.traces.source import RunSource
from mha_core.training.checkpoints import Trained, untrained
from mha_core.training.language import MAX_WORDS
from mha_core.training.queue import Trainings
from pages._kit import model_source, uploads
from pages._kit.state import Scene
from pages._kit.text import t

SOURCES = ("mini", "random", "run", "model", "file")
MAX_TOKENS = {"mini": MAX_WORDS, "random": 4096, "run": MAX_WORDS, "model": 4096}
MAX_TRACES = 32
LARGE = 1 << 25  # numbers in the q of all layers from which on a trace is one of few that are kept
MAX_LARGE = 2


def trace(scene: Scene, *, text: str | None = None, trained: bool = True) -> mha.AttentionTrace:
    """The trace of the scene's text, or of another with the same settings.

    A file has one text, whatever is asked for. ``trained=False`` takes a trained model as it was before
    its first step.
    Raises `MhaError` where the settings do not fit.
    """
    if scene.source == "file":
        found = uploads.trace(scene)
        if found is None:
            raise mha.MhaError(uploads.NOTHING)
        return found
    if scene.source == "model":
        return model_source.trace(scene, scene.text if text is None else text)
    settings = scene.settings(text) | ({} if trained else {"trained": False})
    # One canonical string is the key: separate arguments can collide in the cache's hash.
    key = json.dumps(settings, sort_keys=True)
    return _large_trace(key) if _is_large(scene, settings["text"]) else _trace(key)


def _is_large(scene: Scene, text: str) -> bool:
    """Many layers over a long text: hundreds of megabytes, and seconds of all cores."""
    shape = (scene.d_k or scene.d_model // max(scene.h, 1)) * scene.h * scene.layers
    # A token has at least one character and mostly a space: an upper bound that costs nothing.
    return scene.source == "random" and len(text) * shape >= LARGE


def peek(scene: Scene) -> mha.AttentionTrace | None:
    """The scene's trace, or None where its settings do not fit."""
    try:
        return trace(scene)
    except mha.MhaError:
        return None


def small_model(scene: Scene, language: str) -> Trained:
    """The small trained model that the scene looks at; each shipped one is read once."""
    if scene.source == "run":
        return _finished(scene.run)
    return model(find(language, scene.architecture, scene.h, scene.d_model))


def finished_runs() -> dict[str, Trained]:
    """The models that were trained or opened on this server, by name."""
    return trainings().finished()


@st.cache_resource
def trainings() -> Trainings:
    """The one queue of trainings that all visitors of this server share."""
    return Trainings()


@st.cache_resource(max_entries=MAX_TRACES, show_spinner=False)
def _trace(settings: str) -> mha.AttentionTrace:
    return _computed(settings)


@st.cache_resource(max_entries=MAX_LARGE, show_spinner=False)
def _large_trace(settings: str) -> mha.AttentionTrace:
    # One after the other: two at once take twice the memory and not half the time.
    with st.spinner(t("long.computing")), _one_at_a_time():
        return _computed(settings)


@st.cache_resource
def _one_at_a_time() -> Lock:
    return Lock()


def _computed(settings: str) -> mha.AttentionTrace:
    asked = json.loads(settings)
    if asked["source"] == "run":
        found = _finished(asked["run"])
        trace = follow(found if asked.get("trained", True) else untrained(found.plan), asked["text"])
        return replace(trace, source=RunSource(asked["run"], **vars(trace.source)))
    return mha.trace(limit=MAX_TOKENS[asked["source"]], **asked)


def _finished(name: str | None) -> Trained:
    runs = finished_runs()
    if name not in runs:
        raise mha.MhaError(
            f"There is no model called {name!r} on this server (any more); train it again on the page Train.",
            fixes=({"source": "mini"},),
        )
    return runs[name]


@st.cache_resource
def device() -> Device:
    return pick()
