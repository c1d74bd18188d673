"""What does training change? The same sentence, h and d_model, before the first step and after the last."""

import streamlit as st

from pages._kit import compute, model_info, pair, state
from pages._kit.scene import scene_and_trace
from pages._kit.text import t
from pages.learn._before_after import sides

scene = state.current()
st.title(t("before.heading"), anchor=False)
st.markdown(t("before.intro"))
if scene.source in ("file", "model"):
    st.info(t("file.no_before") if scene.source == "file" else t("real.no_before"), icon=":material/history:")
    st.stop()
if scene.source == "random":
    sides.offer()
    st.stop()
scene, trace = scene_and_trace()
layer, head, query = state.indices(trace, scene)
if compute.is_stand_in(trace):
    sides.only_before(trace, layer=layer, head=head, query=query)
    st.stop()
untrained = compute.trace(scene, trained=False)
both = {sides.heading(untrained, key="before"): untrained, sides.heading(trace, key="after"): trace}
pair.view(both, layer=layer, head=head, query=query, key="before_view")
st.header(t("before.matrices", head=head + 1, layer=layer + 1))
model_info.layer(trace, layer)
pair.show_matrices(both, ("weights", "q", "k"), layer=layer, head=head, query=query, key="before")
