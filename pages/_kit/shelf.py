"""The models of others in memory: loaded once for all visitors, few at a time, with their last traces."""

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from types import MappingProxyType
from typing import NamedTuple

from mha_core import AttentionTrace, MhaError
from mha_core.sources.huggingface import files
from mha_core.sources.huggingface import model as huggingface

MOST_MODELS = 2
MOST_BYTES = 1 << 30  # of the traces of one model together
PATIENCE = 3.0  # seconds for which a loading goes on while nobody looks at it
REMEMBERED = 60.0  # seconds for which a refusal stands before the model is tried again
HALVES = ("bfloat16", "float16")


class Key(NamedTuple):
    """Which model: `dtype` is None for what is usual on this machine."""

    name: str
    revision: str | None = None
    dtype: str | None = None


@dataclass(eq=False)
class Entry:
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


class Job:
    """A loading in a thread of its own: all who wait for the model look at the same one."""

    def __init__(self, key: Key):
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


class Shelf:
    """At most `most` models, the one that was used last kept longest."""

    def __init__(self, most: int = MOST_MODELS):
        self._most = most
        self._lock, self._one_at_a_time = Lock(), Lock()
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._jobs: dict[Key, Job] = {}

    def find(self, key: Key) -> Entry | None:
        """The model if it is loaded."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def job(self, key: Key) -> Job:
        """The loading of a model, begun now unless it is under way or was refused a moment ago."""
        with self._lock:
            self._jobs = {k: j for k, j in self._jobs.items() if time.monotonic() - j.ended < REMEMBERED}
            job = self._jobs.get(key)
            if job is None or isinstance(job.error, files.Stopped):
                job = self._jobs[key] = Job(key)
                Thread(target=self._load, args=(job,), daemon=True).start()
            job.look()
            return job

    def refused(self, key: Key) -> MhaError | None:
        """Why the model could not be loaded a moment ago."""
        with self._lock:
            return self._jobs[key].error if key in self._jobs else None

    def forget(self, key: Key) -> None:
        """Let a model that was refused be tried again."""
        with self._lock:
            if key in self._jobs and self._jobs[key].finished.is_set():
                del self._jobs[key]

    def _load(self, job: Job) -> None:
        name, revision, dtype = job.key
        asked = {"revision": revision, "progress": job.tell, "cancelled": job.left_alone}
        try:
            with self._one_at_a_time:
                huggingface.register()  # without the library nothing has to be looked for
                files.find(name, **asked)  # what cannot be had pushes no other model out
                self._make_room()
                entry = Entry(huggingface.load(name, dtype=dtype, **asked))
                with self._lock:
                    self._entries[job.key] = entry
                    self._jobs.pop(job.key, None)
        except MhaError as error:
            job.error = _in_half(error) if dtype in HALVES else error
        except (
            Exception
        ) as error:  # somebody else's files and library: whatever it is, it is no crash of ours
            job.error = MhaError(f"{name} cannot be loaded ({type(error).__name__}: {error}).")
        finally:
            job.ended = time.monotonic()
            job.finished.set()

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
