"""What is computed once for all visitors, in a limited number of bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Cache(Generic[Result]):
    """Results by key, at most `max_bytes` of them, as `weigh` has their bytes; the latest one is always kept.

    Those that nobody has asked for the longest time go first. Who asks for one that is being computed waits
    for it.
    """

    def __init__(self, max_bytes: int, weigh: Callable[[Result], int]):
        self.max_bytes, self.weigh, self.bytes = max_bytes, weigh, 0
        self._results: OrderedDict[str, tuple[Result, int]] = OrderedDict()
        self._computing: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, key: str) -> bool:
        return key in self._results

    def get(self, key: str, compute: Callable[[str], Result]) -> Result:
        """The result of that key, ``compute(key)`` where there is none; what this raises is not kept."""
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
                self._keep(key, result)
            finally:
                with self._lock:
                    self._computing.pop(key, None)
        return result

    def _latest(self, key: str) -> Result:
        self._results.move_to_end(key)
        return self._results[key][0]

    def _keep(self, key: str, result: Result) -> None:
        size = self.weigh(result)
        with self._lock:
            self._results[key] = result, size
            self.bytes += size
            while self.bytes > self.max_bytes and len(self._results) > 1:
                self.bytes -= self._results.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._results.clear()
            self.bytes = 0
