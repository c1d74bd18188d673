"""A strip with every layer of a model and what it is; a click moves to that layer."""

import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.layer_kinds import LayerKind, layer_kinds
from mha_core.focus import token_names
from mha_core.scene.scene import Scene
from pages._kit import state
from pages._kit.text import PAGES, joined, literal, t

PLACE = "place"  # key of the strip, and name in the link of the layer without softmax that is chosen in it
# Layers of a strip that stands in full, and pixels of one that scrolls.
MAX_LAYERS, MAX_LAYERS_ON_PHONE, MAX_HEIGHT = 48, 16, 190


def show(trace: AttentionTrace, scene: Scene) -> LayerKind:
    """Draw the strip; returns the layer that is chosen in it."""
    kinds = layer_kinds(trace)
    st.session_state[PLACE] = first_place(kinds, scene)
    fits = len(kinds) <= (MAX_LAYERS_ON_PHONE if state.on_phone() else MAX_LAYERS)
    with st.container(height="content" if fits else MAX_HEIGHT, border=False):
        place = st.pills(
            t("layers.title"),
            range(1, len(kinds) + 1),
            key=PLACE,
            format_func=lambda place: f"{place} {words(kinds[place - 1])}",
            required=True,
            help=t("layers.help"),
            on_change=_picked,
            args=(kinds,),
        )
    return kinds[(place or 1) - 1]


def of_attention(trace: AttentionTrace, scene: Scene) -> None:
    """The strip on a page about attention weights, with a link for a chosen layer that has none."""
    chosen = show(trace, scene)
    if chosen.mixer is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(t("layers.elsewhere", name=literal(chosen.name)), width="content")
        place = {PLACE: str(st.session_state[PLACE])}
        st.page_link(PAGES / "models/real.py", icon=":material/arrow_forward:", query_params=place)


def words(kind: LayerKind) -> str:
    """What a layer is, in a few words."""
    name = t(f"layers.kind_{kind.kind}", size=kind.size or 0)
    return joined([name, *(t(f"layers.trait_{trait}") for trait in kind.traits)])


def first_place(kinds: tuple[LayerKind, ...], scene: Scene) -> int:
    """The place of the scene's layer, or of a layer without softmax until another control moves the scene."""
    moved = st.session_state.get("place_layer", scene.focus.layer) != scene.focus.layer
    st.session_state.place_layer = scene.focus.layer
    linked = st.query_params.get(PLACE, "")
    place: int = st.session_state.get(PLACE) or token_names.as_number(linked) or 0
    if not moved and place in range(1, len(kinds) + 1) and kinds[place - 1].mixer is not None:
        return place
    st.query_params.pop(PLACE, None)
    layer = min(scene.focus.layer, sum(kind.layer is not None for kind in kinds)) - 1
    return next((at for at, kind in enumerate(kinds, 1) if layer >= 0 and kind.layer == layer), 1)


def _picked(kinds: tuple[LayerKind, ...]) -> None:
    """Move the scene to a layer of attention; the scene has no other layers, so the link has their place."""
    place = st.session_state[PLACE]
    if (layer := kinds[place - 1].layer) is None:
        st.query_params[PLACE] = str(place)
    else:
        state.go(layer=layer + 1)
