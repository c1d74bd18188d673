"""Shapes and cost: every tensor of a layer to scale, what it costs, and what shared keys and values save."""

import streamlit as st

from pages._kit import components, formulas, views
from pages._kit.text import t
from pages.understand._cost import costs, sizes, tensors

st.title(t("cost.heading"), anchor=False)
st.caption(t("cost.intro"))
layer = sizes.chosen()
tensors.draw(layer)
costs.numbers(layer)
formulas.draw(sizes.of_formulas(layer), key="formulas", steps=formulas.STEPS)
if opened := views.fold(t("code.title"), key="module"):
    with opened:
        components.code(formulas.written(layer.spec))
st.header(t("cost.by_heads"), anchor="by-heads")
costs.by_heads(layer)
st.header(t("cost.sharing"), anchor="sharing")
costs.sharing(layer)
costs.small_models()
st.header(t("cost.models"))
costs.models(layer)
