"""The frame of every page: its settings, the navigation, the shared controls."""

import streamlit as st

from pages._kit import charts, components, compute, controls
from pages._kit.text import ASSETS, PAGES, t

st.set_page_config(page_title="Headscope", page_icon=str(ASSETS / "icon.svg"), layout="wide")
st.logo(ASSETS / "logo.svg", size="large", icon_image=ASSETS / "icon.svg")
page = st.navigation(
    [
        st.Page(PAGES / "see" / "heads.py", title=t("heads.title"), default=True),
        st.Page(PAGES / "see" / "token.py", title=t("one.title")),
        st.Page(PAGES / "models" / "real.py", title=t("real.title"), url_path="model"),
        st.Page(PAGES / "understand" / "steps.py", title=t("steps.title")),
        st.Page(PAGES / "understand" / "hops.py", title=t("hops.title")),
        st.Page(PAGES / "understand" / "embeddings.py", title=t("words.title")),
        st.Page(PAGES / "learn" / "train.py", title=t("train.title")),
        st.Page(PAGES / "learn" / "before_after.py", title=t("before.title"), url_path="before-after"),
        st.Page(PAGES / "learn" / "sweep.py", title=t("sweep.title")),
    ],
    position="top",
)
controls.controls(page.url_path)
st.sidebar.caption(compute.device().reason)
with st.sidebar:
    components.history()
    charts.mount()
page.run()
