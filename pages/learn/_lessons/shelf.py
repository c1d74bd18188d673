"""The lessons that can be opened: those that come with the library, and the visitor's own file."""

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b

import streamlit as st

from mha_core import MhaError
from mha_core.lessons.lesson import MAX_BYTES, Lesson, offered, shipped

OWN = "own"  # the name of the lesson of a visitor's file
KEY = "lesson_file"  # its text, in the session


def lessons() -> Mapping[str, Lesson]:
    """All of them by their names, the visitor's own last."""
    try:
        here = offered()
    except (MhaError, OSError):  # the file with which the server was started is no lesson any more
        here = shipped()
    own = opened()
    return here if own is None else {**here, OWN: own}


def opened() -> Lesson | None:
    """The lesson of the visitor's file; None where none is open."""
    text = st.session_state.get(KEY)
    return None if text is None else _read(text)


def open_file(content: bytes) -> Lesson:
    """Open the lesson of a file. Raises `LessonError` for what is none; the one that was open stays so."""
    if len(content) > MAX_BYTES:
        raise MhaError(
            "A lesson has at most {limit:,} bytes; this one has {size:,}.",
            limit=MAX_BYTES,
            size=len(content),
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise MhaError("A lesson is a text file in UTF-8.") from None
    lesson = Lesson.read(text, OWN)
    st.session_state[KEY] = text
    return lesson


def _read(text: str) -> Lesson:
    return Lesson.read(text, OWN)


@cache
def _version(written: str) -> str:
    return blake2b(written.encode(), digest_size=4).hexdigest()


def version(lesson: Lesson) -> str:
    """A name for its content: what the browser keeps of a lesson ends when that is another."""
    return _version(lesson.write())
