"""Multi-head attention in stages, and the mistakes that people make in its formula.

Each mistake changes one term of the formula. A run with it can so be computed and compared with a run that
is wrong: a mistake is a cause only where it gives the same numbers.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mha_core.attention.module import Projections
from mha_core.attention.positions import rotated
from mha_core.attention.score_rule import ScoreRule
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
    query, key), and `padding`, (batch or 1, 1, 1, key), are True; the `rule` has no mask of its own. Of what
    is `learned` only the biases and W^O are used. `hidden` is the score of a hidden key, where a softmax over
    another axis may run over such scores alone.
    """

    products: Mapping[tuple[str, str], Tensor]
    n_heads: int
    n_kv_heads: int
    d_model: int | None = None
    learned: Projections = Projections()
    mask: Tensor | None = None
    padding: Tensor | None = None
    rule: ScoreRule = ScoreRule()
    rotation: Rotation | None = None
    hidden: float = -math.inf


class Mistake(NamedTuple):
    """One wrong term of the formula: which, what was done, in a sentence, and what it should be."""

    term: str
    value: str
    sentence: Phrase
    correction: str


_ROLES = "q = X W^Q, k = X W^K, v = X W^V"
IMPOSSIBLE = (LookupError, ValueError, RuntimeError, ZeroDivisionError)  # a formula for these sizes
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
            "kvq": Phrase("Queries are made with W^K, keys with W^V and values with W^Q."),
            "vqk": Phrase("Queries are made with W^V, keys with W^Q and values with W^K."),
        },
        ("bias", _ROLES): {
            "lost": Phrase("The biases of Q, K and V are not added."),
        },
        ("split", "x.view(batch, length, h, d_k).transpose(1, 2)"): {
            "view": Phrase("Heads are split by view without transpose, which mixes tokens and heads."),
            "kept": Phrase("Heads are not transposed: within each token, its heads look at each other."),
            "interleaved": Phrase("Head i takes every h-th column, not d_k neighbouring ones."),
            "one": Phrase("The width is not split: one head does the work of all."),
        },
        ("rotation", "the pairing of dimensions for which the weights were trained"): {
            "other": Phrase(
                "The rotary code turns other pairs of dimensions: halves, not neighbours, or the reverse."
            ),
            "backwards": Phrase("The rotary code turns in the other direction."),
        },
        ("rotation", "queries and keys are rotated by their positions"): {
            "lost": Phrase("The rotary code is missing."),
        },
        ("repeat", "k.repeat_interleave(h // n_kv, dim=1): query head i uses key head i // (h / n_kv)"): {
            "in turn": Phrase(
                "Shared keys and values are repeated in turn, so that heads get those of other heads."
            ),
        },
        ("scale", "q kᵀ / √d_k, with d_k = d_model / h"): {
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
        ("mask", "scores of hidden keys become −∞ before the softmax"): {
            "lost": Phrase("The mask is not applied."),
            "inverted": Phrase("The mask is inverted: it hides what may be seen."),
            "zero": Phrase("Hidden scores are set to 0 or nearly 0, not to −∞."),
            "added": Phrase("The mask is added to the scores as a number, 1 where a query may look."),
            "subtracted": Phrase("The mask is added to the scores as a number, 1 where it hides."),
            "after": Phrase("The mask is applied after the softmax, so rows sum to less than 1."),
        },
        ("mask", "query m looks at keys 1 … m, itself included: torch.tril of ones"): {
            "earlier": Phrase("The mask is off by one: a query does not see its own position."),
            "later": Phrase("The mask is off by one: a query also sees the next position."),
            "transposed": Phrase("The mask is transposed: queries and keys are exchanged in it."),
            "padding": Phrase("Of the mask only the padding is applied."),
        },
        ("mask", "padding hides columns, the keys: mask[:, None, None, :]"): {
            "queries": Phrase("Padding is masked by queries: it hides rows, not columns."),
            "no padding": Phrase("Padding is not masked."),
        },
        ("softmax", "softmax over the keys, the last axis: dim=-1"): {
            "queries": Phrase("The softmax runs over the queries."),
            "heads": Phrase("The softmax runs over the heads."),
            "texts": Phrase("The softmax runs over the texts of the batch."),
            "missing": Phrase("There is no softmax."),
        },
        ("mixing", "weights v"): {
            "transposed": Phrase("The values are mixed by the transposed weights."),
        },
        ("join", "heads.transpose(1, 2).reshape(batch, length, h · d_v)"): {
            "view": Phrase("Heads are joined by view without transpose, which mixes tokens and heads."),
            "interleaved": Phrase("The numbers of the heads are interleaved when they are joined."),
            "reversed": Phrase("The heads are joined in reverse order."),
        },
        ("output", "concat(head_1 … head_h) W^O + b^O"): {
            "lost": Phrase("W^O is not applied."),
            "no bias": Phrase("The bias of W^O is not added."),
        },
    }.items()
    for value, sentence in sentences.items()
)

DROPOUT = Mistake(
    "dropout",
    "on",
    Phrase("Dropout stays on in evaluation, so two runs of one text differ."),
    "F.dropout(weights, p, training=self.training), or nn.Dropout",
)


def stages(given: Products, *mistakes: Mistake) -> dict[str, Tensor]:
    """The matrices of `STAGES` with these mistakes, or the right ones (Vaswani et al. 2017, section 3.2).

    (batch, head, …), and from concat on (batch, token, width). The output is missing where nothing is known
    of W^O. Raises one of `IMPOSSIBLE` where the formula cannot be computed with these products, as for a mask
    that is not square and a mistake that transposes it.
    """
    wrong: dict[str, Any] = defaultdict(lambda: None, {mistake.term: mistake.value for mistake in mistakes})
    h, n_kv = (1, 1) if wrong["split"] == "one" else (given.n_heads, given.n_kv_heads)
    flat = [given.products[of] for of in zip("qkv", wrong["matrices"] or "qkv", strict=True)]
    if wrong["bias"]:
        biases = (getattr(given.learned, f"b_{matrix}") for matrix in wrong["matrices"] or "qkv")
        flat = [one if bias is None else one - bias for one, bias in zip(flat, biases, strict=True)]
    q, k, v = (_split(one, n, wrong["split"]) for one, n in zip(flat, (h, n_kv, n_kv), strict=True))
    if given.rotation is not None and wrong["rotation"] != "lost":
        q, k = (_rotated(one, given.rotation, wrong["rotation"]) for one in (q, k))
    times = h // n_kv
    k, v = (
        one.repeat(1, times, 1, 1) if wrong["repeat"] else one.repeat_interleave(times, 1) for one in (k, v)
    )
    raw = q @ k.mT
    d_k = q.shape[-1]
    scaled = raw * _factor(given, wrong["scale"], d_k)
    rule = replace(given.rule, bias=None) if wrong["distance"] == "lost" else given.rule
    visible = _visible(given, wrong["mask"])
    masked = _masked(rule.masked(scaled), visible, wrong["mask"])
    weights = _softmax(masked, rule, wrong["softmax"], given.hidden)
    if wrong["scale"] == "after":
        weights = weights * d_k**-0.5
    if wrong["mask"] == "after" and visible is not None:
        weights = weights * visible
    heads = (weights.mT if wrong["mixing"] == "transposed" else weights) @ v
    concat = _join(heads, h, wrong["join"])
    matrices = (q, k, v, raw, scaled, masked, weights, heads, concat)
    found = dict(zip(STAGES, matrices, strict=False))  # and the output, where W^O is known
    if wrong["output"] == "lost":
        found["output"] = concat
    elif given.learned.w_o is not None:
        output, bias = concat @ given.learned.w_o, given.learned.b_o
        found["output"] = output if bias is None or wrong["output"] == "no bias" else output + bias
    return found


def _split(flat: Tensor, n: int, how: str | None) -> Tensor:
    """(batch, token, head · width) → (batch, head, token, width)"""
    match how:
        case "view":
            return flat.reshape(flat.shape[0], n, flat.shape[1], -1)
        case "kept":
            return flat.unflatten(-1, (n, -1))
        case "interleaved":
            return flat.unflatten(-1, (-1, n)).permute(0, 3, 1, 2)
    return flat.unflatten(-1, (n, -1)).transpose(1, 2)


def _rotated(heads: Tensor, code: Rotation, how: str | None) -> Tensor:
    form, cos, sin = code.form, code.cos, -code.sin if how == "backwards" else code.sin
    if how == "other":
        form = "pairs" if code.form == "half" else "half"
        cos, sin = (_paired(table, form) for table in (cos, sin))
    return rotated(heads, cos.to(heads), sin.to(heads), form=form, start=code.start)


def _paired(table: Tensor, form: str) -> Tensor:
    """The angles of one pairing laid out for the other: twice each for neighbours, twice all for halves."""
    half = table.shape[-1] // 2
    return table[:, :half].repeat_interleave(2, 1) if form == "pairs" else table[:, ::2].repeat(1, 2)


def _factor(given: Products, how: str | None, d_k: int) -> float:
    factors = {
        None: given.rule.factor(d_k),
        "√d_model": (given.d_model or math.nan) ** -0.5,
        "d_k": 1 / d_k,
        "√h": given.n_heads**-0.5,
        "times": math.sqrt(d_k),
    }
    return factors.get(how, 1.0)


def _masked(scores: Tensor, visible: Tensor | None, how: str | None) -> Tensor:
    if visible is None or how == "after":
        return scores
    if how in ("added", "subtracted"):
        return scores + (visible if how == "added" else ~visible)
    return scores.masked_fill(~visible, 0.0 if how == "zero" else -math.inf)


def _visible(given: Products, how: str | None) -> Tensor | None:
    """True where a query may look, with the mask and the padding; None where nothing is hidden."""
    mask, padding = given.mask, given.padding
    if (how == "padding" and padding is None) or (how in ("no padding", "transposed") and mask is None):
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


def _softmax(scores: Tensor, rule: ScoreRule, how: str | None, hidden: float) -> Tensor:
    if how is None:
        return rule.weights(scores)
    axes = {"queries": 2, "heads": 1, "texts": 0}
    return scores if how == "missing" else torch.softmax(scores.clamp(min=hidden), axes[how])


def _join(heads: Tensor, h: int, how: str | None) -> Tensor:
    """(batch, head, token, width) → (batch, token, head · width)"""
    batch, *_, width = heads.shape
    match how:
        case "view":
            ordered = heads
        case "interleaved":
            ordered = heads.permute(0, 2, 3, 1)
        case "reversed":
            ordered = heads.flip(1).transpose(1, 2)
        case _:
            ordered = heads.transpose(1, 2)
    return ordered.reshape(batch, -1, h * width)
