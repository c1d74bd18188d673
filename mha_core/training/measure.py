"""How well a small model does on pairs of sentences it has never seen, and which head shows it."""

from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np
import torch

from mha_core.attention import attention_weights
from mha_core.training.data import Encoded, encode
from mha_core.training.grammar import Grammar
from mha_core.training.lexicon import lexicon
from mha_core.training.model import SmallModel

PAIRS = 40  # of each pattern
READABLE = 0.95, 0.5  # accuracy and weight from which a head can be read without a guide


@dataclass(frozen=True)
class Scores:
    """Held-out scores. Layer and head count from 0; the head was chosen on the validation pairs.

    `answer` is how often the model's own answer is the right one of the two nouns. `accuracy` is how
    often the best head gives the right noun more weight than the other, `both` how often in both
    sentences of a pair; `right` and `wrong` are its mean weights on the two nouns. `famous` is the weight
    of that head on the right noun in each of the famous sentences.
    """

    answer: float
    accuracy: float
    both: float
    right: float
    wrong: float
    layer: int
    head: int
    agreement: float
    resolving: int  # heads of the last layer that are right in at least 95 %
    famous: tuple[float, ...]
    famous_right: tuple[bool, ...]


@cache
def pairs(language: str, split: str, *, agreement: bool = False, count: int = PAIRS) -> Encoded:
    """Minimal pairs of a held-out set, one sentence after the other, `count` for each pattern."""
    grammar = Grammar(lexicon(language))
    rng = Random(f"pairs {split}")
    names = ("agreement",) if agreement else grammar.names
    made = [s for name in names for _ in range(count) for s in grammar.pair(rng, name, split)]
    return encode(made, grammar.lexicon)


@torch.inference_mode()
def looked(model: SmallModel, made: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """What every head does at the pronouns, and which of the two nouns the model answers.

    (sentence, layer, head, 2) weights on the right and on the other noun; (sentence,) True where the
    right noun gets the higher score.
    """
    at = torch.arange(len(made.ids))
    length = int(made.lengths.max())
    ids = torch.from_numpy(made.ids[:, :length])
    pronoun, nouns = torch.from_numpy(made.pronoun), torch.from_numpy(made.nouns)
    padding = torch.arange(length) < torch.from_numpy(made.lengths)[:, None]
    hidden, flows = model(ids, rows=pronoun[:, None], padding=padding)
    weights = []
    for flow in flows:
        q, k, _, rule = flow.attended[1:]
        q = q if q.shape[2] == 1 else q[at, :, pronoun][:, :, None]
        row = attention_weights(q, k, rule)[:, :, 0]  # (sentence, head, key)
        weights.append(row.gather(2, nouns[:, None].expand(-1, row.shape[1], -1)))
    logits = model.logits(hidden[:, 0])
    of_nouns = logits.gather(1, ids.gather(1, nouns))
    return torch.stack(weights, 1).numpy(), (of_nouns[:, 0] > of_nouns[:, 1]).numpy()


@torch.inference_mode()
def two_hops(model: SmallModel, language: str = "en", *, count: int = PAIRS) -> dict:
    """How well the pronoun finds the right noun by two hops, ``A² A¹``, with the best pair of heads.

    The pair, `first` of the layer before the last and `second` of the last, both from 0, is chosen on
    validation pairs; `accuracy`, `right` and `wrong` are measured on test pairs as in `Scores`.
    """
    validation = _reached(model, pairs(language, "validation", count=count))
    value = (validation[..., 0] > validation[..., 1]).mean(0) + validation[..., 0].mean(0)
    first, second = (int(i) for i in np.unravel_index(value.argmax(), value.shape))
    right, wrong = _reached(model, pairs(language, "test", count=count))[:, first, second].T
    return {
        "first": first,
        "second": second,
        "accuracy": float((right > wrong).mean()),
        "right": float(right.mean()),
        "wrong": float(wrong.mean()),
    }


def _reached(model: SmallModel, made: Encoded) -> np.ndarray:
    """What the pronoun reaches by two hops. (sentence, head of layer 1, head of layer 2, noun)"""
    length = int(made.lengths.max())
    ids, nouns = torch.from_numpy(made.ids[:, :length]), torch.from_numpy(made.nouns)
    padding = torch.arange(length) < torch.from_numpy(made.lengths)[:, None]
    _, flows = model(ids, rows=torch.from_numpy(made.pronoun)[:, None], padding=padding)
    before, last = flows[-2].weights(), flows[-1].weights()[:, :, 0]
    to_nouns = before.gather(3, nouns[:, None, None].expand(-1, *before.shape[1:3], -1))
    return torch.einsum("bjt,bitn->bijn", last, to_nouns).numpy()


def best_head(weights: np.ndarray) -> tuple[int, int]:
    """The head with the largest sum of how often it is right and of its mean weight on the right noun."""
    right, wrong = weights[..., 0], weights[..., 1]
    value = (right > wrong).mean(0) + right.mean(0)
    layer, head = np.unravel_index(value.argmax(), value.shape)
    return int(layer), int(head)


def scores(model: SmallModel, language: str = "en", *, count: int = PAIRS) -> Scores:
    """Held-out scores of a model, its head chosen on validation pairs and scored on test pairs.

    `count` pairs of each pattern are looked at.
    """
    layer, head = best_head(looked(model, pairs(language, "validation", count=count))[0])
    weights, answers = looked(model, pairs(language, "test", count=count))
    right, wrong = weights[:, layer, head].T
    correct = right > wrong
    last = weights[:, -1]
    agreement, _ = looked(model, pairs(language, "test", agreement=True, count=count))
    agreed = agreement[..., 0] > agreement[..., 1]
    famous_weights, famous_answers = looked(model, famous(language))
    return Scores(
        answer=float(answers.mean()),
        accuracy=float(correct.mean()),
        both=float(correct.reshape(-1, 2).all(1).mean()),
        right=float(right.mean()),
        wrong=float(wrong.mean()),
        layer=layer,
        head=head,
        agreement=float(agreed.mean(0).max()),
        resolving=int(((last[..., 0] > last[..., 1]).mean(0) >= READABLE[0]).sum()),
        famous=tuple(float(w) for w in famous_weights[:, layer, head, 0]),
        famous_right=tuple(bool(a) for a in famous_answers),
    )


@cache
def famous(language: str) -> Encoded:
    """The pair that everybody knows, in the words of the language; never trained on."""
    return encode(Grammar(lexicon(language)).famous(), lexicon(language))
