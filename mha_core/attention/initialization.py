"""Random numbers for initial weights, the same on every machine."""

import hashlib

import numpy as np
import torch
from torch import Tensor

MAX_SEED = 2**31 - 1


def normal(shape: tuple[int, ...], *, seed: int, name: str, std: float = 1.0) -> Tensor:
    """Normal numbers that depend only on the seed, the name and the shape. float32

    They come from NumPy's counter-based Philox generator: the last bits of torch's own random numbers
    differ between processors with and without wide vector units.
    """
    key = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(int.from_bytes(key[:16])))
    return torch.from_numpy(generator.standard_normal(shape, np.float32)).mul_(std)
