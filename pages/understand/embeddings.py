"""What are the words before attention? Their vectors on a map, and the nearest words of each."""

import streamlit as st

from pages._kit import chooser, state
from pages._kit.scene import scene_and_trace
from pages._kit.text import literal, t
from pages.understand._embeddings import words

scene = state.current()
if scene.source in ("file", "model"):
    st.info(
        t("file.no_words") if scene.source == "file" else t("real.no_words"), icon=":material/scatter_plot:"
    )
    st.stop()
scene, trace = scene_and_trace(vectors=True)
token = state.indices(trace, scene)[2]
query = trace.tokens.pieces[token]
known = words.of(scene, trace)
count, width = known.vectors.shape

st.title(t("words.heading"), anchor=False)
st.caption(
    t(f"words.intro_{'random' if scene.source == 'random' else 'trained'}", count=f"{count:,}", d_model=width)
)
chooser.show([], [chooser.words(trace.tokens.labels, token, t("words.strip"))], clears=["word"])
with st.container(horizontal=True, vertical_alignment="bottom"):
    with st.container(width=260):
        chosen = words.choice(known, query)
    with st.container(width="stretch"):
        kinds = words.classes(known)
    st.segmented_control(
        t("words.axes"), words.AXES, default=words.FLAT, required=True, key="axes", bind="query-params"
    )
axes = 3 if st.session_state.axes == words.DEEP else 2
word_map = words.project_words(known, kinds, axes=axes)

left, right = st.columns([5, 2], gap="medium")
with left:
    words.map_of(known, kinds, axes=axes, chosen=chosen)
    st.caption(
        t(
            "words.shares",
            share=f"{100 * word_map.shares.sum():.0f}",
            axes=len(word_map.shares),
            d_model=width,
        )
    )
with right:
    st.header(t("words.nearest", word=literal(chosen)), help=t("words.nearest_help"))
    words.neighbours(known, chosen)

st.header(t("words.relations"), divider="gray")
st.markdown(t("words.relations_intro"))
words.relations(known, kinds, axes=axes)
