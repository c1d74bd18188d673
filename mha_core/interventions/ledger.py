"""The ledger of a word: its logit as a sum over the parts of the model that wrote it.

>>> mha.ledger(trace, token=-1, word=" mat").frame().head()  # doctest: +SKIP
"""

from dataclasses import dataclass
from os import PathLike

import numpy as np
import pandas as pd
import torch
from torch import nn

from mha_core import device as devices
from mha_core.capture.decomposition import NoDecomposition
from mha_core.errors import MhaError, Phrase
from mha_core.interventions.attribution import SHOWN, HeadOutputs, Writer, by_writer, check_size, rounding
from mha_core.interventions.traced_model import check_trace, run_again
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.trace import AttentionTrace
from mha_core.training.checkpoints import Trained


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
    half precision up to rounding. A small model has a logit of each possible answer to its question at the
    token, ``(LN(z) Eᵀ + b) / T``, where z is what the heads of that question wrote.

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
    check_trace(trace)
    check_size(trace.layers)
    with devices.memory_errors(Phrase("This ledger")):
        run = run_again(trace, source, tokenizer, answer=True, token=token)
        answered, heads = run.answered, HeadOutputs(run.trace)
        assert answered is not None  # it was asked for
        scores, vocabulary = answered.scores, answered.vocabulary
        number = vocabulary.number(word, scores, "word")
        numbers = [number] if other is None else [number, vocabulary.number(other, scores, "other")]
        try:
            with torch.no_grad(), run.decomposition:
                chosen = answered.logits[torch.tensor(numbers, device=scores.device)]
            with torch.inference_mode(False), torch.enable_grad():
                parts = run.decomposition.contributions(chosen, [()], heads.of_leaf)
        except NoDecomposition as reason:
            raise MhaError("Logits of this model cannot be split: {reason}.", reason=reason.phrase) from None
    n_layers, what = len(trace.layers), Phrase("Logits of this model")
    writers, vectors = by_writer(parts, heads, run.ids, n_layers, run.trace, what)
    writers = tuple(Writer("end") if writer.layer == n_layers else writer for writer in writers)
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
