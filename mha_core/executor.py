"""The same work on many tasks: in this process, in several processes, or on a Ray cluster.

A worker is a process that prepares once, by loading a model for instance, and then does one task after the
other. Ray needs the extra ``headscope[ray]`` on every machine of the cluster.
"""

import copy
import logging
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

from mha_core.errors import MhaError, Phrase, at_least_1, shown

Task = TypeVar("Task")
Result = TypeVar("Result")

PREPARATION = -1  # instead of the number of a task
MAX_DEATHS = 3  # of workers over one task
PATIENCE = 10  # seconds in which a cluster has to answer
ADDRESS = re.compile(r"[^/\s]+:\d+")


def run(
    prepare: Callable[[], Callable[[Task], Result]],
    tasks: Sequence[Task],
    *,
    workers: int | None = None,
    ray: str | None = None,
    lost: Callable[[int], object] | None = None,
) -> Generator[tuple[int, Result], None, None]:
    """Do all tasks, and yield the number of each, from 0, with its result: what is done first comes first.

    `prepare` is called once in each worker and returns the function that does a task. One worker, the
    default, is a loop in this process. Several are processes, to which `prepare` and the tasks are pickled;
    torch has as many threads in each as there are processors for it. `ray` is "auto" for the cluster that
    this machine belongs to, "local" for one on this machine that ends with the work, or the address of a
    cluster; the default is a worker for each of its processors. If this process is connected to Ray, that
    connection is used.

    When a worker dies, `lost` is called with the number of its task, and another worker does it again. Raises
    what `prepare` or a task raises, and `MhaError` for a task over which three workers died. Closing the
    iterator stops the workers at once.
    """
    if workers is not None:
        at_least_1("workers", workers, Phrase("processes"))
    if ray is not None:
        _check(ray)
        return _spread(_cluster(ray, workers, len(tasks)), prepare, tasks, lost)
    if workers is None or workers == 1:
        return _loop(prepare, tasks)
    return _spread(_processes(min(workers, len(tasks))), prepare, tasks, lost)


def _loop(prepare: Callable[[], Callable[[Task], Result]], tasks: Sequence[Task]) -> Generator:
    if tasks:
        do = prepare()
        for number, task in enumerate(tasks):
            yield number, do(task)


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


def _spread(
    place: AbstractContextManager[Place],
    prepare: Callable[[], Callable[[Task], Result]],
    tasks: Sequence[Task],
    lost: Callable[[int], object] | None,
) -> Generator[tuple[int, Result], None, None]:
    """The results of workers: those that died are replaced, and all are killed at the end."""
    if not tasks:
        return
    todo, left, deaths = deque(range(len(tasks))), len(tasks), Counter[int]()
    crew: list[Worker] = []
    idle: list[Worker] = []
    doing: dict[Future, tuple[Worker, int]] = {}  # who does which task; nobody has a second one waiting
    results: list[tuple[int, Result]] = []
    with place as (hire, size, threads):
        try:
            while True:
                while idle and todo:
                    worker, number = idle.pop(), todo.popleft()
                    doing[worker.submit(_do, tasks[number])] = worker, number
                preparing = [number for _, number in doing.values() if number == PREPARATION]
                for _ in range(min(size - len(doing), len(todo) - len(preparing))):
                    crew.append(worker := hire(threads))
                    doing[worker.submit(_prepare, prepare, threads)] = worker, PREPARATION
                yield from results  # everybody is busy meanwhile
                left -= len(results)
                results.clear()
                if not left:
                    return
                for future in wait(doing, return_when=FIRST_COMPLETED).done:
                    worker, number = doing.pop(future)
                    error = future.exception()
                    if error is None:
                        idle.append(worker)
                        if number == PREPARATION:
                            del deaths[PREPARATION]
                        else:
                            results.append((number, worker.result(future)))
                    elif failure := worker.failure(error):
                        raise failure
                    else:
                        crew.remove(worker)
                        worker.kill()
                        deaths[number] += 1
                        _check_deaths(number, deaths[number], size)
                        if number != PREPARATION:
                            todo.appendleft(number)
                            if lost:
                                lost(number)
        finally:
            for worker in crew:
                worker.kill()


def _check_deaths(number: int, times: int, size: int) -> None:
    if times < MAX_DEATHS:
        return
    raise MhaError(
        "{times} workers died before they could do a task. In a script, start them below "
        'if __name__ == "__main__":, as each of them imports the script. A worker also dies when it is '
        "killed or when its machine has no memory left; fewer workers leave more memory for each."
        if number == PREPARATION
        else "{times} workers died over task {number}, so it is not done again. A worker dies when it is "
        "killed or when its machine has no memory left; fewer workers leave more memory for each.",
        times=times,
        number=number,
        fixes=({"workers": size - 1},) if size > 1 else (),
    )


# What is called in a worker

_task_function: Callable[[Any], Any]


def _prepare(prepare: Callable[[], Callable], threads: int) -> None:
    global _task_function
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for a torch that is imported later
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    _task_function = prepare()


def _do(task: object) -> object:
    return _task_function(task)


def _call(function: Callable, *arguments: object) -> object:
    """The result of a function; an error that cannot be pickled is raised as its text."""
    try:
        return function(*arguments)
    except Exception as error:
        try:
            pickle.dumps(copy.copy(error))  # a copy is made as from its pickle
        except Exception:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        raise


# Processes of this machine


def _in_bytes(call: bytes) -> bytes:
    """A call and its result as bytes.

    What cannot be unpickled is an error of the call then, not a dead worker, and the numbers of a tensor
    travel with it: torch would leave them in shared memory, of which a container has little.
    """
    function, *arguments = pickle.loads(call)
    return pickle.dumps(_call(function, *arguments))


@contextmanager
def _processes(size: int) -> Iterator[Place]:
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


# Actors of Ray


def _check(address: str) -> None:
    """Raise `MhaError` if Ray is not installed, or if this is no address."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise MhaError("A cluster needs Ray, which is not installed: pip install 'headscope[ray]'.") from None
    if address not in ("auto", "local") and not ADDRESS.fullmatch(address):
        raise MhaError(
            "ray is auto, local or the address of a cluster, as in 10.0.0.1:6379; got {address}.",
            address=shown(address),
            fixes=({"ray": "auto"}, {"ray": "local"}),
        )


@contextmanager
def _cluster(address: str, workers: int | None, n_tasks: int) -> Iterator[Place]:
    import ray

    ours = not ray.is_initialized()
    if ours:
        _connect(address)
    try:
        nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        size = min(workers or max(1, sum(nodes)), n_tasks)
        fitting = (n for n in range(1, max(nodes) + 1) if sum(cpus // n for cpus in nodes) >= size)
        yield Place(_Actor, size, max(fitting, default=1))
    finally:
        if ours:
            ray.shutdown()  # ends a local cluster, leaves another


def _connect(address: str) -> None:
    """Connect this process to a cluster.

    Another process asks first whether it answers: Ray waits for two minutes, and then ends the process.
    """
    import ray

    question = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    cause: Exception
    reason: str
    try:
        if address == "local":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray's makers are told nothing by default
            ray.init(address, include_dashboard=False, logging_level=logging.ERROR)
        else:
            subprocess.run(question, check=True, timeout=PATIENCE, capture_output=True, text=True)
            ray.init(address, logging_level=logging.ERROR)
        return
    except subprocess.TimeoutExpired as error:
        cause, reason = error, Phrase("no answer in {seconds} seconds", seconds=PATIENCE)
    except subprocess.CalledProcessError as error:
        cause, reason = error, error.stderr.strip().rpartition("\n")[2].rstrip(".")
    except (OSError, RuntimeError, ValueError) as error:
        cause, reason = error, str(error).rstrip(".")
    raise MhaError(
        "No Ray cluster is found by {address}: {reason}. Start one with ray start --head, or use local for "
        "one that ends with the work. If the cluster asks for a token, set RAY_AUTH_MODE=token.",
        address=address,
        reason=reason,
        fixes=({"ray": "local"},),
    ) from cause


class _Actor:
    """An actor with as many processors as it has threads; Ray never starts one again by itself."""

    def __init__(self, threads: int):
        import ray

        self._actor: Any = ray.remote(_Post).options(num_cpus=threads).remote()

    def submit(self, function: Callable, *arguments: object) -> Future:
        return self._actor.call.remote(function, *arguments).future()

    def result(self, future: Future) -> object:
        return future.result()

    def failure(self, error: BaseException) -> BaseException | None:
        from ray.exceptions import RayError, RayTaskError

        if isinstance(error, RayTaskError):
            return error.cause
        return None if isinstance(error, RayError) else error

    def kill(self) -> None:
        import ray

        ray.kill(self._actor)


class _Post:
    """What an actor of Ray can be asked for."""

    def call(self, function: Callable, *arguments: object) -> object:
        return _call(function, *arguments)
