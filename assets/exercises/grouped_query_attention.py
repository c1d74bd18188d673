"""Grouped-query attention to complete: replace each NotImplementedError, then run

    headscope check grouped_query_attention.py

It compares your module with torch's attention, with the same weights, and says what differs first and why.
Source: Ainslie et al. 2023, "GQA", section 2.2. Shapes are in the docstrings.
"""

import torch
from torch import Tensor, nn


class GroupedQueryAttention(nn.Module):
    """Attention in which h query heads share n_kv heads of keys and values: neighbours share one."""

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.d_k = n_heads, n_kv_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, n_heads * self.d_k, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d_k, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d_k, bias=False)
        self.o_proj = nn.Linear(n_heads * self.d_k, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, L, d_model) → the same; each token looks at itself and at those before it."""
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        scores = q @ self.share(k).mT / self.d_k**0.5
        allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        heads = scores.masked_fill(~allowed, float("-inf")).softmax(-1) @ self.share(v)
        return self.o_proj(self.join(heads))

    def split(self, x: Tensor) -> Tensor:
        """(batch, L, n · d_k) → (batch, n, L, d_k), for the n heads that x has."""
        raise NotImplementedError("split")

    def share(self, x: Tensor) -> Tensor:
        """(batch, n_kv, L, d_k) → (batch, h, L, d_k): query head i uses head i // (h / n_kv)."""
        raise NotImplementedError("share")

    def join(self, heads: Tensor) -> Tensor:
        """(batch, h, L, d_k) → (batch, L, h · d_k): the heads beside each other."""
        raise NotImplementedError("join")
