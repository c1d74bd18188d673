"""Multi-head attention to complete: replace each NotImplementedError, then run

    headscope check multi_head_attention.py

It compares your module with torch's attention, with the same weights, and says what differs first and why.
Formulas: Vaswani et al. 2017, "Attention Is All You Need", section 3.2. Shapes are in the docstrings.
"""

from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    """concat(head_1 … head_h) W^O, with head_i = softmax(q_i k_iᵀ / √d_k) v_i."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """(batch, L, d_model), (batch, S, d_model) twice → (batch, L, d_model); the mask is True to look."""
        q, k, v = self.split(self.w_q(query)), self.split(self.w_k(key)), self.split(self.w_v(value))
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return self.w_o(self.join(self.weights(scores) @ v))

    def split(self, x: Tensor) -> Tensor:
        """(batch, L, d_model) → (batch, h, L, d_k): head i gets columns i · d_k … (i + 1) · d_k − 1."""
        raise NotImplementedError("split")

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """(batch, h, L, d_k), (batch, h, S, d_k) → (batch, h, L, S): q kᵀ / √d_k."""
        raise NotImplementedError("scores")

    def weights(self, scores: Tensor) -> Tensor:
        """(batch, h, L, S) → the same: the softmax of each row, over the keys."""
        raise NotImplementedError("weights")

    def join(self, heads: Tensor) -> Tensor:
        """(batch, h, L, d_k) → (batch, L, d_model): the heads beside each other."""
        raise NotImplementedError("join")
