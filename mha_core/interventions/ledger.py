"""The logits of words at a token, and the ledger of a word: its logit as a sum over who wrote it.

A trace holds no logits: its model is run once more.

>>> mha.ledger(trace, token=-1, word=" mat").frame().head()  # doctest: +SKIP
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from mha_core import device as devices
from mha_core.capture.decomposition import NoDecomposition, Sum
from mha_core.errors import MhaError, Phrase, shown
from mha_core.interventions.attribution import (
    SHOWN,
    HeadOutputs,
    Writer,
    by_writer,
    check_size,
    rounding,
    writer_of,
)
from mha_core.interventions.traced_model import Answered, check_trace, run_again
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.trace import AttentionTrace
from mha_core.training.checkpoints import Trained

LOGITS = Phrase("Logits of this model")


@dataclass(frozen=True, eq=False)
class Ledger:
    """The logit of a word at a token, or the difference of two words' logits, as a sum over its writers.

    ``shares[i]`` is the part that ``writers[i]`` added; the shares sum to `logit` up to rounding, and `gap`
    is the distance of their sum from torch's own number. The scale of each norm is frozen, so that a norm is
    linear.

    ``norms[i]`` is ``‖x_i‖₂``, the length of what ``writers[i]`` has added to the residual stream ``Σ x_i``
    of the token, at the last sum of the last layer. Of a head it is ``‖(gate_i · head_i) W_i^O‖₂``, that of
    `LayerTrace.contribution`; where norms stand behind W^O, as in BERT, it is the length of what they left.
    It is 0 for what is added to the normed stream, and NaN in a model without such a sum. `probability` is
    that of the word among all words, before any comparison with `other`. `label` is that of the `token`.
    """

    token: int
    label: str
    word: str
    other: str | None
    writers: tuple[Writer, ...]
    shares: np.ndarray
    norms: np.ndarray
    logit: float
    probability: float

    @property
    def gap(self) -> float:
        """The sum of the shares less the logit that torch computed."""
        return float(self.shares.sum() - self.logit)

    def frame(self) -> pd.DataFrame:
        """One row for each writer, the largest share first: writer, kind, layer, head, share, norm."""
        of = {name: [getattr(writer, name) for writer in self.writers] for name in ("kind", "layer", "head")}
        writers = {"writer": [writer.label for writer in self.writers]}
        frame = pd.DataFrame(writers | of | {"share": self.shares, "norm": self.norms})
        return frame.iloc[np.argsort(-np.abs(self.shares), kind="stable")].reset_index(drop=True)

    def drawing(self, names: Sequence[str] = ()) -> dict[str, Any]:
        """The data of its picture (assets/components/pictures/ledger.js); `names` of writers, else labels."""
        names = names or [writer.label for writer in self.writers]
        numbers = zip(names, self.writers, self.shares.tolist(), self.norms.tolist(), strict=True)
        parts = [
            {"name": name, "layer": writer.layer, "head": writer.head, "share": share}
            | {"norm": None if np.isnan(norm) else norm}
            for name, writer, share, norm in numbers
        ]
        told = ("token", "label", "word", "other", "logit", "probability")
        return {"parts": parts} | {name: getattr(self, name) for name in told}

    def __repr__(self) -> str:
        what = repr(self.word) if self.other is None else f"{self.word!r} over {self.other!r}"
        rows = self.frame()[["writer", "share", "norm"]].head(SHOWN).to_string(index=False)
        return (
            f"<Ledger of {what} at token {self.token}: logit {self.logit:.6g}, a sum of {len(self.shares)}, "
            f"the largest of them\n{rows}>"
        )


def logits(
    trace: AttentionTrace,
    token: int | str | None = None,
    words: Sequence[int | str] | None = None,
    *,
    source: object = None,
    tokenizer: object = None,
) -> pd.DataFrame:
    """The logits of words at a token; see `AttentionTrace.logits`."""
    if words is not None and (isinstance(words, str) or not isinstance(words, Sequence)):
        raise MhaError("words are several, as in words=[“yes”, “no”]; got {words}.", words=shown(words))
    with devices.memory_errors(Phrase("These logits")):
        answered = run_again(trace, source, tokenizer, answer=True, token=token, follow=False).answered
    assert answered is not None  # it was asked for
    scores, vocabulary = answered.scores, answered.vocabulary
    if words is None:
        numbers = [number for number in scores.argsort(descending=True).tolist() if scores[number].isfinite()]
    else:
        numbers = [vocabulary.number(word, scores, "word") for word in words]
    frame = pd.DataFrame(
        {
            "word": [vocabulary.word(number) for number in numbers],
            "id": numbers,
            "logit": scores[numbers].tolist(),
            "probability": scores.softmax(-1)[numbers].tolist(),
        }
    )
    frame.attrs = {"at": answered.at}
    return frame


def ledger(
    trace: AttentionTrace,
    *,
    token: int | str | None = None,
    word: int | str | None = None,
    other: int | str | None = None,
    source: str | PathLike[str] | nn.Module | Trained | huggingface.Model | None = None,
    tokenizer: object = None,
) -> Ledger:
    """The logit of a word at a token, split by the parts of the model that wrote it.

    With the scale of each norm frozen, a logit is linear in the vectors that the embedding, the position,
    each head through W^O, each MLP and each bias added to the residual stream of its token:
    ``logit = Σ_i w_i · W_U``. The shares sum to torch's own logit up to 1e-5 of the sum of their sizes, in
    half precision up to rounding. A soft cap of the logits, or an activation in the head that scores words,
    as in BERT, is frozen as well: each number keeps the factor ``f(x) / x`` that it has here. A small model
    has a logit of each possible answer to its question at the token, ``(LN(z) Eᵀ + b) / T``, where z is what
    the heads of that question wrote.

    `word` is a word of the model's vocabulary or its id, by default the most probable one. With `other` the
    ledger is of the difference of both logits, as in "who prefers Mary to John?". `token` is the one after
    which the word comes, or the hidden one of a masked model, by default the last one; of a small model it is
    the last pronoun or hidden word. All indices count from 0.

    The trace does not contain its model, so the model computes the text again while it is followed. By
    default it is loaded by its name; `source` is a model in memory, with its `tokenizer`, or another place of
    it.

    Raises `MhaError` for a trace whose model answers with no words, for a token where it gives no answer, for
    a word that is none or several of its vocabulary, and for a stream that is not a sum of what was written.
    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", the logit's direct terms.
    """
    with devices.memory_errors(Phrase("This ledger")):
        answered, heads, split = _followed(trace, token, source, tokenizer)
        scores, vocabulary = answered.scores, answered.vocabulary
        number = vocabulary.number(word, scores, "word")
        numbers = [number] if other is None else [number, vocabulary.number(other, scores, "other")]
        parts, stream = split.contributions([(numbers,)]), split.in_stream()
    if stream is not None:  # the same parts, after the numbers of the words
        parts = [
            replace(part, vectors=torch.cat([part.vectors, vector[None]], 1))
            for part, vector in zip(parts, stream, strict=True)
        ]
    writers, vectors = by_writer(parts, heads, len(trace.layers), LOGITS)
    vectors, in_stream = np.split(vectors, [len(numbers)], axis=1)
    writers = tuple(Writer("end") if writer.layer == len(trace.layers) else writer for writer in writers)
    shares = vectors[:, 0] - (vectors[:, 1] if len(numbers) > 1 else 0.0)
    logit = float(scores[number] - (scores[numbers[1]] if len(numbers) > 1 else 0.0))
    size = max(np.abs(vectors).sum(0).max(), float(scores[scores.isfinite()].abs().max()))
    if not abs(shares.sum() - logit) <= rounding(heads.run.trace) * size:
        raise MhaError(
            "This logit cannot be split by who wrote it: what was written makes {computed:.7g}, and the "
            "model computed {logit:.7g}.",
            computed=float(shares.sum()),
            logit=logit,
        )
    named = [vocabulary.word(one) for one in numbers]
    return Ledger(
        answered.at,
        trace.answered.labels[answered.at],
        named[0],
        named[1] if len(named) > 1 else None,
        writers,
        shares,
        np.full(len(writers), np.nan) if stream is None else np.linalg.norm(in_stream, axis=1),
        logit,
        float(scores.softmax(-1)[number]),
    )


def written(
    trace: AttentionTrace,
    writer: Writer,
    *,
    token: int | str | None = None,
    source: Trained | huggingface.Model | None = None,
) -> pd.DataFrame:
    """The share that a writer of a ledger, other than a head, has in the logit of every word.

    The word that it raises most is first, and the one that it lowers most is last. Arguments and errors are
    those of `ledger`.
    """
    with devices.memory_errors(Phrase("This ledger")):
        answered, heads, split = _followed(trace, token, source)
        at_end = replace(writer, kind="bias", layer=len(trace.layers)) if writer.kind == "end" else writer
        leaves = {
            part.leaf
            for part in split.contributions([([0],)])
            if writer_of(part, heads, len(trace.layers)) == at_end
        }
        shares = split.added_by(leaves)
    numbers = answered.scores.isfinite().nonzero().flatten()
    numbers = numbers[shares[numbers].argsort(descending=True)]
    words = [answered.vocabulary.word(number) for number in numbers.tolist()]
    return pd.DataFrame({"word": words, "share": shares[numbers].tolist()})


def _followed(
    trace: AttentionTrace, token: int | str | None, source: object, tokenizer: object = None
) -> tuple[Answered, HeadOutputs, Sum]:
    """The answer of a second run, its heads, and the sum that makes the logits of all words."""
    check_trace(trace)
    check_size(trace.layers)
    run = run_again(trace, source, tokenizer, answer=True, token=token)
    assert run.answered is not None  # it was asked for
    heads = HeadOutputs(run)
    try:
        split = run.decomposition.sum_of(run.answered.logits, heads.of_leaf, frozen=True)
        return run.answered, heads, split
    except NoDecomposition as reason:
        raise MhaError("Logits of this model cannot be split: {reason}.", reason=reason.phrase) from None
