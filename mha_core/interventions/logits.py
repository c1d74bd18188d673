"""The logits of words at a token, which a trace does not hold: its model is run once more."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from mha_core import device as devices
from mha_core.errors import MhaError, Phrase, shown
from mha_core.interventions.traced_model import run_again
from mha_core.traces.trace import AttentionTrace


def logits(
    trace: AttentionTrace,
    token: int | str | None = None,
    words: Sequence[int | str] | None = None,
    *,
    source: Any = None,
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
