"""The frame of every page: its settings, the navigation, and the shared controls that the page uses."""

import os
from collections.abc import Mapping
from typing import NamedTuple

import streamlit as st

from mha_core.scene.link import APP_ONLY
from pages._kit import cases, components, controls, model_source, state, uploads
from pages._kit.controls import with_sentence
from pages._kit.opened_link import say
from pages._kit.text import PAGES, choose_language, drawing, t
from pages._server import streamlit_parts


class NavigationPage(NamedTuple):
    """A page of the navigation: its file, the names of the pages to read next, and its controls.

    `controls` names, for each source, the controls that change something on the page. A source that is not
    named has nothing to show there; a page without any is not about a source. `views` has the controls of
    those views of the page that need other ones.
    """

    file: str
    title: str
    next: tuple[str, ...]
    controls: Mapping[str, frozenset[str]] = {}
    path: str | None = None
    views: Mapping[str, Mapping[str, frozenset[str]]] = {}

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2].removesuffix(".py")

    @property
    def is_listed(self) -> bool:
        """Whether the navigation lists the page; another one still opens by its address.

        A server for strangers without a model leaves out Real model.
        """
        return self.name != "real" or not model_source.hosted() or model_source.offers_models()


choose_language()  # before the first text
SECTIONS = {
    t("section.see"): (
        NavigationPage(
            "see/heads.py", t("heads.title"), ("token", "steps"), with_sentence("twin", "ask_model"), ""
        ),
        NavigationPage("see/token.py", t("one.title"), ("steps", "train"), with_sentence()),
        NavigationPage("see/compare.py", t("compare.title"), ("what_if", "train"), with_sentence("against")),
    ),
    t("section.understand"): (
        NavigationPage(
            "understand/steps.py",
            t("steps.title"),
            ("what_if", "embeddings"),
            with_sentence(),
            views={
                "decode": with_sentence("ask_model"),
                "order": {},
                "layers": with_sentence("twin") | {"mini": frozenset({"text", "twin"})},
            },
        ),
        NavigationPage(
            "understand/what_if.py",
            t("what_if.title"),
            ("embeddings", "train"),
            with_sentence("ask_model", sources=("mini", "random", "run", "model")),
            "what-if",
        ),
        NavigationPage(
            "understand/embeddings.py",
            t("words.title"),
            ("cost", "train"),
            # Random word vectors depend on these alone: attention comes after them.
            with_sentence(sources=("mini", "run")) | {"random": frozenset({"text", "d_model", "seed"})},
        ),
        NavigationPage("understand/cost.py", t("cost.title"), ("train", "real")),
    ),
    t("section.learn"): (
        NavigationPage("learn/train.py", t("train.title"), ("compare", "lessons")),
        NavigationPage("learn/lessons.py", t("lessons.title"), ("heads", "cases")),
        NavigationPage("learn/cases.py", t("cases.title"), ("heads", "steps")),
    ),
    t("section.models"): (
        NavigationPage(
            "models/real.py", t("real.title"), ("heads", "token"), with_sentence(sources=("model",)), "model"
        ),
        NavigationPage("models/atlas.py", t("atlas.title"), ("heads", "real")),
    ),
}


def _controls(page: NavigationPage) -> Mapping[str, frozenset[str]]:
    """The controls of the view that is open."""
    return page.views.get(st.query_params.get(f"{page.name}_view", ""), page.controls)


def _what_next(page: NavigationPage) -> None:
    """Draw one line at the end of a page: what to read next."""
    with st.container(horizontal=True, vertical_alignment="center", key="next"):
        st.caption(t("next.title"), width="content")
        for name in page.next:
            if name in listed:
                st.page_link(links[name], label=t(f"next.{name}"), icon=":material/arrow_forward:")
        if _controls(page) and state.setting("source") not in APP_ONLY:
            st.page_link(
                links["lessons"],
                label=t("editor.question"),
                icon=":material/quiz:",
                query_params={"lesson": "make", "scene": "here"},
            )


def _show(page: NavigationPage) -> None:
    """Draw the controls and the page, with a line on the values of the link that had to be replaced."""
    if os.environ.get(uploads.OPENED):
        uploads.begin()
    # Read before the controls take wrong values out of the address.
    refused = opened_link.refused() if opened_link else {}
    if opened_link:
        opened_link.begin_controls()
    # Lessons have sentences of their own, but one that is made begins with the visitor's.
    if page.name != "lessons" or st.query_params.get("lesson") == "make":
        controls.begin_with_sentences()
    if page.name == "real":
        controls.begin_with_package()
    say(refused, line)
    trace = controls.controls(_controls(page), asked)  # not in a global: a session would keep it
    if st.query_params.get(cases.FIELD):
        cases.show()
    components.address()
    links[page.name].run()
    if opened_link and (replaced := opened_link.replaced(trace)):
        say({**refused, **replaced}, line)


opened_link = state.begin()
embedded = st.context.is_embedded  # in a frame of another site, which has its scene alone
if not embedded:
    st.logo(drawing("logo.svg"), size="large")
pages = {
    st.Page(
        PAGES / page.file,
        title=page.title,
        url_path=page.path or None,
        default=page.path == "",
        visibility="visible" if page.is_listed else "hidden",
    ): page
    for section in SECTIONS.values()
    for page in section
}
links = {page.name: link for link, page in pages.items()}
listed = [page.name for page in pages.values() if page.is_listed]
chosen = st.navigation(list(pages), position="hidden" if embedded else "top", expanded=True)
st.set_page_config(
    page_title=f"{pages[chosen].title} · Headscope",
    page_icon=drawing("icon.svg"),
    layout="wide",
)
line = st.empty()
asked = st.container(key="controls")
# Drawn first: while the rest is computed, the browser fetches what components are drawn by.
if not embedded:
    streamlit_parts.sections(
        {
            listed.index(first.name) + 1: name
            for name, (first, *_) in SECTIONS.items()
            if first.name in listed
        },
        menu=t("section.menu"),
    )
components.charts()
controls.begin_language()
if embedded:
    components.link_to_whole()
else:
    with st.container(key="corner"):
        components.share_menu()
        controls.language_switch()
_show(pages[chosen])
if not embedded:
    _what_next(pages[chosen])  # a page that stops with a note says by itself what else can be done
