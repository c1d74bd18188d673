"""How do random weights become heads that mean something? Train a small model and watch its heads."""

import streamlit as st

from pages._kit import model_info
from pages._kit.text import t
from pages.learn._train import training

st.title(t("train.heading"), anchor=False)
training.introduction()
model_info.of_ours()
plan = training.plan()
training.buttons(plan)
training.watch(plan)
training.files(plan)
