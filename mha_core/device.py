"""The device on which torch computes, its speed and its memory."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from mha_core.errors import MhaError, Phrase, listed, shown


def pick(name: str | None = None) -> str:
    """The name of a torch device, as given; by default CUDA, else Apple MPS, else the CPU.

    Raises `MhaError` for a device that this machine does not have, naming those it has.
    """
    names = available()
    if name is None:
        return names[0]
    if not isinstance(name, str) or name not in names:
        raise MhaError(
            "Device {name} is not available here; {names} can be used.",
            name=shown(name),
            names=listed(names, "comma"),
            fixes=tuple({"device": other} for other in names),
        )
    return name


@cache
def fastest() -> Phrase:
    """The device that is picked by default, as the app shows it."""
    match pick():
        case "cuda":
            return Phrase("GPU: {name}", name=torch.cuda.get_device_name())
        case "mps":
            return Phrase("GPU: Apple Metal")
        case _:
            return Phrase("CPU: no GPU found")


def leave_a_core() -> None:
    """Make torch use all cores but one, which stays free for small requests.

    A long text would use all of them, and on two cores the threads of torch and of a server wait for each
    other. The environment variable `OMP_NUM_THREADS` takes precedence.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() - 1))


@cache
def seconds_per_operation() -> float:
    """The mean time of one multiplication or addition in a matrix product on this machine's processor.

    The fastest of a few products of 512 × 512 numbers, measured once in each process.
    """
    size, taken = 512, []
    one = torch.ones(size, size)
    for _ in range(4):  # the first one starts torch's threads
        start = time.perf_counter()
        one @ one
        taken.append(time.perf_counter() - start)
    return min(taken) / (2 * size**3)


def available() -> list[str]:
    """The device names that work here, fastest first; the CPU is always last."""
    names = ["cpu"]
    if torch.backends.mps.is_available():
        names.insert(0, "mps")
    if torch.cuda.is_available():
        names.insert(0, "cuda")
    return names


@contextmanager
def memory_errors(what: str) -> Iterator[None]:
    """Replace errors of Python and torch about memory that cannot be allocated by `MhaError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        of_torch = isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)
        if not isinstance(error, MemoryError) and not of_torch:
            raise
        reason = str(error).splitlines() or [type(error).__name__]
        raise MhaError(
            "{what} needs more memory than this machine has free ({reason}).", what=what, reason=reason[0]
        ) from None


def usual_dtype(device: str) -> str:
    """The default dtype of third-party models on a device."""
    return "float32" if device == "cpu" else "bfloat16"
