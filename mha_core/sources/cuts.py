"""How a matrix's output becomes heads: the ways to cut it, and the rotary codes that turn it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Rotary(NamedTuple):
    """The rotary code of a call: "half" turns dimensions i and i + width/2, "pairs" 2i and 2i + 1.

    cos, sin: (query, width), laid out for the dimensions that they turn, `width` of each head from
    `start` on.
    """

    form: str
    cos: Tensor
    sin: Tensor
    start: int = 0

    def turn(self, x: Tensor) -> Tensor:
        """Queries or keys at their positions. (…, token, d_k) → the same shape"""
        before, part, rest = x.tensor_split((self.start, self.start + self.cos.shape[-1]), dim=-1)
        if self.form == "half":
            first, second = part.chunk(2, dim=-1)
            across = torch.cat([-second, first], dim=-1)
        else:
            across = torch.stack([-part[..., 1::2], part[..., ::2]], dim=-1).flatten(-2)
        return torch.cat([before, part * self.cos + across * self.sin, rest], dim=-1)

    def back(self, x: Tensor) -> Tensor:
        """Queries or keys as they were before they were turned. (…, token, d_k) → the same shape"""
        length = self.cos**2 + self.sin**2  # not 1 where a code for long texts also stretches
        return self._replace(cos=self.cos / length, sin=-self.sin / length).turn(x)

    @property
    def last(self) -> "Rotary":
        """The code of the last token alone."""
        return self._replace(cos=self.cos[-1:], sin=self.sin[-1:])


def cuts(y: Tensor, role: int, sizes: tuple, shape: torch.Size) -> Iterator[tuple[Tensor, Callable | None]]:
    """Ways to cut an output into the heads of q (role 0), k (1) or v (2), and the columns each takes."""
    _, heads, tokens, width = shape
    if y.dim() == 4:  # of each head by itself, as a norm over its numbers
        yield from ((cut, None) for cut in (y, y.transpose(1, 2)) if cut.shape == shape)
        return
    y_shape = y.shape
    if y_shape[-1] < heads * width or y_shape[:-1].numel() != tokens:
        return
    if y_shape[-1] == heads * width:
        yield y.reshape(1, tokens, heads, width).transpose(1, 2), None
        return
    rows = y.reshape(tokens, -1)
    n_heads, n_kv, d_k, d_v = sizes
    blocks = (n_heads * d_k, n_kv * d_k, n_kv * d_v)
    group = n_heads // n_kv
    ways = []
    if rows.shape[1] == sum(blocks):  # all of q, all of k, all of v
        ways.append(lambda t: t.split(blocks, dim=1)[role])
    if role and rows.shape[1] == sum(blocks[1:]):  # all of k, all of v
        ways.append(lambda t: t.split(blocks[1:], dim=1)[role - 1])
    if rows.shape[1] == n_kv * (group + 2) * d_k and d_k == d_v:  # q, k and v of each key/value head

        def interleaved(t: Tensor) -> Tensor:
            parts = t.view(t.shape[0], n_kv, group + 2, d_k)
            return (parts[:, :, :group], parts[:, :, group], parts[:, :, group + 1])[role].flatten(1)

        ways.append(interleaved)
    if not role and rows.shape[1] == 2 * heads * width:  # of each head its q and a gate for its output
        ways.append(lambda t: t.view(t.shape[0], heads, 2, width)[:, :, 0].flatten(1))
    for way in ways:
        cut = way(rows).view(1, tokens, heads, width).transpose(1, 2)
        yield cut, lambda device, way=way: way(torch.arange(rows.shape[1], device=device)[None])[0]


def rotations(codes: tuple[Tensor, Tensor] | Tensor | None, shape: torch.Size) -> list[Rotary]:
    """The ways in which cosines and sines (1, L, …) can turn a q of that shape, as far as sizes tell.

    Some models have both in one, as complex numbers; some turn the other way round.
    """
    if codes is None:
        return []
    codes = (codes.real, codes.imag) if isinstance(codes, Tensor) else codes
    cos, sin = (code.reshape(-1, code.shape[-1]) for code in codes)
    if cos.shape[0] != shape[2] or not cos.is_floating_point():
        return []
    found, width, d_k = [], cos.shape[1], shape[3]
    if width <= d_k:
        found.append(Rotary("half", cos, sin))
        if width % 2 == 0:
            found.append(Rotary("pairs", cos, sin))
            found.append(
                Rotary("pairs", *(c[:, : width // 2].repeat_interleave(2, dim=1) for c in (cos, sin)))
            )
    if 2 * width <= d_k:
        found.append(Rotary("half", *(torch.cat([c, c], dim=1) for c in (cos, sin))))
        found.append(Rotary("pairs", *(c.repeat_interleave(2, dim=1) for c in (cos, sin))))
    return [*found, *(way._replace(sin=-way.sin) for way in found)]
