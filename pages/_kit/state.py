"""What the app is looking at: every key of its state with its default, and how to move elsewhere.

Keys are URL parameters too (``?text=…&h=4``), so a copied link shows the same picture.
Heads, layers and tokens count from 1 here, as on screen.
"""

from contextlib import suppress
from dataclasses import dataclass, fields

import streamlit as st
from streamlit.errors import StreamlitAPIException

from mha_core import AttentionTrace

# What each source can be asked for, besides the text.
SETTINGS = {
    "mini": ("h", "d_model", "architecture"),
    "random": ("h", "d_model", "seed", "layers", "d_k", "d_v", "n_kv_heads", "position", "mask", "bias"),
    "run": ("run",),
    "file": ("file", "kind"),
    "model": ("model", "revision", "dtype", "target", "kind"),
}
STARTED = ("mini", "run")  # sources whose sentences begin with [CLS]


@dataclass(frozen=True)
class Scene:
    """Everything that decides what is on screen."""

    text: str = "The animal didn't cross the street because it was too tired."
    twin: str = "The animal didn't cross the street because it was too wide."
    source: str = "mini"
    architecture: str = "glass-box"
    run: str | None = None
    file: str | None = None
    kind: str | None = None
    model: str | None = None
    revision: str | None = None
    dtype: str | None = None
    target: str | None = None
    h: int = 4
    d_model: int = 64
    seed: int = 0
    layers: int = 1
    d_k: int | None = None
    d_v: int | None = None
    n_kv_heads: int | None = None
    position: str = "sinusoidal"
    mask: str = "full"
    bias: bool = True
    layer: int = 2
    head: int = 4
    token: int = 9
    key_token: int | None = None
    hop1: int | None = None
    hop2: int | None = None

    def settings(self, text: str | None = None) -> dict:
        """The source and what it is names for, for this text or another."""
        names = {name: getattr(self, name) for name in ("source", *SETTINGS[self.source])}
        return {"text": self.text if text is None else text, **names}


DEFAULTS = Scene()


def current() -> Scene:
    """The scene that the controls describe, also where a page runs without its frame."""
    chosen = {field.name: st.session_state.get(field.name) for field in fields(Scene)}
    return Scene(**{name: value for name, value in chosen.items() if value is not None})


def indices(trace: AttentionTrace, scene: Scene) -> tuple[int, int, int]:
    """Layer, head and token of the scene as positions from 0 that the trace has."""
    layer = min(scene.layer, len(trace.layers)) - 1
    return (
        layer,
        min(scene.head, trace.layers[layer].n_heads) - 1,
        min(scene.token, trace.layers[layer].n_query) - 1,
    )


def go(**values: object) -> None:
    """Move to another scene; for callbacks, since a widget's state is set before it is drawn.

    The link follows a control that the page has drawn by itself, and Streamlit refuses a second writer;
    for the others it is written here.
    """
    st.session_state.update(values)
    for name, value in values.items():
        if hasattr(DEFAULTS, name) and value not in (None, "", getattr(DEFAULTS, name)):
            with suppress(StreamlitAPIException):
                st.query_params[name] = str(value)


def forget(key: str) -> None:
    """Let go of what the user has chosen under a key that is no control; for callbacks."""
    st.session_state.pop(key, None)
