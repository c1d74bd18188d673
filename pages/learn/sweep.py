"""How many heads? The scores of our small models for each h, beside those that the paper published."""

import streamlit as st

from pages._kit import model_info
from pages._kit.text import t
from pages.learn._sweep import comparison

st.title(t("sweep.heading"), anchor=False)
st.caption(t("sweep.intro"))
model_info.of_ours()
d_model = comparison.width()
scores = None if d_model is None else comparison.scores(d_model)

figures = st.grid(1 if scores is None else 2, min_column_width=340)
if scores is not None:
    with figures.container():
        comparison.our_lines(scores, d_model)
with figures.container():
    comparison.paper_lines()

if scores is not None:
    questions = comparison.questions(d_model)
    comparison.our_questions(questions)
    comparison.cut_lines(scores, d_model)

st.header(t("sweep.says"), divider="gray")
ours = comparison.sentences(scores, questions) if scores is not None else []
for sentence in [*ours, comparison.paper_sentence()]:
    st.markdown(sentence)

st.header(t("sweep.tables"), divider="gray")
ours, papers = st.columns([5, 2], gap="medium")
if scores is not None:
    with ours:
        comparison.our_table(scores, d_model)
with papers:
    comparison.paper_table()
