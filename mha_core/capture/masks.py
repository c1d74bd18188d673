"""What models add to their scores, taken apart: numbers are a bias, the depths of a dtype hide a cell."""

from dataclasses import replace

import torch
from torch import Tensor

from mha_core.attention.score_rule import ScoreRule


class SharedRules:
    """Masks and biases as a rule has them; what layers share is taken apart once and shared again.

    One of these serves one forward pass: it holds what it was given, so that no other tensor can take
    its place in memory.
    """

    def __init__(self):
        self._known: dict[tuple, tuple] = {}
        self._rules: dict[tuple, ScoreRule] = {}

    def rule(
        self,
        mask: Tensor | None,
        bias: Tensor | None = None,
        *,
        n_query: int,
        n_key: int,
        scale: float | None = None,
        soft_cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> ScoreRule:
        """A rule from a mask (1, head or 1, query, key), boolean or additive, and a bias of that shape."""
        key = (id(mask), id(bias), n_query, n_key)
        if key not in self._known:
            self._known[key] = (mask, bias, taken_apart(mask, bias, n_query, n_key))
        whole = (*key, scale, soft_cap)
        if whole not in self._rules:
            self._rules[whole] = ScoreRule(scale=scale, soft_cap=soft_cap or None, **self._known[key][2])
        return self._rules[whole] if sinks is None else replace(self._rules[whole], sinks=sinks)


def taken_apart(mask: Tensor | None, bias: Tensor | None, n_query: int, n_key: int) -> dict[str, Tensor]:
    """The fields `mask`, `bias` and `distance_bias` of a rule, as far as they are needed.

    A number at or below half of the least one of its dtype hides a cell. A bias that is the same for
    all pairs of one distance becomes a table of distances, (head, n_query + n_key − 1).
    """
    hidden, total = None, None
    for given in (mask, bias):
        if given is None:
            continue
        given = given[..., :n_query, :n_key]
        if given.dtype == torch.bool:
            hides = ~given
        else:
            hides = given <= torch.finfo(given.dtype).min / 2
            if (given.masked_fill(hides, 0) != 0).any():
                numbers = given.masked_fill(hides, 0)
                total = numbers if total is None else total + numbers
        if hides.any():
            hidden = hides if hidden is None else hidden | hides
    fields = {}
    if hidden is not None:
        fields["mask"] = ~hidden
    if total is not None:
        table = by_distance(total, fields.get("mask"), n_query, n_key)
        fields |= {"bias": total} if table is None else {"distance_bias": table}
    return fields


def by_distance(bias: Tensor, allowed: Tensor | None, n_query: int, n_key: int) -> Tensor | None:
    """The table of a bias that depends on the distance n − m alone in all cells that count, else None.

    (1, head, query, key) → (head, n_query + n_key − 1); entry ``[h, n − m + n_query − 1]``.
    """
    if bias.dim() != 4 or bias.shape[0] != 1 or bias.shape[2:] != (n_query, n_key):
        return None
    last, first = bias[0, :, -1], bias[0, :, 0]
    table = torch.cat([last, first[:, max(0, n_key - n_query + 1) :]], dim=1)
    if table.shape[1] != n_query + n_key - 1:
        return None
    distance = torch.arange(n_key, device=bias.device) - torch.arange(n_query, device=bias.device)[:, None]
    for head, row in enumerate(table):  # a head at a time: a third of the memory
        same = row[distance + n_query - 1] == bias[0, head]
        if allowed is not None:
            same |= ~allowed[0, head if allowed.shape[1] > 1 else 0]
        if not same.all():
            return None
    return table
