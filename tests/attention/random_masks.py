"""Random masks, in every shape that a mask may have."""

from collections.abc import Callable

from torch import Tensor

SHAPES = {
    "none": None,
    "(L, S)": lambda n, h, q, k: (q, k),
    "(N, L, S)": lambda n, h, q, k: (n, q, k),
    "(N, 1, L, S)": lambda n, h, q, k: (n, 1, q, k),
    "(N, h, L, S)": lambda n, h, q, k: (n, h, q, k),
}


def random_mask(normal: Callable[..., Tensor], *shape: int, seed: int) -> Tensor:
    """A boolean mask that leaves each row its last key."""
    allowed = normal(*shape, seed=seed) > 0.2
    allowed[..., -1] = True
    return allowed
