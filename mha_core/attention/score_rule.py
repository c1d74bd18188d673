"""The score rule: all steps from q·k to the attention weights, as one frozen value."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeGuard

import torch
from torch import Tensor

from mha_core.attention.masks import check_boolean
from mha_core.errors import MhaError, named_type, shown

HIDDEN = float("-inf")
COMPUTED = float("inf")  # marks the cells of patched weights and outputs that keep the computed number
NUMBERS = ("scale", "soft_cap", "temperature")
TENSORS = ("bias", "distance_bias", "mask", "sinks", "patched_weights", "patched_outputs")
MIN_DIVISOR, MAX_DIVISOR = 0.001, 1_000_000  # temperatures and caps at which fp32 scores stay finite


@dataclass(frozen=True, eq=False)
class ScoreRule:
    """The steps from raw scores to weights, in this order:

    1. scale: ``s = scale · q·k``; None stands for ``1/√d_k``.
    2. soft cap: ``s = cap · tanh(s / cap)`` (Gemma 2).
    3. bias: ``s = s + bias``, (…, head or 1, query, key). A bias that depends only on the distance, such
    as ALiBi or T5's, is kept as a table (head, n_query + n_key − 1) whose entry
    ``[h, n − m + n_query − 1]`` belongs to query m and key n; −∞ hides the keys at that distance.
    4. mask: hidden cells become −∞. Boolean, True where a query may look at a key,
       (…, head or 1, query, key) or (query, key).
    5. sinks: one more score for each head, which gets weight but has no value (gpt-oss). (head,)
    6. softmax over the keys of each row, of scores divided by `temperature`.

    An experiment may then replace computed numbers (activation patching: Vig et al. 2020, Meng et al. 2022);
    +∞ marks the cells that keep the computed number:

    7. patched weights, (head or 1, query or 1, key or 1).
    8. patched outputs of heads, the products of weights and values, (head or 1, query or 1, d_v or 1).

    A row with every key hidden has weight 0 everywhere, never NaN.
    A bias of −∞ is stored as a mask. Raises `MhaError` for impossible values.
    """

    scale: float | None = None
    soft_cap: float | None = None
    bias: Tensor | None = None
    distance_bias: Tensor | None = None
    mask: Tensor | None = None
    sinks: Tensor | None = None
    temperature: float = 1.0
    patched_weights: Tensor | None = None
    patched_outputs: Tensor | None = None

    def __post_init__(self) -> None:
        for name in NUMBERS:
            self._check_number(name)
        if self.scale is not None and not math.isfinite(self.scale):
            raise MhaError("scale {scale} is no finite number.", scale=self.scale)
        for name, table in self.tensors().items():
            if not isinstance(table, Tensor):
                raise MhaError(
                    "{name} is a tensor, as torch.as_tensor makes it; got {type}.",
                    name=name,
                    type=named_type(table),
                )
        if self.mask is not None:
            check_boolean("mask", self.mask)
        if self.bias is not None and (hidden := self.bias == HIDDEN).any():
            allowed = ~hidden if self.mask is None else self.mask & ~hidden
            object.__setattr__(self, "mask", allowed)
            object.__setattr__(self, "bias", self.bias.masked_fill(hidden, 0.0))

    def _check_number(self, name: str) -> None:
        """Check a number, and make it a float: torch multiplies only with whole numbers up to 2^63."""
        value = getattr(self, name)
        if value is None and getattr(ScoreRule, name) is None:
            return
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number:
            raise MhaError("{name} is a number; got {value}.", name=name, value=shown(value))
        if name != "scale" and not MIN_DIVISOR <= value <= MAX_DIVISOR:
            raise MhaError(
                "{name} {value} is out of range; {low} to {high:,} work.",
                name=name,
                value=shown(value),
                low=MIN_DIVISOR,
                high=MAX_DIVISOR,
            )
        if isinstance(value, int):
            try:
                object.__setattr__(self, name, float(value))
            except OverflowError:
                raise MhaError(
                    "{name} has {n_bits:,} bits, more than a float has.", name=name, n_bits=value.bit_length()
                ) from None

    def at(self, heads: slice, rows: slice | list[int] | Tensor, *, n_query: int, n_key: int) -> "ScoreRule":
        """The same rule for some heads and some of `n_query` rows; tables of distances are expanded.

        Raises `MhaError` where a mask or bias has other sizes: its rows would belong to other queries.
        """
        if not self.tensors():
            return self
        self._check_sizes(n_query, n_key)
        bias, mask = self._crop(self.bias, heads, rows), self._crop(self.mask, heads, rows)
        if self.distance_bias is not None:
            table = self.distance_bias[heads]
            # The row of query m is the window that begins at its entry for key 0.
            starts = n_query - 1 - torch.arange(n_query, device=table.device)[rows]
            hidden = table == HIDDEN
            if hides := bool(hidden.any()):
                visible = (~hidden).unfold(-1, n_key, 1)[:, starts]
                mask = visible if mask is None else mask & visible
                table = table.masked_fill(hidden, 0.0)
            if not hides or table.any():
                laid_out = table.unfold(-1, n_key, 1)[:, starts]
                bias = laid_out if bias is None else bias + laid_out
        return replace(
            self,
            bias=bias,
            distance_bias=None,
            mask=mask,
            sinks=None if self.sinks is None else self.sinks[heads],
            patched_weights=self._crop(self.patched_weights, heads, rows),
            patched_outputs=self._crop(self.patched_outputs, heads, rows),
        )

    def for_keys(self, keys: slice | list[int]) -> "ScoreRule":
        """The same rule, expanded by `at`, for some of the keys."""
        tables = {name: getattr(self, name) for name in ("bias", "mask", "patched_weights")}
        some: dict[str, Any] = {name: table[..., keys] for name, table in tables.items() if _has_keys(table)}
        return replace(self, **some)

    def reach(self, n_key: int) -> int:
        """The number of keys up to the last one that any row may look at, at least 1.

        The rule must have been expanded for these rows by `at`. All keys where weights are patched, and on a
        GPU, which would have to be waited for.
        """
        if not _has_keys(self.mask) or not self.mask.is_cpu or self.patched_weights is not None:
            return n_key
        seen = _of_all_rows(torch.amax, self.mask)
        return int(seen.nonzero().max()) + 1 if seen.any() else 1

    def hiding(self, allowed: Tensor | None) -> "ScoreRule":
        """The same rule with a further mask: a cell is visible if both masks allow it."""
        if allowed is None:
            return self
        return replace(self, mask=allowed if self.mask is None else self.mask & allowed)

    @property
    def hides(self) -> bool:
        """Whether a key is hidden from a query, by the mask or by a distance whose bias is −∞."""
        by_distance = self.distance_bias is not None and bool((self.distance_bias == HIDDEN).any())
        return by_distance or self.mask is not None

    @property
    def is_plain(self) -> bool:
        """Whether the rule has only a scale and a mask."""
        return self.soft_cap is None and self.temperature == 1.0 and self.tensors().keys() <= {"mask"}

    def item(self, index: int) -> "ScoreRule":
        """The rule of one item of a batch, without the batch axis."""
        return self.mapped(lambda t: t[index if t.shape[0] > 1 else 0] if t.dim() == 4 else t)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> "ScoreRule":
        """The same rule with `change` applied to each tensor that it holds."""
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in self.tensors().items()}
        return replace(self, **changed)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the rule, by the names of their fields."""
        held = {name: getattr(self, name) for name in TENSORS}
        return {name: tensor for name, tensor in held.items() if tensor is not None}

    def _check_sizes(self, n_query: int, n_key: int) -> None:
        for name in ("mask", "bias", "patched_weights"):
            table = getattr(self, name)
            if table is None:
                continue
            if table.dim() < 2 or table.shape[-2] not in (1, n_query) or table.shape[-1] not in (1, n_key):
                raise MhaError(
                    "The {name} has shape {shape}; for {n_query} queries and {n_key} keys it "
                    "ends in ({n_query}, {n_key}), with 1 for an axis along which it does not change.",
                    name=name,
                    shape=tuple(table.shape),
                    n_query=n_query,
                    n_key=n_key,
                )
        table, n_distances = self.distance_bias, n_query + n_key - 1
        if table is not None and table.shape[-1] != n_distances:
            raise MhaError(
                "The distance_bias has shape {shape}; for {n_query} queries and {n_key} keys "
                "it has {n_distances} columns.",
                shape=tuple(table.shape),
                n_query=n_query,
                n_key=n_key,
                n_distances=n_distances,
            )

    @staticmethod
    def _crop(table: Tensor | None, heads: slice, rows: slice | list[int] | Tensor) -> Tensor | None:
        if table is None:
            return None
        if table.dim() > 2 and table.shape[-3] > 1:
            table = table[..., heads, :, :]
        return table if table.shape[-2] == 1 else table[..., rows, :]

    def factor(self, d_k: int) -> float:
        """The factor on raw scores: `scale`, or ``1/√d_k``."""
        return d_k**-0.5 if self.scale is None else self.scale

    def logits(self, raw: Tensor, d_k: int) -> tuple[Tensor, Tensor]:
        """Scaled scores, and the same after soft cap, bias and mask; both (…, head, query, key).

        The rule must have been expanded for these rows by `at`.
        """
        scaled = raw * self.factor(d_k)
        return scaled, self.masked(scaled)

    def masked(self, scaled: Tensor, *, spent: bool = False) -> Tensor:
        """Scaled scores after soft cap, bias and mask, −∞ where hidden. (…, head, query, key)

        Scores that are no longer needed (`spent`) are overwritten where that saves memory.
        """
        masked = scaled
        if self.soft_cap is not None:
            masked = self.soft_cap * torch.tanh(masked / self.soft_cap)
        if self.bias is not None:
            masked = masked + self.bias
        if self.mask is not None:
            fits = spent and torch.broadcast_shapes(self.mask.shape, masked.shape) == masked.shape
            if fits and self.mask.is_cpu:  # in a causal block of rows few keys are hidden from any of them
                keys = slice(int(_of_all_rows(torch.amin, self.mask).argmin()), None)
                masked[..., keys].masked_fill_(~self.mask[..., keys], HIDDEN)
            else:
                masked = (masked.masked_fill_ if fits else masked.masked_fill)(~self.mask, HIDDEN)
        return masked

    def weights(self, masked: Tensor, *, spent: bool = False) -> Tensor:
        """``softmax(masked / temperature)``, rows with every key hidden at zero. (…, head, query, key)

        Scores that are no longer needed (`spent`) are overwritten where that saves memory.
        """
        n_key = masked.shape[-1]
        if self.temperature != 1.0:
            masked = masked / self.temperature
        if self.sinks is not None:
            sink = (self.sinks / self.temperature).to(masked)[:, None, None]
            masked = torch.cat([masked, sink.expand(*masked.shape[:-1], 1)], dim=-1)
        empty = None
        if self.mask is not None and self.sinks is None:
            # A softmax over no keys is 0/0. Such a row gets finite scores first and weight 0 afterwards.
            empty = self.mask.view(torch.uint8).amax(-1, keepdim=True) == 0
            if empty.is_cpu and not empty.any():  # on a GPU the check takes longer than the work
                empty = None
            else:
                masked = masked.masked_fill(empty, 0.0)
        # On a CPU softmax can work in place, which is faster than new memory.
        over = masked if spent and masked.is_cpu and not masked.requires_grad else None
        weights = torch.softmax(masked, dim=-1, out=over)
        if empty is not None:
            weights = weights.masked_fill(empty, 0.0)
        weights = weights if self.sinks is None else weights[..., :n_key]
        return _patched(weights, self.patched_weights)

    def outputs(self, mixed: Tensor) -> Tensor:
        """The heads' outputs: the products of weights and values, with patches where there are any.

        (…, head, query, d_v). The rule must have been expanded for these rows by `at`.
        """
        return _patched(mixed, self.patched_outputs)


def _has_keys(table: Tensor | None) -> TypeGuard[Tensor]:
    """Whether a table differs from key to key: with one column it is the same for each."""
    return table is not None and table.shape[-1] > 1


def _of_all_rows(reduce: Callable[..., Tensor], mask: Tensor) -> Tensor:
    """For each key the largest or smallest entry of the mask in any row of any head, as 0 and 1."""
    return reduce(mask.view(torch.uint8), [*range(mask.dim() - 1)])  # `any` and `all` take ten times as long


def _patched(computed: Tensor, patches: Tensor | None) -> Tensor:
    if patches is None:
        return computed
    return torch.where(patches == COMPUTED, computed, patches.to(computed))
