"""Attention with a softmax of its own, as `sources.watched` follows it: one text of a batch."""

import torch
from torch import Tensor

from mha_core.attention import Attended
from mha_core.called import place
from mha_core.errors import MhaError
from mha_core.sources.products import CLOSE, Seen


def is_exact(seen: Seen) -> bool:
    """Is what was followed what was computed, but for rounding?"""
    return seen.gap <= CLOSE.get(seen.v.dtype, 0.0)


def attended(seen: Seen, lead: torch.Size, item: int) -> Attended:
    """One text of what was followed, as a batch of one.

    `lead` are the axes of the output before query and width: (batch, …, head), one, or none. Raises
    `MhaError` where one axis could be either, and for an item that the batch does not have.
    """
    if len(lead) == 1 and lead[0] > 1:
        raise MhaError(
            f"A softmax of the model's own has {lead[0]} heads, or {lead[0]} texts, in one axis: it cannot "
            f"be told which. Record one text at a time, with heads in an axis of their own, or give what was "
            f"computed to mha.from_tensors(q=, k=, v=, tokens=)."
        )
    n_items = lead[0] if len(lead) > 1 else 1
    n_heads = seen.q.shape[1] // n_items
    first = place(item, n_items) * n_heads
    own = slice(first, first + n_heads)
    k, v = (_own(part, seen.q.shape[1], n_items, own) for part in (seen.k, seen.v))
    return Attended(None, seen.q[:, own], k, v, seen.rule.mapped(lambda table: _of(table, own)))


def _own(part: Tensor, n_heads: int, n_items: int, own: slice) -> Tensor:
    """The keys or values of some heads, (1, kv_head, key, width): as few as they share."""
    n_kv = part.shape[1]
    if n_kv % n_items:
        return part.repeat_interleave(n_heads // n_kv, dim=1)[:, own]
    first = own.start * n_kv // n_heads
    return part[:, first : first + n_kv // n_items]


def _of(table: Tensor, own: slice) -> Tensor:
    """Some heads of a mask or bias (1, head or 1, query, key), or a table of distances (head, distance)."""
    if table.dim() == 2:
        return table[own]
    return table if table.shape[1] == 1 else table[:, own]
