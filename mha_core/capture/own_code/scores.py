"""What is known of a tensor between q kᵀ and the heads' outputs: scores, exponentials, weights.

Any product of two tensors may be ``q kᵀ``. Whatever the code does to it afterwards is written down as
``cap · tanh(scale · q kᵀ / cap) + terms``, hidden where a mask says so, with a sink beside the keys. What has
no such form is not followed any further. The proof comes at the end: the rule has to give the weights that
the model computed.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import NamedTuple

import torch
from torch import Tensor

from mha_core.attention.functional import HALF, attention_weights, mix
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.axes import unrepeated
from mha_core.capture.gap import gap
from mha_core.capture.masks import SharedTensors, distance_table
from mha_core.traces.tensors import version

FAR = -1e4  # an added number at or below it is meant to hide a cell, if the cell's weight is zero then
EINSUM = re.compile(r"(\.{3})?[A-Za-z]+,(\.{3})?[A-Za-z]+->(\.{3})?[A-Za-z]+")
ROWS = 3  # queries whose weights are computed again where not all are


@dataclass(frozen=True, eq=False)
class Term:
    """What is added: a tensor of the model, and the same as (1, head or 1, query or 1, key or 1)."""

    tensor: Tensor
    laid: Tensor
    factor: float


@dataclass(frozen=True, eq=False)
class Scores:
    """A tensor whose last two axes are query and key, and what it is made of.

    q (1, head, query, d_k), k (1, head or 1, key, d_k). `hidden` and `emptied` are cells that were
    covered by a mask, and cells that no longer depend on q and k, (1, head or 1, query or 1, key or 1).
    `sinks` (head,) are scores in a last column of their own, after which only a softmax may come.
    `inside` are the axes of heads that lie within a token in memory; `learned` says that one factor of the
    product is a parameter of a module, `factors` are the sizes of scores that are factors of it. `mixed` says
    that a sum over all tokens is in it.
    """

    q: Tensor
    k: Tensor
    shape: torch.Size  # of the tensor as it is now; all axes but the last two are heads
    scale: float = 1.0
    cap: float | None = None
    terms: tuple[Term, ...] = ()
    hidden: tuple[Tensor, ...] = ()
    emptied: tuple[Tensor, ...] = ()
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
        """The same times a number. None with sinks, and for 0 or less, which would show what is hidden."""
        if factor <= 0 or self.sinks is not None:
            return None
        terms = tuple(replace(term, factor=term.factor * factor) for term in self.terms)
        cap = None if self.cap is None else self.cap * factor
        return replace(self, scale=self.scale * factor, cap=cap, terms=terms)

    def times_rows(self, factors: Tensor) -> "Scores | None":
        """The same times a number for each head or query, which is multiplied into the queries."""
        laid = self.laid(factors)
        if laid is None or laid.shape[-1] != 1 or self.cap is not None or not bool((laid > 0).all()):
            return None
        terms = tuple(Term(product := term.laid * laid, product, term.factor) for term in self.terms)
        return replace(self, q=self.q * laid.to(self.q.dtype), terms=terms)

    def with_sinks(self, column: Tensor, shape: torch.Size) -> "Scores | None":
        """The same with one more score for each head, (…, query, 1), as the last column of `shape`."""
        laid = self.laid(column)
        if laid is None or laid.shape[-1] != 1 or not bool((laid == laid[:, :, :1]).all()):
            return None
        heads = self.q.shape[1]
        return replace(self, sinks=laid[0, :, 0, 0].expand(heads).detach().clone(), shape=shape)

    def exchanged(self) -> "Scores | None":
        """The same scores with the roles of queries and keys exchanged, one column for each query."""
        if self.sinks is not None:
            return None
        heads = self.q.shape[1]
        terms = tuple(Term(laid := term.laid.mT, laid, term.factor) for term in self.terms)
        return replace(
            self,
            q=self.k.expand(1, heads, -1, -1),
            k=self.q,
            shape=torch.Size((*self.shape[:-2], self.shape[-1], self.shape[-2])),
            terms=terms,
            hidden=tuple(cells.mT for cells in self.hidden),
            emptied=tuple(cells.mT for cells in self.emptied),
        )

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

    def reshaped(self, shape: torch.Size) -> "Scores | None":
        """The same cells in the same order, in a tensor of another shape."""
        if len(shape) < 2 or shape[-2:] != self.shape[-2:] or shape.numel() != self.shape.numel():
            return None
        return replace(self, shape=shape)

    def laid(self, tensor: Tensor) -> Tensor | None:
        """What goes with the cells one by one, as (1, head or 1, query or 1, key or 1)."""
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
    """Also what each term hides and adds, so that layers that have the same mask read it once."""

    def __init__(self):
        super().__init__()
        self._parts: dict[tuple, tuple] = {}

    def parts(self, term: Term) -> tuple[Tensor | None, Tensor | None, bool]:
        """Where a term hides, what it adds elsewhere, and whether it hides with the depths of its dtype."""
        key = (id(term.tensor), version(term.tensor), term.laid.shape, term.factor)
        if key not in self._parts:
            numbers = term.laid if term.factor == 1.0 else term.laid * term.factor
            hides = numbers <= FAR
            deep = torch.finfo(term.laid.dtype).min / 2 * min(1.0, abs(term.factor))
            surely = not bool((hides & (numbers > deep)).any())
            rest = numbers.masked_fill(hides, 0.0) if hides.any() else numbers
            parts = (hides if hides.any() else None, rest if (rest != 0).any() else None, surely)
            self._parts[key] = (term, numbers, parts)  # the term is held, so that no other takes its place
        return self._parts[key][2]

    def numbers(self, term: Term) -> Tensor:
        """All that a term adds."""
        self.parts(term)
        return self._parts[(id(term.tensor), version(term.tensor), term.laid.shape, term.factor)][1]


@dataclass(frozen=True, eq=False)
class FollowedAttention:
    """An attention that was followed to its end: what it is, and how far that is from what was computed."""

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
    """Scores whose `weights` were multiplied with values, if they make those weights and that `output`.

    weights (1, head, query, key), v (1, head or 1, key, d_v), output (1, head, query, d_v) as the model
    computed them; `dropout` is the share of weights that were set to zero, the others divided by 1 − dropout.
    `every_row` asks for all queries, not only some. None where it cannot be so.
    """
    if weights.shape[-1] != scores.k.shape[2]:  # it still has the column of a sink
        return None
    rule = _rule(scores, weights, shared)
    if rule is None:
        return None
    k, v = unrepeated(scores.k, v, scores.q.shape[1])
    n_query, n_key = weights.shape[-2:]
    rows = sorted({n * (n_query - 1) // (ROWS - 1) for n in range(ROWS)})
    rows = torch.arange(n_query) if every_row else torch.tensor(rows)
    rows = rows.to(weights.device)
    rule_of_rows = rule.at(slice(None), rows, n_query=n_query, n_key=n_key)
    again, computed = (
        attention_weights(scores.q[:, :, rows], k, rule_of_rows).to(v.dtype),
        weights[:, :, rows],
    )
    if dropout:
        again = (again / (1 - dropout)).masked_fill(computed == 0, 0.0)
    apart = max(gap(again, computed), gap(mix(again, v), output[:, :, rows]))
    return FollowedAttention(scores.q, k, v, rule, apart, dropout, scores.inside)


def _rule(scores: Scores, weights: Tensor, shared: SharedTerms) -> ScoreRule | None:
    hidden, total, hiding = list(scores.hidden), None, []
    for term in scores.terms:
        hides, rest, surely = shared.parts(term)
        if hides is not None and not surely and _any(weights, hides):
            hides, rest = None, shared.numbers(term)  # a large number, but no mask
        if hides is not None:
            hidden.append(hides)
            hiding.append(shared.numbers(term))
        if rest is not None:
            total = rest if total is None else total + rest
    mask = None
    for cells in hidden:
        mask = ~cells if mask is None else mask & ~cells
    for cells in scores.emptied:  # they may hold any number, as long as no query looks there
        if mask is None or (cells & mask).any():
            return None
    if mask is not None and _any(weights, ~mask):
        if scores.hidden:
            return None
        # A row of which all is hidden by added numbers that are alike is even, not empty: left padding.
        numbers = sum(hiding, torch.zeros((), device=mask.device))
        even = ~mask.any(-1, keepdim=True) & (numbers > float("-inf"))
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
    """Is there any weight at all in some cells? A head at a time: all at once is as much again."""
    cells = cells.expand(1, -1, *weights.shape[-2:])[0]
    return any(bool(torch.where(cells[n % len(cells)], rows, 0.0).any()) for n, rows in enumerate(weights[0]))


def _bias(
    total: Tensor | None, mask: Tensor | None, weights: Tensor, shared: SharedTerms
) -> dict[str, Tensor]:
    if total is None:
        return {}
    total = total.float() if total.dtype in HALF else total
    table = distance_table(total, mask, *weights.shape[-2:])
    if table is None:
        return {"bias": shared.one(total.contiguous())}
    return {"distance_bias": shared.one(table.expand(weights.shape[1], -1).contiguous())}


def heads(tensor: Tensor, lead: Sequence[int]) -> Tensor:
    """(…, token, width) with the axes `lead`, which are heads, before it. → (1, head or 1, token, width)"""
    if tensor.shape[:-2].numel() == 1:
        return tensor.reshape(1, 1, *tensor.shape[-2:])
    expanded = tensor.expand(*lead, *tensor.shape[-2:])
    return expanded.reshape(1, -1, *tensor.shape[-2:])


@dataclass(frozen=True, eq=False)
class Multiple:
    """A tensor that is this many times another one."""

    factor: float


@dataclass(eq=False)
class Attempt:
    """A softmax, or what stands in its place: its numbers of queries and keys, and what became of it.

    `place` is where it ran. `followed` is true if it was followed from queries and keys to the values, else
    `lost` is the reason why not. `factors` are the sizes of other scores that its own may be mixed from.
    `rearranged` is true for scores in another arrangement, whose sizes mean little. `is_attention` is true
    for what certainly is one, whatever its sizes: it goes back to a product of queries and keys, or values
    were multiplied with it.
    """

    sizes: tuple[int, int]
    place: object
    lost: str = ""
    factors: tuple[tuple[int, int], ...] = ()
    rearranged: bool = False
    is_attention: bool = False
    followed: bool = False


@dataclass(frozen=True, eq=False)
class Weights:
    """The softmax of scores, in any shape whose last two axes are query and key; `dropout` thinned them."""

    scores: Scores
    attempt: Attempt
    dropout: float = 0.0


@dataclass(frozen=True, eq=False)
class Log:
    """The logarithm of the sum that scores are divided by, or of the weights themselves."""

    scores: Scores
    of_weights: bool = False


@dataclass(frozen=True, eq=False)
class Exponentials:
    """exp of scores."""

    scores: Scores


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """A number for each row of scores: the "largest" score, or the "sum" of their exponentials."""

    scores: Scores
    of: str


@dataclass(frozen=True, eq=False)
class Permuted:
    """What is known of a tensor with its axes in another order: axis n here is axis `order[n]` there."""

    known: "Scores | Weights | Exponentials"
    order: tuple[int, ...]

    def back(self, tensor: Tensor) -> Tensor:
        """A tensor with a number for each cell of the permuted one, its axes in their original order."""
        if not tensor.dim():
            return tensor
        padded = tensor.reshape((1,) * (len(self.order) - tensor.dim()) + tuple(tensor.shape))
        return padded.permute([self.order.index(axis) for axis in range(len(self.order))])


@dataclass(frozen=True, eq=False)
class Rows:
    """Scores with all their rows in one axis, (head · query, key), as code for masks may lay them."""

    scores: Scores


@dataclass(frozen=True, eq=False)
class LostScores:
    """A tensor made of scores or weights by an operation after which they are not followed."""

    sizes: tuple[int, int]
    operation: str
    attempt: Attempt | None
    learned: bool = False  # as of `Scores`
    mixed: bool = False


Known = Scores | Weights | Multiple | Log | Exponentials | RowNumbers | Permuted | Rows | LostScores


def scores_after(name: str, at: int, known: Scores, args: tuple, kwargs: dict) -> Scores | None:
    """Scores, which are argument `at`, after an operation; None where no rule describes the result."""
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
    if kwargs.get("rounding_mode") is not None or (name == "div" and at == 1):
        return None
    if factor:
        return known.times(factor if name == "mul" else 1 / factor)
    if not isinstance(other, Tensor) or not other.dim():
        return None
    if name == "mul" and bool(((other == 0) | (other == 1)).all()):
        return known.emptying(other == 0)
    return known.times_rows(other if name == "mul" else 1 / other)


def are_same(result: Tensor, before: Tensor) -> bool:
    """Are all numbers what they were, but for those that hide a cell?"""
    far = (result <= FAR) & (before <= FAR)
    return bool(((result == before) | far).all())


def number(value: object) -> float | None:
    """A number, or a tensor of a single one."""
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and not value.is_complex() else None
    return float(value) if isinstance(value, int | float) else None


class Product(NamedTuple):
    """``left @ right = result``, with left (…, i, c), right (…, c, j), result (…, i, j), and their tensors.

    `ends` are the tensors that left and right are views of, each with the order of its axes in the view.
    Axis n of the tensor that the code has for the result is axis ``order[n]`` of `result`.
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
    """The two factors of an einsum as a product of matrices; None for what is no such product."""
    if not isinstance(equation, str) or len(ends) != 2 or not EINSUM.fullmatch(equation.replace(" ", "")):
        return None
    *terms, result_axes = _spelled_out(equation.replace(" ", ""), ends)
    if any(len(set(term)) != len(term) for term in (*terms, result_axes)):
        return None
    over = set(terms[0]) & set(terms[1]) - set(result_axes)
    sides = [[axis for axis in result_axes if axis in terms[n] and axis not in terms[1 - n]] for n in (0, 1)]
    if len(over) != 1 or not all(sides):
        return None
    over, (rows, columns) = *over, (side[-1] for side in sides)  # axes before are heads that share the other
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
    """The terms of an einsum and its result, with letters in the place of dots."""
    terms, result = equation.split("->")
    terms = terms.split(",")
    spare = "".join(letter for letter in ascii_letters if letter not in equation)
    counts = [end.dim() - len(term.replace("...", "")) for term, end in zip(terms, ends, strict=True)]
    most = max(counts)
    terms = [
        term.replace("...", spare[most - count : most]) for term, count in zip(terms, counts, strict=True)
    ]
    return [*terms, result.replace("...", spare[:most])]


def _in_axes(tensor: Tensor, term: str, order: Sequence[str]) -> Tensor:
    """A tensor whose axes are named by a term in another order; an axis that it lacks is one long."""
    tensor = tensor.permute([term.index(axis) for axis in order if axis in term])
    return tensor[tuple(slice(None) if axis in term else None for axis in order)]


def reshaped(known: Scores | Weights, shape: torch.Size) -> Scores | Weights | None:
    """Scores or weights in a tensor of another shape."""
    scores = known if isinstance(known, Scores) else known.scores
    scores = scores.reshaped(shape)
    return scores if scores is None or isinstance(known, Scores) else replace(known, scores=scores)


def factor_of(before: list) -> float:
    """How many times itself the product of some tensors is."""
    return math.prod(known.factor for known in before if isinstance(known, Multiple))
