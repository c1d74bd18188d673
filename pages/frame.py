"""The frame of every page: its settings, the navigation, and the shared controls that the page uses."""

from collections.abc import Mapping
from typing import NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core.scene.link import APP_ONLY, WEIGHTS, is_older
from pages._kit import cases, charts, choice, components, controls, model_source, sharing, state
from pages._kit.controls import with_sentence
from pages._kit.language import choose_language, chosen_language
from pages._kit.text import PAGES, drawing, joined, literal, paragraph, t
from pages._server import streamlit_parts

MAX_QUOTED = 40  # characters of a wrong value of a link
VALUES = {"source": "source.", "drawing": "head_view.draw_"}  # fields whose values are words on screen


class NavigationPage(NamedTuple):
    """A page of the navigation: its file, the files of the pages to read next, and its controls.

    Of each source it names the controls that change something on it. A source that is not named has nothing
    to show there; a page that names none is about no source. `views` are those of its views whose controls
    are others.
    """

    file: str
    title: str
    next: tuple[str, ...]
    controls: Mapping[str, frozenset[str]] = {}
    path: str | None = None
    views: Mapping[str, Mapping[str, frozenset[str]]] = {}


choose_language()  # before the first text
TRAINED = ("mini", "run")
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
            views={"order": {}, "layers": with_sentence("twin")},
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
            # Of drawn vectors the rest decides nothing: attention comes after them.
            with_sentence(sources=TRAINED) | {"random": frozenset({"text", "d_model", "seed"})},
        ),
        NavigationPage(
            "understand/cost.py",
            t("cost.title"),
            ("learn/train.py", REAL),
        ),
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
    """Those of the view that is open."""
    name = page.file.rpartition("/")[2].removesuffix(".py")
    return page.views.get(st.query_params.get(f"{name}_view", ""), page.controls)


def _is_listed(file: str) -> bool:
    """Whether the navigation has that page; one that it leaves out opens by its address alone."""
    return file != REAL or not model_source.hosted() or model_source.offers_models()


def _what_next(page: NavigationPage) -> None:
    """One line at the end of a page: where to go on reading."""
    with st.container(horizontal=True, vertical_alignment="center", key="next"):
        st.caption(t("next.title"), width="content")
        for file in filter(_is_listed, page.next):
            label = t(f"next.{file.rpartition('/')[2].removesuffix('.py')}")
            st.page_link(by_file[file], label=label, icon=":material/arrow_forward:")
        if (
            _controls(page)
            and state.setting("source") not in APP_ONLY
            and st.button(t("editor.question"), key="make_question", type="tertiary", icon=":material/quiz:")
        ):
            link = state.current().link().rpartition("?")[2]
            st.switch_page(by_file[LESSONS], query_params={"lesson": "make", "scene": link})


def _say(wrong: Mapping[str, tuple[str, object]], line: DeltaGenerator) -> None:
    """One line on the values that a link cannot have."""
    if wrong:
        line.caption(paragraph(_in_words(name, *values) for name, values in wrong.items()))


def _in_words(name: str, value: str, taken: object) -> str:
    """What a link says and what was taken instead."""
    if name == WEIGHTS:
        return t("link.older_weights") if is_older(value) else t("link.other_weights")
    other = joined(map(str, taken)) if isinstance(taken, list) else taken
    other = t("link.none") if other in (None, "") else _on_screen(name, str(other))
    words = {"name": name, "value": literal(value[:MAX_QUOTED]), "taken": literal(other)}
    most = controls.exceeded(name, value)
    if most is None:
        return t("link.refused", **words)
    figure = t("link.characters", count=f"{most:,}") if name in controls.TEXTS else f"{most:,}"
    return t("link.too_much", most=figure, **words)


def _on_screen(name: str, value: str) -> str:
    """What the control of that field calls a value."""
    if name in choice.WORDED:
        return choice.word(name, value)
    if name in VALUES:
        return t(f"{VALUES[name]}{value}")
    return value


new_link = state.begin()
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
charts.mount()
link = controls.whole_link() if new_link else {}  # controls take wrong values out of it
controls.begin_language()
if embedded:
    sharing.link_to_whole()
else:
    with st.container(key="corner"):
        sharing.menu()
        controls.language_switch()
wrong = controls.refused(link)
controls.take(link)
controls.begin_with_sentences()
if pages[chosen].file == REAL:
    controls.begin_with_package()
_say(wrong, line)
controls.controls(_controls(pages[chosen]), asked)
cases.opened()
components.address(state.address(), st.session_state.pop("follow", None), chosen_language())
chosen.run()
if others := controls.replaced(link):
    _say(wrong | others, line)
if not embedded:
    _what_next(pages[chosen])  # a page that stops with a note says by itself what else can be done
