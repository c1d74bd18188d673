"""What does a head do over many texts? All heads by two measures, the passport of one, and its texts."""

import streamlit as st

from pages._kit.text import t
from pages.models._atlas import examples, passport, scatter, subject

st.title(t("atlas.question"), anchor=False)
st.caption(t("atlas.intro"))
with st.container(horizontal=True, vertical_alignment="bottom"):
    chosen = subject.choose()
    axes = scatter.choose(chosen)
if not chosen.has_own:
    st.caption(t("atlas.missing"))
halves = st.grid(2, min_column_width=340)
with halves.container():
    scatter.show(chosen, axes)
with halves.container():
    passport.show(chosen)
halves = st.grid(2, min_column_width=340)
with halves.container():
    passport.measures(chosen)
with halves.container():
    examples.show(chosen)
