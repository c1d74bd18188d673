"""The meanings of a tensor between q kᵀ and the heads' outputs: scores, exponentials, weights.

Any product of two tensors may be ``q kᵀ``. Its later changes are written as
``cap · tanh(scale · q kᵀ / cap) + terms``, with cells hidden by a mask and a sink beside the keys. Scores
that do not have this form are not followed any further. At the end the score rule must give the weights that
the model computed.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mha_core.attention.functional import HALF, attention_weights, mix
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.axes import unrepeated
from mha_core.capture.gap import gap
from mha_core.capture.masks import SharedTensors, distance_table
from mha_core.traces.tensors import version

FAR = -1e4  # an added number at or below it hides a cell, if the weight of that cell is 0
LOWEST = torch.finfo(torch.float32).min  # added to a whole row, it leaves no difference between its scores
EINSUM = re.compile(r"(\.{3})?[A-Za-z]+,(\.{3})?[A-Za-z]+->(\.{3})?[A-Za-z]+")
ROWS = 3  # queries whose weights are computed again, unless all are


@dataclass(frozen=True, eq=False)
class Term:
    """A term that is added to scores: a tensor of the model, also as (1, head or 1, query or 1, key or 1)."""

    tensor: Tensor
    by_cell: Tensor
    factor: float


@dataclass(frozen=True, eq=False)
class Scores:
    """A tensor whose last two axes are query and key, and the parts that it is computed from.

    q is (1, head, query, d_k), k is (1, head or 1, key, d_k). `hidden` has the cells that a mask covers,
    `overwritten` those that no longer depend on q and k, (1, head or 1, query or 1, key or 1). `sinks`
    (head,) are scores in an additional last column; only a softmax may follow them. `inside` are the axes
    of heads that lie within a token in memory. With `learned` one factor of the product is a parameter of a
    module; `factors` are the sizes of scores that are factors of the product. With `mixed` the product
    contains a sum over all tokens.
    """

    q: Tensor
    k: Tensor
    shape: torch.Size  # of the tensor as it is now; all axes but the last two are heads
    scale: float = 1.0
    cap: float | None = None
    terms: tuple[Term, ...] = ()
    hidden: tuple[Tensor, ...] = ()
    overwritten: tuple[Tensor, ...] = ()
    sinks: Tensor | None = None
    inside: tuple[int, ...] = ()
    learned: bool = False
    factors: tuple[tuple[int, int], ...] = ()
    mixed: bool = False

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of queries and keys."""
        return self.q.shape[2], self.k.shape[2]

    def times(self, factor: float) -> "Scores | None":
        """The scores times a number. None with sinks, and for 0 or less, which would reveal hidden cells."""
        if factor <= 0 or self.sinks is not None:
            return None
        terms = tuple(replace(term, factor=term.factor * factor) for term in self.terms)
        cap = None if self.cap is None else self.cap * factor
        return replace(self, scale=self.scale * factor, cap=cap, terms=terms)

    def times_rows(self, factors: Tensor) -> "Scores | None":
        """The scores times a number for each head or query, which goes into the queries."""
        values = self.by_cell(factors)
        if values is None or values.shape[-1] != 1 or self.cap is not None or not bool((values > 0).all()):
            return None
        terms = tuple(Term(product := term.by_cell * values, product, term.factor) for term in self.terms)
        return replace(self, q=self.q * values.to(self.q.dtype), terms=terms)

    def with_sinks(self, column: Tensor, shape: torch.Size) -> "Scores | None":
        """The scores with one more column (…, query, 1), a sink for each head; `shape` is the new shape."""
        values = self.by_cell(column)
        if values is None or values.shape[-1] != 1 or not bool((values == values[:, :, :1]).all()):
            return None
        heads = self.q.shape[1]
        return replace(self, sinks=values[0, :, 0, 0].expand(heads).detach().clone(), shape=shape)

    def transposed(self) -> "Scores | None":
        """The scores with queries and keys swapped: a column for each query. None with sinks."""
        if self.sinks is not None:
            return None
        heads = self.q.shape[1]
        terms = tuple(Term(values := term.by_cell.mT, values, term.factor) for term in self.terms)
        return replace(
            self,
            q=self.k.expand(1, heads, -1, -1),
            k=self.q,
            shape=torch.Size((*self.shape[:-2], self.shape[-1], self.shape[-2])),
            terms=terms,
            hidden=tuple(cells.mT for cells in self.hidden),
            overwritten=tuple(cells.mT for cells in self.overwritten),
        )

    def plus(self, term: Tensor | float, factor: float) -> "Scores | None":
        """The scores plus a number or tensor times a factor; None if the sum has more cells."""
        if not isinstance(term, Tensor):
            if not term:
                return self
            term = torch.tensor(float(term), device=self.q.device)
        values = self.by_cell(term)
        if values is None or not values.is_floating_point():
            return None
        return replace(self, terms=(*self.terms, Term(term, values, factor)))

    def capped(self) -> "Scores | None":
        """tanh of the scores: the first step of a soft cap."""
        if self.cap is not None or self.terms or self.hidden or self.overwritten:
            return None
        return replace(self, cap=1.0)

    def hiding(self, cells: Tensor) -> "Scores | None":
        values = self.by_cell(cells)
        return None if values is None else replace(self, hidden=(*self.hidden, values.bool()))

    def overwriting(self, cells: Tensor) -> "Scores | None":
        values = self.by_cell(cells)
        return None if values is None else replace(self, overwritten=(*self.overwritten, values))

    def by_cell(self, tensor: Tensor) -> Tensor | None:
        """A tensor with a number for each cell, as (1, head or 1, query or 1, key or 1); else None."""
        shape, lead = self.shape, self.shape[:-2]
        if tensor.dim() > len(shape) or self.sinks is not None:
            return None
        padded = tensor.reshape((1,) * (len(shape) - tensor.dim()) + tuple(tensor.shape))
        if any(size not in (1, whole) for size, whole in zip(padded.shape, shape, strict=True)):
            return None
        ends = padded.shape[-2:]
        if padded.shape[:-2].numel() == 1:
            return padded.reshape(1, 1, *ends)
        return padded.expand(*lead, *ends).reshape(1, lead.numel(), *ends)


class SharedTerms(SharedTensors):
    """Keeps also what each term hides and adds, so that layers with the same mask read it once."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[tuple, tuple] = {}

    def parts(self, term: Term) -> tuple[Tensor, Tensor | None, Tensor | None, bool]:
        """A term's numbers, the cells they hide, what they add elsewhere, and if only lowest ones hide."""
        key = (id(term.tensor), version(term.tensor), term.by_cell.shape, term.factor)
        if key not in self._parts:
            numbers = term.by_cell if term.factor == 1.0 else term.by_cell * term.factor
            hides = numbers <= FAR
            deep = torch.finfo(term.by_cell.dtype).min / 2 * min(1.0, abs(term.factor))
            surely = not bool((hides & (numbers > deep)).any())
            rest = numbers.masked_fill(hides, 0.0) if hides.any() else numbers
            parts = numbers, hides if hides.any() else None, rest if (rest != 0).any() else None, surely
            self._parts[key] = term, parts  # keeping the term keeps its id in use
        return self._parts[key][1]


@dataclass(frozen=True, eq=False)
class FollowedAttention:
    """An attention that was followed to its end, and the gap to what the model computed."""

    q: Tensor
    k: Tensor
    v: Tensor
    rule: ScoreRule
    gap: float
    dropout: float = 0.0
    inside: tuple[int, ...] = ()  # axes of heads that lie within a token in memory


def followed_attention(
    scores: Scores,
    weights: Tensor,
    v: Tensor,
    output: Tensor,
    shared: SharedTerms,
    *,
    every_row: bool,
    dropout: float = 0.0,
) -> FollowedAttention | None:
    """The attention of these scores, compared with the model's `weights` and `output`.

    weights (1, head, query, key), v (1, head or 1, key, d_v) and output (1, head, query, d_v) are the
    model's; `dropout` is the share of weights that were set to 0, the others divided by 1 − dropout. With
    `every_row` all queries are compared, else a few. None where no score rule gives these weights.
    """
    if weights.shape[-1] != scores.k.shape[2]:  # the column of the sink is still there
        return None
    rule = _rule(scores, weights, shared)
    if rule is None:
        return None
    k, v = unrepeated(scores.k, v, scores.q.shape[1])
    n_query, n_key = weights.shape[-2:]
    few = sorted({n * (n_query - 1) // (ROWS - 1) for n in range(ROWS)})
    rows = (torch.arange(n_query) if every_row else torch.tensor(few)).to(weights.device)
    rule_of_rows = rule.at(slice(None), rows, n_query=n_query, n_key=n_key)
    again = attention_weights(scores.q[:, :, rows], k, rule_of_rows).to(v.dtype)
    # A row that sees nothing is NaN where the model divides 0 by 0.
    empty = (again == 0).all(-1, keepdim=True)
    computed, outputs = (
        part[:, :, rows].masked_fill(empty & part[:, :, rows].isnan(), 0.0) for part in (weights, output)
    )
    if dropout:
        again = (again / (1 - dropout)).masked_fill(computed == 0, 0.0)
    apart = max(gap(again, computed), gap(mix(again, v), outputs))
    return FollowedAttention(scores.q, k, v, rule, apart, dropout, scores.inside)


def _rule(scores: Scores, weights: Tensor, shared: SharedTerms) -> ScoreRule | None:
    hidden, total, hiding = list(scores.hidden), None, []
    for term in scores.terms:
        numbers, hides, rest, surely = shared.parts(term)
        if hides is not None and not surely and _any(weights, hides):
            hides, rest = None, numbers  # large numbers, but no mask
        if hides is not None:
            hidden.append(hides)
            hiding.append(numbers)
        if rest is not None:
            total = rest if total is None else total + rest
    mask = None
    for cells in hidden:
        mask = ~cells if mask is None else mask & ~cells
    for cells in scores.overwritten:  # any number may be there, as long as the cell is hidden
        if mask is None or (cells & mask).any():
            return None
    if mask is not None and _any(weights, ~mask):
        # A row whose cells are all hidden by equal numbers has uniform weights, as in left padding.
        numbers = sum(hiding, torch.zeros((), device=mask.device))
        for cells in scores.hidden:  # which have one number in the place of their scores
            numbers = torch.where(cells.any(-1, keepdim=True), LOWEST, numbers)
        uniform = weights[..., :1] > 0
        uniform = uniform.all(1, keepdim=True) if mask.shape[1] == 1 else uniform
        even = ~mask.any(-1, keepdim=True) & uniform & (numbers > float("-inf"))
        total = torch.where(even, numbers, 0.0 if total is None else total)
        mask = mask | even
        if _any(weights, ~mask):
            return None
    if mask is not None:
        n_query, n_key = weights.shape[-2:]
        mask = None if mask.all() else shared.one(mask.expand(1, -1, n_query, n_key).contiguous())
    return ScoreRule(
        scale=scores.scale,
        soft_cap=scores.cap,
        mask=mask,
        sinks=scores.sinks,
        **_bias(total, mask, weights, shared),
    )


def _any(weights: Tensor, cells: Tensor) -> bool:
    """Whether some of these cells have weight. One head at a time, which needs less memory.

    NaN, which a softmax gives where a row sees nothing, is none.
    """
    cells = cells.expand(1, -1, *weights.shape[-2:])[0]
    return any(
        bool((torch.where(cells[n % len(cells)], rows, 0.0) > 0).any()) for n, rows in enumerate(weights[0])
    )


def _bias(total: Tensor | None, mask: Tensor | None, weights: Tensor, shared: SharedTerms) -> dict[str, Any]:
    if total is None:
        return {}
    total = total.float() if total.dtype in HALF else total
    table = distance_table(total, mask, *weights.shape[-2:])
    if table is None:
        return {"bias": shared.one(total.contiguous())}
    return {"distance_bias": shared.one(table.expand(weights.shape[1], -1).contiguous())}


def heads(tensor: Tensor, lead: Sequence[int]) -> Tensor:
    """(…, token, width) with the leading axes `lead`, all of heads. → (1, head or 1, token, width)"""
    if tensor.shape[:-2].numel() == 1:
        return tensor.reshape(1, 1, *tensor.shape[-2:])
    expanded = tensor.expand(*lead, *tensor.shape[-2:])
    return expanded.reshape(1, -1, *tensor.shape[-2:])


@dataclass(frozen=True, eq=False)
class Multiple:
    """A tensor that is `factor` times another one."""

    factor: float


@dataclass(eq=False)
class Attempt:
    """A softmax, or the operation in its place: its numbers of queries and keys, and how far it was followed.

    `place` is where it ran. `followed` is True if it was followed from queries and keys to the values, else
    `lost` is the reason. `factors` are the sizes of other scores from which its own scores may come.
    `rearranged` is True for scores in another arrangement, whose sizes mean little. `is_attention` is True
    for a certain attention, whatever its sizes: its scores come from a product of queries and keys, or values
    were multiplied with it. `uses` counts the products of its weights, or of what was made of them.
    """

    sizes: tuple[int, int]
    place: Any
    lost: str = ""
    factors: tuple[tuple[int, int], ...] = ()
    rearranged: bool = False
    is_attention: bool = False
    followed: bool = False
    uses: int = 0


@dataclass(frozen=True, eq=False)
class Weights:
    """The softmax of scores, in any shape whose last two axes are query and key, perhaps after `dropout`.

    `guard` is the first operation behind the softmax that may have changed some of them, such as one that
    sets rows of NaN to 0; all rows are compared then.
    """

    scores: Scores
    attempt: Attempt
    dropout: float = 0.0
    guard: str = ""


@dataclass(frozen=True, eq=False)
class Log:
    """The log-sum-exp of scores, or with `of_weights` the logarithm of the weights."""

    scores: Scores
    of_weights: bool = False


@dataclass(frozen=True, eq=False)
class Exponentials:
    """The exponentials of scores."""

    scores: Scores


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """One number for each row of scores: the "largest" score, or the "sum" of the exponentials."""

    scores: Scores
    of: str


@dataclass(frozen=True, eq=False)
class Permuted:
    """A known tensor with its axes in another order: axis n of this tensor is axis `order[n]` of `known`."""

    known: "Unpermuted"
    order: tuple[int, ...]

    def back(self, tensor: Tensor) -> Tensor:
        """A tensor with a number for each cell of the permuted one, with its axes in the original order."""
        if not tensor.dim():
            return tensor
        padded = tensor.reshape((1,) * (len(self.order) - tensor.dim()) + tuple(tensor.shape))
        return padded.permute([self.order.index(axis) for axis in range(len(self.order))])


@dataclass(frozen=True, eq=False)
class Rows:
    """Scores with all rows in one axis, (head · query, key), a shape in which some code applies masks."""

    scores: Scores


@dataclass(frozen=True, eq=False)
class UnfollowedScores:
    """A tensor made of scores or weights by an operation after which they are not followed."""

    sizes: tuple[int, int]
    operation: str
    attempt: Attempt | None
    learned: bool = False  # as in `Scores`
    mixed: bool = False


@dataclass(frozen=True, eq=False)
class Lost:
    """A tensor made of scores by a softmax over another axis, or of scores that were not followed."""


Unpermuted = Lost | Scores | Weights | Multiple | Log | Exponentials | RowNumbers | Rows | UnfollowedScores
Known = Unpermuted | Permuted


def scores_after(name: str, at: int, known: Scores, args: tuple, kwargs: dict) -> Scores | None:
    """The scores, argument number `at`, after an operation; None where no rule describes the result."""
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
    factor = _factor(other)
    if kwargs.get("rounding_mode") is not None or (name == "div" and at == 1):
        return None
    if factor:
        return known.times(factor if name == "mul" else 1 / factor)
    if not isinstance(other, Tensor) or not other.dim():
        return None
    if name == "mul" and bool(((other == 0) | (other == 1)).all()):
        return known.overwriting(other == 0)
    return known.times_rows(other if name == "mul" else 1 / other)


def are_same(result: Tensor, before: Tensor) -> bool:
    """Whether all numbers are unchanged, apart from those that hide a cell."""
    far = (result <= FAR) & (before <= FAR)
    return bool(((result == before) | far).all())


def _factor(value: Tensor | float) -> float | None:
    """A number, or a tensor of equal ones, such as temperatures before a training."""
    if isinstance(value, Tensor) and value.numel() and bool((value == value.flatten()[0]).all()):
        return number(value.flatten()[0])
    return number(value)


def number(value: object) -> float | None:
    """A number, or a tensor of a single one."""
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and not value.is_complex() else None
    return float(value) if isinstance(value, int | float) else None


class Product(NamedTuple):
    """A matrix product ``left @ right = result``: left (…, i, c), right (…, c, j), result (…, i, j).

    `ends` are the tensors of which left and right are views, each with the order of its axes in the view.
    Axis n of the result in the model's code is axis ``order[n]`` of `result`.
    """

    left: Tensor
    right: Tensor
    result: Tensor
    ends: tuple[tuple[Tensor, tuple[int, ...]], ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, left: Tensor, right: Tensor, result: Tensor) -> "Product":
        ends = tuple((end, tuple(range(end.dim()))) for end in (left, right))
        return cls(left, right, result, ends, tuple(range(result.dim())))

    def transposed(self) -> "Product":
        """``rightᵀ @ leftᵀ = resultᵀ``"""
        ends = tuple((end, (*order[:-2], order[-1], order[-2])) for end, order in self.ends[::-1])
        swap = (*range(self.result.dim() - 2), self.result.dim() - 1, self.result.dim() - 2)
        order = tuple(swap[axis] for axis in self.order)
        return Product(self.right.mT, self.left.mT, self.result.mT, ends, order)


def as_product(equation: str, ends: Sequence[Tensor], result: Tensor) -> Product | None:
    """The two factors of an einsum as a matrix product; None where it is not one."""
    if not isinstance(equation, str) or len(ends) != 2 or not EINSUM.fullmatch(equation.replace(" ", "")):
        return None
    *terms, result_axes = _spelled_out(equation.replace(" ", ""), ends)
    if any(len(set(term)) != len(term) for term in (*terms, result_axes)):
        return None
    summed = set(terms[0]) & set(terms[1]) - set(result_axes)
    sides = [[axis for axis in result_axes if axis in terms[n] and axis not in terms[1 - n]] for n in (0, 1)]
    if len(summed) != 1 or not all(sides):
        return None
    [over] = summed
    rows, columns = (side[-1] for side in sides)  # earlier axes are heads that share the other factor
    lead = [axis for axis in result_axes if axis not in (rows, columns)]
    if any(set(term) - {*lead, rows, columns, over} for term in terms):
        return None
    if result_axes.index(rows) > result_axes.index(columns):
        (rows, columns), terms, ends = (columns, rows), terms[::-1], ends[::-1]
    left, right = (*lead, rows, over), (*lead, over, columns)
    axes = [*lead, rows, columns]
    return Product(
        _in_axes(ends[0], terms[0], left),
        _in_axes(ends[1], terms[1], right),
        result.permute([result_axes.index(axis) for axis in axes]),
        tuple(
            (end, tuple(term.index(axis) for axis in order if axis in term))
            for end, term, order in zip(ends, terms, (left, right), strict=True)
        ),
        tuple(axes.index(axis) for axis in result_axes),
    )


def _spelled_out(equation: str, ends: Sequence[Tensor]) -> list[str]:
    """The terms of an einsum and its result, with letters in place of ``...``."""
    factors, result = equation.split("->")
    terms = factors.split(",")
    spare = "".join(letter for letter in ascii_letters if letter not in equation)
    counts = [end.dim() - len(term.replace("...", "")) for term, end in zip(terms, ends, strict=True)]
    most = max(counts)
    terms = [
        term.replace("...", spare[most - count : most]) for term, count in zip(terms, counts, strict=True)
    ]
    return [*terms, result.replace("...", spare[:most])]


def _in_axes(tensor: Tensor, term: str, order: Sequence[str]) -> Tensor:
    """A tensor with the axes of a term in another order; a missing axis has length 1."""
    tensor = tensor.permute([term.index(axis) for axis in order if axis in term])
    return tensor[tuple(slice(None) if axis in term else None for axis in order)]


def reshaped(known: Scores | Weights, shape: torch.Size) -> Scores | Weights | None:
    """Scores or weights with the same cells in the same order, in a tensor of another shape."""
    scores = known if isinstance(known, Scores) else known.scores
    if len(shape) < 2 or shape[-2:] != scores.shape[-2:] or shape.numel() != scores.shape.numel():
        return None
    scores = replace(scores, shape=shape)
    return scores if isinstance(known, Scores) else replace(known, scores=scores)


def factor_of(before: list) -> float:
    """The product of the factors of all multiples among some tensors."""
    return math.prod(known.factor for known in before if isinstance(known, Multiple))
