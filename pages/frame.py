"""The frame of every page: its settings, the navigation, and the shared controls that the page uses."""

from collections.abc import Mapping
from typing import NamedTuple

import streamlit as st

from pages._kit import charts, components, compute, controls, streamlit_parts
from pages._kit.controls import with_sentence
from pages._kit.text import ASSETS, PAGES, t


class Page(NamedTuple):
    """A page of the navigation, and of each source the controls that change something on it.

    A source that is not named has nothing to show there; a page that names none is about no source.
    """

    file: str
    title: str
    controls: Mapping[str, frozenset[str]] = {}
    path: str | None = None


TRAINED = ("mini", "run")
ALL = (
    Page("see/heads.py", t("heads.title"), with_sentence("twin"), ""),
    Page("see/token.py", t("one.title"), with_sentence("layer", "head", "token", "key_token of two texts")),
    Page(
        "models/real.py",
        t("real.title"),
        with_sentence("layer", "head", "token of vectors", sources=("model",)),
        "model",
    ),
    Page("understand/steps.py", t("steps.title"), with_sentence("layer", "head", "token")),
    Page("understand/hops.py", t("hops.title"), with_sentence("twin", "layer of two hops", "token")),
    Page(
        "understand/embeddings.py",
        t("words.title"),
        # Of drawn vectors the rest decides nothing: attention comes after them.
        with_sentence("token", sources=TRAINED) | {"random": frozenset({"text", "d_model", "seed", "token"})},
    ),
    Page("learn/train.py", t("train.title")),
    Page(
        "learn/before_after.py",
        t("before.title"),
        with_sentence("layer", "head", "token", sources=TRAINED),
        "before-after",
    ),
    Page("learn/sweep.py", t("sweep.title")),
)

st.logo(ASSETS / "logo.svg", size="large", icon_image=ASSETS / "icon.svg")
pages = {
    st.Page(PAGES / page.file, title=page.title, url_path=page.path or None, default=page.path == ""): page
    for page in ALL
}
chosen = st.navigation(list(pages), position="top")
st.set_page_config(
    page_title=f"{pages[chosen].title} · Headscope",
    page_icon=str(ASSETS / "icon.svg"),
    layout="wide",
    initial_sidebar_state="auto" if pages[chosen].controls else "collapsed",
)
with st.sidebar:
    above, below = st.container(), st.container()
with below:  # drawn first: while the rest is computed, the browser fetches what components are drawn by
    streamlit_parts.style()
    st.caption(compute.device().reason)
    components.history()
    charts.mount()
controls.controls(pages[chosen].controls, above)
chosen.run()
