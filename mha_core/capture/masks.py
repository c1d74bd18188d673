"""A model's masks and biases as fields of a score rule: the lowest numbers of a dtype hide a cell."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from mha_core.attention.masks import of_blocks
from mha_core.attention.score_rule import ScoreRule


class Choice(NamedTuple):
    """The keys that a learned index chose for each query, as indices of blocks; −1 means no block.

    `blocks` is (batch, query, block) or (batch, index head, query, block), and a block has `size` keys.
    Each index head chooses for an equal number of attention heads, in their order.
    """

    blocks: Tensor
    size: int = 1

    def allowed(self, n_heads: int, n_key: int) -> Tensor:
        """True for the keys that each query may look at. (batch, head or 1, query, key)"""
        allowed = of_blocks(self.by_head, n_key, self.size)
        n_index_heads = allowed.shape[1]
        return allowed if n_index_heads == 1 else allowed.repeat_interleave(n_heads // n_index_heads, dim=1)

    @property
    def by_head(self) -> Tensor:
        """The blocks with an axis of heads. (batch, index head, query, block)"""
        return self.blocks if self.blocks.dim() == 4 else self.blocks[:, None]


class SharedTensors:
    """Keeps equal masks and biases of the layers of one trace once."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []

    def one(self, tensor: Tensor) -> Tensor:
        """An equal tensor that was seen before, else the tensor itself."""
        for other in self._tensors:
            if other.shape == tensor.shape and other.dtype == tensor.dtype and torch.equal(other, tensor):
                return other
        self._tensors.append(tensor)
        return tensor


class SharedRules:
    """The score rules of the layers of one forward pass; masks and biases that layers share are read once.

    It keeps the model's tensors until the pass is over, so that no other tensor gets the id of one of them.
    """

    def __init__(self) -> None:
        self._fields: dict[tuple, tuple] = {}
        self._rules: dict[tuple, ScoreRule] = {}

    def rule(
        self,
        mask: Tensor | None,
        bias: Tensor | None = None,
        choice: Choice | None = None,
        *,
        n_heads: int = 1,
        n_query: int,
        n_key: int,
        scale: float | None = None,
        soft_cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> ScoreRule:
        """A rule from a mask (batch, head or 1, query, key), a bias of that shape and an index's choice.

        The mask is boolean or additive.
        """
        key = (id(mask), id(bias), choice and (id(choice.blocks), choice.size, n_heads), n_query, n_key)
        if key not in self._fields:
            allowed = None if choice is None else choice.allowed(n_heads, n_key)
            self._fields[key] = (mask, bias, choice, rule_fields(mask, bias, allowed, size=(n_query, n_key)))
        whole = (*key, scale, soft_cap)
        if whole not in self._rules:
            self._rules[whole] = ScoreRule(scale=scale, soft_cap=soft_cap or None, **self._fields[key][-1])
        return self._rules[whole] if sinks is None else replace(self._rules[whole], sinks=sinks)


def hidden_by(table: Tensor) -> Tensor:
    """True where an added number hides the cell: at or below half of the lowest number of the dtype."""
    return table <= torch.finfo(table.dtype).min / 2


def rule_fields(*tables: Tensor | None, size: tuple[int, int]) -> dict[str, Tensor]:
    """The fields `mask`, `bias` and `distance_bias` of a rule from masks and biases of a model.

    Each table is (batch, head or 1, query, key) and is cut to `size`: True allows a cell, False hides it;
    a number is added to the score, or hides the cell (`hidden_by`). A bias that is the same for all pairs of
    one distance becomes a table (head, n_query + n_key − 1).
    """
    hidden, total = None, None
    for table in tables:
        if table is None:
            continue
        table = table[..., : size[0], : size[1]]
        if table.dtype == torch.bool:
            hides = ~table
        else:
            hides = hidden_by(table)
            if (numbers := table.masked_fill(hides, 0)).any():
                total = numbers if total is None else total + numbers
        if hides.any():
            hidden = hides if hidden is None else hidden | hides
    fields = {}
    if hidden is not None:
        fields["mask"] = ~hidden
    if total is not None:
        table = distance_table(total, fields.get("mask"), *size)
        fields |= {"bias": total} if table is None else {"distance_bias": table}
    return fields


def distance_table(bias: Tensor, allowed: Tensor | None, n_query: int, n_key: int) -> Tensor | None:
    """The table of a bias that depends only on the distance n − m in all visible cells, else None.

    (1, head, query, key) → (head, n_query + n_key − 1); entry ``[h, n − m + n_query − 1]``.
    """
    if bias.dim() != 4 or bias.shape[0] != 1 or bias.shape[2:] != (n_query, n_key):
        return None
    last, first = bias[0, :, -1], bias[0, :, 0]
    table = torch.cat([last, first[:, max(0, n_key - n_query + 1) :]], dim=1)
    if table.shape[1] != n_query + n_key - 1:
        return None
    distance = torch.arange(n_key, device=bias.device) - torch.arange(n_query, device=bias.device)[:, None]
    for head, row in enumerate(table):  # one head at a time takes a third of the memory
        same = row[distance + n_query - 1] == bias[0, head]
        if allowed is not None:
            same |= ~allowed[0, head if allowed.shape[1] > 1 else 0]
        if not same.all():
            return None
    return table
