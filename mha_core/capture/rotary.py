"""Rotary position encodings: rotate queries and keys, and find the cosines and sines that a model used."""

import copy
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.positions import rotated
from mha_core.traces.facts import Rotary

UNIT = 1e-3  # how far cos² + sin² may be from 1
LENGTH_DEPENDENT = ("dynamic", "longrope")  # types whose angles depend on the length of the text

Codes = tuple[Tensor, Tensor] | Tensor | None  # cosines and sines (1, L, …), or both as complex numbers


class RotaryCode(NamedTuple):
    """The rotary code of a call: "half" rotates dimensions i and i + width/2, "pairs" 2i and 2i + 1.

    cos and sin are (query, width), with a column for each rotated dimension: `width` dimensions of each
    head, from `start` on.
    """

    form: str
    cos: Tensor
    sin: Tensor
    start: int = 0

    @property
    def fact(self) -> Rotary:
        """The facts about the code besides its numbers."""
        return Rotary(self.form, self.cos.shape[-1], self.start)

    def rotate(self, x: Tensor) -> Tensor:
        """Queries or keys at their positions. (…, token, d_k) → the same shape"""
        return rotated(x, self.cos, self.sin, form=self.form, start=self.start)

    def unrotate(self, x: Tensor) -> Tensor:
        """Queries or keys before their rotation. (…, token, d_k) → the same shape"""
        length = self.cos**2 + self.sin**2  # not 1 where a code for long texts also scales
        return self._replace(cos=self.cos / length, sin=-self.sin / length).rotate(x)

    @property
    def last(self) -> "RotaryCode":
        """The code of the last token, which has the largest angles."""
        return self._replace(cos=self.cos[-1:], sin=self.sin[-1:])


def candidates(codes: Codes, shape: torch.Size) -> list[RotaryCode]:
    """The rotary codes that cosines and sines (1, L, …) can be for a q of that shape, by their sizes.

    Some models store both as one complex tensor; some rotate in the other direction.
    """
    if codes is None:
        return []
    codes = (codes.real, codes.imag) if isinstance(codes, Tensor) else codes
    cos, sin = (code.reshape(-1, code.shape[-1]) for code in codes)
    if cos.shape[0] != shape[2] or not cos.is_floating_point():
        return []
    forms, width, d_k = [], cos.shape[1], shape[3]
    if width <= d_k and width % 2 == 0:
        cos_half, sin_half = (code[:, : width // 2].repeat_interleave(2, dim=1) for code in (cos, sin))
        forms += [RotaryCode("half", cos, sin), RotaryCode("pairs", cos, sin)]
        forms.append(RotaryCode("pairs", cos_half, sin_half))
    if 2 * width <= d_k:
        forms.append(RotaryCode("half", torch.cat([cos, cos], dim=1), torch.cat([sin, sin], dim=1)))
        forms.append(RotaryCode("pairs", cos.repeat_interleave(2, dim=1), sin.repeat_interleave(2, dim=1)))
    return [*forms, *(code._replace(sin=-code.sin) for code in forms)]


def rotation_codes(used: Tensor, outputs: Iterable[Tensor]) -> tuple[Tensor, Tensor] | None:
    """The cosines and sines (1, token, width) that rotate one of the outputs into `used`, else None.

    used (1, head, token, d), outputs (…, head · d). A pair (a, b) that becomes (a′, b′) at a token was
    rotated by ``cos = (a a′ + b b′) / (a² + b²)`` and ``sin = (a b′ − b a′) / (a² + b²)``, the same in all
    heads. `projections` checks it in every dimension when it proves the matrices.
    """
    _, n_heads, n_tokens, width = used.shape
    for output in outputs:
        if output.shape[-1] != n_heads * width or output.numel() != used.numel():
            continue
        if output.dtype != used.dtype:
            continue
        raw = output.reshape(1, n_tokens, n_heads, width).transpose(1, 2)
        rotated = ((raw - used).abs() > 1e-6 * used.abs().max()).any(0).any(0).any(0).nonzero().flatten()
        if not len(rotated):  # it was not rotated
            return None
        part = int(rotated.max()) // 2 * 2 + 2
        for form in ("pairs", "half"):
            code = None if part > width else _rotation_codes(raw[..., :part], used[..., :part], form)
            if code is not None:
                return code
    return None


def _rotation_codes(raw: Tensor, used: Tensor, form: str) -> tuple[Tensor, Tensor] | None:
    def pairs(x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.chunk(2, dim=-1) if form == "half" else (x[..., ::2], x[..., 1::2])
        return first, second

    # On the CPU: not every GPU computes in float64.
    (a, b), (to_a, to_b) = (pairs(x.to("cpu", torch.float64)) for x in (raw, used))
    size = (a * a + b * b).sum(1)  # over heads
    cos, sin = (a * to_a + b * to_b).sum(1) / size, (a * to_b - b * to_a).sum(1) / size
    if not ((cos * cos + sin * sin - 1).abs() <= UNIT).all():
        return None
    cos, sin = (torch.cat([c, c], -1) if form == "half" else c.repeat_interleave(2, -1) for c in (cos, sin))
    return cos.to(used), sin.to(used)


def length_dependent(model: nn.Module) -> list[nn.Module]:
    """The parts of a model whose rotary codes depend on the length of the text."""
    types = ((part, str(vars(part).get("rope_type"))) for part in model.modules())
    return [part for part, kind in types if any(name in kind for name in LENGTH_DEPENDENT)]


def recompute_codes(model: nn.Module) -> None:
    """Make each pass of a model compute the rotary codes of its own text, in any thread.

    A model keeps codes that depend on the length of the text for the next pass. A short text after a long one
    would get the angles of the long one, and two threads would get each other's. This changes the model's
    modules, not its tensors.
    """
    for part in length_dependent(model):
        for name, buffer in list(part._buffers.items()):  # the model may have read a long text before
            if buffer is not None and name.endswith("original_inv_freq"):
                part._buffers[name.replace("original_", "")] = buffer.clone()
        for name in vars(part):
            if name.endswith("max_seq_len_cached"):
                setattr(part, name, part.original_max_seq_len)
        part.forward = partial(_recomputed, part)


def _recomputed(part: nn.Module, *args: object, **kwargs: object) -> object:
    """The result of a part, computed by a copy that is then discarded."""
    fresh = copy.copy(part)
    fresh._buffers = {
        name: None if buffer is None else buffer.clone() for name, buffer in part._buffers.items()
    }
    return type(part).forward(fresh, *args, **kwargs)
