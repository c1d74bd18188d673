"""Published findings about single heads, measured again on our own sentences.

A finding is one head of one published model, its role, and the paper's number. Papers count layers and heads
from 1 (Clark et al. 2019) or from 0 (Wang et al. 2022): here all count from 0, and `printed` is the name in
the paper. Our sentences are short and few: our score does not repeat the paper's experiment. It shows whether
the head plays its role on these sentences.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from mha_core import resources
from mha_core.analysis.citation import citation
from mha_core.analysis.patterns import DISTANCE
from mha_core.errors import MhaError, Phrase
from mha_core.traces.tokens import Tokens
from mha_core.traces.trace import AttentionTrace

WORD = re.compile(r"\w+(?:['’]\w+)?")
LINK = "link: "  # prefix of the measures of grammar
Trace = Callable[[str], AttentionTrace]


@dataclass(frozen=True)
class Finding:
    """One head, its role, and the published number (None if the paper only names the head).

    `baseline` is the score that the paper reports for a simple rule, such as the word at a fixed distance.
    """

    model: str
    layer: int
    head: int
    measure: str
    paper: float | None
    source: Phrase
    printed: str
    baseline: float | None = None


@dataclass(frozen=True)
class MeanScore:
    """Our score: the mean over n items."""

    score: float
    n: int


def findings(model: str) -> tuple[Finding, ...]:
    """The findings about a model, by its id with or without the owner; empty for a model not in the papers.

    ``findings("openai-community/gpt2")`` returns those of GPT-2 small.
    """
    name = _catalogue()["models"].get(model.rsplit("/", 1)[-1].lower())
    return tuple(
        Finding(
            **entry
            | {"layer": entry["layer"] - 1, "head": entry["head"] - 1, "source": citation(**entry["source"])}
        )
        for entry in _catalogue()["findings"]
        if entry["model"] == name
    )


def measure(finding: Finding, trace: Trace) -> MeanScore:
    """The score of a head on our sentences; `trace` is the model, a function from a text to its trace.

    - "link: …": the share of words whose syntactic head gets the largest weight among all other words.
      Weights are summed over the pieces of a key word and averaged over the pieces of a query word;
      special tokens do not count (Clark et al. 2019, section 4).
    - "previous token", "next token", "first token": the mean weight ``A[m, m − 1]``, ``A[m, m + 1]``,
      ``A[m, 0]``.
    - "duplicate" and "induction": a list of words is repeated; the mean weight from a piece in the second
      list to the same piece in the first, or to the piece after it (Olsson et al. 2022).
    - "name mover" and "second subject": "When Mary and John went …, John gave a drink to": the mean weight
      from the last piece to the correct next name, or to the second "John" (Wang et al. 2022).

    Raises `MhaError` for a model without that layer or head.
    """
    items = np.array(list(MEASURES[finding.measure.split(":")[0]](finding, trace)), float)
    return MeanScore(float(items.mean()), len(items))


def _links(finding: Finding, trace: Trace) -> Iterator[bool]:
    relation = finding.measure.removeprefix(LINK)
    for sentence in _catalogue()["sentences"]:
        if relation not in sentence["links"]:
            continue
        model_trace, text = trace(sentence["text"]), sentence["text"]
        spans = [word.span() for word in WORD.finditer(text)]
        weights = between_words(_weights(finding, model_trace), model_trace.tokens, spans)
        np.fill_diagonal(weights, -1.0)
        for link in sentence["links"][relation]:
            dependent, head = (_word_index(text, spans, word) for word in link.split())
            yield weights[dependent].argmax() == head


def _positions(finding: Finding, trace: Trace) -> Iterator[float]:
    for sentence in _catalogue()["sentences"]:
        weights = _weights(finding, trace(sentence["text"]))
        if finding.measure == "first token":
            yield from weights[1:, 0]
        else:
            yield from np.diagonal(weights, DISTANCE[finding.measure])


def _repeated(finding: Finding, trace: Trace) -> Iterator[float]:
    offset = finding.measure == "induction"
    for words in _catalogue()["lists"]:
        text = f"Words: {words} {words}"
        model_trace = trace(text)
        middle = text.index(words) + len(words)
        starts = [start for start, end in model_trace.tokens.spans if end > start]
        pieces = [at for at, (start, end) in enumerate(model_trace.tokens.spans) if end > start]
        first = [
            at for at, start in zip(pieces, starts, strict=True) if text.index(words) - 1 <= start < middle
        ]
        second = [at for at, start in zip(pieces, starts, strict=True) if start >= middle]
        if len(first) != len(second):
            raise MhaError(
                "The tokenizer splits the same list in two different ways; nothing can be compared."
            )
        weights = _weights(finding, model_trace)
        for again, before in zip(second, first, strict=True):
            yield weights[again, before + offset]


def _names(finding: Finding, trace: Trace) -> Iterator[float]:
    mover = finding.measure == "name mover"
    for first, second in _catalogue()["names"]:
        for sentence in _catalogue()["gifts"]:
            for a, b in ((first, second), (second, first)):
                text = sentence.format(a=a, b=b, s=b)
                start = text.index(a) if mover else text.rindex(b)
                model_trace = trace(text)
                keys = _pieces(model_trace.tokens, (start, start + len(a if mover else b)))
                last = _pieces(model_trace.tokens, (len(text) - 2, len(text)))[-1]
                yield _weights(finding, model_trace)[last, keys].sum()


MEASURES = {
    "link": _links,
    "previous token": _positions,
    "next token": _positions,
    "first token": _positions,
    "duplicate": _repeated,
    "induction": _repeated,
    "name mover": _names,
    "second subject": _names,
}


def between_words(weights: np.ndarray, tokens: Tokens, spans: list[tuple[int, int]]) -> np.ndarray:
    """Weights from word to word: summed over pieces of the key word, averaged over pieces of the query word.

    weights (query, key), spans of the words in the text → (word, word).
    Source: Clark et al. 2019, section 4.1.
    """
    pieces = [_pieces(tokens, span) for span in spans]
    on_words = np.stack([weights[:, part].sum(1) for part in pieces], 1)
    return np.stack([on_words[part].mean(0) for part in pieces])


def _weights(finding: Finding, trace: AttentionTrace) -> np.ndarray:
    if finding.layer >= len(trace.layers):
        raise MhaError(
            "This model has {n_layers} layers; the paper speaks of {layers}.",
            n_layers=len(trace.layers),
            layers=finding.printed,
        )
    return trace.layers[finding.layer].weights(finding.head).astype(float)


def _pieces(tokens: Tokens, span: tuple[int, int]) -> list[int]:
    """Positions of the pieces of one part of the text."""
    positions = [at for at, (start, end) in enumerate(tokens.spans) if start < span[1] and span[0] < end]
    if not positions:
        raise MhaError("The tokenizer has no piece at “{word}”.", word=tokens.text[slice(*span)])
    return positions


def _word_index(text: str, spans: list[tuple[int, int]], word: str) -> int:
    """The index of a word among `spans`: "the:2" is the second "the"."""
    name, _, nth = word.partition(":")
    return [at for at, span in enumerate(spans) if text[slice(*span)] == name][int(nth or 1) - 1]


@cache
def _catalogue() -> dict:
    return json.loads(resources.path("assets", "published_heads.json").read_text(encoding="utf-8"))
