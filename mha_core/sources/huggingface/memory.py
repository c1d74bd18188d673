"""The free memory, and the error for a model that does not fit into it."""

from contextlib import suppress
from pathlib import Path

import torch

from mha_core.errors import MhaError, Phrase

PASS_FACTOR = 1.15  # memory of a forward pass including the weights, divided by that of the weights
MASK_BYTES = 10  # for each pair of tokens: a float32 mask of transformers, ours, and what compares them


def check_memory(name: str, weights: int, device: str, *, dtype: str = "float32") -> None:
    """Raise `MhaError` if memory is too small for a forward pass with so many bytes of weights."""
    free = free_bytes(device)
    if free is None or weights * PASS_FACTOR <= free:
        return
    is_full = dtype == "float32"  # no advice to use half precision where it is already in use
    raise MhaError(
        "{name} needs about {size:.1f} GB and {free:.1f} GB are free on {device}; a smaller model, or half "
        'precision (dtype="bfloat16"), needs less.'
        if is_full
        else "{name} needs about {size:.1f} GB and {free:.1f} GB are free on {device}; a smaller model needs "
        "less.",
        name=name,
        size=weights * PASS_FACTOR / 1e9,
        free=free / 1e9,
        device=Phrase("this machine") if device == "cpu" else device,
        fixes=({"dtype": "bfloat16"},) if is_full else (),
    )


def check_masks(name: str, n_tokens: int, device: str) -> None:
    """Raise `MhaError` if the masks of transformers over so many tokens do not fit in memory."""
    free, needed = free_bytes(device), MASK_BYTES * n_tokens**2
    if free is None or needed <= free:
        return
    raise MhaError(
        "The masks of {name} over {n_tokens:,} tokens take about {size:.1f} GB and {free:.1f} GB are free; "
        "up to {fitting:,} tokens fit.",
        name=name,
        n_tokens=n_tokens,
        size=needed / 1e9,
        free=free / 1e9,
        fitting=int((free / MASK_BYTES) ** 0.5),
    )


def free_bytes(device: str) -> int | None:
    """The bytes of free memory; None where they are unknown."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info()[0]
    free = []
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free.append(int(line.split()[1]) * 1024)
        group = Path("/sys/fs/cgroup")  # a container may have less than its machine
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            free.append(int(limit) - int((group / "memory.current").read_text(encoding="ascii")))
    return min(free, default=None)
