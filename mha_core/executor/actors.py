"""Workers that are actors on a Ray cluster."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from mha_core import resources
from mha_core.errors import MhaError, Phrase, shown
from mha_core.executor.worker import Place, call

PATIENCE = 10  # seconds in which a cluster has to answer
ADDRESS = re.compile(r"[^/\s]+:\d+")


def check(address: str) -> None:
    """Raise `MhaError` if Ray is not installed, or if this is no address."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise MhaError(
            "A cluster needs Ray, which is not installed: {command}", command=resources.install("ray")
        ) from None
    if address not in ("auto", "local") and not ADDRESS.fullmatch(address):
        raise MhaError(
            "ray is auto, local or the address of a cluster, as in 10.0.0.1:6379; got {address}.",
            address=shown(address),
            fixes=({"ray": "auto"}, {"ray": "local"}),
        )


@contextmanager
def place(address: str, workers: int | None, n_tasks: int) -> Iterator[Place]:
    """The actors for so many tasks: `workers`, or one for each processor of the cluster."""
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
    """The methods of a Ray actor that can be called from outside."""

    def call(self, function: Callable, *arguments: object) -> object:
        return call(function, *arguments)
