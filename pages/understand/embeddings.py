"""What are the words before attention? Their vectors on a map, and the nearest words of each."""

import streamlit as st

from mha_core.scene.places import indices
from pages._kit import chooser, compute, state
from pages._kit.scene import in_fragment, scene_and_trace
from pages._kit.text import literal, t
from pages.understand._embeddings import projected, words

source = state.setting("source")
st.title(t("words.heading"), anchor=False)
if source in ("file", "model"):
    st.info(t("file.no_words") if source == "file" else t("real.no_words"), icon=":material/scatter_plot:")
    st.stop()
known = words.word_map(*scene_and_trace(vectors=True))
count, width = known.vocabulary.vectors.shape
kind = "random" if source == "random" else "trained"
st.caption(t(f"words.intro_{kind}", count=f"{count:,}", d_model=width))
with st.container(horizontal=True, vertical_alignment="bottom"):
    with st.container(width="stretch"):
        kinds = words.classes(known)
    st.segmented_control(
        t("words.axes"), words.AXES, default=words.FLAT, required=True, key="axes", bind="query-params"
    )
axes = 3 if st.session_state.axes == words.DEEP else 2


@st.fragment
def word(kinds: tuple[str, ...], axes: int) -> None:
    """All that follows the chosen word."""
    scene, trace = in_fragment()
    known = words.word_map(scene, trace)
    token = indices(trace, scene.focus)[2]
    chooser.show([], [chooser.Strip("token", t("words.strip"), trace.tokens, token)], clears=["word"])
    left, right = st.container(key="vectors").columns([5, 2], gap="medium")
    with right:
        chosen = words.chosen_word(known, trace.tokens.pieces[token])
        st.header(t("words.nearest", word=literal(chosen)), help=t("words.nearest_help"))
        words.neighbours(known, chosen)
    with left:
        percents = compute.once(known.vocabulary, words.projection, kinds=kinds, axes=axes).percents
        share = f"{percents.sum():.1f}"
        st.markdown(t("words.shares", share=share, axes=len(percents), d_model=width))
        words.map_of(known, kinds, axes=axes, chosen=chosen)


word(kinds, axes)
st.header(t("words.relations"), anchor="relations")
st.markdown(t("words.relations_intro"))
words.relations(known, kinds, axes=axes)
if projected.possible(compute.nearest(state.current()).trace):
    st.header(t("words.two_heads"), anchor="two-heads")
    projected.two_heads()
