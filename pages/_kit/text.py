"""The reader's language, the texts of the app in it, escaping of user text, and the paths of the files."""

import json
import re
import unicodedata
from base64 import b64encode
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cache, reduce
from pathlib import Path

import streamlit as st

from mha_core.errors import SEPARATORS, Listed, MhaError, Phrase
from pages._server.streamlit_parts import after_history, begin_with

PAGES = Path(__file__).parents[1]  # in a checkout and in a wheel alike
ASSETS = PAGES.parent / "assets"
FILES = ASSETS / "languages"
DEFAULT = "en"
LANG = "lang"  # the parameter of a link
CHOSEN = "language_chosen"  # key in the session: whether the visitor has used the switch
COOKIE = "headscope_language"  # where a browser remembers what was chosen (streamlit/address.js)
_run_language: ContextVar[str | None] = ContextVar("language", default=None)
# Characters with a meaning in Markdown, its math, or Streamlit's directives.
SPECIAL = re.compile(r"([!-/:-@\[-`{-~])")
# Streamlit replaces dashes, arrows, addresses and icons even where they are escaped. An invisible joiner
# (U+2060) inside them prevents it, and nowhere else: it is copied with the text.
REPLACED = re.compile(r"(?<=[-<>=~])(?=[-<>=])|(?=@)|(?<=:)(?=[a-z/+-])|(?<=www)(?=\.)", re.IGNORECASE)

SMALLEST = 0.005  # the smallest weight that two digits show
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
UNITS = ("", *(f"\u00a0{unit}" for unit in "kMGTPE"))  # no line ends between a number and its unit
RIGHT_TO_LEFT = {"R", "AL", "AN", "RLE", "RLO", "RLI"}


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


def after_link() -> str:
    """The same at the end of a link that has a query already."""
    return "".join(f"&{name}={value}" for name, value in in_link().items())


def begin_in_language(name: str) -> None:
    """Make the control of that name start with the reader's language, which the link then contains."""
    if language() != DEFAULT and name not in st.session_state and name not in st.query_params:
        begin_with(name, language())


@cache
def drawing(file: str) -> str:
    """An SVG file of assets as a data address; Streamlit would read the file in each run."""
    return f"data:image/svg+xml;base64,{b64encode((ASSETS / file).read_bytes()).decode()}"


@cache
def catalogue(name: str) -> dict[str, str]:
    return json.loads((FILES / f"{name}.json").read_text(encoding="utf-8"))


def t(key: str, /, **values: object) -> str:
    """The text for a key, with its {placeholders} filled in."""
    return _text(key).format(**values)


def template(key: str) -> str:
    """The text for a key as it stands; a script fills in its {placeholders}."""
    return _text(key)


def templates(prefix: str) -> dict[str, str]:
    """The texts of all keys that begin with a prefix, which is left out of their names, as they stand."""
    return _templates(prefix, language())


@cache
def _templates(prefix: str, _language: str) -> dict[str, str]:
    return {key.removeprefix(prefix): _text(key) for key in catalogue(DEFAULT) if key.startswith(prefix)}


def _text(key: str) -> str:
    """The text in the reader's language, or in English if that lacks the key."""
    return catalogue(language()).get(key) or catalogue(DEFAULT)[key]


def joined(values: Iterable[object]) -> str:
    """Values as a list in a sentence of the reader's language."""
    return t("list.comma").join(map(str, values))


def paragraph(sentences: Iterable[str]) -> str:
    """Sentences in a row, with a space between them where the reader's language has one."""
    first, *others = [*filter(None, sentences)] or [""]
    return reduce(lambda before, after: t("list.two_sentences", first=before, last=after), others, first)


@cache
def messages(name: str) -> dict[str, str]:
    """The templates of errors and phrases in a language, by the English ones; some may be missing."""
    file = FILES / f"errors.{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def said(message: object) -> str:
    """An error, a phrase or a list in the reader's language; in English if that lacks its template."""
    return str(_said(message))


def _said(value: object) -> object:
    """A value as it stands in a sentence; a number stays one, because the template says how it is written."""
    match value:
        case MhaError():
            return _said(value.phrase)
        case Phrase():
            words = messages(language()).get(value.template, value.template)
            fields = {name: _said(field) for name, field in value.fields.items()}
            return words.format(**fields) if fields else words
        case Listed():
            return _listed([said(one) for one in value.values], value.word)
        case _:
            return value


def _listed(words: list[str], word: str) -> str:
    if word == "space":
        return paragraph(words)
    if word in SEPARATORS:
        return t(f"list.{word}").join(words)
    *most, last = words
    return t(f"list.{word}", first=joined(most), last=last) if most else last


def literal(text: object) -> str:
    """Text escaped for Markdown, so that every character shows as typed."""
    return SPECIAL.sub(r"\\\1", REPLACED.sub("\u2060", str(text)))


def isolated(word: str) -> str:
    """A word; a right-to-left one in direction isolates, which keep the numbers beside it in order."""
    right_to_left = any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in word)
    return f"\u2068{word}\u2069" if right_to_left else word


def bold(word: str) -> str:
    return f"**{literal(isolated(word))}**"


def raised(number: int) -> str:
    """A number in superscript digits, as in A²."""
    return str(number).translate(RAISED)


def short(weight: float) -> str:
    """A weight with two digits, a small one as <0.01 (`short` in assets/components/page/wording.js)."""
    return f"{weight:.2f}" if weight >= SMALLEST or weight == 0 else "<0.01"


def percent(probability: float) -> str:
    """A probability in whole per cent, a small one as <1%."""
    return f"{probability:.0%}" if probability >= SMALLEST or probability == 0 else "<1%"


def number(value: float) -> str:
    """A number with four significant digits, and with a minus sign as in pictures."""
    return f"{'−' if value < 0 else ''}{abs(value):.4g}"


def hundredths(value: float) -> str:
    """A number with two digits, as one writes it to compute by hand."""
    return f"{value:z.2f}".replace("-", "−")


def signed(value: float, form: str = "z.4g") -> str:
    """A number in a sentence that may be negative: with a minus sign, as in pictures, and never -0."""
    return literal(format(value, form).replace("-", "−"))


def counted(count: float, digits: int = 3) -> str:
    """A count to three digits, or to as many as asked for, in thousands, millions, …"""
    power = 0
    while count >= 1000 and power < len(UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.{digits}g}{UNITS[power]}" if count < 999.5 else f"{count:.0f}{UNITS[power]}"


def in_bytes(count: float, digits: int = 3) -> str:
    """A number of bytes, as `counted` writes it."""
    return counted(count, digits) + ("B" if count >= 1000 else "\u00a0B")
