"""The lessons that can be opened: those that come with the library, and the visitor's own file."""

import base64
import zlib
from collections.abc import Mapping
from hashlib import blake2b

import streamlit as st

from mha_core import MhaError
from mha_core.focus.fields import MAX_CHARACTERS
from mha_core.lessons.lesson import MAX_BYTES, Lesson, offered, shipped

OWN = "own"  # the name of the lesson of a visitor's file, and of one that a link holds
KEY = "lesson_text"  # of the session: the text of that file
FILE = "lesson_file"  # of a link: the file itself
DRAFT = "lesson_draft"  # of the session: the lesson that is being made
MINUTES = 5  # of one that is begun
MAX_CODE = MAX_CHARACTERS  # of a file in the address, which then survives a reload
MAX_SENT = 6_000  # characters of a file in a link that mail and chats still take


def lessons() -> Mapping[str, Lesson]:
    """All of them by their names, the visitor's own last."""
    try:
        here = offered()
    except (MhaError, OSError):  # the cards say what is wrong with the file of this server
        here = shipped()
    own = opened()
    return here if own is None else {**here, OWN: own}


def opened() -> Lesson | None:
    """The lesson of the visitor's file, else the one that the link holds; None where none is open."""
    text = st.session_state.get(KEY)
    return _of_link() if text is None else Lesson.read(text, OWN)


def _of_link(*, is_draft: bool = False) -> Lesson | None:
    code = st.query_params.get(FILE, "")[:MAX_CODE]
    if not code:
        return None
    try:
        packed = base64.urlsafe_b64decode(code + "=" * (-len(code) % 4))
        # No more is unpacked than a file may have.
        text = zlib.decompressobj().decompress(packed, MAX_BYTES + 1).decode()
        return Lesson.read(text, OWN, is_draft=is_draft)
    except (MhaError, ValueError, zlib.error):  # cut off on its way
        return None


def code(lesson: Lesson, limit: int = MAX_CODE) -> str | None:
    """The file as a link holds it; None for one that is longer than `limit`."""
    packed = zlib.compress(lesson.write().encode(), 9)
    written = base64.urlsafe_b64encode(packed).decode().rstrip("=")
    return written if len(written) <= limit else None


def draft() -> Lesson:
    """The lesson that is being made: after a reload the one that the link holds, empty before all screens."""
    kept = st.session_state.get(DRAFT) or _of_link(is_draft=True)
    return kept or Lesson("lesson", MINUTES, ())


def keep_draft(lesson: Lesson) -> None:
    """Keep what has been made so far, in the session and, where it is short, in the link."""
    st.session_state[DRAFT] = lesson
    _keep_in_link(lesson)


def _keep_in_link(lesson: Lesson) -> None:
    written = code(lesson)
    if written is None:
        st.query_params.pop(FILE, None)
    else:
        st.query_params[FILE] = written


def open_file(content: bytes) -> None:
    """Open the lesson of a file, which the link holds, too, where it is short, so that a reload keeps it.

    Raises `LessonError` if it is not one; then the open lesson stays open.
    """
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
    _keep_in_link(lesson)


def version(lesson: Lesson) -> str:
    """A name for its content; the browser forgets its progress in a lesson when this changes."""
    return blake2b(lesson.write().encode(), digest_size=4).hexdigest()
