"""How many heads? What our small models measured for each h, beside what the paper published."""

import streamlit as st

from pages._kit import model_info
from pages._kit.text import t
from pages.learn._sweep import comparison

st.header(t("sweep.heading"))
st.caption(t("sweep.intro"))
model_info.of_ours()
d_model = comparison.width()
found = None if d_model is None else comparison.rows(d_model)

figures = st.grid(1 if found is None else 2, min_column_width=340)
if found is not None:
    with figures.container():
        comparison.own_lines(found, d_model)
with figures.container():
    comparison.paper_lines()

st.subheader(t("sweep.says"), divider="gray")
for sentence in [*(comparison.says(found) if found is not None else []), comparison.paper_says()]:
    st.markdown(sentence)

st.subheader(t("sweep.tables"), divider="gray")
ours, papers = st.columns([5, 2], gap="medium")
if found is not None:
    with ours:
        comparison.own_table(found, d_model)
with papers:
    comparison.paper_table()
