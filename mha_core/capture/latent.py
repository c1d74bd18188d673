"""Latent attention (MLA): its short vectors, and the part of queries and keys that a rotary code turns.

There a few dimensions of each head carry the position: of a query they are its own, of a key they are one
vector that all heads share. Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.3.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from mha_core.capture.leaves import Leaf, alike
from mha_core.capture.rotary import Rotary, rotations
from mha_core.capture.wiring import Wiring

# The norm that a short vector goes through before queries, or keys and values, are made of it.
SHORT = {"q_a_layernorm": "q_short", "kv_a_layernorm": "kv_short"}


def short(leaves: list[Leaf], names: Mapping[int, str], attention: str) -> dict[str, Leaf]:
    """The short vectors of an attention of that name; none where it is no latent one."""
    found = {}
    for leaf in leaves:
        whose, _, last = names.get(id(leaf.module), "").rpartition(".")
        if last in SHORT and whose == attention and leaf.is_as_it_was:
            found[SHORT[last]] = leaf
    return found


def turned(
    found: Wiring,
    q: Tensor,
    k: Tensor,
    leaves: list[Leaf],
    codes: tuple[Tensor, Tensor] | Tensor | None,
    *,
    width: int,
) -> Wiring:
    """What is known of a call, with q and k as they were before `width` dimensions of each head were turned.

    q, k: (1, head, token, d_k), `codes` the cosines and sines that the layer was handed, or both as one
    complex tensor. Unchanged if no matrix made what was turned: then nothing is known of it.
    """
    leaves = [leaf for leaf in leaves if leaf.is_as_it_was]
    d_k = q.shape[-1]
    if not 0 < width <= d_k:
        return found
    for start in dict.fromkeys((d_k - width, 0)):
        own_q, own_k = (x[..., start : start + width] for x in (q, k))
        raw_q, raw_k = list(_of_each(leaves, q.shape, start, width)), list(_shared(leaves, k.shape, width))
        for rotary in rotations(codes, own_q.shape):
            if rotary.cos.shape[-1] != width:
                continue
            for order in _orders(width):
                before_q = _before(raw_q, order, rotary, own_q)
                before_k = None if before_q is None else _before(raw_k, order, rotary, own_k)
                if before_k is not None:
                    (of_q, part_q), (of_k, part_k) = before_q, before_k
                    raw = {"q_raw": _put(q, start, part_q), "k_raw": _put(k, start, part_k.expand_as(own_k))}
                    return found._replace(
                        rotary=rotary._replace(start=start),
                        parts={**found.parts, **raw},
                        used=(*found.used, of_q, of_k),
                    )
    return found


def _orders(width: int) -> Iterator[Tensor]:
    """Dimensions as they are, or pairs taken apart: all first ones, then all second ones."""
    yield torch.arange(width)
    if width % 2 == 0:
        yield torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def _of_each(leaves: list[Leaf], shape: torch.Size, start: int, width: int) -> Iterator[tuple[Leaf, Tensor]]:
    """The part in question of what can be the queries of all heads, the last one first."""
    _, heads, tokens, d_k = shape
    for leaf in reversed(leaves):
        if leaf.y.shape[:-1].numel() == tokens and leaf.y.shape[-1] == heads * d_k:
            cut = leaf.y.reshape(1, tokens, heads, d_k).transpose(1, 2)
            yield leaf, cut[..., start : start + width]


def _shared(leaves: list[Leaf], shape: torch.Size, width: int) -> Iterator[tuple[Leaf, Tensor]]:
    """The last or first dimensions of what can hold the key that all heads share, the last one first."""
    for leaf in reversed(leaves):
        if leaf.y.shape[:-1].numel() == shape[2] and leaf.y.shape[-1] >= width:
            rows = leaf.y.reshape(1, 1, shape[2], -1)
            yield leaf, rows[..., -width:]
            yield leaf, rows[..., :width]


def _before(
    candidates: list[tuple[Leaf, Tensor]], order: Tensor, rotary: Rotary, wanted: Tensor
) -> tuple[Leaf, Tensor] | None:
    """The candidate that is what was wanted when it has been turned."""
    for leaf, raw in candidates:
        raw = raw[..., order.to(raw.device)]
        # The last token first: it is turned most.
        if alike(rotary.last.turn(raw[:, :, -1:]).expand_as(wanted[:, :, -1:]), wanted[:, :, -1:]) and alike(
            rotary.turn(raw).expand_as(wanted), wanted
        ):
            return leaf, raw
    return None


def _put(x: Tensor, start: int, part: Tensor) -> Tensor:
    """x with a part of each head as it was before."""
    x = x.clone()
    x[..., start : start + part.shape[-1]] = part
    return x
