"""Third-party models as a source: those on this machine, those in memory, and their loading."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import local
from typing import TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core import AttentionTrace, MhaError, device
from mha_core.attention.edits import Edit
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface import catalogue, files
from mha_core.sources.huggingface.catalogue import HubModel, LocalModel, hub_models
from mha_core.sources.huggingface.files import PACKAGE, library
from mha_core.sources.huggingface.loaded import LoadedModel, LoadedModels, Loading, ModelKey, TracesByKind
from mha_core.traces.source import ModelSource
from pages._kit.text import in_bytes, literal, t
from pages._server import limits, logs
from pages._server.turns import HEAVY_BYTES, in_turn

Result = TypeVar("Result")
FOLDERS = "HEADSCOPE_MODELS"  # environment variable, see the README
KEPT = ("models", "model traces")  # apart from `compute.caches`: a model's place is free before it is read
POLL_SECONDS = 0.2  # between two updates of the progress bar
PACKAGED = "sentence-transformers/all-MiniLM-L6-v2"  # the model in the package


def _reason(error: Exception) -> str:
    """The reason of an error; for strangers its number in the log, since the error may name paths."""
    number = logs.failure(error)
    return f"error {number}" if limits.current().hosted else f"{type(error).__name__}: {error}"


class _ModelsInUse(local):
    """The models that a run of a page, which is a thread of its own, uses: one, and one to compare."""

    def __init__(self) -> None:
        self.models: deque[LoadedModel] = deque(maxlen=2)


_run = _ModelsInUse()


@st.cache_resource
def loaded() -> LoadedModels:
    """The models in the memory of this server."""
    models, traces = map(limits.kept_bytes, KEPT)
    return LoadedModels(models, max_trace_bytes=traces, reason=_reason)


def hosted() -> bool:
    """Whether this server offers strangers the pinned models on its disk and downloads nothing."""
    return limits.current().hosted


def local_models() -> dict[str, LocalModel]:
    """The models on this machine, by name."""
    folders = [] if hosted() else os.environ.get(FOLDERS, "").split(os.pathsep)
    return models_in(tuple(filter(None, folders)), hosted())


@st.cache_data(ttl=20, show_spinner=False)
def models_in(folders: tuple[str, ...], pinned: bool) -> dict[str, LocalModel]:
    models = catalogue.pinned_models() if pinned else catalogue.local_models(folders)
    return {model.name: model for model in models}


def offers_models() -> bool:
    """Whether visitors can look at a model: your own machine fetches any, a public server has its own."""
    return library() and (not hosted() or bool(local_models()))


def is_offered(name: str) -> bool:
    """Whether a visitor may name this model: on your own machine any, on a public server one of its own."""
    return not hosted() or name in local_models()


def downloadable() -> dict[str, HubModel]:
    """Well-known models that are not on this machine; a public server offers none."""
    return {} if hosted() else {model.id: model for model in hub_models() if model.id not in local_models()}


def is_third_party(trace: AttentionTrace) -> bool:
    """Whether the trace is of a third-party model that this app runs."""
    return isinstance(trace.source, ModelSource)


def run_model(trace: AttentionTrace, function: Callable[[], Result]) -> Result:
    """The result of a function that runs the model of a trace: a third-party one when its turn comes.

    The small models take no time, so they run at once.
    """
    return in_turn(function) if isinstance(trace.source.origin, ModelSource) else function()


def load(scene: Scene, stage: DeltaGenerator, *, button: str = "stop_model") -> None:
    """Load the scene's model, with a progress bar; does nothing if it may not be loaded.

    A model whose folder has changed is loaded again. `button` is the key of the button that stops loading.
    """
    key = key_of(scene)
    loaded().drop_if_saved_again(key)
    if loaded_model(scene) is not None or not may_load(scene):
        return
    loading = loaded().begin(key)
    try:
        if not loading.finished.is_set():
            with stage.container(), st.status(t("real.loading", name=literal(scene.model)), expanded=True):
                bar = st.progress(0.0, _stage(loading))
                st.button(t("real.stop"), key=button, on_click=_stop, args=(key,))
                while not loading.finished.wait(POLL_SECONDS):
                    bar.progress(loading.done / loading.total if loading.total else 0.0, _stage(loading))
        loaded_model(scene)  # before `loading` lets go of it
    finally:
        loading.leave()
    stage.empty()


def read(scene: Scene, text: str, edits: Sequence[Edit] = (), *, answers: bool = False) -> TracesByKind:
    """The traces of a text; `edits` count the layers of the chosen kind of attention.

    Raises `MhaError` if the model is not loaded, does not take the text, or gives no answers.
    """
    entry = _entry(scene)
    kind = _kind(entry, scene) if edits else None
    edits = [replace(edit, kind=kind) for edit in edits]
    target = scene.target if entry.model.has_target and (scene.target or "").strip() else None
    limit = limits.current().tokens
    return entry.read(
        text, target, edits, answers=answers, limit=limit, long_bytes=HEAVY_BYTES, in_turn=in_turn
    )


def whole(scene: Scene) -> tuple[AttentionTrace, str | None]:
    """The trace of the scene's text with all kinds of attention, and the chosen one; None if there is one.

    Raises `MhaError` if the model is not loaded.
    """
    return read(scene, scene.text).whole, _kind(_entry(scene), scene)


def _entry(scene: Scene) -> LoadedModel:
    """The scene's model. Raises `MhaError` with the reason if it is not loaded."""
    if (entry := loaded_model(scene)) is not None:
        return entry
    raise (
        refusal(scene)
        or loaded().refused(key_of(scene))
        or MhaError("{name} is not loaded.", name=scene.model, fixes=({"source": "mini"},))
    )


def _kind(entry: LoadedModel, scene: Scene) -> str | None:
    """The chosen kind of attention, or else the first; None if the model has only one."""
    return scene.kind if scene.kind in entry.kinds else entry.kinds[0] if len(entry.kinds) > 1 else None


def ready(scene: Scene) -> bool:
    """Whether a model is chosen and needs no library or consent to a download; its loading may still fail."""
    return (
        library()
        and scene.model is not None
        and bool(loaded_model(scene) or may_load(scene) or refusal(scene))
    )


def loaded_model(scene: Scene) -> LoadedModel | None:
    """The scene's model, kept until the run of the page ends; None if it is not loaded."""
    if refusal(scene) is not None:
        return None
    entry = loaded().find(key_of(scene))
    if entry is not None and entry not in _run.models:
        _run.models.append(entry)
    return entry


def known(name: str | None) -> HubModel | None:
    """The well-known model of that name, which may be the one in the package; None for another."""
    same = PACKAGED if name == PACKAGE else name
    return next((model for model in hub_models() if model.id == same), None)


def notice(model: HubModel) -> str:
    """A sentence on what to look at in a well-known model."""
    return t(f"hub.{model.id.rpartition('/')[2]}")


def longest(entry: LoadedModel) -> int:
    """The largest number of tokens that a model takes on this server."""
    return min(entry.model.limit, limits.current().tokens)


def agree_to_load(key: ModelKey) -> None:
    """Note that the user agrees to load the model, for the first time or again after an error."""
    st.session_state.model_stopped = None
    st.session_state.model_agreed = key._replace(answers=False)  # the files are the same
    loaded().forget(key)


def _stop(key: ModelKey) -> None:
    """Stop waiting in this session; the loading ends when no other user waits for it."""
    st.session_state.model_stopped = key
    st.session_state.model_agreed = None


def may_load(scene: Scene) -> bool:
    """Whether the model may be loaded now: it is on this machine, or the user has agreed to a download."""
    key = key_of(scene)
    if refusal(scene) is not None or st.session_state.get("model_stopped") == key:
        return False
    here, asked = local_models().get(scene.model or ""), revision_of(scene)
    local = (here or scene.model == PACKAGE) and asked in (None, here and here.revision)
    return (
        bool(local)
        or (not hosted() and is_folder(scene.model or ""))
        or st.session_state.get("model_agreed") == key._replace(answers=False)
    )


def refusal(scene: Scene) -> MhaError | None:
    """Why the model cannot be loaded at all, such as one that this server does not have; None if it can."""
    if scene.model is None:
        return MhaError("No model is chosen.", fixes=({"source": "mini"},))
    if hosted() and scene.model not in local_models():
        return MhaError("{name} is not on this server, and nothing is downloaded here.", name=scene.model)
    return None


def is_folder(name: str) -> bool:
    """Whether the name is a folder or written like one; folders need no download."""
    return files.is_path(name) or files.local_folder(name) is not None


def revision_of(scene: Scene) -> str | None:
    """The revision that is loaded, whatever the scene asks for.

    On a server for strangers it is the pinned one; files on this machine have none; None means the newest.
    """
    if hosted():
        model = local_models().get(scene.model or "")
        return None if model is None else model.revision
    has_none = scene.model is None or scene.model == PACKAGE or is_folder(scene.model)
    return None if has_none or not files.is_revision(scene.revision or "") else scene.revision


def key_of(scene: Scene) -> ModelKey:
    """The key of the scene's model in memory, with answers if the scene asks for them."""
    dtype = None if hosted() or scene.dtype == usual_dtype() else scene.dtype
    return ModelKey(scene.model, revision_of(scene), dtype, scene.ask_model)


def _stage(loading: Loading) -> str:
    if loading.stage == "download":
        return t("real.stage_download", done=in_bytes(loading.done), total=in_bytes(loading.total))
    return t(f"real.stage_{loading.stage}")


def usual_dtype() -> str:
    """The default number type of models on this machine."""
    return device.usual_dtype(device.pick())
