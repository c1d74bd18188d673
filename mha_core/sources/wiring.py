"""Which matrices of a model made a layer's q, k and v: found by the numbers that flowed, never by names.

A projection is believed only if its output, cut into heads and turned by the rotary code where there
is one, is the q, k or v that was used. What cannot be shown to be so stays unknown.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention import Projections

ROUNDINGS = 16  # how many units in the last place two ways to the same number may differ


class Leaf(NamedTuple):
    """A matrix or a norm of the model as it was used: what went in, and what came out."""

    module: nn.Module
    x: Tensor
    y: Tensor
    versions: tuple[int, int]  # of x and y as they were then

    @classmethod
    def of(cls, module: nn.Module, x: Tensor, y: Tensor) -> "Leaf":
        return cls(module, x, y, (x._version, y._version))

    @property
    def is_as_it_was(self) -> bool:
        """False if the model has changed x or y in place since: they are then no longer input and output."""
        return self.versions == (self.x._version, self.y._version)


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


class Wiring(NamedTuple):
    """What is known of a call besides q, k and v themselves; None and empty where it is not."""

    x: Tensor | None = None
    projections: Projections = Projections()
    rotary: Rotary | None = None
    q_raw: Tensor | None = None  # before the rotation, (1, head, query, d_k)
    k_raw: Tensor | None = None


class _Made(NamedTuple):
    leaf: Leaf
    columns: Tensor | None  # of the leaf's output; None for all of them
    raw: Tensor
    rotary: Rotary | None


def find(q: Tensor, k: Tensor, v: Tensor, leaves: list[Leaf], codes: tuple[Tensor, Tensor] | None) -> Wiring:
    """What made the q (1, h, L, d_k), k (1, n_kv, L, d_k), v (1, n_kv, L, d_v) of self-attention.

    `leaves` are the candidates in the order in which they ran, `codes` the cosines and sines (1, L, …)
    that the layer was handed.
    """
    sizes = (q.shape[1], k.shape[1], q.shape[3], v.shape[3])
    leaves = [leaf for leaf in leaves if leaf.is_as_it_was]
    turns = list(rotations(codes, q)) if codes is not None else []
    made_q = _maker(q, 0, sizes, leaves, [None, *turns])
    # Queries and keys are turned alike; a code that turned only one of them is not understood.
    form = None if made_q is None else made_q.rotary
    made_k = None if made_q is None else _maker(k, 1, sizes, leaves, [form])
    made_v = _maker(v, 2, sizes, leaves, [None])
    found = Wiring()
    if made_v is not None and matrix(made_v.leaf) is not None:
        found = found._replace(x=made_v.leaf.x.reshape(1, -1, made_v.leaf.x.shape[-1]))
    if made_k is None:
        return found
    if form is not None:
        found = found._replace(rotary=form, q_raw=made_q.raw, k_raw=made_k.raw)
    if made_v is None:
        return found
    weights = [_columns(made) for made in (made_q, made_k, made_v)]
    same = all(made.leaf.x.data_ptr() == made_v.leaf.x.data_ptr() for made in (made_q, made_k))
    if same and None not in weights:
        (w_q, b_q), (w_k, b_k), (w_v, b_v) = weights
        found = found._replace(projections=Projections(w_q, w_k, w_v, None, b_q, b_k, b_v, None))
    return found


def matrix(leaf: Leaf) -> tuple[Tensor, Tensor | None] | None:
    """W (in, out) and b of a leaf that computes ``x W + b``, or None for one that computes anything else."""
    weight, bias = getattr(leaf.module, "weight", None), getattr(leaf.module, "bias", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or not weight.is_floating_point():
        return None
    if type(leaf.module).forward is nn.Linear.forward:
        return weight.detach().mT, None if bias is None else bias.detach()
    x, y = leaf.x.flatten(0, -2)[-2:], leaf.y.flatten(0, -2)[-2:]
    for turned in (weight.detach(), weight.detach().mT):
        if turned.shape == (x.shape[-1], y.shape[-1]) and turned.dtype == x.dtype:
            asked = x @ turned if bias is None else x @ turned + bias.detach()
            if alike(asked, y):
                return turned, None if bias is None else bias.detach()
    return None


def alike(one: Tensor, other: Tensor) -> bool:
    """Are two tensors the same numbers, but for rounding?"""
    if one.shape != other.shape:
        return False
    gap = (one.float() - other.float()).abs().max()
    return bool(gap <= ROUNDINGS * torch.finfo(other.dtype).eps * max(1.0, other.abs().max().item()))


def _is_the_same(one: Tensor, other: Tensor) -> bool:
    """Are they the same numbers in the same place?"""
    same = one.shape == other.shape and one.stride() == other.stride() and one.dtype == other.dtype
    return same and one.data_ptr() == other.data_ptr()


def _columns(made: _Made) -> tuple[Tensor, Tensor | None] | None:
    found = matrix(made.leaf)
    if found is None or made.columns is None:
        return found
    weight, bias = found
    return weight[:, made.columns], None if bias is None else bias[made.columns]


def _maker(
    wanted: Tensor, role: int, sizes: tuple, leaves: list[Leaf], rotations: list[Rotary | None]
) -> _Made | None:
    """The last leaf whose output, cut and turned in one of these ways, is what was wanted."""
    cuts = [
        (leaf, raw, columns)
        for leaf in reversed(leaves)
        for raw, columns in _cuts(leaf.y, role, sizes, wanted.shape)
    ]
    if None in rotations:  # the same numbers in the same place need not be compared
        for leaf, raw, columns in cuts:
            if _is_the_same(raw, wanted):
                return _Made(leaf, None if columns is None else columns(leaf.y.device), raw, None)
    for leaf, raw, columns in cuts:
        for rotary in rotations:
            # The last token first: the rotation of the first one is none.
            tail = raw[:, :, -1:]
            last = None if rotary is None else rotary._replace(cos=rotary.cos[-1:], sin=rotary.sin[-1:])
            if not alike(tail if last is None else last.turn(tail), wanted[:, :, -1:]):
                continue
            if alike(raw if rotary is None else rotary.turn(raw), wanted):
                return _Made(leaf, None if columns is None else columns(leaf.y.device), raw, rotary)
    return None


def _cuts(y: Tensor, role: int, sizes: tuple, shape: torch.Size) -> Iterator[tuple[Tensor, Callable | None]]:
    """Ways to cut an output into the heads of q (role 0), k (1) or v (2), and the columns each takes."""
    _, heads, tokens, width = shape
    if y.dim() == 4:  # a norm over each head
        yield from ((cut, None) for cut in (y, y.transpose(1, 2)) if cut.shape == shape)
        return
    if y.shape[:-1].numel() != tokens or y.shape[-1] < heads * width:
        return
    rows = y.reshape(tokens, -1)
    if rows.shape[1] == heads * width:
        yield rows.view(1, tokens, heads, width).transpose(1, 2), None
        return
    n_heads, n_kv, d_k, d_v = sizes
    blocks = (n_heads * d_k, n_kv * d_k, n_kv * d_v)
    group = n_heads // n_kv
    ways = []
    if rows.shape[1] == sum(blocks):  # all of q, all of k, all of v
        ways.append(lambda t: t.split(blocks, dim=1)[role])
    if rows.shape[1] == n_kv * (group + 2) * d_k and d_k == d_v:  # q, k and v of each key/value head

        def interleaved(t: Tensor) -> Tensor:
            parts = t.view(t.shape[0], n_kv, group + 2, d_k)
            return (parts[:, :, :group], parts[:, :, group], parts[:, :, group + 1])[role].flatten(1)

        ways.append(interleaved)
    for way in ways:
        cut = way(rows).view(1, tokens, heads, width).transpose(1, 2)
        yield cut, lambda device, way=way: way(torch.arange(rows.shape[1], device=device)[None])[0]


def rotations(codes: tuple[Tensor, Tensor], q: Tensor) -> Iterator[Rotary]:
    """The ways in which cosines and sines are used, as far as they have the sizes for it."""
    cos, sin = (code.reshape(-1, code.shape[-1]) for code in codes)
    if cos.shape[0] != q.shape[2] or not cos.is_floating_point():
        return
    width, d_k = cos.shape[1], q.shape[3]
    if width <= d_k:
        yield Rotary("half", cos, sin)
        if width % 2 == 0:
            yield Rotary("pairs", cos, sin)
            yield Rotary("pairs", *(c[:, : width // 2].repeat_interleave(2, dim=1) for c in (cos, sin)))
    if 2 * width <= d_k:
        yield Rotary("half", *(torch.cat([c, c], dim=1) for c in (cos, sin)))
        yield Rotary("pairs", *(c.repeat_interleave(2, dim=1) for c in (cos, sin)))
