"""Where the computation runs, and why, in words that the app can show."""

from dataclasses import dataclass

import torch

from mha_core.errors import MhaError


@dataclass(frozen=True)
class Device:
    """A torch device name and the reason it was picked."""

    name: str
    reason: str


def pick(wanted: str | None = None) -> Device:
    """Pick CUDA, then Apple MPS, then the CPU, unless one is asked for by name.

    Raises `MhaError` when the device asked for is not on this machine, naming those that are.
    """
    found = available()
    if wanted is not None:
        if wanted not in found:
            raise MhaError(
                f"Device {wanted!r} is not available here; {', '.join(found)} can be used.",
                fixes=tuple({"device": name} for name in found),
            )
        return Device(wanted, f"{wanted} was asked for")
    return Device(found[0], REASONS[found[0]]())


def available() -> list[str]:
    """The device names that work here, fastest first; the CPU is always last."""
    found = ["cpu"]
    if torch.backends.mps.is_available():
        found.insert(0, "mps")
    if torch.cuda.is_available():
        found.insert(0, "cuda")
    return found


def usual_dtype(device: str) -> str:
    """The kind of numbers in which models of others compute there, unless another is asked for."""
    return "float32" if device == "cpu" else "bfloat16"


REASONS = {
    "cuda": lambda: f"GPU: {torch.cuda.get_device_name()}",
    "mps": lambda: "GPU: Apple Metal",
    "cpu": lambda: "CPU: no GPU found",
}
