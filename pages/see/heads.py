"""What does each head look at? The sentence, all heads of a layer, and one head's six matrices."""

import streamlit as st

from mha_core.views import picture
from pages._kit import components, scale, show, state, work
from pages._kit.text import t

scene = state.current()
trace = work.trace(scene)
layer_index, head, query = state.indices(trace, scene)
layer, labels = trace.layers[layer_index], trace.tokens.labels
sentence = st.container()
with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
    st.subheader(t("heads.all", layer=layer_index + 1), help=t("heads.all_help"))
    scale.control()
limits = scale.limits(layer)  # after the control, which a link may have set
with sentence:
    show.sentence(layer, labels, head=head, query=query, limit=limits[head])
    st.caption(t("heads.random"))
components.head_grid(
    layer, labels, chosen=head, limits=limits, on_pick=lambda picked: state.go(head=picked + 1)
)
st.caption(scale.note(limits))

with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.subheader(t("heads.one_layer", head=head + 1, layer=layer_index + 1))
    show.check_badge(layer)
if layer.n_kv_heads < layer.n_heads:
    st.caption(t("heads.shares", head=head + 1, kv=layer.kv_head(head) + 1))
if layer_index:
    st.caption(t("heads.stacked", layer=layer_index + 1, layers=scene.layers, before=layer_index))
cells = st.grid(3 if len(labels) <= 24 else 2, min_column_width=300)
for name in ("q", "k", "v", "scores", "weights", "output"):
    with cells.container():
        drawn = picture(trace, name, layer=layer_index, head=head)
        show.matrix(drawn, key=f"matrix-{name}", limit=limits[head], query=query)

with st.expander(t("heads.numbers")):
    show.numbers(trace, layer=layer_index, head=head)
