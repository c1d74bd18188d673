"""The language of a run of a page."""

import re
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import streamlit as st

from pages._server.streamlit_parts import after_history, begin_with

FILES = Path(__file__).parents[2] / "assets" / "languages"
DEFAULT = "en"
LANG = "lang"  # the parameter of a link
CHOSEN = "language_chosen"  # key in the session: whether the visitor has used the switch
COOKIE = "headscope_language"  # where a browser remembers what was chosen (streamlit/address.js)
_run_language: ContextVar[str | None] = ContextVar("language", default=None)


@cache
def languages() -> tuple[str, ...]:
    """The languages of the files in assets/languages; those of error messages have a dot in their names."""
    return tuple(sorted(path.stem for path in FILES.glob("*.json") if "." not in path.stem))


def language() -> str:
    """The language of this run, chosen by the frame; a fragment that runs alone chooses it itself."""
    return _run_language.get() or choose_language()


def choose_language() -> str:
    """Choose the language of the rest of the run: the switch's, else ``?lang=``, else `usual_language`."""
    link = st.query_params.get(LANG)
    asked = link if after_history() else st.session_state.get(LANG, link)
    chosen = asked if asked in languages() else usual_language()
    set_language(chosen)
    return chosen


def set_language(name: str) -> None:
    """Use this language for the rest of the run, or of the answer to a request."""
    _run_language.set(name)


def usual_language() -> str:
    """The language chosen earlier in this browser, else the browser's own, else English."""
    return first_known([_remembered(), st.context.locale])


def first_known(tags: Iterable[str | None]) -> str:
    """The first of these languages, or tags such as ``zh-CN``, that has a catalogue; else English."""
    names = (re.split("[-;]", str(tag))[0] for tag in tags)
    return next((name for name in names if name in languages()), DEFAULT)


def _remembered() -> str | None:
    """The language that was chosen earlier in this browser, which another site's frame may not see."""
    return st.context.cookies.get(COOKIE)


def chosen_language() -> str | None:
    """The language that this visitor has switched to; None as long as a link or the browser decides."""
    return language() if st.session_state.get(CHOSEN) else None


def shared_language() -> str | None:
    """The language of links that this visitor shares, if it was chosen with the switch, now or earlier."""
    return language() if chosen_language() or _remembered() in languages() else None


def in_link() -> dict[str, str]:
    """The language parameter of our own links; none if their page would have that language anyway."""
    return {} if language() == usual_language() else {LANG: language()}


def begin_in_language(name: str) -> None:
    """Make the control of that name start with the reader's language, which the link then contains."""
    if language() != DEFAULT and name not in st.session_state and name not in st.query_params:
        begin_with(name, language())
