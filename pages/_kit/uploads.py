"""A saved trace that is opened here: for this visitor alone, and kept for as long as the visit lasts."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import streamlit as st

from mha_core import AttentionTrace, MhaError, load, resources
from mha_core.traces.source import FileSource, Source
from mha_core.training.lexicon import LANGUAGES
from pages._kit.state import Scene

MEGABYTES = 200
LONGEST = 100  # characters of what a file says about itself
MOST_TOLD, LONGEST_TOLD = 100, 400  # of these, and characters of each
NOTHING = "No saved trace is open; open one in the sidebar."


class Opened(NamedTuple):
    """A file: its name, what tells it from others, and the trace of each kind of attention in it."""

    name: str
    digest: str
    parts: Mapping[str, AttentionTrace]


def begin() -> None:
    """Open the trace that the server was started with, `headscope open`, once for each visitor.

    It is what he sees first, unless the link asks for something else.
    """
    path = os.environ.get(resources.OPENED)
    if not path or "opened_trace" in st.session_state:
        return
    try:
        found = _on_disk(path, os.stat(path).st_mtime_ns)
    except (MhaError, OSError) as error:
        st.session_state.opened_trace, st.session_state.file_refused = None, str(error)
        return
    st.session_state.opened_trace, st.session_state.file = found, found.digest
    if "source" not in {*st.session_state, *st.query_params}:
        st.session_state.source = "file"


@st.cache_resource(max_entries=1, show_spinner=False)
def _on_disk(path: str, changed: int) -> Opened:
    return read(Path(path).name, Path(path).read_bytes())


def trace(scene: Scene) -> AttentionTrace | None:
    """The trace of the open file, of the kind that is chosen; None where none is open."""
    found = opened()
    if found is None:
        return None
    return found.parts.get(scene.kind) or next(iter(found.parts.values()))


def opened() -> Opened | None:
    """The open file."""
    return st.session_state.get("opened_trace")


def take() -> None:
    """Open what the uploader was given; what was open stays open when that is no trace."""
    given = st.session_state.trace_file
    st.session_state.file_refused = None
    if given is None:  # taken away, which a browser does too before it gives another one
        return
    try:
        found = read(given.name, given.getvalue())
    except MhaError as error:
        st.session_state.file_refused = str(error)
        return
    st.session_state.opened_trace, st.session_state.file = found, found.digest


def close() -> None:
    """Nothing is open any more."""
    st.session_state.opened_trace = st.session_state.file = None


def read(name: str, content: bytes) -> Opened:
    """A file as `AttentionTrace.save` wrote it. Raises `MhaError` for any other, which names the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.safetensors"
        path.write_bytes(content)
        try:
            whole = load(path)
        except MhaError as error:
            raise MhaError(str(error).replace(str(path), name)) from None
    if not whole.layers:
        raise MhaError(f"{name} holds no layer.")
    whole = replace(whole, source=FileSource(name, _short(whole.source)))
    lexical = getattr(whole.source.origin, "language", None) in LANGUAGES
    if not lexical or any(answer == () for answer in whole.answers):
        whole = replace(whole, answers=())
    digest = blake2b(content, digest_size=8).hexdigest()
    return Opened(name, digest, {kind: whole.part(kind) for kind in whole.kinds})


def _short(source: Source) -> Source:
    """What a file says about itself, no longer than the page has room for."""
    told = {one.name: getattr(source, one.name) for one in fields(source)}
    for name, value in told.items():
        if isinstance(value, str):
            told[name] = value[:LONGEST]
        elif isinstance(value, tuple):
            told[name] = tuple(one[:LONGEST_TOLD] for one in value[:MOST_TOLD])
        elif isinstance(value, Source):
            told[name] = _short(value)
        elif isinstance(value, Mapping):
            told[name] = {
                key[:LONGEST]: one[:LONGEST] if isinstance(one, str) else one for key, one in value.items()
            }
    return replace(source, **told)
