"""How many heads? What our small models measured for each h, beside what the paper published."""

import streamlit as st

from pages._kit import model, sweep
from pages._kit.text import t

st.header(t("sweep.heading"))
st.caption(t("sweep.intro"))
model.of_ours()
d_model = sweep.width()
found = None if d_model is None else sweep.rows(d_model)

figures = st.grid(1 if found is None else 2, min_column_width=340)
if found is not None:
    with figures.container():
        sweep.own_lines(found, d_model)
with figures.container():
    sweep.paper_lines()

st.subheader(t("sweep.says"), divider="gray")
for sentence in [*(sweep.says(found) if found is not None else []), sweep.paper_says()]:
    st.markdown(sentence)

st.subheader(t("sweep.tables"), divider="gray")
ours, papers = st.columns([5, 2], gap="medium")
if found is not None:
    with ours:
        sweep.own_table(found, d_model)
with papers:
    sweep.paper_table()
