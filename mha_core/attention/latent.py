"""Multi-head latent attention: keys and values come from one latent vector per token, which alone is cached.

Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1 and appendix C.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mha_core.attention import masks
from mha_core.attention.functional import attend, join_heads
from mha_core.attention.module import MAX_D_MODEL, Attended, AttentionSpec, Projections
from mha_core.attention.positions import rotate
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, in_range

EPSILON = 1e-6  # below the root of a norm, as in the published code


@dataclass(frozen=True)
class LatentSpec:
    """The sizes of one layer of multi-head latent attention.

    `kv_rank` is the length of the latent vector of keys and values, `q_rank` that of queries (None if they
    come directly from x). The query and key of a head have d_k numbers without position and `rotary_width`
    rotated ones; all heads share the rotated numbers of the key. By default ``d_k = d_model / n_heads``,
    ``d_v = d_k`` and ``rotary_width = d_k / 2`` (made even); a width of 0 means no position.

    Raises `MhaError` when the sizes do not fit together.
    Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    """

    d_model: int
    n_heads: int
    kv_rank: int
    q_rank: int | None = None
    d_k: int = None  # type: ignore[assignment]  # this and the two below are never None afterwards
    d_v: int = None  # type: ignore[assignment]
    rotary_width: int = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        heads = AttentionSpec(self.d_model, self.n_heads, d_k=self.d_k, d_v=self.d_v)
        object.__setattr__(self, "d_k", heads.d_k)
        object.__setattr__(self, "d_v", heads.d_v)
        if self.rotary_width is None:
            object.__setattr__(self, "rotary_width", heads.d_k // 4 * 2)
        in_range("kv_rank", self.kv_rank, 1, MAX_D_MODEL)
        if self.q_rank is not None:
            in_range("q_rank", self.q_rank, 1, MAX_D_MODEL)
        in_range("rotary_width", self.rotary_width, 0, MAX_D_MODEL)
        if self.rotary_width % 2:
            near = (self.rotary_width - 1, self.rotary_width + 1)
            raise MhaError(
                "rotary_width {rotary_width} is odd, and rotary positions turn pairs of dimensions; "
                "{low} or {high} work.",
                rotary_width=self.rotary_width,
                low=near[0],
                high=near[1],
                fixes=tuple({"rotary_width": width} for width in near),
            )


class LatentAttention(nn.Module):
    """Multi-head latent attention.

    ``c = norm(x W^DKV)``; head i has ``k_i = [c W_i^UK ; rotated(x W^KR)]``, ``v_i = c W_i^UV``, and
    ``q_i = [c_q W_i^UQ ; rotated(c_q W_i^QR)]`` with ``c_q = norm(x W^DQ)``, or x itself without a `q_rank`.
    The norm is RMSNorm.

    Source: DeepSeek-AI 2024, "DeepSeek-V2", equations 9 to 19.
    """

    def __init__(self, spec: LatentSpec):
        super().__init__()
        self.spec = spec
        width, rank = spec.d_k + spec.rotary_width, spec.q_rank
        if rank is not None:
            self.q_down = nn.Linear(spec.d_model, rank, bias=False)
            self.q_norm = nn.RMSNorm(rank, eps=EPSILON)
        self.q_up = nn.Linear(rank or spec.d_model, spec.n_heads * width, bias=False)
        self.kv_down = nn.Linear(spec.d_model, spec.kv_rank + spec.rotary_width, bias=False)
        self.kv_norm = nn.RMSNorm(spec.kv_rank, eps=EPSILON)
        self.kv_up = nn.Linear(spec.kv_rank, spec.n_heads * (spec.d_k + spec.d_v), bias=False)
        self.o = nn.Linear(spec.n_heads * spec.d_v, spec.d_model, bias=False)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        values: Tensor | None = None,
        *,
        key_padding: Tensor | None = None,
        rule: ScoreRule = ScoreRule(),
    ) -> Attended:
        """x (batch, L, d_model), context (batch, S, d_model) or None → output, and q, k and v of all heads.

        V comes from `values` (batch, S, d_model) if given: by the same matrices, from other latent vectors.
        `key_padding` (batch, S) is True where a query may look; it is combined with the mask of `rule`.
        Raises `MhaError` for a wrong width, and for a context where queries and keys carry positions.
        """
        if context is not None and self.spec.rotary_width:
            raise MhaError("Positions of two texts are not one row of numbers; rotary_width 0 works.")
        context = x if context is None else context
        (short, position), q = self.cached(context), self.queries(x)
        k, v = self.expanded(short, position)
        if values is not None and values is not context:
            _, v = self.expanded(*self.cached(values))
        if key_padding is not None:
            sizes = {"batch": len(q), "n_heads": q.shape[1], "n_query": q.shape[2], "n_key": k.shape[2]}
            rule = rule.hiding(masks.combine(None, key_padding, **sizes))
        return Attended(self.join(attend(q, k, v, rule)), q, k, v, rule)

    def cached(self, x: Tensor, *, first: int = 0) -> tuple[Tensor, Tensor]:
        """The cache for each token: c, and the rotated part of the key, which all heads share.

        (batch, L, kv_rank) and (batch, L, rotary_width); `first` is the position of the first token. Raises
        `MhaError` for a wrong width.
        """
        if x.dim() != 3 or x.shape[-1] != self.spec.d_model:
            raise MhaError(
                "The input has shape {shape}; expected (batch, tokens, {d_model}).",
                shape=tuple(x.shape),
                d_model=self.spec.d_model,
            )
        short, position = self.kv_down(x).split([self.spec.kv_rank, self.spec.rotary_width], dim=-1)
        return self.kv_norm(short), rotate(position, first=first)

    def parts(self) -> list[tuple[Tensor, int]]:
        """The matrices of each head, as rows of heads, with the number of heads."""
        return [(one.weight, self.spec.n_heads) for one in (self.q_up, self.kv_up)]

    def projections(self) -> Projections:
        """W^O, and where nothing is rotated W^UK and W^UV; W^Q, too, if queries come directly from x.

        There is no single matrix from x to keys and values, since a norm lies between two.
        """
        spec, known = self.spec, Projections(w_o=self.o.weight.detach().mT)
        if spec.rotary_width:
            return known
        of_heads = self.kv_up.weight.detach().unflatten(0, (spec.n_heads, -1))
        keys, values = (part.flatten(0, 1).mT for part in of_heads.split([spec.d_k, spec.d_v], dim=1))
        w_q = self.q_up.weight.detach().mT if spec.q_rank is None else None
        return known._replace(w_q=w_q, w_uk=keys, w_uv=values)

    def queries(self, x: Tensor, *, first: int = 0) -> Tensor:
        """Q, of tokens from the position `first` on. (batch, h, L, d_k + rotary_width)"""
        short = x if self.spec.q_rank is None else self.q_norm(self.q_down(x))
        q, position = self._heads(self.q_up(short)).split([self.spec.d_k, self.spec.rotary_width], dim=-1)
        return torch.cat([q, rotate(position, first=first)], dim=-1)

    def expanded(self, short: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """K (batch, h, S, d_k + rotary_width) and V (batch, h, S, d_v) of a cache, as `cached` returns it."""
        k, v = self._heads(self.kv_up(short)).split([self.spec.d_k, self.spec.d_v], dim=-1)
        return torch.cat([k, position[:, None].expand(-1, k.shape[1], -1, -1)], dim=-1), v

    def _heads(self, columns: Tensor) -> Tensor:
        """(batch, L, h·d) → (batch, h, L, d)"""
        return columns.unflatten(-1, (self.spec.n_heads, -1)).transpose(1, 2)

    def join(self, heads: Tensor) -> Tensor:
        """``concat(heads) W^O``."""
        return join_heads(heads, self.o.weight.mT, None)
