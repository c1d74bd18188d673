"""Position encodings without training: sinusoidal, rotary and ALiBi.

A new position encoding is a name in `POSITIONS`, a function here, and its use in `sources.random_weights`.
"""

import torch
from torch import Tensor

from mha_core.errors import MhaError, listed

# sinusoidal and learned are added to X, rotary rotates Q and K, alibi is added to the scores.
POSITIONS = ("none", "sinusoidal", "learned", "rotary", "alibi")


def sinusoidal(n_tokens: int, d_model: int) -> Tensor:
    """``PE[p, 2i] = sin(p / 10000^(2i/d_model))``, ``PE[p, 2i+1] = cos(…)``. (token, d_model)

    Source: Vaswani et al. 2017, section 3.5.
    """
    code = torch.empty(n_tokens, d_model, dtype=torch.float32)
    angle = _angles(n_tokens, d_model)
    code[:, 0::2] = angle.sin()
    code[:, 1::2] = angle.cos()[:, : d_model // 2]
    return code


def rotate(x: Tensor, *, first: int = 0) -> Tensor:
    """Rotate each pair of dimensions by an angle that grows with the position. (…, token, d_k)

    `first` is the position of the first token: in a step with a cache, the number of tokens before it.

    Dimension i is paired with i + d_k/2 and rotated by ``p / 10000^(2i/d_k)``, so that the angle between a
    query and a key depends only on their distance.
    Raises `MhaError` when d_k is odd. Source: Su et al. 2021 (RoFormer), equation 34.
    """
    *_, n_tokens, d_k = x.shape
    if d_k % 2:
        near = [width for width in (d_k - 1, d_k + 1) if width]
        raise MhaError(
            "Rotary positions turn pairs of dimensions, so d_k must be even; got {d_k}, {near} would work.",
            d_k=d_k,
            near=listed(near, "or"),
            fixes=tuple({"d_k": width} for width in near),
        )
    cos, sin = (table[first:].to(x) for table in rotary_angles(first + n_tokens, d_k))
    return rotated(x, cos, sin, form="half")


def rotary_angles(n_tokens: int, width: int) -> tuple[Tensor, Tensor]:
    """cos and sin of the angles in `rotate`, in the form for `rotated`: both halves equal. (token, width)"""
    angle = _angles(n_tokens, width)
    return angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, *, form: str, start: int = 0) -> Tensor:
    """Turn pairs (a, b) of dimensions into (a cos − b sin, b cos + a sin). (…, token, width) → the same shape

    cos and sin (token, n) rotate n dimensions from `start` on. A pair is i and i + n/2 for "half", 2i and
    2i + 1 for "pairs".
    Source: Su et al. 2021 (RoFormer), equation 34.
    """
    before, part, rest = x.tensor_split((start, start + cos.shape[-1]), dim=-1)
    if form == "half":
        first, second = part.chunk(2, dim=-1)
        across = torch.cat([-second, first], dim=-1)
    else:
        across = torch.stack([-part[..., 1::2], part[..., ::2]], dim=-1).flatten(-2)
    return torch.cat([before, part * cos + across * sin, rest], dim=-1)


def alibi(n_heads: int, n_query: int, n_key: int) -> Tensor:
    """``bias = −slope · |key − query|`` as a table over distances. (head, n_query + n_key − 1)

    Head h adds entry ``[h, n − m + n_query − 1]`` to the score of query m and key n. The slopes are
    ``2^(−8/n), 2^(−16/n), …, 2^(−8)`` for a power of two n. For other counts they are the slopes of the next
    lower power, followed by every second slope of the next higher power.
    Source: Press et al. 2022 (Train Short, Test Long), section 3 and its published code.
    """
    power = 1 << (n_heads.bit_length() - 1)
    exponents = [8 / power * i for i in range(1, power + 1)]
    exponents += [4 / power * i for i in range(1, 2 * power, 2)][: n_heads - power]
    slopes = 2.0 ** -torch.tensor(exponents)
    distance = torch.arange(1 - n_query, n_key).abs()
    return -slopes[:, None] * distance


def _angles(n_tokens: int, width: int) -> Tensor:
    """``p / 10000^(2i/width)``, computed in double precision. (token, ⌈width / 2⌉)"""
    rate = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.arange(n_tokens, dtype=torch.float64)[:, None] * rate
