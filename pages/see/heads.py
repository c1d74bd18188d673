"""What does each head look at? One sentence or two, all heads of a layer, and one head's six matrices."""

import streamlit as st

from pages._kit import (
    head_view,
    heights,
    layer_strip,
    matrices,
    model_info,
    model_source,
    overview,
    sentence,
    state,
)
from pages._kit.scene import scene_and_trace, second_trace
from pages._kit.text import t
from pages.see._heads import all_heads, measurements, one_head

if heights.on_phone():  # elsewhere the navigation says which page this is
    st.header(t("heads.title"))
scene, trace = scene_and_trace(max_tokens=None)
twin = second_trace(scene)
layer_index, head, query = state.indices(trace, scene)
layer = trace.layers[layer_index]
both = {
    key: sentence_trace
    for key, sentence_trace in (("token_strip", trace), ("twin_strip", twin))
    if sentence_trace
}
limits = all_heads.limits(trace, layer=layer_index, head=head, query=query)
choice = {"layer": layer_index, "head": head, "query": query}
for column, (key, sentence_trace) in zip(st.columns(len(both)), both.items(), strict=True):
    with column:
        sentence.show(sentence_trace, **choice, limit=limits[head], key=key, columns=len(both), hides=True)
# In a container, so that a note that comes or goes keeps the elements below and the keyboard focus on them.
with st.container():
    sentence.hide_switch(trace)
    model_info.collapsed(trace, layer_index)
overview_fold = overview.fold(trace, opened=True) if overview.first(trace) else None

st.subheader(t("view.title"), help=t("view.help"))
others = [other for other in range(layer.n_heads) if other != head]
numbers = head_view.of_traces(
    list(both.values()), layer=layer_index, head=head, token=query, heads=sorted([head, *others[-1:]])
)
model_info.about(trace)
if model_source.is_third_party(trace):
    layer_strip.of_attention(trace, scene)
overview_fold = overview_fold or overview.fold(trace, opened=False)
all_heads.show(trace, scene, layer=layer_index, head=head, limits=limits, numbers=numbers)
measurements.show(trace, scene, layer=layer_index, head=head)

with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.subheader(t("heads.one_layer", head=head + 1, layer=layer_index + 1))
    matrices.check_badge(layer, query)
if layer.n_kv_heads < layer.n_heads:
    st.caption(t("heads.shares", head=head + 1, kv=layer.kv_head(head) + 1))
model_info.layer(trace, layer_index)
one_head.show(trace, layer=layer_index, head=head, query=query, limit=limits[head])

with st.expander(t("heads.numbers")):
    matrices.numbers(trace, layer=layer_index, head=head, query=query)

# Computed last, since it takes the longest: a long text has millions of weights in each head.
overview.show(trace, scene, overview_fold, layer=layer_index, head=head)
