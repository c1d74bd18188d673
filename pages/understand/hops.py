"""Where does a token get to in two steps? The weights of two layers, multiplied."""

import streamlit as st

from pages._kit import model_info, state
from pages._kit.scene import scene_and_trace, second_trace
from pages._kit.text import t
from pages.understand._hops import two_hops

scene, trace = scene_and_trace()
twin = second_trace(scene)
layer = two_hops.last(trace, scene)
st.title(t("hops.heading"), anchor=False)
if not trace.sides.same:
    st.info(t("hops.two_texts"), icon=":material/translate:")
    st.stop()
if len(trace.layers) < 2:
    st.info(t("hops.one_layer"), icon=":material/layers:")
    two_hops.offer()
    st.stop()
two_hops.intro(trace, layer)
*_, query = state.indices(trace, scene)
first, second = two_hops.heads(trace, scene, query, layer=layer)
two_hops.choose(trace, query, first=first, second=second, layer=layer)
for sentence_trace in (trace, twin):
    if sentence_trace:
        two_hops.path(sentence_trace, query, first=first, second=second, layer=layer)
        name = "first" if sentence_trace is trace else "twin"
        two_hops.show_matrices(sentence_trace, query, first=first, second=second, key=name, layer=layer)
if model_info.is_standard(trace):
    st.markdown(t("hops.standard"))
model_info.about(trace)
