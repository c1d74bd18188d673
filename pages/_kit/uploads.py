"""The saved trace that a user has open, in the session of this user alone."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import streamlit as st

from mha_core import AttentionTrace, MhaError, load, resources
from mha_core.scene.scene import Scene
from mha_core.traces.answers import Answer
from mha_core.traces.source import FileSource, Source
from mha_core.traces.storage import named
from pages._server import limits

OPENED = resources.OPENED  # environment variable: the file of `headscope open`
MAX_FIELD = 100  # characters in a field of a file's source
MAX_ITEMS, MAX_ITEM = 100, 400  # items of a list in it, and characters of each


class OpenedFile(NamedTuple):
    """An open file: its name, a hash of its content, and the trace of each kind of attention in it."""

    name: str
    digest: str
    parts: Mapping[str, AttentionTrace]

    def part(self, kind: str | None) -> AttentionTrace:
        """The trace of a kind of attention, else of the first one."""
        return self.parts.get(kind or "") or next(iter(self.parts.values()))


def megabytes() -> int:
    """The largest file that the server takes."""
    return min(limits.current().upload_megabytes, st.get_option("server.maxUploadSize"))


def begin() -> None:
    """Open the trace that `headscope open` started the server with, once per session.

    It is the first source of the session, unless the URL names another.
    """
    if "opened_trace" in st.session_state:
        return
    path = os.environ[OPENED]
    try:
        file = on_disk(path, os.stat(path).st_mtime_ns)
    except (MhaError, OSError) as error:
        reason = error.phrase if isinstance(error, MhaError) else str(error)
        st.session_state.opened_trace, st.session_state.file_refused = None, reason
        return
    st.session_state.opened_trace, st.session_state.file = file, file.digest
    if "source" not in st.session_state and "source" not in st.query_params:
        st.session_state.source = "file"


@st.cache_resource(max_entries=1, show_spinner=False)
def on_disk(path: str, changed: int) -> OpenedFile:
    # Chosen by whoever started the server, and not uploaded: its cost is not limited.
    return read(Path(path).name, Path(path).read_bytes(), bounded=False)


def trace(scene: Scene) -> AttentionTrace | None:
    """The trace of the open file, of the chosen kind of attention; None if no file is open."""
    file = opened()
    return None if file is None else file.part(scene.kind)


def opened() -> OpenedFile | None:
    """The open file; None if there is none."""
    return st.session_state.get("opened_trace")


def take() -> None:
    """Open the file in the uploader; if it is not a trace, the file that was open stays open."""
    upload = st.session_state.trace_file
    st.session_state.file_refused = None
    if upload is None:  # removed by the user, or by the browser before it sends the next file
        return
    try:
        file = read(upload.name, upload.getvalue())
    except MhaError as error:
        st.session_state.file_refused = error.phrase
        return
    st.session_state.opened_trace, st.session_state.file = file, file.digest


def beside(scene: Scene, label: str) -> AttentionTrace | None:
    """The trace of a second file, which the user opens here; None without one.

    Raises `MhaError` for a file that is not a trace.
    """
    upload = st.file_uploader(
        label,
        type="safetensors",
        key="file_beside",
        label_visibility="collapsed",
        max_upload_size=megabytes(),
    )
    if upload is None:
        return None
    name, held = upload.file_id, st.session_state.get("trace_beside")
    if held is None or held[0] != name:
        st.session_state.trace_beside = held = (name, read(upload.name, upload.getvalue()))
    return held[1].part(scene.kind)


def close() -> None:
    """Close the open file."""
    st.session_state.opened_trace = st.session_state.file = None


def read(name: str, content: bytes, *, bounded: bool = True) -> OpenedFile:
    """A file that `AttentionTrace.save` wrote. Raises `MhaError` with the name of any other file.

    A `bounded` file may not cost more than a trace may on this server.
    """
    server = limits.current()
    cost = {"max_bytes": server.trace_bytes, "max_flops": server.trace_flops} if bounded else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.safetensors"
        path.write_bytes(content)
        with named(path, name):
            saved = load(path, limit=server.tokens, **cost)
    if not saved.layers:
        raise MhaError("{name} holds no layer.", name=name)
    answers = _brief(saved.answers)
    questions = {question[:MAX_FIELD]: _brief(found) for question, found in saved.questions.items()}
    source = FileSource(name, _short(saved.source))
    trace = replace(saved, source=source, answers=answers, questions=questions)
    digest = blake2b(content, digest_size=8).hexdigest()
    return OpenedFile(name, digest, {kind: trace.part(kind) for kind in trace.kinds})


def _brief(answers: tuple[Answer | None, ...]) -> tuple[Answer | None, ...]:
    """Answers with their words cut to the space on the page."""
    return tuple(answer and tuple((word[:MAX_FIELD], p) for word, p in answer) for answer in answers)


def _short(source: Source) -> Source:
    """The source named in a file, with its texts cut to the space on the page."""
    values = {field.name: getattr(source, field.name) for field in fields(source)}
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = _cut(value, MAX_FIELD)
        elif isinstance(value, tuple):
            items = value if name == "edits" else [_cut(item, MAX_ITEM) for item in value[:MAX_ITEMS]]
            values[name] = tuple(items)
        elif isinstance(value, Source):
            values[name] = _short(value)
        elif isinstance(value, Mapping):
            values[name] = {
                key[:MAX_FIELD]: item[:MAX_FIELD] if isinstance(item, str) else item
                for key, item in value.items()
            }
    return replace(source, **values)


def _cut(text: str, length: int) -> str:
    """The beginning of a text; a short one is returned as it is, so that a phrase can be translated."""
    return text if len(text) <= length else text[:length]
