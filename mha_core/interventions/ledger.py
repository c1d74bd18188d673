"""The ledger of a word: its logit as a sum over the parts of the model that wrote it.

>>> mha.ledger(trace, token=-1, word=" mat").frame().head()  # doctest: +SKIP
"""

from dataclasses import dataclass, replace
from os import PathLike

import numpy as np
import pandas as pd
import torch
from torch import nn

from mha_core import device as devices
from mha_core.capture.decomposition import Contribution, NoDecomposition
from mha_core.errors import MhaError, Phrase
from mha_core.interventions.attribution import (
    SHOWN,
    HeadOutputs,
    Writer,
    by_writer,
    check_size,
    rounding,
    writer_of,
)
from mha_core.interventions.traced_model import Again, Answered, check_trace, run_again
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.trace import AttentionTrace
from mha_core.training.checkpoints import Trained

LOGITS = Phrase("Logits of this model")


@dataclass(frozen=True, eq=False)
class Ledger:
    """The logit of a word at a token, or the difference of two words' logits, as a sum over its writers.

    ``shares[i]`` is the part that ``writers[i]`` added; the shares sum to `logit` up to rounding, and `gap`
    is the distance of their sum from torch's own number. The scale of each norm is frozen, so that a norm is
    linear. `probability` is that of the word among all words, before any comparison with `other`.
    """

    token: int
    word: str
    other: str | None
    writers: tuple[Writer, ...]
    shares: np.ndarray
    logit: float
    probability: float

    @property
    def gap(self) -> float:
        """The sum of the shares less the logit that torch computed."""
        return float(self.shares.sum() - self.logit)

    def frame(self) -> pd.DataFrame:
        """One row for each writer, the largest share first: writer, kind, layer, head and share."""
        order = np.argsort(-np.abs(self.shares), kind="stable")
        rows = [
            (writer.label, writer.kind, writer.layer, writer.head, self.shares[at])
            for at in order
            for writer in [self.writers[at]]
        ]
        return pd.DataFrame(rows, columns=["writer", "kind", "layer", "head", "share"])

    def __repr__(self) -> str:
        what = repr(self.word) if self.other is None else f"{self.word!r} over {self.other!r}"
        rows = self.frame()[["writer", "share"]].head(SHOWN).to_string(index=False)
        return (
            f"<Ledger of {what} at token {self.token}: logit {self.logit:.6g}, a sum of {len(self.shares)}, "
            f"the largest of them\n{rows}>"
        )


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
        run, answered, heads = _followed(trace, token, source, tokenizer)
        scores, vocabulary = answered.scores, answered.vocabulary
        number = vocabulary.number(word, scores, "word")
        numbers = [number] if other is None else [number, vocabulary.number(other, scores, "other")]
        parts = _parts(run, answered, heads, numbers)
    writers, vectors = by_writer(parts, heads, run.ids, len(trace.layers), run.trace, LOGITS)
    writers = tuple(Writer("end") if writer.layer == len(trace.layers) else writer for writer in writers)
    shares = vectors[:, 0] - (vectors[:, 1] if len(numbers) > 1 else 0.0)
    logit = float(scores[number] - (scores[numbers[1]] if len(numbers) > 1 else 0.0))
    size = max(np.abs(vectors).sum(0).max(), float(scores[scores.isfinite()].abs().max()))
    if not abs(shares.sum() - logit) <= rounding(run.trace) * size:
        raise MhaError(
            "This logit cannot be split by who wrote it: what was written makes {computed:.7g}, and the "
            "model computed {logit:.7g}.",
            computed=float(shares.sum()),
            logit=logit,
        )
    named = [vocabulary.word(one) for one in numbers]
    return Ledger(
        answered.at,
        named[0],
        named[1] if len(named) > 1 else None,
        writers,
        shares,
        logit,
        float(scores.softmax(-1)[number]),
    )


def written(
    trace: AttentionTrace,
    writer: Writer,
    *,
    token: int | str | None = None,
    source: str | PathLike[str] | nn.Module | Trained | huggingface.Model | None = None,
    tokenizer: object = None,
) -> pd.DataFrame:
    """The share that a writer of a ledger, other than a head, has in the logit of every word.

    The word that it raises most is first, and the one that it lowers most is last. Arguments and errors are
    those of `ledger`.
    """
    with devices.memory_errors(Phrase("This ledger")):
        run, answered, heads = _followed(trace, token, source, tokenizer)
        at_end = replace(writer, kind="bias", layer=len(trace.layers)) if writer.kind == "end" else writer
        parts = _parts(run, answered, heads, [int(answered.scores.argmax())])
        leaves = {
            part.leaf
            for part in parts
            if writer_of(part, heads, run.ids, len(trace.layers), run.trace) == at_end
        }
        shares = run.decomposition.added_by(leaves, answered.logits, heads.of_leaf)
    numbers = answered.scores.isfinite().nonzero().flatten()
    numbers = numbers[shares[numbers].argsort(descending=True)]
    words = [answered.vocabulary.word(number) for number in numbers.tolist()]
    return pd.DataFrame({"word": words, "share": shares[numbers].tolist()})


def _followed(
    trace: AttentionTrace, token: int | str | None, source: object, tokenizer: object
) -> tuple[Again, Answered, HeadOutputs]:
    check_trace(trace)
    check_size(trace.layers)
    run = run_again(trace, source, tokenizer, answer=True, token=token)
    assert run.answered is not None  # it was asked for
    return run, run.answered, HeadOutputs(run.trace)


def _parts(run: Again, answered: Answered, heads: HeadOutputs, numbers: list[int]) -> list[Contribution]:
    """The contribution of each written vector to the logits of these words."""
    try:
        with torch.no_grad(), run.decomposition:
            chosen = answered.logits[torch.tensor(numbers, device=answered.logits.device)]
        with torch.inference_mode(False), torch.enable_grad():
            return run.decomposition.contributions(chosen, [()], heads.of_leaf, frozen=True)
    except NoDecomposition as reason:
        raise MhaError("Logits of this model cannot be split: {reason}.", reason=reason.phrase) from None
