"""Multi-head attention in stages, and the mistakes that people make in its formula.

Each mistake changes one term of the formula. A run with it can so be computed and compared with a run that
is wrong: a mistake is a cause only where it gives the same numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from mha_core.attention.module import Projections
from mha_core.attention.positions import rotated
from mha_core.errors import Phrase

# The matrices in the order in which they are computed, as they are called in a sentence.
STAGES = {
    "q": Phrase("the queries, split into heads"),
    "k": Phrase("the keys, split into heads"),
    "v": Phrase("the values, split into heads"),
    "raw": Phrase("the raw scores q kᵀ"),
    "scaled": Phrase("the scaled scores"),
    "masked": Phrase("the masked scores"),
    "weights": Phrase("the attention weights"),
    "heads": Phrase("the outputs of the heads"),
    "concat": Phrase("the concatenated heads"),
    "output": Phrase("the output"),
}


class Rotation(NamedTuple):
    """A rotary code: its pairs of dimensions, cosines and sines (token, width), and its first dimension."""

    form: str
    cos: Tensor
    sin: Tensor
    start: int = 0


@dataclass(frozen=True)
class Products:
    """The products and the rule that the heads of a layer start from, for a batch of texts.

    `products` are the products of an input and a matrix, (batch, token, head · width), by their use and their
    matrix: ("q", "k") are queries made with W^K. A query may look at a key where `mask`, (batch or 1, 1,
    query, key), and `padding`, (batch or 1, 1, 1, key), are True. `scale` is the factor on scores, by default
    1/√d_k. Of what is `learned` only the biases and W^O are used.
    """

    products: Mapping[tuple[str, str], Tensor]
    n_heads: int
    n_kv_heads: int
    d_model: int | None = None
    learned: Projections = Projections()
    mask: Tensor | None = None
    padding: Tensor | None = None
    scale: float | None = None
    soft_cap: float | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None
    rotation: Rotation | None = None


@dataclass(frozen=True)
class Formula:
    """Each term of the formula; the defaults are right (Vaswani et al. 2017, section 3.2)."""

    matrices: str = "qkv"
    bias: str = "added"
    split: str = "columns"
    rotation: str = "given"
    repeat: str = "neighbours"
    scale: str = "√d_k"
    distance: str = "added"
    mask: str = "given"
    softmax: str = "keys"
    mixing: str = "weights"
    join: str = "columns"
    output: str = "W^O"


class Mistake(NamedTuple):
    """One wrong term of the formula: what was done, and what it should be."""

    term: str
    value: str
    sentence: Phrase
    correction: str


_ROLES = "q = X W^Q, k = X W^K, v = X W^V"
_SPLIT = "x.view(batch, length, h, d_k).transpose(1, 2)"
_PAIRS = "the pairing of dimensions for which the weights were trained"
_ROTATION = "queries and keys are rotated by their positions"
_REPEAT = "k.repeat_interleave(h // n_kv, dim=1): query head i uses key head i // (h / n_kv)"
_SCALE = "q kᵀ / √d_k, with d_k = d_model / h"
_MASK = "scores of hidden keys become −∞ before the softmax"
_CAUSAL = "query m looks at keys 1 … m, itself included: torch.tril of ones"
_PADDING = "padding hides columns, the keys: mask[:, None, None, :]"
_SOFTMAX = "softmax over the keys, the last axis: dim=-1"
_MIXING = "weights v"
_JOIN = "heads.transpose(1, 2).reshape(batch, length, h · d_v)"
_OUTPUT = "concat(head_1 … head_h) W^O + b^O"


IMPOSSIBLE = (LookupError, ValueError, RuntimeError, ZeroDivisionError)  # a formula for these sizes
RIGHT = Formula()
MISTAKES = tuple(
    Mistake(term, value, sentence, right)
    for (term, right), sentences in {
        ("matrices", _ROLES): {
            "kqv": Phrase("Q and K are exchanged: queries are made with W^K and keys with W^Q."),
            "qvk": Phrase("K and V are exchanged: keys are made with W^V and values with W^K."),
            "vkq": Phrase("Q and V are exchanged: queries are made with W^V and values with W^Q."),
            "qqv": Phrase("Keys are made with W^Q."),
            "kkv": Phrase("Queries are made with W^K."),
            "qkk": Phrase("Values are made with W^K."),
            "qkq": Phrase("Values are made with W^Q."),
            "qvv": Phrase("Keys are made with W^V."),
            "kvq": Phrase("The parts of the packed matrix are taken in the order K, V, Q."),
            "vqk": Phrase("The parts of the packed matrix are taken in the order V, Q, K."),
        },
        ("bias", _ROLES): {
            "lost": Phrase("The biases of Q, K and V are not added."),
        },
        ("split", _SPLIT): {
            "view": Phrase("Heads are split by view without transpose, which mixes tokens and heads."),
            "interleaved": Phrase("Head i takes every h-th column, not d_k neighbouring ones."),
            "one": Phrase("The width is not split: one head does the work of all."),
        },
        ("rotation", _PAIRS): {
            "other": Phrase(
                "The rotary code turns other pairs of dimensions: halves, not neighbours, or the reverse."
            ),
            "backwards": Phrase("The rotary code turns in the other direction."),
        },
        ("rotation", _ROTATION): {
            "lost": Phrase("The rotary code is missing."),
        },
        ("repeat", _REPEAT): {
            "in turn": Phrase(
                "Shared keys and values are repeated in turn, so that heads get those of other heads."
            ),
        },
        ("scale", _SCALE): {
            "1": Phrase("The scores are not scaled."),
            "√d_model": Phrase("The scores are divided by √d_model."),
            "d_k": Phrase("The scores are divided by d_k, or by √d_k twice."),
            "√h": Phrase("The scores are divided by √h."),
            "times": Phrase("The scores are multiplied by √d_k."),
            "after": Phrase("The weights are divided by √d_k, after the softmax."),
        },
        ("distance", "scores + bias"): {
            "lost": Phrase("The bias on the scores is missing."),
        },
        ("mask", _MASK): {
            "lost": Phrase("The mask is not applied."),
            "inverted": Phrase("The mask is inverted: it hides what may be seen."),
            "zero": Phrase("Hidden scores are set to 0 or nearly 0, not to −∞."),
            "added": Phrase("The mask is added to the scores as a number, 1 where a query may look."),
            "subtracted": Phrase("The mask is added to the scores as a number, 1 where it hides."),
            "after": Phrase("The mask is applied after the softmax, so rows sum to less than 1."),
        },
        ("mask", _CAUSAL): {
            "earlier": Phrase("The mask is off by one: a query does not see its own position."),
            "later": Phrase("The mask is off by one: a query also sees the next position."),
            "transposed": Phrase("The mask is transposed: queries and keys are exchanged in it."),
            "padding": Phrase("Of the mask only the padding is applied."),
        },
        ("mask", _PADDING): {
            "queries": Phrase("Padding is masked by queries: it hides rows, not columns."),
            "no padding": Phrase("Padding is not masked."),
        },
        ("softmax", _SOFTMAX): {
            "queries": Phrase("The softmax runs over the queries."),
            "heads": Phrase("The softmax runs over the heads."),
            "texts": Phrase("The softmax runs over the texts of the batch."),
            "missing": Phrase("There is no softmax."),
        },
        ("mixing", _MIXING): {
            "transposed": Phrase("The values are mixed by the transposed weights."),
        },
        ("join", _JOIN): {
            "view": Phrase("Heads are joined by view without transpose, which mixes tokens and heads."),
            "interleaved": Phrase("The numbers of the heads are interleaved when they are joined."),
            "reversed": Phrase("The heads are joined in reverse order."),
        },
        ("output", _OUTPUT): {
            "lost": Phrase("W^O is not applied."),
            "no bias": Phrase("The bias of W^O is not added."),
        },
    }.items()
    for value, sentence in sentences.items()
)


def with_mistakes(*mistakes: Mistake) -> Formula:
    """The formula with these terms wrong."""
    return replace(RIGHT, **{mistake.term: mistake.value for mistake in mistakes})


def stages(given: Products, formula: Formula = RIGHT) -> dict[str, Tensor]:
    """The matrices of `STAGES`, (batch, head, …), and from concat on (batch, token, width).

    The output is missing where nothing is known of W^O. Raises one of `IMPOSSIBLE` where the formula cannot
    be computed with these products, as for a mask that is not square and a mistake that transposes it.
    """
    h, n_kv = (1, 1) if formula.split == "one" else (given.n_heads, given.n_kv_heads)
    flat = [_product(given, use, of, formula) for use, of in zip("qkv", formula.matrices, strict=True)]
    q, k, v = (_split(one, n, formula.split) for one, n in zip(flat, (h, n_kv, n_kv), strict=True))
    if given.rotation is not None:
        q, k = (_rotated(one, given.rotation, formula.rotation) for one in (q, k))
    keys, values = (_repeated(one, h // n_kv, formula.repeat) for one in (k, v))
    raw = q @ keys.mT
    d_k = q.shape[-1]
    scaled = raw * _factor(given, formula.scale, d_k)
    masked, visible = _masked(scaled, given, formula)
    weights = _softmax(masked, given.sinks, formula.softmax)
    if formula.scale == "after":
        weights = weights * d_k**-0.5
    if formula.mask == "after" and visible is not None:
        weights = weights * visible
    heads = (weights.mT if formula.mixing == "transposed" else weights) @ values
    concat = _join(heads, formula.join)
    matrices = (q, k, v, raw, scaled, masked, weights, heads, concat)
    found = dict(zip(STAGES, matrices, strict=False))  # and the output, where W^O is known
    if formula.output == "lost":
        found["output"] = concat
    elif given.learned.w_o is not None:
        output, bias = concat @ given.learned.w_o, given.learned.b_o
        found["output"] = output if bias is None or formula.output == "no bias" else output + bias
    return found


def _product(given: Products, use: str, matrix: str, formula: Formula) -> Tensor:
    product = given.products[use, matrix]
    bias = getattr(given.learned, f"b_{matrix}")
    return product if bias is None or formula.bias != "lost" else product - bias


def _split(flat: Tensor, n: int, how: str) -> Tensor:
    """(batch, token, head · width) → (batch, head, token, width)"""
    match how:
        case "view":
            return flat.reshape(flat.shape[0], n, flat.shape[1], -1)
        case "interleaved":
            return flat.unflatten(-1, (-1, n)).permute(0, 3, 1, 2)
    return flat.unflatten(-1, (n, -1)).transpose(1, 2)


def _rotated(heads: Tensor, code: Rotation, how: str) -> Tensor:
    if how == "lost":
        return heads
    form, cos, sin = code.form, code.cos, -code.sin if how == "backwards" else code.sin
    if how == "other":
        form = "pairs" if code.form == "half" else "half"
        cos, sin = (_paired(table, form) for table in (cos, sin))
    return rotated(heads, cos.to(heads), sin.to(heads), form=form, start=code.start)


def _paired(table: Tensor, form: str) -> Tensor:
    """The angles of one pairing laid out for the other: twice each for neighbours, twice all for halves."""
    half = table.shape[-1] // 2
    return table[:, :half].repeat_interleave(2, 1) if form == "pairs" else table[:, ::2].repeat(1, 2)


def _repeated(heads: Tensor, times: int, how: str) -> Tensor:
    return heads.repeat(1, times, 1, 1) if how == "in turn" else heads.repeat_interleave(times, dim=1)


def _factor(given: Products, scale: str, d_k: int) -> float:
    factors = {
        "√d_k": d_k**-0.5 if given.scale is None else given.scale,
        "√d_model": (given.d_model or math.nan) ** -0.5,
        "d_k": 1 / d_k,
        "√h": given.n_heads**-0.5,
        "times": math.sqrt(d_k),
    }
    return factors.get(scale, 1.0)


def _masked(scaled: Tensor, given: Products, formula: Formula) -> tuple[Tensor, Tensor | None]:
    """The scores before the softmax, and the mask."""
    scores = scaled if given.soft_cap is None else given.soft_cap * torch.tanh(scaled / given.soft_cap)
    if given.bias is not None and formula.distance == "added":
        scores = scores + given.bias
    visible = _visible(given, formula.mask)
    if visible is None or formula.mask == "after":
        return scores, visible
    match formula.mask:
        case "added":
            return scores + visible, visible
        case "subtracted":
            return scores + ~visible, visible
    return scores.masked_fill(~visible, 0.0 if formula.mask == "zero" else -math.inf), visible


def _visible(given: Products, how: str) -> Tensor | None:
    """True where a query may look, with the mask and the padding; None where nothing is hidden."""
    mask, padding = given.mask, given.padding
    if {"padding": padding, "no padding": mask, "transposed": mask}.get(how, True) is None:
        raise ValueError("without it this is another mistake of the table")
    if how in ("lost", "padding"):
        mask = None
    if how in ("lost", "no padding"):
        padding = None
    if mask is not None and how in ("earlier", "later"):
        own = torch.eye(mask.shape[-1], dtype=torch.bool)
        mask = mask & ~own if how == "earlier" else mask | own.roll(1, 1).triu(1)
    if padding is not None and how == "queries":
        padding = padding.mT
    visible = mask if padding is None else padding if mask is None else mask & padding
    if visible is None:
        return None
    return visible.mT if how == "transposed" else ~visible if how == "inverted" else visible


def _softmax(scores: Tensor, sinks: Tensor | None, over: str) -> Tensor:
    if over == "missing":
        return scores
    axis = {"keys": -1, "queries": 2, "heads": 1, "texts": 0}[over]
    if sinks is None or over != "keys":
        return torch.softmax(scores, axis)
    sink = sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    return torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]


def _join(heads: Tensor, how: str) -> Tensor:
    """(batch, head, token, width) → (batch, token, head · width)"""
    match how:
        case "view":
            return heads.reshape(heads.shape[0], heads.shape[2], -1)
        case "interleaved":
            return heads.permute(0, 2, 3, 1).flatten(2)
        case "reversed":
            return heads.flip(1).transpose(1, 2).flatten(2)
    return heads.transpose(1, 2).flatten(2)
