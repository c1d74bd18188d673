"""Seventeen cases, each a scene that shows one fact about attention, and a line on what to notice in it."""

import streamlit as st

from pages._kit.cases import cases
from pages._kit.text import t
from pages.learn._cases import gallery

st.title(t("cases.heading"), anchor=False)
st.caption(t("cases.intro"))
cards = st.grid(3, min_column_width=300)
for case in cases():
    with cards.container(border=True, height="stretch"):
        gallery.card(case)
