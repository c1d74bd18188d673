"""A worker: where it can be hired, and what is called in it."""

import copy
import os
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol


class Worker(Protocol):
    """A process somewhere that calls what is submitted, one after the other."""

    def submit(self, function: Callable, *arguments: object) -> Future: ...

    def result(self, future: Future) -> Any: ...

    def failure(self, error: BaseException) -> BaseException | None:
        """The error as it was raised by the worker; None if the worker died."""

    def kill(self) -> None: ...


class Place(NamedTuple):
    """Where workers can be hired, how many, and how many threads each has."""

    hire: Callable[[int], Worker]
    size: int
    threads: int


_task_function: Callable[[Any], Any]


def prepared(prepare: Callable[[], Callable], threads: int) -> None:
    """Prepare this worker, with so many threads for torch."""
    global _task_function
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for a torch that is imported later
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    _task_function = prepare()


def do(task: object) -> object:
    """Do a task in this worker, which is prepared."""
    return _task_function(task)


def call(function: Callable, *arguments: object) -> object:
    """The result of a function; an error that cannot be pickled is raised as its text."""
    try:
        return function(*arguments)
    except Exception as error:
        try:
            pickle.dumps(copy.copy(error))  # a copy is made as from its pickle
        except Exception:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        raise
