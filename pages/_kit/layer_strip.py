"""A strip with every layer of a model and what it is; a click moves to that layer."""

import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.layer_kinds import LayerKind, layer_kinds
from mha_core.focus import token_names
from mha_core.scene.scene import Scene
from pages._kit import state
from pages._kit.text import PAGES, joined, literal, t

PLACE = "place"  # the strip's key, and in a link the position of a chosen layer without softmax
# The most layers of a strip that does not scroll, and the height in pixels of one that does.
MAX_LAYERS, MAX_LAYERS_ON_PHONE, MAX_HEIGHT = 48, 16, 190


def show(trace: AttentionTrace, scene: Scene) -> LayerKind:
    """Draw the strip; returns the layer that is chosen."""
    kinds = layer_kinds(trace)
    st.session_state[PLACE] = first_position(kinds, scene)
    fits = len(kinds) <= (MAX_LAYERS_ON_PHONE if state.on_phone() else MAX_LAYERS)
    with st.container(height="content" if fits else MAX_HEIGHT, border=False):
        position = st.pills(
            t("layers.title"),
            range(1, len(kinds) + 1),
            key=PLACE,
            format_func=lambda position: f"{position} {words(kinds[position - 1])}",
            required=True,
            help=t("layers.help"),
            on_change=_picked,
            args=(kinds,),
        )
    return kinds[(position or 1) - 1]


def show_with_link(trace: AttentionTrace, scene: Scene) -> None:
    """Draw the strip on a page about attention weights, with a link if the chosen layer has none."""
    chosen = show(trace, scene)
    if chosen.mixer is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(t("layers.elsewhere", name=literal(chosen.name)), width="content")
        query = {PLACE: str(st.session_state[PLACE])}
        st.page_link(PAGES / "models/real.py", icon=":material/arrow_forward:", query_params=query)


def words(kind: LayerKind) -> str:
    """The kind and the traits of a layer, in a few words."""
    name = t(f"layers.kind_{kind.kind}", size=kind.size or 0)
    return joined([name, *(t(f"layers.trait_{trait}") for trait in kind.traits)])


def first_position(kinds: tuple[LayerKind, ...], scene: Scene) -> int:
    """The position of the scene's layer, or of a chosen layer without softmax until the scene moves."""
    moved = st.session_state.get("place_layer", scene.focus.layer) != scene.focus.layer
    st.session_state.place_layer = scene.focus.layer
    linked = st.query_params.get(PLACE, "")
    position: int = st.session_state.get(PLACE) or token_names.as_number(linked) or 0
    if not moved and position in range(1, len(kinds) + 1) and kinds[position - 1].mixer is not None:
        return position
    st.query_params.pop(PLACE, None)
    layer = min(scene.focus.layer, sum(kind.layer is not None for kind in kinds)) - 1
    return next((at for at, kind in enumerate(kinds, 1) if layer >= 0 and kind.layer == layer), 1)


def _picked(kinds: tuple[LayerKind, ...]) -> None:
    """Move the scene to a layer of attention; it has no other layers, so the link keeps their position."""
    position = st.session_state[PLACE]
    if (layer := kinds[position - 1].layer) is None:
        st.query_params[PLACE] = str(position)
    else:
        state.go(layer=layer + 1)
