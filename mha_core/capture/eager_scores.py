"""Scores on their way from the product of queries and keys to the weights, in a model's own code.

A product of two tensors is taken for ``q kᵀ``. What is done to it afterwards is written down as
``cap · tanh(scale · q kᵀ / cap) + terms, hidden where a mask says so``; what cannot be written so is
followed no further. Whether it is true is asked of the weights that the model computed in the end.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mha_core.attention.functional import attention_weights, mix
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.masks import by_distance

FAR = -1e4  # an added number at or below it is meant to hide a cell, if the cell's weight is zero then
# How far weights and outputs of two ways to compute the same may lie apart, in units of the largest one.
CLOSE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
EINSUM = re.compile(r"[A-Za-z]+,[A-Za-z]+->[A-Za-z]+")
ROWS = 3  # queries whose weights are computed again where not all are


@dataclass(frozen=True, eq=False)
class Term:
    """What is added: a tensor of the model, and the same as (1, head or 1, query or 1, key or 1)."""

    given: Tensor
    laid: Tensor
    factor: float


@dataclass(frozen=True, eq=False)
class Scores:
    """A tensor whose last two axes are query and key, and what it is made of.

    q (1, head, query, d_k), k (1, head or 1, key, d_k). `hidden` and `emptied` are cells that were
    covered by a mask, and cells that no longer depend on q and k, (1, head or 1, query or 1, key or 1).
    """

    q: Tensor
    k: Tensor
    shape: torch.Size  # of the tensor as it is now; all axes but the last two are heads
    scale: float = 1.0
    cap: float | None = None
    terms: tuple[Term, ...] = ()
    hidden: tuple[Tensor, ...] = ()
    emptied: tuple[Tensor, ...] = ()

    def times(self, factor: float) -> "Scores | None":
        """The same times a number. None where it would turn what is hidden into what stands out."""
        if factor <= 0:
            return None
        terms = tuple(replace(term, factor=term.factor * factor) for term in self.terms)
        cap = None if self.cap is None else self.cap * factor
        return replace(self, scale=self.scale * factor, cap=cap, terms=terms)

    def plus(self, term: Tensor | float, factor: float) -> "Scores | None":
        """The same and a number or tensor times a factor; None if it makes more cells of them."""
        if not isinstance(term, Tensor):
            if not term:
                return self
            term = torch.tensor(float(term), device=self.q.device)
        laid = self.laid(term)
        if laid is None or not laid.is_floating_point():
            return None
        return replace(self, terms=(*self.terms, Term(term, laid, factor)))

    def capped(self) -> "Scores | None":
        """tanh of it: the beginning of a soft cap."""
        if self.cap is not None or self.terms or self.hidden or self.emptied:
            return None
        return replace(self, cap=1.0)

    def hiding(self, cells: Tensor) -> "Scores | None":
        laid = self.laid(cells)
        return None if laid is None else replace(self, hidden=(*self.hidden, laid.bool()))

    def emptying(self, cells: Tensor) -> "Scores | None":
        laid = self.laid(cells)
        return None if laid is None else replace(self, emptied=(*self.emptied, laid))

    def seen_as(self, shape: torch.Size) -> "Scores | None":
        """The same cells in the same order, in a tensor of another shape."""
        if len(shape) < 2 or shape[-2:] != self.shape[-2:] or shape.numel() != self.shape.numel():
            return None
        return replace(self, shape=shape)

    def laid(self, tensor: Tensor) -> Tensor | None:
        """What goes with the cells one by one, as (1, head or 1, query or 1, key or 1)."""
        shape, lead = self.shape, self.shape[:-2]
        if tensor.dim() > len(shape):
            return None
        padded = tensor.reshape((1,) * (len(shape) - tensor.dim()) + tuple(tensor.shape))
        if any(size not in (1, whole) for size, whole in zip(padded.shape, shape, strict=True)):
            return None
        ends = padded.shape[-2:]
        if padded.shape[:-2].numel() == 1:
            return padded.reshape(1, 1, *ends)
        return padded.expand(*lead, *ends).reshape(1, lead.numel(), *ends)


class Shared:
    """Masks and biases that several layers have, kept once; it serves one forward pass."""

    def __init__(self):
        self._parts: dict[tuple, tuple] = {}
        self._kept: list[Tensor] = []

    def one(self, tensor: Tensor) -> Tensor:
        """The tensor, or an equal one that was seen before."""
        for kept in self._kept:
            if kept.shape == tensor.shape and kept.dtype == tensor.dtype and torch.equal(kept, tensor):
                return kept
        self._kept.append(tensor)
        return tensor

    def parts(self, term: Term) -> tuple[Tensor | None, Tensor | None, bool]:
        """Where a term hides, what it adds elsewhere, and whether it hides with the depths of its dtype."""
        key = (id(term.given), version(term.given), term.laid.shape, term.factor)
        if key not in self._parts:
            numbers = term.laid if term.factor == 1.0 else term.laid * term.factor
            hides = numbers <= FAR
            deep = torch.finfo(term.laid.dtype).min / 2 * min(1.0, abs(term.factor))
            surely = not bool((hides & (numbers > deep)).any())
            rest = numbers.masked_fill(hides, 0.0) if hides.any() else numbers
            found = (hides if hides.any() else None, rest if (rest != 0).any() else None, surely)
            self._parts[key] = (term, numbers, found)  # the term is held, so that no other takes its place
        return self._parts[key][2]

    def numbers(self, term: Term) -> Tensor:
        """All that a term adds."""
        self.parts(term)
        return self._parts[(id(term.given), version(term.given), term.laid.shape, term.factor)][1]


@dataclass(frozen=True, eq=False)
class Followed:
    """An attention that was followed to its end: what it is, and how far that is from what was computed."""

    q: Tensor
    k: Tensor
    v: Tensor
    rule: ScoreRule
    gap: float


def finished(
    scores: Scores, weights: Tensor, v: Tensor, output: Tensor, shared: Shared, *, every_row: bool
) -> Followed | None:
    """Scores whose `weights` were multiplied with values, if they make those weights and that `output`.

    weights (1, head, query, key), v (1, head or 1, key, d_v), output (1, head, query, d_v) as the model
    computed them. `every_row` asks for all queries, not only some. None where it cannot be so.
    """
    rule = _rule(scores, weights, shared)
    if rule is None:
        return None
    k, v = _unrepeated(scores.k, v, scores.q.shape[1])
    n_query, n_key = weights.shape[-2:]
    rows = sorted({n * (n_query - 1) // (ROWS - 1) for n in range(ROWS)})
    rows = torch.arange(n_query) if every_row else torch.tensor(rows)
    rows = rows.to(weights.device)
    there = rule.at(slice(None), rows, n_query=n_query, n_key=n_key)
    again = attention_weights(scores.q[:, :, rows], k, there).to(v.dtype)
    apart = max(gap(again, weights[:, :, rows]), gap(mix(again, v), output[:, :, rows]))
    return Followed(scores.q, k, v, rule, apart)


def _rule(scores: Scores, weights: Tensor, shared: Shared) -> ScoreRule | None:
    hidden, total = list(scores.hidden), None
    for term in scores.terms:
        hides, rest, surely = shared.parts(term)
        if hides is not None and not surely and _any(weights, hides):
            hides, rest = None, shared.numbers(term)  # a large number, but no mask
        if hides is not None:
            hidden.append(hides)
        if rest is not None:
            total = rest if total is None else total + rest
    mask = None
    for cells in hidden:
        mask = ~cells if mask is None else mask & ~cells
    for cells in scores.emptied:  # they may hold any number, as long as nobody looks there
        if mask is None or (cells & mask).any():
            return None
    if mask is not None:
        n_query, n_key = weights.shape[-2:]
        mask = None if mask.all() else shared.one(mask.expand(1, -1, n_query, n_key).contiguous())
    if mask is not None and _any(weights, ~mask):
        return None  # also a row of which all is hidden by numbers that are all alike: it is even, not empty
    return ScoreRule(
        scale=scores.scale, soft_cap=scores.cap, mask=mask, **_bias(total, mask, weights, shared)
    )


def _any(weights: Tensor, cells: Tensor) -> bool:
    """Is there any weight at all in some cells? A head at a time: all at once is as much again."""
    cells = cells.expand(1, -1, *weights.shape[-2:])[0]
    return any(bool(torch.where(cells[n % len(cells)], rows, 0.0).any()) for n, rows in enumerate(weights[0]))


def _bias(total: Tensor | None, mask: Tensor | None, weights: Tensor, shared: Shared) -> dict[str, Tensor]:
    if total is None:
        return {}
    total = total.float() if total.dtype in (torch.float16, torch.bfloat16) else total
    table = by_distance(total, mask, *weights.shape[-2:])
    if table is None:
        return {"bias": shared.one(total.contiguous())}
    return {"distance_bias": shared.one(table.expand(weights.shape[1], -1).contiguous())}


def _unrepeated(k: Tensor, v: Tensor, n_heads: int) -> tuple[Tensor, Tensor]:
    """Keys and values with as few heads as they have numbers for: neighbours that share them have one."""
    k, v = (part.expand(1, n_heads, -1, -1) for part in (k, v))
    for n_kv in range(1, n_heads):
        if n_heads % n_kv:
            continue
        cut = [part.unflatten(1, (n_kv, -1)) for part in (k, v)]
        if all(torch.equal(part[:, :, 0], part[:, :, 1]) for part in cut) and all(
            torch.equal(part, part[:, :, :1].expand_as(part)) for part in cut
        ):
            return cut[0][:, :, 0], cut[1][:, :, 0]
    return k, v


def gap(given: Tensor, asked: Tensor) -> float:
    """The largest difference, in units of the largest number if that is above 1.

    Where both are NaN or the same infinity there is none; one NaN, and other shapes, count as infinite.
    """
    if given.shape != asked.shape:
        return float("inf")
    given, asked = given.float(), asked.float()
    same = (given == asked) | (given.isnan() & asked.isnan())
    difference = (given - asked).abs().masked_fill(same, 0.0).nan_to_num(nan=float("inf"))
    largest = asked.abs().nan_to_num(posinf=0.0).max().item()  # infinity would make everything small
    return difference.max().item() / max(1.0, largest)


def version(tensor: Tensor) -> int:
    """How often it was changed in place; a tensor of inference mode does not count that."""
    return 0 if tensor.is_inference() else tensor._version


def heads(tensor: Tensor, lead: Sequence[int]) -> Tensor:
    """(…, token, width) with the axes `lead`, which are heads, before it. → (1, head or 1, token, width)"""
    if tensor.shape[:-2].numel() == 1:
        return tensor.reshape(1, 1, *tensor.shape[-2:])
    expanded = tensor.expand(*lead, *tensor.shape[-2:])
    return expanded.reshape(1, -1, *tensor.shape[-2:])


@dataclass(frozen=True, eq=False)
class Times:
    """A tensor that is this many times another one."""

    factor: float


@dataclass(frozen=True, eq=False)
class Weights:
    """What the softmax made of scores, in any shape whose last two axes are query and key."""

    scores: Scores


@dataclass(frozen=True, eq=False)
class Log:
    """The logarithm of the sum that scores are divided by, or of the weights themselves."""

    scores: Scores
    of_weights: bool = False


def changed(name: str, at: int, known: Scores, args: tuple, kwargs: dict) -> Scores | None:
    """Scores, which are argument `at`, after one of the operations of which the rule has a place."""
    if name == "tanh":
        return known.capped()
    if name == "masked_fill":
        value = number(args[2])
        return known.hiding(args[1]) if at == 0 and value is not None and value <= FAR else None
    if name == "where":
        if at == 0 or args[0].dtype != torch.bool:
            return None
        cells, other = args[0], args[3 - at]
        far = float(other.max()) if isinstance(other, Tensor) else other
        return None if far > FAR else known.hiding(~cells if at == 1 else cells)
    if name not in ("add", "sub", "mul", "div"):
        return None
    other = args[1 - at]
    if not isinstance(other, Tensor | int | float):
        return None
    if name in ("add", "sub"):
        if name == "sub" and at == 1:
            return None
        return known.plus(other, float(kwargs.get("alpha", 1.0)) * (1 if name == "add" else -1))
    factor = number(other)
    if kwargs.get("rounding_mode") is None:
        if factor and (name == "mul" or at == 0):
            return known.times(factor if name == "mul" else 1 / factor)
        if name == "mul" and isinstance(other, Tensor) and bool(((other == 0) | (other == 1)).all()):
            return known.emptying(other == 0)
    return None


def same(result: Tensor, given: Tensor) -> bool:
    """Are all numbers what they were, but for those that hide a cell?"""
    far = (result <= FAR) & (given <= FAR)
    return bool(((result == given) | far).all())


def number(value: object) -> float | None:
    """A number, or a tensor of a single one."""
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and not value.is_complex() else None
    return float(value) if isinstance(value, int | float) else None


def as_product(equation: str, ends: Sequence[Tensor], result: Tensor) -> tuple[tuple, tuple] | None:
    """The two factors of an einsum in their order as ``left @ right = made``, and these three.

    left (…, i, c), right (…, c, j), made (…, i, j). None for what is no such product.
    """
    if not isinstance(equation, str) or len(ends) != 2 or not EINSUM.fullmatch(equation.replace(" ", "")):
        return None
    terms, made = equation.replace(" ", "").split("->")
    terms = terms.split(",")
    if any(len(set(term)) != len(term) for term in (*terms, made)):
        return None
    over = set(terms[0]) & set(terms[1]) - set(made)
    rows, columns = ((set(terms[n]) & set(made)) - set(terms[1 - n]) for n in (0, 1))
    lead = [axis for axis in made if axis not in rows | columns]
    if {len(over), len(rows), len(columns)} != {1} or {len(term) for term in terms} != {len(lead) + 2}:
        return None
    (over,), (rows,), (columns,) = over, rows, columns
    if made.index(rows) > made.index(columns):
        (rows, columns), terms, ends = (columns, rows), terms[::-1], ends[::-1]
    left = ends[0].permute([terms[0].index(axis) for axis in (*lead, rows, over)])
    right = ends[1].permute([terms[1].index(axis) for axis in (*lead, over, columns)])
    order = [*lead, rows, columns]
    turned = result if order == list(made) else result.permute([made.index(axis) for axis in order])
    return tuple(ends), (left, right, turned)


def seen_as(known: Scores | Weights, shape: torch.Size) -> Scores | Weights | None:
    """Scores or weights in a tensor of another shape."""
    if isinstance(known, Scores):
        return known.seen_as(shape)
    scores = known.scores.seen_as(shape)
    return None if scores is None else Weights(scores)


def times(before: list) -> float:
    """How many times itself the product of some tensors is."""
    return math.prod(known.factor for known in before if isinstance(known, Times))
