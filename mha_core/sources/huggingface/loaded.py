"""Models in memory: their loading for several people at once, and the traces of their texts."""

import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from mha_core.attention.edits import Edit
from mha_core.attention.functional import HALF
from mha_core.attention.module import AttentionSpec
from mha_core.cache import Cache
from mha_core.errors import MhaError
from mha_core.sources.huggingface import files
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.random_weights import nbytes
from mha_core.traces.tensors import shared
from mha_core.traces.tokens import MAX_TOKENS
from mha_core.traces.trace import AttentionTrace

PATIENCE = 3.0  # seconds that loading goes on after the last waiting user has left
ERROR_SECONDS = 60.0  # before a model that failed is tried again
SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers")  # in a model's config
LONG_TEXT = 100  # tokens of a text that is not long yet, if the config has no such sizes


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


@dataclass(eq=False)
class LoadedModel:
    """A loaded model. Its `traces` are in a cache that all models share, and may outlive it."""

    model: huggingface.Model
    traces: Cache[TracesByKind]
    fingerprint: tuple | None  # of its folder when it was loaded
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

    def read(
        self,
        text: str,
        target: str | None = None,
        edits: Sequence[Edit] = (),
        *,
        answers: bool = False,
        limit: int = MAX_TOKENS,
        long_bytes: float = math.inf,
        in_turn: Callable[[Callable[[], TracesByKind]], TracesByKind] = lambda read: read(),
    ) -> TracesByKind:
        """The traces of a text of at most `limit` tokens, with the model's answers if `answers` are wanted.

        A text that takes more than `long_bytes` of memory is read by `in_turn`, unless its traces are cached.
        Raises `MhaError` for a text that the model cannot take, and for answers of a model that has none.
        """

        def compute(_key: str) -> TracesByKind:
            trace = huggingface.follow(
                self.model, text, target=target, edits=edits, answers=answers, limit=limit
            )
            self.kinds = trace.kinds
            traces = {kind: trace.part(kind) for kind in trace.kinds} or {"self": trace}
            return TracesByKind(MappingProxyType(traces), trace_bytes(trace), trace)

        key = json.dumps([self.number, text, target, [edit.to_json() for edit in edits], answers])

        def read() -> TracesByKind:
            with self._lock:  # two at once would need twice the memory and save no time
                return self.traces.get(key, compute)

        tokens = min(len(text) + len(target or ""), limit)  # each has a character or more
        return read() if key in self.traces or self._bytes_of(tokens) <= long_bytes else in_turn(read)

    def _bytes_of(self, tokens: int) -> float:
        """The bytes of memory that so many tokens take, as with random weights of these sizes.

        The matrices of the model are in memory already; only what the tokens add counts. Of a model without
        such sizes a long text takes any number of bytes, and a short one none.
        """
        config = getattr(self.model.module, "config", None)
        sizes: list[Any] = [getattr(config, name, None) for name in SIZES]
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            return math.inf if tokens > LONG_TEXT else 0
        width, heads, layers = sizes
        spec = AttentionSpec(width, heads, d_k=max(width // heads, 1))
        return nbytes(spec, tokens, layers) - nbytes(spec, 0, layers)


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
        """Keep the progress. Raises `MhaError` if nobody waits for the model any more."""
        self.stage, self.done, self.total = stage, done, total
        if self.abandoned():
            raise MhaError("Loading was stopped.")


class LoadedModels:
    """The models in memory, at most `max_bytes` of them; the least recently used is dropped first.

    A model loaded with answers also serves visitors who ask for none: its attention is the same, and two such
    visitors would otherwise drop each other's model for ever. A dropped model is found as long as a page uses
    it. `max_trace_bytes` are for the traces of all models; `reason` puts an unexpected error into words.
    """

    def __init__(self, max_bytes: int, *, max_trace_bytes: int, reason: Callable[[Exception], str]):
        self.traces: Cache[TracesByKind] = Cache(max_trace_bytes)
        self._reason = reason
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
        try:
            assert name is not None  # `refusal` asks for one
            with self._one_at_a_time:
                loading.model = self.find(loading.key)  # a model with answers may be there by now
                if loading.model is None:
                    huggingface.register()  # raises if the library is missing, before the search for files
                    folder = files.find(name, **options)  # first: a missing model drops none in memory
                    self._make_room(folder.weight_bytes, loading.key)  # both might not fit together
                    fingerprint = files.fingerprint(name)  # before it is read: it may be saved meanwhile
                    model = huggingface.load(name, dtype=dtype, answers=answers, **options)
                    entry = loading.model = LoadedModel(model, self.traces, fingerprint)
                    with self._lock:
                        self._used[loading.key] = entry
                        self.entries.get(loading.key, lambda _key: entry)
                with self._lock:
                    self._loadings.pop(loading.key, None)
        except MhaError as error:
            loading.error = error
            if huggingface.DTYPES.get(dtype or "") in HALF:  # some models do not run in it on every device
                loading.error = MhaError(error.phrase, fixes=(*error.fixes, {"dtype": "float32"}))
        # Third-party files and code can raise anything; the app reports it and goes on.
        except Exception as error:
            loading.error = MhaError(
                "{name} cannot be loaded ({reason}).", name=name, reason=self._reason(error)
            )
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


def trace_bytes(trace: AttentionTrace) -> int:
    """The bytes of a trace's tensors and, for half precision, of the float32 arrays that pictures need."""
    holders = (*(layer.tensors for layer in trace.layers), *(mixer.tensors for mixer in trace.mixers))
    tensors = [tensor for held in holders for tensor in shared(held).values()]
    return sum(tensor.nbytes + 4 * tensor.numel() * (tensor.dtype in HALF) for tensor in tensors)
