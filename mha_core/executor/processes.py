"""Workers that are processes of this machine."""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from mha_core.executor.worker import Place, call


def _in_bytes(content: bytes) -> bytes:
    """A call and its result as bytes.

    What cannot be unpickled is an error of the call then, not a dead worker, and the numbers of a tensor
    travel with it: torch would leave them in shared memory, of which a container has little.
    """
    function, *arguments = pickle.loads(content)
    return pickle.dumps(call(function, *arguments))


@contextmanager
def place(size: int) -> Iterator[Place]:
    """So many processes, among which the processors are divided."""
    yield Place(_Process, size, max(1, processors() // size))


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Process:
    """A pool of a single process: when one dies in a larger pool, the pool loses what all of them did."""

    def __init__(self, threads: int):
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin)

    def submit(self, function: Callable, *arguments: object) -> Future:
        try:
            return self._pool.submit(_in_bytes, pickle.dumps((function, *arguments)))
        except BrokenProcessPool as error:  # it died while it had nothing to do
            future: Future = Future()
            future.set_exception(error)
            return future

    def result(self, future: Future) -> object:
        return pickle.loads(future.result())

    def failure(self, error: BaseException) -> BaseException | None:
        return None if isinstance(error, BrokenProcessPool) else error

    def kill(self) -> None:
        for process in (self._pool._processes or {}).values():  # a pool itself lets a task end first
            process.kill()
        self._pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Leave Ctrl-C to the parent, which kills its workers, and end if it has been killed itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)
