"""The memory that a model's weights need, and how much of it is free."""

import json
import os
import struct
from collections.abc import Iterable
from math import prod
from pathlib import Path

import torch

from mha_core.errors import MhaError

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
FLOATS = {"F64", "F32", "F16", "BF16"}
PASS_FACTOR = 1.15  # memory of a forward pass with its weights, by the weights alone


def quantised(name: str, how: str) -> MhaError:
    """The refusal of a model with quantised weights; `how` says which."""
    return MhaError(
        f"{name} is quantised ({how}); what its attention computes cannot be shown exactly. "
        f"The original model can be used."
    )


def memory_needed(files: Iterable[Path], dtype: torch.dtype, *, name: str) -> int:
    """The bytes of the weights in `dtype`, from the headers of their files.

    Raises `MhaError` for a damaged file and for a number type that cannot be traced.
    """
    total = 0
    for file in files:
        for tensor, (dtype_name, shape) in _tensors(file).items():
            if dtype_name not in SIZES:
                raise quantised(name, f"{tensor} is {dtype_name}")
            total += prod(shape) * (dtype.itemsize if dtype_name in FLOATS else SIZES[dtype_name])
    return total


def check_memory(name: str, weights: int, device: str, *, dtype: str = "float32") -> None:
    """Raise `MhaError` if a forward pass with so many bytes of weights, in `dtype`, has no room in memory."""
    free = free_bytes(device)
    if free is None or weights * PASS_FACTOR <= free:
        return
    is_full = dtype == "float32"  # half precision is no advice to who has it already
    raise MhaError(
        f"{name} needs about {weights * PASS_FACTOR / 1e9:.1f} GB and {free / 1e9:.1f} GB are free on "
        f"{'this machine' if device == 'cpu' else device}; a smaller model"
        + (', or half precision (dtype="bfloat16"), needs less.' if is_full else " needs less."),
        fixes=({"dtype": "bfloat16"},) if is_full else (),
    )


def free_bytes(device: str) -> int | None:
    """The bytes of free memory; None where they are unknown."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info()[0]
    free = []
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free.append(int(line.split()[1]) * 1024)
        group = Path("/sys/fs/cgroup")  # a container may have less than its machine
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            free.append(int(limit) - int((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):
        pass
    return min(free, default=None)


def _tensors(file: Path) -> dict[str, tuple[str, list[int]]]:
    try:
        with file.open("rb") as opened:
            [length] = struct.unpack("<Q", opened.read(8))
            if length > os.path.getsize(file):
                raise ValueError("it ends too early")
            entries = json.loads(opened.read(length))
        return {k: (e["dtype"], e["shape"]) for k, e in entries.items() if k != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise MhaError(f"{file.name} is damaged and cannot be read: {error}.") from None
