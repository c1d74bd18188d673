"""A cache of results for all users, with a limit in bytes."""

import math
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
TEXT_IN_TABLE = 8  # memory of a text in a table, as a multiple of a pointer
TABLE = 6_000  # bytes of a table besides its cells, for names and blocks
SIMPLE = (str, bytes, int, float, type(None))  # the most common values, which contain no others


def size(value: object, *, seen: set[int] | None = None) -> int:
    """The bytes of a value and everything in it; of tables, arrays and tensors those of their numbers."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, SIMPLE):
        return sys.getsizeof(value)
    # A named tuple can report its own bytes, as the traces of a model do.
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "nbytes"):
        parts = value
    elif isinstance(value, Mapping):
        parts = (*value.keys(), *value.values())
    elif isinstance(value, type):
        parts = ()
    else:
        # A table, one of its columns, or its index.
        to_numpy = getattr(value, "to_numpy", None)
        numbers = to_numpy() if (is_table := to_numpy is not None) else value
        if isinstance(nbytes := getattr(numbers, "nbytes", None), int):
            cells = nbytes * (TEXT_IN_TABLE if str(getattr(numbers, "dtype", "")) == "object" else 1)
            return cells + TABLE * is_table
        parts = (vars(value),) if hasattr(value, "__dict__") else ()
    return sys.getsizeof(value) + sum(size(part, seen=seen) for part in parts)


class Cache(Generic[Result]):
    """Results by key, at most `max_bytes` (keys included) and `max_count` of them; the latest is always kept.

    `weigh` returns the bytes of a result. The least recently used results are dropped first. A request for a
    result that is being computed waits for it.
    """

    def __init__(
        self, max_bytes: float, weigh: Callable[[Result], int] = size, *, max_count: float = math.inf
    ):
        self.max_bytes, self.weigh, self.max_count, self.bytes = max_bytes, weigh, max_count, 0
        self._results: OrderedDict[Hashable, tuple[Result, int]] = OrderedDict()
        self._computing: dict[Hashable, threading.Lock] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._results

    def get(self, key: Key, compute: Callable[[Key], Result]) -> Result:
        """The result of that key, computed by ``compute(key)`` if there is none; errors are not kept."""
        with self._lock:
            if key in self._results:
                return self._latest(key)
            computing = self._computing.setdefault(key, threading.Lock())
        with computing:
            with self._lock:
                if key in self._results:
                    return self._latest(key)
            try:
                result = compute(key)
                nbytes = self.weigh(result) + size(key)  # a key may contain a long text
                with self._lock:
                    self.drop(key)  # there is one if another computation failed
                    self.make_room(nbytes)
                    self._results[key] = result, nbytes
                    self.bytes += nbytes
            finally:
                with self._lock:
                    self._computing.pop(key, None)
        return result

    def _latest(self, key: Hashable) -> Result:
        self._results.move_to_end(key)
        return self._results[key][0]

    def find(self, key: Hashable) -> Result | None:
        """The result of that key; None if there is none."""
        with self._lock:
            return self._latest(key) if key in self._results else None

    def make_room(self, nbytes: int) -> None:
        """Drop results in advance for one of this many bytes, since memory may not hold both."""
        with self._lock:
            while self._results and (
                self.bytes + nbytes > self.max_bytes or len(self._results) >= self.max_count
            ):
                self.drop(next(iter(self._results)))

    def drop(self, key: Hashable) -> None:
        """Drop the result of that key, if there is one."""
        with self._lock:
            _, nbytes = self._results.pop(key, (None, 0))
            self.bytes -= nbytes

    def clear(self) -> None:
        """Drop all results."""
        with self._lock:
            self._results.clear()
            self.bytes = 0
