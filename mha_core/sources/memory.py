"""Will a model fit? Asked of the headers of its files, before any of its numbers is read."""

import json
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import torch

from mha_core.errors import MhaError

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
FLOATS = {"F64", "F32", "F16", "BF16"}
ROOM = 1.15  # what a forward pass needs besides the weights


def needed(files: Iterable[Path], dtype: torch.dtype, *, name: str) -> int:
    """How much memory the weights take in `dtype`, from the headers of their files alone.

    Raises `MhaError` for a file that is damaged, and for numbers in a format that cannot be traced.
    """
    total = 0
    for file in files:
        for tensor, (kind, shape) in _header(file).items():
            if kind not in SIZES:
                raise MhaError(
                    f"The weights of {name} are quantised ({tensor} is {kind}); what their attention "
                    f"computes cannot be shown exactly. The original model can be used."
                )
            count = 1
            for length in shape:
                count *= length
            total += count * (dtype.itemsize if kind in FLOATS else SIZES[kind])
    return total


def check(name: str, weights: int, device: str) -> None:
    """Raise `MhaError` if so many bytes of weights do not fit into what is free."""
    free = free_bytes(device)
    if free is not None and weights * ROOM > free:
        raise MhaError(
            f"{name} needs about {weights * ROOM / 1e9:.1f} GB and {free / 1e9:.1f} GB are free on "
            f"{'this machine' if device == 'cpu' else device}; a smaller model, or half precision "
            f'(dtype="bfloat16"), needs less.',
            fixes=({"dtype": "bfloat16"},),
        )


def free_bytes(device: str) -> int | None:
    """Bytes that can still be used, None where nobody says."""
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


def _header(file: Path) -> dict[str, tuple[str, list[int]]]:
    try:
        with file.open("rb") as opened:
            [length] = struct.unpack("<Q", opened.read(8))
            if length > os.path.getsize(file):
                raise ValueError("it ends too early")
            entries = json.loads(opened.read(length))
        return {k: (e["dtype"], e["shape"]) for k, e in entries.items() if k != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise MhaError(f"{file.name} is damaged and cannot be read: {error}.") from None
