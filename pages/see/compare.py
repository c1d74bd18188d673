"""Two scenes side by side: before and after training, two sentences, two heads, h 1 and 8, two models."""

import streamlit as st

from mha_core.scene.link import FILE, MODEL, UNTRAINED
from pages._kit import head_labels, model_info, pair
from pages._kit.scene import scene_and_trace
from pages._kit.text import literal, said, t
from pages.see._compare import against, differences

st.title(t("compare.heading"), anchor=False)
st.caption(t("compare.intro"))
scene, trace = scene_and_trace()
other = against.choose(scene, trace)
if other is None:
    st.info(t("compare.none"), icon=":material/compare_arrows:")
    st.stop()
sides = against.sides(scene, trace, other)
if sides is None:
    st.stop()
pair.view(sides, key="compare_view")
head_labels.atlas_link(trace)
st.header(t("compare.weights"))
notes = {model_info.of_layer(side.trace, side.layer): side.heading for side in sides}
for note, heading in notes.items():
    if note:
        st.caption(literal(said(note) if len(notes) == 1 else f"{heading} · {said(note)}"))
if other.kind in (FILE, MODEL):
    differences.first(sides)
differences.of_weights(sides)
if other.kind == UNTRAINED:
    st.header(t("compare.matrices"))
    pair.show_matrices(sides, ("q", "k"), key="compare")
