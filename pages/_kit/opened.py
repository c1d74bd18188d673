"""A saved trace that is opened here: for this visitor alone, and kept for as long as the visit lasts."""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import streamlit as st

from mha_core import AttentionTrace, LayerTrace, MhaError, load
from mha_core.training.lexicon import LANGUAGES
from pages._kit import kinds
from pages._kit.state import Scene, current
from pages._kit.text import literal, t

MEGABYTES = 200
LONGEST = 100  # characters of what a file says about itself
TOLD = ("skipped", "notes")  # what a source says in sentences
MOST_TOLD, LONGEST_TOLD = 100, 400  # of these, and characters of each
EXAMPLE = """import mha_core as mha

with mha.record(tokens=["the", "old", "cat"]) as rec:
    my_model(x)
rec.trace.save("mine.safetensors")
"""
MARK = " (file)"
NOTHING = "No saved trace is open; open one in the sidebar."


class Opened(NamedTuple):
    """A file: its name, what tells it from others, and the trace of each kind of attention in it."""

    name: str
    digest: str
    parts: Mapping[str, AttentionTrace]


def controls() -> None:
    """The file, and whose attention of it; what was open stays open when the next file is no trace."""
    st.file_uploader(
        t("control.file"),
        type="safetensors",
        key="trace_file",
        help=t("control.file_help", megabytes=MEGABYTES),
        max_upload_size=MEGABYTES,
        on_change=_given,
    )
    if refused := st.session_state.get("file_refused"):
        st.error(literal(refused))
    found = _opened()
    if found is None:
        return
    if refused or st.session_state.get("trace_file") is None:  # what is open is not what stands above
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.caption(t("file.open", name=literal(found.name)), width="content")
            st.button(t("file.close"), type="tertiary", key="close_file", on_click=_close)
    kinds.control(list(found.parts))


def sentence() -> None:
    """The text of the file where others have theirs; what was typed there waits in the link."""
    shown = trace(current())
    if shown is None:
        return
    looking, looked_at = shown.sides()
    _text(t("control.text"), "file_text", looking.text)
    if looked_at is not looking:
        _text(t("file.keys"), "file_keys", looked_at.text)


def trace(scene: Scene) -> AttentionTrace | None:
    """The trace of the open file, of the kind that is chosen; None where none is open."""
    found = _opened()
    if found is None:
        return None
    return found.parts.get(scene.kind) or next(iter(found.parts.values()))


def empty() -> None:
    """What to do where no file is open yet."""
    st.info(t("file.empty"), icon=":material/upload_file:")
    st.code(EXAMPLE, language="python")


def maker(source: Mapping) -> str:
    """What the trace of a file was made by, as the file says."""
    return str(source["name"]).removesuffix(MARK)


def known(layer: LayerTrace) -> bool:
    """Are Q, K, V and the scores there? Where they are not, it is said in their place."""
    if not layer.knows("q"):
        own = "missing" in layer.about  # the model hands out its weights alone
        st.info(t("real.unknown") if own else t("file.unknown"), icon=":material/help:")
    return layer.knows("q")


def _opened() -> Opened | None:
    return st.session_state.get("opened_trace")


def _text(label: str, key: str, text: str) -> None:
    st.session_state[key] = text
    st.text_area(label, key=key, height=90, disabled=True, help=t("file.text_help"))


def _given() -> None:
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


def _close() -> None:
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
    plain = {
        key: value[:LONGEST] if isinstance(value, str) else value
        for key, value in whole.source.items()
        if isinstance(value, str | int | float) and key not in TOLD
    }
    told = {
        key: tuple(str(one)[:LONGEST_TOLD] for one in value[:MOST_TOLD])
        for key in TOLD
        if isinstance(value := whole.source.get(key), list)
    }
    # By its name alone it is no source of the app: what those know about their weights is not in the file.
    source = plain | told | {"name": f"{plain.get('name', 'trace')}{MARK}", "file": name}
    answered = source.get("language") in LANGUAGES and all(answer != () for answer in whole.answers)
    whole = replace(
        whole, source=MappingProxyType(source), answers=whole.answers if answered else ()
    )  # fmt: skip
    digest = blake2b(content, digest_size=8).hexdigest()
    return Opened(name, digest, {kind: whole.part(kind) for kind in whole.kinds})
