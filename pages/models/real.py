"""A third-party model: its facts, all its heads in an overview, the models to choose, and known heads."""

import streamlit as st

from mha_core.scene.places import indices
from pages._kit import chooser, model_source, overview, refusals, state
from pages._kit.text import t
from pages.models._real import card, choice, layers, literature, sharing

scene = state.current()
st.title(t("real.heading"), anchor=False)
if not model_source.offers_models():
    refusals.no_models()
    st.stop()  # everything below needs it
trace = choice.trace_or_offer(scene)
if trace is not None:
    card.show(trace, scene)
    layers.show(trace, scene)
if trace is not None and trace.layers:
    layer, head, query = indices(trace, scene.focus)
    if trace.layers[layer].n_query == trace.layers[layer].n_key:
        fold = overview.fold(trace, opened=True)
        overview.show(trace, scene, fold, layer=layer, head=head, link=choice.TO_HEADS)
    choice.links(trace, layer=layer, head=head)
    if trace.layers[layer].about.latent is not None:
        queries = trace.layers[layer].sides.queries
        chooser.show([], [chooser.Strip("token", t("real.strip"), queries, query)])
    sharing.cache(trace, layer=layer)
    sharing.vectors(trace, layer=layer, token=query)

choice.gallery()

st.header(t("literature.title"))
literature.show(scene)
