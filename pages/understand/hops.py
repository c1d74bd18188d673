"""Where does a token get to in two steps? The weights of two layers, multiplied."""

import streamlit as st

from pages._kit import hops, model, scene_of, state
from pages._kit.text import t

scene, trace, twin = scene_of.page()
st.header(t("hops.heading"))
st.markdown(t("hops.intro"))
model.about(trace)
if not hops.in_one_text(trace):
    st.info(t("hops.two_texts"), icon=":material/translate:")
    st.stop()
if len(trace.layers) < 2:
    st.info(t("hops.one_layer"), icon=":material/layers:")
    hops.offer()
    st.stop()
*_, query = state.indices(trace, scene)
first, second = hops.heads(trace, query)
for shown in (trace, twin):
    if shown:
        hops.path(shown, query, first=first, second=second)
        hops.matrices(shown, query, first=first, second=second, key="first" if shown is trace else "twin")
if trace.source.get("architecture") == "standard":
    st.markdown(t("hops.standard"))
