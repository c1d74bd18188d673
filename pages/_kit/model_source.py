"""Third-party models as a source: which there are, those in memory, and one while it is loaded."""

import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from types import MappingProxyType
from typing import NamedTuple

import streamlit as st

from mha_core import AttentionTrace, MhaError, device
from mha_core.sources.huggingface import files
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface.files import PACKAGE, Curated, Present, curated, library, present
from mha_core.traces.source import ModelSource
from mha_core.traces.tokens import words
from pages._kit.state import DEFAULTS, Scene, current, go
from pages._kit.text import literal, t

HOSTED, FOLDERS = "HEADSCOPE_HOSTED", "HEADSCOPE_MODELS"  # variables of the environment, see the README
POLL = 0.2  # seconds between two looks at a loading
TOLD = "sentence-transformers/all-MiniLM-L6-v2"  # what the package holds
MOST_MODELS = 2
MOST_BYTES = 1 << 30  # of the traces of one model together
PATIENCE = 3.0  # seconds for which a loading goes on while nobody looks at it
REMEMBERED = 60.0  # seconds for which a refusal stands before the model is tried again
HALVES = ("bfloat16", "float16")


class ModelKey(NamedTuple):
    """Which model: `dtype` is None for what is usual on this machine."""

    name: str
    revision: str | None = None
    dtype: str | None = None


@dataclass(eq=False)
class LoadedModel:
    """A loaded model and its last traces: of each text one for each kind of attention."""

    model: huggingface.Model
    kinds: tuple[str, ...] = ()  # of attention, known once it has read a text
    _lock: Lock = field(default_factory=Lock, repr=False)
    _traces: OrderedDict = field(default_factory=OrderedDict, repr=False)

    @property
    def parameters(self) -> int:
        """How many numbers were learned."""
        return sum(parameter.numel() for parameter in self.model.module.parameters())

    def parts(self, text: str, target: str | None = None) -> Mapping[str, AttentionTrace]:
        """The trace of each kind of attention. Raises `MhaError` for a text that the model does not take."""
        key = (text, target)
        with self._lock:  # two at once would take twice the memory and not half the time
            found = self._traces.pop(key, None)
            if found is None:
                whole = huggingface.follow(self.model, text, target=target)
                self.kinds = whole.kinds
                found = MappingProxyType({kind: whole.part(kind) for kind in whole.kinds}), _bytes(whole)
            self._traces[key] = found
            while sum(size for _, size in self._traces.values()) > MOST_BYTES and len(self._traces) > 1:
                self._traces.popitem(last=False)
        return found[0]


class Loading:
    """A loading in a thread of its own: all who wait for the model look at the same one."""

    def __init__(self, key: ModelKey):
        self.key = key
        self.stage, self.done, self.total = "find", 0, 0
        self.error: MhaError | None = None
        self.finished = Event()
        self.ended = float("inf")
        self.look()

    def look(self) -> None:
        """Somebody still waits for it."""
        self._looked = time.monotonic()

    def left_alone(self) -> bool:
        """Has everybody gone who waited for it?"""
        return time.monotonic() - self._looked > PATIENCE

    def tell(self, stage: str, done: int, total: int) -> None:
        self.stage, self.done, self.total = stage, done, total


class LoadedModels:
    """At most `most` models, the one that was used last kept longest."""

    def __init__(self, most: int = MOST_MODELS):
        self._most = most
        self._lock, self._one_at_a_time = Lock(), Lock()
        self._entries: OrderedDict[ModelKey, LoadedModel] = OrderedDict()
        self._loadings: dict[ModelKey, Loading] = {}

    def find(self, key: ModelKey) -> LoadedModel | None:
        """The model if it is loaded."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def begin(self, key: ModelKey) -> Loading:
        """The loading of a model, begun now unless it is under way or was refused a moment ago."""
        with self._lock:
            self._loadings = {
                k: one for k, one in self._loadings.items() if time.monotonic() - one.ended < REMEMBERED
            }
            loading = self._loadings.get(key)
            if loading is None or isinstance(loading.error, files.Stopped):
                loading = self._loadings[key] = Loading(key)
                Thread(target=self._load, args=(loading,), daemon=True).start()
            loading.look()
            return loading

    def refused(self, key: ModelKey) -> MhaError | None:
        """Why the model could not be loaded a moment ago."""
        with self._lock:
            return self._loadings[key].error if key in self._loadings else None

    def forget(self, key: ModelKey) -> None:
        """Let a model that was refused be tried again."""
        with self._lock:
            if key in self._loadings and self._loadings[key].finished.is_set():
                del self._loadings[key]

    def _load(self, loading: Loading) -> None:
        name, revision, dtype = loading.key
        asked = {"revision": revision, "progress": loading.tell, "cancelled": loading.left_alone}
        try:
            with self._one_at_a_time:
                huggingface.register()  # without the library nothing has to be looked for
                files.find(name, **asked)  # what cannot be had pushes no other model out
                self._make_room()
                entry = LoadedModel(huggingface.load(name, dtype=dtype, **asked))
                with self._lock:
                    self._entries[loading.key] = entry
                    self._loadings.pop(loading.key, None)
        except MhaError as error:
            loading.error = _in_half(error) if dtype in HALVES else error
        except (
            Exception
        ) as error:  # somebody else's files and library: whatever it is, it is no crash of ours
            loading.error = MhaError(f"{name} cannot be loaded ({type(error).__name__}: {error}).")
        finally:
            loading.ended = time.monotonic()
            loading.finished.set()

    def _make_room(self) -> None:
        with self._lock:
            while len(self._entries) >= self._most:
                self._entries.popitem(last=False)
        huggingface.free()


def _in_half(error: MhaError) -> MhaError:
    """Some models do not run in half precision everywhere: the same refusal, with whole precision offered."""
    return MhaError(str(error), fixes=(*error.fixes, {"dtype": "float32"}))


def _bytes(trace: AttentionTrace) -> int:
    return sum(tensor.nbytes for layer in trace.layers for tensor in layer.tensors.values())


@st.cache_resource
def loaded() -> LoadedModels:
    return LoadedModels()


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
    return isinstance(trace.source, ModelSource)


def load(scene: Scene, stage) -> None:
    """Wait for the scene's model, with its stages on screen; at once where nothing may be loaded."""
    key = key_of(scene)
    if at_hand(scene) is not None or not wanted(scene):
        return
    loading = loaded().begin(key)
    if not loading.finished.is_set():
        with stage.container(), st.status(t("real.loading", name=literal(scene.model)), expanded=True):
            bar = st.progress(0.0, _stage(loading))
            st.button(t("real.stop"), key="stop_model", on_click=_stop, args=(key,))
            while not loading.finished.wait(POLL):
                loading.look()
                bar.progress(loading.done / loading.total if loading.total else 0.0, _stage(loading))
    stage.empty()


def trace(scene: Scene, text: str) -> AttentionTrace:
    """The trace of a text of the kind that is chosen. Raises `MhaError` where there is none, and why."""
    if (reason := refuses(scene)) is not None:
        raise reason
    entry = at_hand(scene)
    if entry is None:
        raise loaded().refused(key_of(scene)) or MhaError(
            f"{scene.model} is not loaded.", fixes=({"source": "mini"},)
        )
    traces = parts(entry, scene, text)
    return traces.get(scene.kind) or next(iter(traces.values()))


def ready(scene: Scene) -> bool:
    """Is a model chosen, and need nobody agree first that it is fetched? It may be refused yet."""
    return scene.model is not None and bool(at_hand(scene) or wanted(scene) or refuses(scene))


def at_hand(scene: Scene) -> LoadedModel | None:
    """The scene's model, if it is loaded."""
    if scene.model is None or refuses(scene) is not None:
        return None
    return loaded().find(key_of(scene))


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


def again(key: ModelKey) -> None:
    """Somebody wants the model: fetch it, or try it again after a refusal."""
    st.session_state.model_stopped = None
    st.session_state.model_agreed = key
    loaded().forget(key)


def _stop(key: ModelKey) -> None:
    """For this visitor alone: when nobody else waits for it, the loading ends by itself."""
    st.session_state.model_stopped = key
    st.session_state.model_agreed = None


def wanted(scene: Scene) -> bool:
    """May it be loaded without asking: it is on this machine, or somebody has agreed to fetch it?"""
    key = key_of(scene)
    if refuses(scene) is not None or st.session_state.get("model_stopped") == key:
        return False
    local = scene.model in here() or scene.model == PACKAGE
    local = (local and not scene.revision) or (not hosted() and is_folder(scene.model))
    return local or not library() or st.session_state.get("model_agreed") == key


def refuses(scene: Scene) -> MhaError | None:
    """A server for strangers has the models that are on it, in the revision that is on it."""
    if scene.model is None:
        return MhaError("No model is chosen.", fixes=({"source": "mini"},))
    if hosted() and (scene.model not in here() or scene.revision):
        return MhaError(f"{scene.model} is not on this server, and nothing is downloaded here.")
    return None


def is_folder(name: str) -> bool:
    """A folder, or what is written like one: looked for at once, since nothing has to be fetched."""
    return name.startswith((".", "~", "/", os.sep)) or Path(name).is_dir()


def key_of(scene: Scene) -> ModelKey:
    asked = None if hosted() or scene.dtype == usual_dtype() else scene.dtype
    return ModelKey(scene.model, scene.revision or None, asked)


def parts(entry: LoadedModel, scene: Scene, text: str) -> Mapping[str, AttentionTrace]:
    """The trace of each kind of attention of the scene's model in a text."""
    target = scene.target if entry.model.has_target and (scene.target or "").strip() else None
    return entry.parts(text, target)


def _stage(loading: Loading) -> str:
    if loading.stage == "download":
        return t("real.stage_download", done=size(loading.done), total=size(loading.total))
    return {
        "find": t("real.stage_find"),
        "load": t("real.stage_load"),
        "check": t("real.stage_check"),
    }.get(loading.stage, "")


def size(count: int) -> str:
    """Bytes in a unit that a person reads."""
    for unit, least in (("GB", 1e9), ("MB", 1e6)):
        if count >= least:
            return f"{count / least:.1f} GB" if unit == "GB" else f"{count / least:.0f} MB"
    return f"{count / 1e3:.0f} kB"


def usual_dtype() -> str:
    """The kind of numbers in which a model computes here unless another is chosen."""
    return device.usual_dtype(device.pick().name)
