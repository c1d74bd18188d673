"""The rotary code of a model that does not hand it on, found by what it did to the output of a matrix."""

from collections.abc import Iterable

import torch
from torch import Tensor

UNIT = 1e-3  # how far cos² + sin² may be from 1
FORMS = ("pairs", "half")


def codes(used: Tensor, outputs: Iterable[Tensor]) -> tuple[Tensor, Tensor] | None:
    """The cosines and sines (1, token, width) that turn one of some outputs into what was used, if any do.

    used (1, head, token, d), outputs (…, head · d). A pair (a, b) that becomes (a′, b′) at a token was
    turned by ``cos = (a a′ + b b′) / (a² + b²)`` and ``sin = (a b′ − b a′) / (a² + b²)``, the same in all
    heads. Whether it is so in every dimension is asked where matrices are found (`wiring`).
    """
    _, n_heads, n_tokens, width = used.shape
    for output in outputs:
        if (
            output.dtype != used.dtype
            or output.numel() != used.numel()
            or output.shape[-1] != n_heads * width
        ):
            continue
        raw = output.reshape(1, n_tokens, n_heads, width).transpose(1, 2)
        turned = ((raw - used).abs() > 1e-6 * used.abs().max()).any(0).any(0).any(0).nonzero().flatten()
        if not len(turned):  # it was not turned at all
            return None
        part = int(turned.max()) // 2 * 2 + 2
        for form in FORMS:
            if part <= width and (found := _found(raw[..., :part], used[..., :part], form)) is not None:
                return found
    return None


def _found(raw: Tensor, used: Tensor, form: str) -> tuple[Tensor, Tensor] | None:
    def pairs(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.chunk(2, dim=-1) if form == "half" else (x[..., ::2], x[..., 1::2])

    # On the CPU: not every GPU has doubles.
    (a, b), (to_a, to_b) = (pairs(x.to("cpu", torch.float64)) for x in (raw, used))
    size = (a * a + b * b).sum(1)  # over heads
    cos, sin = (a * to_a + b * to_b).sum(1) / size, (a * to_b - b * to_a).sum(1) / size
    if not ((cos * cos + sin * sin - 1).abs() <= UNIT).all():
        return None
    laid = [torch.cat([c, c], -1) if form == "half" else c.repeat_interleave(2, -1) for c in (cos, sin)]
    return tuple(code.to(used) for code in laid)
