"""Where does a token get to in two steps? The weights of two layers, multiplied."""

import streamlit as st

from pages._kit import hops, model, scene_of, state
from pages._kit.text import t

scene, trace, twin = scene_of.page()
layer = hops.last(trace, scene)
st.header(t("hops.heading"))
st.markdown(t("hops.intro", one=layer, two=layer + 1))
model.about(trace)
if not hops.in_one_text(trace):
    st.info(t("hops.two_texts"), icon=":material/translate:")
    st.stop()
if len(trace.layers) < 2:
    st.info(t("hops.one_layer"), icon=":material/layers:")
    hops.offer()
    st.stop()
*_, query = state.indices(trace, scene)
first, second = hops.heads(trace, query, layer=layer)
for shown in (trace, twin):
    if shown:
        hops.path(shown, query, first=first, second=second, layer=layer)
        name = "first" if shown is trace else "twin"
        hops.matrices(shown, query, first=first, second=second, key=name, layer=layer)
if trace.source.get("architecture") == "standard":
    st.markdown(t("hops.standard"))
