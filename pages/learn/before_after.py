"""What does training change? The same sentence, h and d_model, before the first step and after the last."""

import streamlit as st

from mha_core.analysis.frames import picture
from pages._kit import compute, head_view, matrices, model_info, state
from pages._kit.scene import scene_and_trace
from pages._kit.text import t
from pages.learn._before_after import sides

scene = state.current()
st.header(t("before.heading"))
st.markdown(t("before.intro"))
if scene.source in ("file", "model"):
    st.info(t("file.no_before") if scene.source == "file" else t("real.no_before"), icon=":material/history:")
    st.stop()
if scene.source == "random":
    sides.offer()
    st.stop()
scene, trace = scene_and_trace()
if compute.is_stand_in(trace):
    layer_index, head, query = state.indices(trace, scene)
    sides.only_before(trace, layer=layer_index, head=head, query=query)
    st.stop()
both = {"before": compute.trace(scene, trained=False), "after": trace}
layer_index, head, query = state.indices(trace, scene)
layer = trace.layers[layer_index]
weights = {key: side.layers[layer_index].weights() for key, side in both.items()}
limit = max(float(array[head].max()) for array in weights.values())
for column, (key, side) in zip(st.columns(2), both.items(), strict=True):
    with column:
        sides.side(side, key=key, layer=layer_index, head=head, query=query, limit=limit)
head_view.of_traces(
    list(both.values()),
    layer=layer_index,
    head=head,
    token=query,
    heads=range(layer.n_heads),
    titles=[sides.title(side, key=key) for key, side in both.items()],
    key="before_view",
)
st.subheader(t("before.matrices", head=head + 1, layer=layer_index + 1))
model_info.layer(trace, layer_index)
for name in ("weights", "q", "k"):
    for column, (key, side) in zip(st.columns(2), both.items(), strict=True):
        with column:
            matrix = picture(side, name, layer=layer_index, head=head)
            matrices.matrix(matrix, key=f"{key}-{name}", limit=limit, query=query)
