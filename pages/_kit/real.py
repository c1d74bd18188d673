"""Models of others as a source: which one, loaded while one watches, and what to do where it is not there."""

import os
from pathlib import Path

import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.sources.huggingface.files import PACKAGE, Curated, Present, curated, library, present
from mha_core.traces.tokens import words
from pages._kit import kinds, precision
from pages._kit.shelf import Entry, Job, Key, Shelf
from pages._kit.state import DEFAULTS, Scene, current, go
from pages._kit.text import literal, t

HOSTED, FOLDERS = "HEADSCOPE_HOSTED", "HEADSCOPE_MODELS"  # variables of the environment, see the README
POLL = 0.2  # seconds between two looks at a loading
LONGEST_TARGET = 40_000
TOLD = "sentence-transformers/all-MiniLM-L6-v2"  # what the package holds


def hosted() -> bool:
    """Is this a server for strangers? Then they choose among what is on it, and nothing is downloaded."""
    return os.environ.get(HOSTED, "") not in ("", "0")


def here() -> dict[str, Present]:
    """The models on this machine by their names."""
    folders = [] if hosted() else os.environ.get(FOLDERS, "").split(os.pathsep)
    return _here(tuple(filter(None, folders)))


@st.cache_data(ttl=20, show_spinner=False)
def _here(folders: tuple[str, ...]) -> dict[str, Present]:
    return {model.name: model for model in present(folders)}


def known() -> dict[str, Curated]:
    """Well-known models that are not on this machine; a server for strangers offers none."""
    return {} if hosted() else {model.id: model for model in curated() if model.id not in here()}


def is_real(trace: AttentionTrace) -> bool:
    """Was a trace made by a model of others, in this app?"""
    return "route" in trace.source and "file" not in trace.source


def controls(stage) -> None:
    """Which model, what it reads besides the text, and whose attention of it; loading is shown in `stage`."""
    names, strangers = list(here()), hosted()
    asked = st.query_params.get("model")
    if strangers and asked and asked not in names:
        st.caption(t("real.not_offered", name=literal(asked)))
        if st.session_state.get("model") not in names:
            st.session_state.pop("model", None)
    st.selectbox(
        t("control.model"),
        [*names, *known()],
        index=0 if names else None,
        key="model",
        placeholder=t("control.model_none") if strangers else t("control.model_empty"),
        help=t("control.model_hosted") if strangers else t("control.model_help"),
        accept_new_options=not strangers,
        bind="query-params",
    )
    scene = current()
    if scene.model is None:
        return
    if not strangers:
        with st.expander(t("control.advanced")):
            if scene.model != PACKAGE and not _is_folder(scene.model):
                st.text_input(
                    t("control.revision"),
                    key="revision",
                    placeholder=t("control.revision_empty"),
                    help=t("control.revision_help"),
                    bind="query-params",
                )
            precision.control()
    load(current(), stage)
    if (entry := at_hand(current())) is None:
        return
    if entry.model.has_target:
        st.text_area(
            t("control.target"),
            key="target",
            height=68,
            max_chars=LONGEST_TARGET,
            placeholder=t("control.target_empty"),
            help=t("control.target_help"),
            bind="query-params",
        )
    try:
        with stage.container(), st.spinner(t("real.reading", name=literal(scene.model))):
            read = list(_parts(entry, current(), scene.text))
    except MhaError:
        read = []  # the page says what does not fit
    stage.empty()
    kinds.control(read)


def load(scene: Scene, stage) -> None:
    """Wait for the scene's model, with its stages on screen; at once where nothing may be loaded."""
    key = key_of(scene)
    if at_hand(scene) is not None or not wanted(scene):
        return
    job = shelf().job(key)
    if not job.finished.is_set():
        with stage.container(), st.status(t("real.loading", name=literal(scene.model)), expanded=True):
            bar = st.progress(0.0, _stage(job))
            st.button(t("real.stop"), key="stop_model", on_click=_stop, args=(key,))
            while not job.finished.wait(POLL):
                job.look()
                bar.progress(job.done / job.total if job.total else 0.0, _stage(job))
    stage.empty()


def trace(scene: Scene, text: str) -> AttentionTrace:
    """The trace of a text of the kind that is chosen. Raises `MhaError` where there is none, and why."""
    if (reason := refuses(scene)) is not None:
        raise reason
    entry = at_hand(scene)
    if entry is None:
        raise shelf().refused(key_of(scene)) or MhaError(
            f"{scene.model} is not loaded.", fixes=({"source": "mini"},)
        )
    parts = _parts(entry, scene, text)
    return parts.get(scene.kind) or next(iter(parts.values()))


def at_hand(scene: Scene) -> Entry | None:
    """The scene's model, if it is loaded."""
    if scene.model is None or refuses(scene) is not None:
        return None
    return shelf().find(key_of(scene))


def same_word(trace: AttentionTrace) -> None:
    """Keep looking at the same word when a model cuts the sentence in another way than the source before."""
    scene, tokens = current(), trace.tokens
    by = (scene.source, scene.model if scene.source == "model" else None)
    before, st.session_state.cut = st.session_state.get("cut"), (by, tokens.text, tokens.spans)
    sources = {scene.source, before[0][0] if before else scene.source}
    if "model" not in sources or (before and (before[0] == by or before[1] != tokens.text)):
        return
    if before is None:
        if "token" in st.query_params or tokens.text != DEFAULTS.text:
            return
        spans = words(tokens.text).spans
        at = DEFAULTS.token - 2  # small models put [CLS] before it
    else:
        spans, at = before[2], scene.token - 1
    if at < len(spans) and spans[at][0] < spans[at][1]:
        start = spans[at][0]
        places = [place for place, (first, end) in enumerate(tokens.spans) if first <= start < end]
        go(**({"token": places[0] + 1} if places else {}))


def notice(scene: Scene) -> str | None:
    """What to look at in the scene's model, if it is a well-known one."""
    name = TOLD if scene.model == PACKAGE else scene.model
    return next((model.notice for model in curated() if model.id == name), None)


def limit(scene: Scene) -> int | None:
    """The most tokens that the scene's model takes, as far as that is known."""
    entry = at_hand(scene)
    return None if entry is None else entry.model.limit


def again(key: Key) -> None:
    """Somebody wants the model: fetch it, or try it again after a refusal."""
    st.session_state.model_stopped = None
    st.session_state.model_agreed = key
    shelf().forget(key)


def _stop(key: Key) -> None:
    """For this visitor alone: when nobody else waits for it, the loading ends by itself."""
    st.session_state.model_stopped = key
    st.session_state.model_agreed = None


def wanted(scene: Scene) -> bool:
    """May it be loaded without asking: it is on this machine, or somebody has agreed to fetch it?"""
    key = key_of(scene)
    if refuses(scene) is not None or st.session_state.get("model_stopped") == key:
        return False
    local = scene.model in here() or scene.model == PACKAGE
    local = (local and not scene.revision) or (not hosted() and _is_folder(scene.model))
    return local or not library() or st.session_state.get("model_agreed") == key


def refuses(scene: Scene) -> MhaError | None:
    """A server for strangers has the models that are on it, in the revision that is on it."""
    if scene.model is None:
        return MhaError("No model is chosen.", fixes=({"source": "mini"},))
    if hosted() and (scene.model not in here() or scene.revision):
        return MhaError(f"{scene.model} is not on this server, and nothing is downloaded here.")
    return None


def _is_folder(name: str) -> bool:
    """A folder, or what is written like one: looked for at once, since nothing has to be fetched."""
    return name.startswith((".", "~", "/", os.sep)) or Path(name).is_dir()


def key_of(scene: Scene) -> Key:
    asked = None if hosted() or scene.dtype == precision.usual() else scene.dtype
    return Key(scene.model, scene.revision or None, asked)


def _parts(entry: Entry, scene: Scene, text: str):
    target = scene.target if entry.model.has_target and (scene.target or "").strip() else None
    return entry.parts(text, target)


def _stage(job: Job) -> str:
    if job.stage == "download":
        return t("real.stage_download", done=size(job.done), total=size(job.total))
    return {
        "find": t("real.stage_find"),
        "load": t("real.stage_load"),
        "check": t("real.stage_check"),
    }.get(job.stage, "")


def size(count: int) -> str:
    """Bytes in a unit that a person reads."""
    for unit, least in (("GB", 1e9), ("MB", 1e6)):
        if count >= least:
            return f"{count / least:.1f} GB" if unit == "GB" else f"{count / least:.0f} MB"
    return f"{count / 1e3:.0f} kB"


@st.cache_resource
def shelf() -> Shelf:
    return Shelf()
