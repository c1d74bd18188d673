"""Every word on screen, in the reader's language; user text that stays what it is; where the files lie."""

import json
import re
import unicodedata
from functools import cache
from pathlib import Path

import streamlit as st

PAGES = Path(__file__).parents[1]  # in a checkout and in a wheel alike
ASSETS = PAGES.parent / "assets"
LANGUAGES = ASSETS / "languages"
DEFAULT = "en"
# Everything that Markdown, its math, or Streamlit's own directives could read as more than a character.
SPECIAL = re.compile(r"([!-/:-@\[-`{-~])")
# What is replaced after Markdown has been read, escaped or not: dashes, arrows, addresses, icons. An
# invisible joiner (U+2060) keeps such characters from meeting.
REPLACED = re.compile(r"(?=[-<>=:@./~])")

RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
RIGHT_TO_LEFT = {"R", "AL", "AN", "RLE", "RLO", "RLI"}


@cache
def catalogue(language: str) -> dict[str, str]:
    return json.loads((LANGUAGES / f"{language}.json").read_text(encoding="utf-8"))


@cache
def languages() -> tuple[str, ...]:
    """The languages there is a file for."""
    return tuple(sorted(path.stem for path in LANGUAGES.glob("*.json")))


def language() -> str:
    """``?lang=`` if there is such a file, else the browser's language, else English."""
    if len(languages()) == 1:  # asked hundreds of times in each run of a page
        return DEFAULT
    wanted = (st.query_params.get("lang"), (st.context.locale or "").split("-")[0])
    return next((name for name in wanted if name in languages()), DEFAULT)


def t(key: str, /, **values: object) -> str:
    """The text for a key, its {placeholders} filled in; English where a language lacks it."""
    words = catalogue(language()).get(key) or catalogue(DEFAULT)[key]
    return words.format(**values)


def literal(text: object) -> str:
    """Text for a place that reads Markdown, such that every character shows as typed."""
    return SPECIAL.sub(r"\\\1", REPLACED.sub("\u2060", str(text)))


def isolated(word: str) -> str:
    """A word that runs from right to left, kept from turning the numbers around it; others as they are."""
    turns = any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in word)
    return f"\u2068{word}\u2069" if turns else word


def raised(number: int) -> str:
    """A number as it stands above a letter: A²."""
    return str(number).translate(RAISED)


def number(value: float) -> str:
    """A number to four digits, small differences in powers of ten."""
    return f"{value:.4g}"
