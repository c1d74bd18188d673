"""Third-party models as a source: those on this machine, those in memory, and their loading."""

import itertools
import json
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Lock, Thread, local
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core import AttentionTrace, MhaError, device
from mha_core.attention.edits import Edit
from mha_core.attention.functional import HALF
from mha_core.attention.module import AttentionSpec
from mha_core.cache import Cache
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface import catalogue, files
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface.catalogue import HubModel, LocalModel, hub_models
from mha_core.sources.huggingface.files import PACKAGE, library
from mha_core.sources.random_weights import nbytes
from mha_core.traces.source import ModelSource
from pages._kit.text import literal, t
from pages._server import limits, logs
from pages._server.turns import HEAVY_BYTES, in_turn

FOLDERS = "HEADSCOPE_MODELS"  # environment variable, see the README
POLL_SECONDS = 0.2  # between two updates of the progress bar
PACKAGED = "sentence-transformers/all-MiniLM-L6-v2"  # the model in the package
PATIENCE = 3.0  # seconds that loading goes on after the last waiting user has left
ERROR_SECONDS = 60.0  # before a model that failed is tried again
SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers")  # in a model's config
MAX_TOKENS = 100  # a longer text waits for its turn, if the config has no such sizes
HALF_PRECISION = ("bfloat16", "float16")


class ModelKey(NamedTuple):
    """The key of a model in memory; `dtype` is None for the default of this machine.

    With `answers` the model has its language-model head, if its architecture has one.
    """

    name: str | None
    revision: str | None = None
    dtype: str | None = None
    answers: bool = False


class TracesByKind(NamedTuple):
    """The traces of a text, one for each kind of attention, their bytes, and the trace of all kinds."""

    traces: Mapping[str, AttentionTrace]
    nbytes: int
    whole: AttentionTrace

    def with_kind(self, kind: str | None) -> AttentionTrace:
        """The trace of that kind of attention, or of the first kind if there is none."""
        return self.traces.get(kind or "") or next(iter(self.traces.values()))


@st.cache_resource
def model_traces() -> Cache[TracesByKind]:
    """The cached traces of all models."""
    return Cache(limits.current().model_traces_bytes)


@dataclass(eq=False)
class LoadedModel:
    """A loaded model. Its traces are cached, and may outlive it."""

    model: huggingface.Model
    fingerprint: tuple | None = None  # of its folder when it was loaded
    kinds: tuple[str, ...] = ()  # of attention; known after the first text
    number: int = field(default_factory=itertools.count().__next__)  # identifies it in the keys of its traces
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.model.module.parameters())

    @property
    def nbytes(self) -> int:
        """The bytes of its parameters."""
        return sum(parameter.nbytes for parameter in self.model.module.parameters())

    def parts(
        self, text: str, target: str | None = None, edits: Sequence[Edit] = ()
    ) -> Mapping[str, AttentionTrace]:
        """The trace of each kind of attention. Raises `MhaError` for a text that the model cannot take."""
        return self.read(text, target, edits).traces

    def read(
        self,
        text: str,
        target: str | None = None,
        edits: Sequence[Edit] = (),
        *,
        answers: bool = False,
    ) -> TracesByKind:
        """The traces of a text, with the model's answers if `answers` are wanted.

        Raises `MhaError` for a text that the model cannot take, and for answers of a model that has none.
        """

        def compute(_key: str) -> TracesByKind:
            trace = huggingface.follow(
                self.model, text, target=target, edits=edits, answers=answers, limit=limits.current().tokens
            )
            self.kinds = trace.kinds
            traces = {kind: trace.part(kind) for kind in trace.kinds} or {"self": trace}
            return TracesByKind(MappingProxyType(traces), trace_bytes(trace), trace)

        key = json.dumps([self.number, text, target, [edit.to_json() for edit in edits], answers])

        def read() -> TracesByKind:
            with self._lock:  # two at once would need twice the memory and save no time
                return model_traces().get(key, compute)

        # A cached text waits for nobody.
        return read() if key in model_traces() or not self._is_long(text, target) else in_turn(read)

    def _is_long(self, text: str, target: str | None) -> bool:
        """Whether the texts have to wait for their turn, as with random weights of these sizes.

        The matrices of the model are in memory already; only what the texts add counts.
        """
        tokens = min(len(text) + len(target or ""), limits.current().tokens)  # each has a character or more
        config = getattr(self.model.module, "config", None)
        sizes: list[Any] = [getattr(config, name, None) for name in SIZES]
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            return tokens > MAX_TOKENS
        width, heads, layers = sizes
        spec = AttentionSpec(width, heads, d_k=max(width // heads, 1))
        return nbytes(spec, tokens, layers) - nbytes(spec, 0, layers) > HEAVY_BYTES


class Loading:
    """The progress of loading a model in its own thread, shared by all users who wait for that model.

    Users are counted and not timed, since one who waits may be silent for long on a busy machine.
    """

    def __init__(self, key: ModelKey):
        self.key = key
        self.stage, self.done, self.total = "find", 0, 0
        self.error: MhaError | None = None
        self.model: LoadedModel | None = None  # for those who wait: another may replace it at once
        self.finished = Event()
        self.ended = float("inf")
        self._lock = Lock()
        self._waiting, self._left, self._abandoned = 0, 0.0, False

    def join(self) -> bool:
        """Add a user who waits; False if the loading is abandoned, which is final."""
        with self._lock:
            self._waiting += not self._abandoned
            return not self._abandoned

    def leave(self) -> None:
        """Remove a user who waits."""
        with self._lock:
            self._waiting -= 1
            self._left = time.monotonic()

    def abandoned(self) -> bool:
        """Whether the last user left more than `PATIENCE` seconds ago."""
        with self._lock:
            self._abandoned |= not self._waiting and time.monotonic() - self._left > PATIENCE
            return self._abandoned

    def report(self, stage: str, done: int, total: int) -> None:
        self.stage, self.done, self.total = stage, done, total


class LoadedModels:
    """The models in memory, at most `max_bytes` of them; the least recently used is dropped first.

    A model loaded with answers also serves visitors who ask for none: its attention is the same, and two such
    visitors would otherwise drop each other's model for ever. A dropped model is found as long as a page uses
    it.
    """

    def __init__(self, max_bytes: int):
        self._lock, self._one_at_a_time = Lock(), Lock()
        self.entries: Cache[LoadedModel] = Cache(max_bytes, lambda entry: entry.nbytes)
        self._used: WeakValueDictionary[ModelKey, LoadedModel] = WeakValueDictionary()  # includes all entries
        self._loadings: dict[ModelKey, Loading] = {}

    def find(self, key: ModelKey) -> LoadedModel | None:
        """The model, or None if it is not loaded."""
        with self._lock:
            for one in _both(key):
                entry = self._used.get(one)
                if entry is not None and one.answers >= key.answers:
                    self.entries.find(one)  # makes it the most recently used
                    return entry
            return None

    def drop_if_saved_again(self, key: ModelKey) -> None:
        """Drop the model if its folder has other files than when it was loaded."""
        with self._lock:
            for one in _both(key):
                entry = self._used.get(one)
                if entry is not None and entry.fingerprint != files.fingerprint(key.name or ""):
                    del self._used[one]
                    self.entries.drop(one)

    def begin(self, key: ModelKey) -> Loading:
        """Join the loading of a model; the caller leaves it after waiting.

        It is started now unless it is running or has failed within `ERROR_SECONDS`.
        """
        with self._lock:
            self._loadings = {
                k: item for k, item in self._loadings.items() if time.monotonic() - item.ended < ERROR_SECONDS
            }
            loading = self._loadings.get(key)
            if loading is None or not loading.join():
                loading = self._loadings[key] = Loading(key)
                loading.join()
                Thread(target=self.load, args=(loading,), daemon=True).start()
            return loading

    def refused(self, key: ModelKey) -> MhaError | None:
        """The error of the latest loading of the model; None if it did not fail."""
        with self._lock:
            return self._loadings[key].error if key in self._loadings else None

    def forget(self, key: ModelKey) -> None:
        """Forget the error of a model, so that it can be loaded again."""
        with self._lock:
            if key in self._loadings and self._loadings[key].finished.is_set():
                del self._loadings[key]

    def load(self, loading: Loading) -> None:
        name, revision, dtype, answers = loading.key
        options: dict[str, Any] = {"revision": revision, "progress": loading.report}
        options["cancelled"] = loading.abandoned
        try:
            assert name is not None  # `refusal` asks for one
            with self._one_at_a_time:
                loading.model = self.find(loading.key)  # a model with answers may be there by now
                if loading.model is None:
                    huggingface.register()  # raises if the library is missing, before the search for files
                    folder = files.find(name, **options)  # first: a missing model drops none in memory
                    self._make_room(files.weight_bytes(folder), loading.key)  # both might not fit together
                    fingerprint = files.fingerprint(name)  # before it is read: it may be saved meanwhile
                    model = huggingface.load(name, dtype=dtype, answers=answers, **options)
                    entry = loading.model = LoadedModel(model, fingerprint)
                    with self._lock:
                        self._used[loading.key] = entry
                        self.entries.get(loading.key, lambda _key: entry)
                with self._lock:
                    self._loadings.pop(loading.key, None)
        except MhaError as error:
            loading.error = _with_float32(error) if dtype in HALF_PRECISION else error
        # Third-party files and code can raise anything; the app reports it and goes on.
        except Exception as error:
            loading.error = MhaError("{name} cannot be loaded ({reason}).", name=name, reason=_reason(error))
        finally:
            loading.ended = time.monotonic()
            loading.finished.set()

    def _make_room(self, coming: int, key: ModelKey) -> None:
        """Drop models until `coming` bytes fit, first the same model without answers."""
        with self._lock:
            self.entries.drop(key._replace(answers=False))
            self.entries.make_room(coming)
        huggingface.free()


def _both(key: ModelKey) -> tuple[ModelKey, ModelKey]:
    """The keys of that model with answers and without."""
    return key._replace(answers=True), key._replace(answers=False)


def _reason(error: Exception) -> str:
    """The reason of an error; for strangers its number in the log, since the error may name paths."""
    number = logs.failure(error)
    return f"error {number}" if limits.current().hosted else f"{type(error).__name__}: {error}"


def _with_float32(error: MhaError) -> MhaError:
    """The same error with float32 as a fix: some models do not run in half precision on every device."""
    return MhaError(error.phrase, fixes=(*error.fixes, {"dtype": "float32"}))


def trace_bytes(trace: AttentionTrace) -> int:
    """The bytes of a trace's tensors and, for half precision, of the float32 arrays that pictures need."""
    holders = (*(layer.tensors for layer in trace.layers), *(mixer.tensors for mixer in trace.mixers))
    tensors = [tensor for held in holders for tensor in held.values()]
    return sum(tensor.nbytes + 4 * tensor.numel() * (tensor.dtype in HALF) for tensor in tensors)


class _ModelsInUse(local):
    """The models that a run of a page, which is a thread of its own, uses: one, and one to compare."""

    def __init__(self) -> None:
        self.models: deque[LoadedModel] = deque(maxlen=2)


_run = _ModelsInUse()


@st.cache_resource
def loaded() -> LoadedModels:
    return LoadedModels(limits.current().models_bytes)


def hosted() -> bool:
    """Whether this server offers strangers the pinned models on its disk and downloads nothing."""
    return limits.current().pinned


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


def trace(scene: Scene, text: str, edits: Sequence[Edit] = ()) -> AttentionTrace:
    """The trace of a text for the chosen kind of attention; `edits` count the layers of that kind.

    Raises `MhaError` with the reason if there is none.
    """
    if (reason := refusal(scene)) is not None:
        raise reason
    entry = loaded_model(scene)
    if entry is None:
        raise loaded().refused(key_of(scene)) or MhaError(
            "{name} is not loaded.", name=scene.model, fixes=({"source": "mini"},)
        )
    kind = _kind(entry, scene) if edits else None
    edits = [replace(edit, kind=kind) for edit in edits]
    return entry.read(text, _target(entry, scene), edits).with_kind(scene.kind)


def answered(scene: Scene, text: str, edits: Sequence[Edit] = ()) -> TracesByKind:
    """The traces of a text with the model's answers; `edits` count the layers of the chosen kind.

    Raises `MhaError` with the reason if there are none.
    """
    entry = loaded_model(scene)
    if entry is None:
        raise MhaError("{name} is not loaded.", name=scene.model, fixes=({"source": "mini"},))
    kind = _kind(entry, scene) if edits else None
    edits = [replace(edit, kind=kind) for edit in edits]
    return entry.read(text, _target(entry, scene), edits, answers=True)


def whole(scene: Scene) -> tuple[AttentionTrace, str | None]:
    """The trace of the scene's text with all kinds of attention, and the chosen one; None if there is one.

    Raises `MhaError` if the model is not loaded.
    """
    if (entry := loaded_model(scene)) is None:
        raise MhaError("{name} is not loaded.", name=scene.model, fixes=({"source": "mini"},))
    trace = entry.read(scene.text, _target(entry, scene)).whole
    return trace, _kind(entry, scene)


def _kind(entry: LoadedModel, scene: Scene) -> str | None:
    """The chosen kind of attention, or else the first; None if the model has only one."""
    return scene.kind if scene.kind in entry.kinds else entry.kinds[0] if len(entry.kinds) > 1 else None


def _target(entry: LoadedModel, scene: Scene) -> str | None:
    return scene.target if entry.model.has_target and (scene.target or "").strip() else None


def ready(scene: Scene) -> bool:
    """Whether a model is chosen and needs no library or consent to a download; its loading may still fail."""
    return (
        library()
        and scene.model is not None
        and bool(loaded_model(scene) or may_load(scene) or refusal(scene))
    )


def loaded_model(scene: Scene) -> LoadedModel | None:
    """The scene's model, kept until the run of the page ends; None if it is not loaded."""
    if scene.model is None or refusal(scene) is not None:
        return None
    entry = loaded().find(key_of(scene))
    if entry is not None and entry not in _run.models:
        _run.models.append(entry)
    return entry


def notice(scene: Scene) -> str | None:
    """A sentence on what to look at in the scene's model; None for a model that is not well known."""
    name = PACKAGED if scene.model == PACKAGE else scene.model
    return next((known_notice(model) for model in hub_models() if model.id == name), None)


def known_notice(model: HubModel) -> str:
    """A sentence on what to look at in a well-known model."""
    return t(f"hub.{model.id.rpartition('/')[2]}")


def limit(scene: Scene) -> int | None:
    """The largest number of tokens that the scene's model takes; None if it is unknown."""
    entry = loaded_model(scene)
    return None if entry is None else entry.model.limit


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


def parts(
    entry: LoadedModel, scene: Scene, text: str, edits: Sequence[Edit] = ()
) -> Mapping[str, AttentionTrace]:
    """The trace of each kind of attention when the scene's model reads a text."""
    return entry.parts(text, _target(entry, scene), edits)


def _stage(loading: Loading) -> str:
    if loading.stage == "download":
        return t("real.stage_download", done=size(loading.done), total=size(loading.total))
    return {
        "find": t("real.stage_find"),
        "load": t("real.stage_load"),
        "check": t("real.stage_check"),
    }.get(loading.stage, "")


def size(count: int) -> str:
    """A number of bytes in GB, MB or kB."""
    for unit, smallest in (("GB", 1e9), ("MB", 1e6)):
        if count >= smallest:
            return f"{count / smallest:.1f} GB" if unit == "GB" else f"{count / smallest:.0f} MB"
    return f"{count / 1e3:.0f} kB"


def usual_dtype() -> str:
    """The default number type of models on this machine."""
    return device.usual_dtype(device.pick().name)
