"""How do random weights become heads that mean something? Train a small model and watch its heads."""

import streamlit as st

from pages._kit import model, training
from pages._kit.text import t

st.header(t("train.heading"))
training.introduction()
model.of_ours()
plan = training.plan()
training.buttons(plan)
training.watch(plan)
training.files(plan)
