"""The learned index of a sparse attention layer: its scores, its choice, and the weight that it keeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mha_core.attention.functional import raw_scores, row_blocks
from mha_core.attention.masks import of_blocks
from mha_core.attention.score_rule import ScoreRule
from mha_core.traces.indices import LAYER, index
from mha_core.traces.tensors import array


@dataclass(frozen=True, eq=False)
class SparseIndex:
    """A learned index scores all keys cheaply; attention then looks only at those with the highest scores.

    `tensors` and `rule` are those of the layer; `block_size` keys are chosen together. The index has one
    score for each query and block. Sources: DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1 (keys); MiniMax M3
    (blocks of keys).
    """

    tensors: Mapping[str, Tensor] = field(repr=False)
    rule: ScoreRule = field(repr=False)
    block_size: int = 1

    @property
    def n_heads(self) -> int:
        """The number of index heads; each chooses for an equal number of attention heads, in their order."""
        return self.tensors["index_choice"].shape[0]

    @property
    def budget(self) -> int:
        """The number of blocks for each query."""
        return self.tensors["index_choice"].shape[2]

    @property
    def scores(self) -> np.ndarray | None:
        """The scores of the index; None if they are not known. (index head, query, block)

        A score is −∞ if the query may not look at the block, and +∞ for a block that is always chosen.
        """
        scores = self.tensors.get("index_scores")
        return None if scores is None else array(scores)

    @cached_property
    def chosen(self) -> np.ndarray:
        """True for the keys that the index chose for a query. (index head, query, key)"""
        chosen = of_blocks(self.tensors["index_choice"], self.tensors["k"].shape[1], self.block_size)
        dense = self.tensors.get("dense_mask")
        return array(chosen if dense is None else chosen & dense)

    def share(self, head: int | None = None) -> np.ndarray:
        """The weight that the chosen keys would have without the index, from 0 to 1. ([head,] query)

        ``Σ_chosen exp(score) / Σ_all exp(score)``, over the keys that the layer's other masks allow.
        Raises `MhaError` for a head that the layer does not have.
        """
        q, k = self.tensors["q"], self.tensors["k"]
        if head is None:
            return np.stack([self.share(one) for one in range(len(q))])
        head = index("head", head, len(q), of=LAYER)
        q, k = q[head][None], k[head // (len(q) // len(k))][None]
        at = {"n_query": q.shape[1], "n_key": k.shape[1]}
        dense = replace(self.rule, mask=self.tensors.get("dense_mask"))
        shares = []
        for rows in row_blocks(q.shape[1], 2 * k.shape[1]):  # a float64 is two
            raw = raw_scores(q[:, rows], k).double()
            rules = (rule.at(slice(head, head + 1), rows, **at) for rule in (self.rule, dense))
            logits = (rule.logits(raw, q.shape[2])[1][0] / rule.temperature for rule in rules)
            kept, whole = (rows_logits.logsumexp(-1) for rows_logits in logits)
            shares.append(torch.where(whole.isinf(), 0.0, (kept - whole).exp()))
        return array(torch.cat(shares).float())
