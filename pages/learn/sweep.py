"""How many heads? The scores of our small models for each h, beside those that the paper published."""

import streamlit as st

from pages._kit import model_info
from pages._kit.text import t
from pages.learn._sweep import model_scores

st.title(t("sweep.heading"), anchor=False)
st.caption(t("sweep.intro"))
model_info.of_ours()
d_model = model_scores.width()
scores = None if d_model is None else model_scores.scores(d_model)

figures = st.grid(1 if scores is None else 2, min_column_width=340)
if scores is not None:
    with figures.container():
        model_scores.our_lines(scores, d_model)
with figures.container():
    model_scores.paper_lines()

if scores is not None:
    questions = model_scores.questions(d_model)
    model_scores.our_questions(questions)
    model_scores.cut_lines(scores, d_model)

st.header(t("sweep.says"), divider="gray")
ours = model_scores.sentences(scores, questions) if scores is not None else []
for sentence in [*ours, model_scores.paper_sentence()]:
    st.markdown(sentence)

st.header(t("sweep.tables"), divider="gray")
ours, papers = st.columns([5, 2], gap="medium")
if scores is not None:
    with ours:
        model_scores.our_table(scores, d_model)
with papers:
    model_scores.paper_table()
