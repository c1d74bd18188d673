"""The texts of the app in the reader's language, escaping of user text, and the paths of the files."""

import json
import re
import unicodedata
from base64 import b64encode
from collections.abc import Iterable
from functools import cache, reduce
from pathlib import Path

from mha_core.errors import SEPARATORS, Listed, MhaError, Phrase
from pages._kit.language import DEFAULT, FILES, language

PAGES = Path(__file__).parents[1]  # in a checkout and in a wheel alike
ASSETS = PAGES.parent / "assets"
# Characters with a meaning in Markdown, its math, or Streamlit's directives.
SPECIAL = re.compile(r"([!-/:-@\[-`{-~])")
# Streamlit replaces dashes, arrows, addresses and icons even where they are escaped. An invisible joiner
# (U+2060) between their characters prevents it.
REPLACED = re.compile(r"(?=[-<>=:@./~])")

SMALLEST = 0.005  # the smallest weight that two digits show
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
RIGHT_TO_LEFT = {"R", "AL", "AN", "RLE", "RLO", "RLI"}


@cache
def drawing(file: str) -> str:
    """An SVG file of assets as a data address; Streamlit would read the file in each run."""
    return f"data:image/svg+xml;base64,{b64encode((ASSETS / file).read_bytes()).decode()}"


@cache
def catalogue(language: str) -> dict[str, str]:
    return json.loads((FILES / f"{language}.json").read_text(encoding="utf-8"))


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
def messages(language: str) -> dict[str, str]:
    """The templates of errors and phrases in a language, by the English ones; some may be missing."""
    file = FILES / f"errors.{language}.json"
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


def raised(number: int) -> str:
    """A number in superscript digits, as in A²."""
    return str(number).translate(RAISED)


def short(weight: float) -> str:
    """A weight with two digits, a small one as <0.01 (`short` in assets/components/page/wording.js)."""
    return f"{weight:.2f}" if weight >= SMALLEST or weight == 0 else "<0.01"


def number(value: float) -> str:
    """A number with four significant digits."""
    return f"{value:.4g}"


def signed(value: float, form: str = "z.4g") -> str:
    """A number in a sentence that may be negative: with a minus sign, as in pictures, and never -0."""
    return literal(format(value, form).replace("-", "−"))
