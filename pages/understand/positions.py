"""How does attention know the order of words? Four position codes, and how two positions meet by each."""

import streamlit as st

from pages._kit.text import t
from pages.understand._positions import codes

st.title(t("positions.heading"), anchor=False)
st.caption(t("positions.intro"))
words, formula = st.columns(2)
with words:
    code = codes.chosen()
    st.markdown(codes.about(code))
pictured = codes.computed(code)
with formula:
    codes.formula(code, pictured)
codes.draw(code, pictured)
