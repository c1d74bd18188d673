"""What does this token do in every head, and who looks at it? From its row in words to single products."""

import streamlit as st

from pages._kit import (
    model,
    one_head,
    one_side,
    one_token,
    one_view,
    opened,
    reading,
    room,
    scene_of,
    state,
)
from pages._kit.text import t

scene, trace, _ = scene_of.page(longest=None)
view = one_view.View(trace, *state.indices(trace, scene))
room.of_sentences({"token_strip": trace})
st.header(t("one.heading", token=view.name, layer=view.layer + 1, head=view.head + 1))
both = one_side.sides(view)
row = both[0].looks.weights.iloc[view.head]
limit = float(row.max()) or 1.0
reading.sentence(trace, layer=view.layer, head=view.head, query=view.token, limit=limit)
model.about(trace)
model.layer(trace, view.layer, rows=False)
model.collapsed(trace, view.layer)

st.subheader(t("one.every", layer=view.layer + 1), help=t("one.every_help"))
one_token.every_head(view, both)

st.subheader(t("one.exact", head=view.head + 1))
one_token.ranked(view, both)

if len(trace.layers) > 1:
    st.subheader(t("one.layers"))
    st.markdown(t("one.layers_intro"))
    one_token.layers(view, both)

if opened.known(view.of_layer):
    st.subheader(t("one.query", head=view.head + 1))
    one_head.search(view)

    st.subheader(t("one.output_title", head=view.head + 1))
    one_head.mixed(view)
