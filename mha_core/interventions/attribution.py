"""Attribution: one score as a sum over pairs of writers, one that wrote the query and one that wrote the key.

A writer is an embedding, a head, an MLP or a bias of an earlier layer.

>>> trace = mha.trace("The animal didn't cross the street because it was too tired.", source="mini")
>>> why = mha.attribution(trace, layer=1, head=0, query="it", key="animal")
>>> bool(abs(why.terms.sum() - why.value) < 1e-5 * abs(why.terms).sum())
True
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from mha_core import device as devices
from mha_core.analysis.explanation import position
from mha_core.attention.functional import HALF
from mha_core.capture.decomposition import Contribution, Leaf, NoDecomposition
from mha_core.errors import MhaError, Phrase, listed
from mha_core.interventions.traced_model import Again, check_trace, run_again
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tensors import shared
from mha_core.traces.trace import AttentionTrace
from mha_core.training.checkpoints import Trained

TOLERANCE = 1e-5  # of the sum of the absolute terms
# In half precision the residual stream is rounded after each addition; the terms are those before rounding.
HALF_TOLERANCE = {"float16": 5e-3, "bfloat16": 4e-2}
MAX_NUMBERS = 1 << 26  # in the vectors that all heads of earlier layers write for a text, half a GB
SHOWN = 5  # terms in the repr of an attribution
SAME = 1e-4  # largest difference of an attention's output to that of the trace, divided by the largest number
HALF_SAME = 3e-2
KINDS = ("word", "position", "embedding", "head", "mlp", "block", "bias", "end", "rest")
# Parts of parameter names that show an MLP or experts.
MLP = re.compile(
    r"mlp|ffn|feed_?forward|\bff\b|fc_?\d|dense_h|lin[12]|expert|output\.dense|DenseReluDense|moe", re.I
)


@dataclass(frozen=True)
class Writer:
    """A writer: a part of the model that wrote a part of a query or key.

    `kind` is "word" or "position" for the embeddings of these, "embedding" for another table, "head", "mlp",
    "block" for another part of the model, "bias" for constants, "end" for those after the last layer, or
    "rest" for several writers together.
    `layer` counts from 0 like the trace's layers: it is the layer of a head, or of the attention before an
    MLP; None before the first attention. `name` is the name of the last parameter, if it is known.
    """

    kind: str
    layer: int | None = None
    head: int | None = None
    name: str = ""

    @property
    def label(self) -> str:
        """The name of the writer, with layers and heads from 1."""
        if self.kind == "embedding":
            return self.name or self.kind
        names = {"head": f"head {(self.head or 0) + 1}", "mlp": "MLP", "bias": "biases"}
        names["end"] = "final biases"
        what = names.get(self.kind, self.kind)
        return what if self.layer is None else f"layer {self.layer + 1} {what}"


@dataclass(frozen=True, eq=False)
class Attribution:
    """Why a query looks at a key: its scaled score as a sum over writers of the query and of the key.

    ``terms[i, j] = scale · q_i · k_j``, where ``query_writers[i]`` wrote the part q_i of the query and
    ``key_writers[j]`` the part k_j of the key. The terms sum to `value`, the scaled score of the trace. The
    scale of each norm is frozen, so that norms are linear. Later steps are not split: a soft cap, the `bias`
    of the positions (None if there is none) and the mask (`visible`).
    """

    layer: int
    head: int
    query: int
    key: int
    labels: tuple[str, str]
    query_writers: tuple[Writer, ...]
    key_writers: tuple[Writer, ...]
    terms: np.ndarray
    value: float
    soft_cap: float | None
    bias: float | None
    visible: bool

    def __repr__(self) -> str:
        query, key = self.labels
        rows = self.frame().head(SHOWN).to_string(index=False)
        return (
            f"<Attribution of layer={self.layer}, head={self.head}, {query!r} looking at {key!r}: "
            f"{self.value:.6g}, a sum of {self.terms.size}, the largest of them\n{rows}>"
        )

    def frame(self) -> pd.DataFrame:
        """All terms, the largest first: query_writer, key_writer and term."""
        queries = [writer.label for writer in self.query_writers]
        keys = [writer.label for writer in self.key_writers]
        pairs = [(query, key) for query in queries for key in keys]
        frame = pd.DataFrame(pairs, columns=["query_writer", "key_writer"])
        frame["term"] = self.terms.ravel()
        order = np.argsort(-np.abs(self.terms.ravel()), kind="stable")
        return frame.iloc[order].reset_index(drop=True)

    def largest(self, count: int) -> "Attribution":
        """The same attribution with the largest writers of each side, and all others together as "rest"."""
        query_writers, terms = _largest(self.query_writers, self.terms, count)
        key_writers, terms = _largest(self.key_writers, terms.T, count)
        return replace(self, query_writers=query_writers, key_writers=key_writers, terms=terms.T)


def _largest(
    writers: tuple[Writer, ...], terms: np.ndarray, count: int
) -> tuple[tuple[Writer, ...], np.ndarray]:
    """The writers with the largest rows, in their order, and one row for the rest."""
    if len(writers) <= count + 1:
        return writers, terms
    order = np.argsort(-np.abs(terms).sum(1), kind="stable")
    chosen, rest = np.sort(order[:count]), order[count:]
    rows = np.vstack([terms[chosen], terms[rest].sum(0)])
    return (*(writers[at] for at in chosen), Writer("rest")), rows


def attribution(
    trace: AttentionTrace,
    *,
    layer: int,
    head: int,
    query: int | str,
    key: int | str,
    source: str | PathLike[str] | nn.Module | Trained | huggingface.Model | None = None,
    tokenizer: object = None,
) -> Attribution:
    """Why a query looks at a key: its score, split by the writers of the query and of the key.

    With the scale of each norm frozen, queries and keys are linear in the vectors that the embeddings, heads
    and MLPs of earlier layers wrote for their tokens; biases are writers, too. So the scaled score is a sum
    over pairs, ``scale · Σ_i Σ_j q_i · k_j``, rotation included. It equals the score in the trace up to 1e-5
    of the sum of the absolute terms, in half precision up to rounding. All indices count from 0; tokens may
    also be words, as in `Tokens.index`.

    The trace does not contain its model, so the model computes the text again while it is followed. By
    default it is loaded by its name; `source` is a model in memory, with its `tokenizer`, or another place of
    it.

    Raises `MhaError` for a trace whose numbers cannot be computed again, for a model that now computes other
    numbers, for a layer whose queries or keys are not linear in the written vectors, for a head or token that
    does not exist, and for a text that needs too much memory.
    Sources: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    check_trace(trace)
    layer, one = trace.layer_index(layer), trace.layer(layer)
    head = one.head_index(head)
    query, key = position("query", query, one.sides.queries), position("key", key, one.sides.keys)
    if not one.knows("q"):
        reason = one.about.missing or Phrase("only its weights are known")
        raise MhaError("Scores of this layer cannot be split by who wrote them: {reason}.", reason=reason)
    check_size(trace.layers[:layer])
    with devices.memory_errors(Phrase("This split")):
        run = run_again(trace, source, tokenizer)
        heads, followed = HeadOutputs(run), run.trace.layer(layer)
        sides = ("q", (head, query)), ("k", (one.kv_head(head), key))
        try:
            parts = [
                run.decomposition.sum_of(shared(followed.tensors)[name], heads.of_leaf).contributions([place])
                for name, place in sides
            ]
        except NoDecomposition as reason:
            raise MhaError(
                "Queries and keys of this layer cannot be split by who wrote them: {reason}.",
                reason=reason.phrase,
            ) from None
    what = Phrase("Queries or keys of this layer")
    (query_writers, q), (key_writers, k) = (by_writer(each, heads, layer, what) for each in parts)
    value = float(one.scaled(head, rows=[query], keys=[key])[0, 0])
    terms = one.scale * (q @ k.T)
    # The trace sums d_k products in its own precision, and they can be larger than their sum.
    products = abs(one.scale) * np.abs(one.q[head, query] * one.k[one.kv_head(head), key]).sum()
    size = max(np.abs(terms).sum(), products)
    if not abs(terms.sum() - value) <= rounding(run.trace) * size:
        raise MhaError(
            "This score cannot be split by who wrote its query and key: what was written makes "
            "{computed:.7g}, and the trace has {value:.7g}.",
            computed=float(terms.sum()),
            value=value,
        )
    rule = one.rule.at(slice(head, head + 1), [query], n_query=one.n_query, n_key=one.n_key)
    return Attribution(
        layer,
        head,
        query,
        key,
        (one.sides.queries.labels[query], one.sides.keys.labels[key]),
        query_writers,
        key_writers,
        terms,
        value,
        rule.soft_cap,
        None if rule.bias is None else float(_cell(rule.bias, key)),
        rule.mask is None or bool(_cell(rule.mask, key)),
    )


def rounding(trace: AttentionTrace) -> float:
    """How far a sum of parts may be from the model's own number, as a share of their sizes."""
    return HALF_TOLERANCE.get(getattr(trace.source.origin, "dtype", ""), TOLERANCE)


def check_size(layers: Sequence[LayerTrace]) -> None:
    """Raise `MhaError` where the vectors that the heads of these layers write need too much memory."""
    widths = [
        layer.n_heads * (layer.d_model or layer.n_heads * layer.d_v) for layer in layers if layer.knows("v")
    ]
    n_tokens = max((layer.n_query for layer in layers), default=0)
    if sum(widths) * n_tokens > MAX_NUMBERS:
        raise MhaError(
            "The heads before this layer write {width:,} numbers into each of {n_tokens:,} tokens, "
            "too many to hold; {n_possible:,} tokens can be, or an earlier layer.",
            width=sum(widths),
            n_tokens=n_tokens,
            n_possible=MAX_NUMBERS // sum(widths),
        )


def _cell(table: Tensor, key: int) -> Tensor:
    row = table.reshape(-1, table.shape[-1])[0]
    return row[key if len(row) > 1 else 0]


# Writers


class HeadOutputs:
    """Finds written vectors that are outputs of attention in a second run, by comparing their numbers."""

    def __init__(self, run: Again):
        self.run = run
        self._outputs: dict[int, Tensor] = {}
        self._known: dict[Leaf, tuple[int, Tensor] | None] = {}

    def of_leaf(self, leaf: Leaf) -> Tensor | None:
        """The parts of a leaf by head, (head, *its shape), if it is the output of an attention; else None."""
        found = self.find(leaf)
        return None if found is None else found[1]

    def layer_before(self, order: int) -> int | None:
        """The last layer whose output was written before a leaf; None if there is none."""
        written = [(leaf.order, found[0]) for leaf, found in self._known.items() if found is not None]
        return max((at for at in written if at[0] < order), default=(0, None))[1]

    def find(self, leaf: Leaf) -> tuple[int, Tensor] | None:
        """The layer whose attention output a leaf is, and its parts as in `of_leaf`; else None."""
        if leaf not in self._known:
            self._known[leaf] = None if leaf.constant or leaf.ids is not None else self._matched(leaf.value)
        return self._known[leaf]

    def _matched(self, value: Tensor) -> tuple[int, Tensor] | None:
        if not value.is_floating_point():
            return None
        limit = HALF_SAME if value.dtype in HALF else SAME
        for at, layer in enumerate(self.run.trace.layers):
            if not layer.knows("v") or value.numel() != layer.n_heads * layer.n_query * layer.d_v:
                continue
            expected = self._output(at)
            for axis in (0, 1):  # heads before or after tokens
                order = expected.transpose(0, axis).shape
                gap = (value.detach().cpu().reshape(order).float() - expected.transpose(0, axis)).abs().max()
                if gap <= limit * expected.abs().max():
                    heads = value.new_zeros(layer.n_heads, *order)
                    for head in range(layer.n_heads):
                        heads[head].select(axis, head).copy_(value.reshape(order).select(axis, head))
                    return at, heads.view(layer.n_heads, *value.shape)
        return None

    def _output(self, at: int) -> Tensor:
        if at not in self._outputs:
            layer = self.run.trace.layers[at]  # as computed, before an edit replaced it
            computed = replace(layer, rule=replace(layer.rule, patched_outputs=None))
            self._outputs[at] = torch.from_numpy(computed.output().copy()).float()
        return self._outputs[at]


def by_writer(
    parts: Sequence[Contribution], heads: HeadOutputs, layer: int, what: Phrase
) -> tuple[tuple[Writer, ...], np.ndarray]:
    """The writers, in the order of the model, and the vector that each wrote. (writer, number)

    `what` is the thing written, in words.
    """
    vectors: dict[Writer, np.ndarray] = {}
    for part in parts:
        if part.leaf.constant and not part.vectors.any():  # memory filled with zeros
            continue
        writer = writer_of(part, heads, layer)
        vectors[writer] = vectors.get(writer, 0.0) + part.vectors[0].cpu().numpy()
    if {writer.kind for writer in vectors} <= {"mlp", "block", "bias"}:
        operations = listed(sorted({part.leaf.made_by for part in parts if not part.leaf.constant}), "and")
        raise MhaError(
            "{what} are not linear in what was written: they come out of an operation that is not "
            "({operations}).",
            what=what,
            operations=operations,
        )
    order = sorted(vectors, key=_order)
    return tuple(order), np.stack([vectors[writer] for writer in order])


def _order(writer: Writer) -> tuple:
    return (
        -1 if writer.layer is None else writer.layer,
        KINDS.index(writer.kind),
        -1 if writer.head is None else writer.head,
        writer.name,
    )


def writer_of(part: Contribution, heads: HeadOutputs, layer: int) -> Writer:
    """The part of the model that has written a contribution to the input of a layer."""
    leaf, words, trace = part.leaf, heads.run.ids, heads.run.trace
    if leaf.ids is not None:
        is_word = not words or any(torch.equal(leaf.ids.flatten(), ids.flatten()) for ids in words)
        return Writer("word") if is_word else Writer("embedding", name=leaf.name)
    if leaf.constant:
        n_tokens = {len(trace.tokens), len(trace.answered)}
        if leaf.value.dim() > 1 and leaf.value.shape[-2] in n_tokens and leaf.value.shape[-1] > 1:
            return Writer("position")
        return Writer("bias", layer if part.last else heads.layer_before(leaf.order))
    if (found := heads.find(leaf)) is not None:
        return Writer("head", found[0], part.head or 0)
    return Writer("mlp" if MLP.search(part.name) else "block", heads.layer_before(leaf.order), name=part.name)
