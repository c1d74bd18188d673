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
    """A page of the navigation: its file, the files of the pages to read next, and its controls.

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


choose_language()  # before the first text
LESSONS = "learn/lessons.py"
REAL = "models/real.py"  # a server for strangers without a model leaves it out of the navigation
SECTIONS = {
    t("section.see"): (
        NavigationPage(
            "see/heads.py",
            t("heads.title"),
            ("see/token.py", "understand/steps.py"),
            with_sentence("twin", "ask_model"),
            "",
        ),
        NavigationPage(
            "see/token.py",
            t("one.title"),
            ("understand/steps.py", "learn/train.py"),
            with_sentence(),
        ),
        NavigationPage(
            "see/compare.py",
            t("compare.title"),
            ("understand/what_if.py", "learn/train.py"),
            with_sentence("against"),
        ),
    ),
    t("section.understand"): (
        NavigationPage(
            "understand/steps.py",
            t("steps.title"),
            ("understand/what_if.py", "understand/embeddings.py"),
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
            ("understand/embeddings.py", "learn/train.py"),
            with_sentence("ask_model", sources=("mini", "random", "run", "model")),
            "what-if",
        ),
        NavigationPage(
            "understand/embeddings.py",
            t("words.title"),
            ("understand/cost.py", "learn/train.py"),
            # Random word vectors depend on these alone: attention comes after them.
            with_sentence(sources=("mini", "run")) | {"random": frozenset({"text", "d_model", "seed"})},
        ),
        NavigationPage("understand/cost.py", t("cost.title"), ("learn/train.py", REAL)),
    ),
    t("section.learn"): (
        NavigationPage("learn/train.py", t("train.title"), ("see/compare.py", LESSONS)),
        NavigationPage(LESSONS, t("lessons.title"), ("see/heads.py", "learn/cases.py")),
        NavigationPage("learn/cases.py", t("cases.title"), ("see/heads.py", "understand/steps.py")),
    ),
    t("section.models"): (
        NavigationPage(
            REAL,
            t("real.title"),
            ("see/heads.py", "see/token.py"),
            with_sentence(sources=("model",)),
            "model",
        ),
        NavigationPage("models/atlas.py", t("atlas.title"), ("see/heads.py", REAL)),
    ),
}


def _controls(page: NavigationPage) -> Mapping[str, frozenset[str]]:
    """The controls of the view that is open."""
    name = page.file.rpartition("/")[2].removesuffix(".py")
    return page.views.get(st.query_params.get(f"{name}_view", ""), page.controls)


def _is_listed(file: str) -> bool:
    """Whether the navigation lists the page; a page that is not listed still opens by its address."""
    return file != REAL or not model_source.hosted() or model_source.offers_models()


def _what_next(page: NavigationPage) -> None:
    """Draw one line at the end of a page: what to read next."""
    with st.container(horizontal=True, vertical_alignment="center", key="next"):
        st.caption(t("next.title"), width="content")
        for file in filter(_is_listed, page.next):
            label = t(f"next.{file.rpartition('/')[2].removesuffix('.py')}")
            st.page_link(by_file[file], label=label, icon=":material/arrow_forward:")
        if _controls(page) and state.setting("source") not in APP_ONLY:
            st.page_link(
                by_file[LESSONS],
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
    if page.file != LESSONS or st.query_params.get("lesson") == "make":
        controls.begin_with_sentences()
    if page.file == REAL:
        controls.begin_with_package()
    say(refused, line)
    trace = controls.controls(_controls(page), asked)  # not in a global: a session would keep it
    if st.query_params.get(cases.FIELD):
        cases.show()
    components.address()
    by_file[page.file].run()
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
        visibility="visible" if _is_listed(page.file) else "hidden",
    ): page
    for section in SECTIONS.values()
    for page in section
}
by_file = {page.file: link for link, page in pages.items()}
listed = [page for page in pages.values() if _is_listed(page.file)]
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
        {listed.index(section[0]) + 1: name for name, section in SECTIONS.items() if section[0] in listed},
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
