"""The report of a shipped model: its held-out scores, and temperatures that make it as sure as it is right.

The models learn from generated sentences, on which they are nearly always right. On sentences that people
write they are right less often, and would be as sure. Dividing the scores of a question by a temperature
changes no answer, only its probability (temperature scaling, Guo et al. 2017). The temperatures are fitted to
one half of the sentences of `written`; what the manifest says of the model is measured on the other half.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mha_core.traces.answers import SURE
from mha_core.training import evaluation
from mha_core.training.data import LINK_NAMES, Encoded
from mha_core.training.evaluation import (
    best_head,
    by_link,
    in_batches,
    link_weights,
    noun_weights,
)
from mha_core.training.language import MAX_WORDS, Grammar
from mha_core.training.lexicon import HIDDEN, START, lexicon
from mha_core.training.model import SmallModel
from mha_core.training.questions import HALVES, HIDDEN_WORD, LINKS, NOTHING, QUESTIONS, written

PAIRS_PER_SHAPE = 8  # of each pattern in each shape
MAX_UNKNOWN_SCORED = 3  # most unknown words in a scored sentence
TEMPERATURES = np.geomspace(1, 12, 60)


def question_scores(model: SmallModel, language: str = "en") -> dict[str, Any]:
    """Held-out scores of all questions: shares of right answers among all words of the sentence.

    - `links`: for each kind of link, how often the answer is `right`, and the mean `weight` of the question's
      best head on the word that answers
    - `questions`: the means of both over the links of a question, and that head, from 0
    - `nothing`: how often the answer is [CLS] if there is nothing to find
    - `by_shape`: how often the right one of two nouns is the answer, for each held-out sentence shape
    - `shapes`: the mean of `by_shape`
    - `unknown`: right answers with 0 to 3 unknown words; `long`: with 33 to 64 tokens
    - `hidden`: how often the most probable word is the hidden one
    - `divergence`: the mean Jensen–Shannon divergence of the rows of two heads of the last layer, in bits
    """
    right, material = by_link(model, evaluation.everyday(language)), evaluation.material(language)
    measured = link_weights(model, material)
    links: dict[str, dict[str, float]] = {}
    questions: dict[str, dict[str, float]] = {}
    for question in (question for question in QUESTIONS if question in model.questions):
        names = [name for name, of in LINKS.items() if of == question and name in right]
        weights = [measured.weight[material.kind == LINK_NAMES.index(name)][:, -1].mean(0) for name in names]
        heads = list(model.questions[question])
        best = heads[int(np.mean(weights, 0)[heads].argmax())]
        links |= {
            name: {"right": right[name], "weight": float(weight[best])}
            for name, weight in zip(names, weights, strict=True)
        }
        questions[question] = {
            "right": float(np.mean([right[name] for name in names])),
            "weight": float(np.mean(weights, 0)[best]),
            "head": best,
        }
    shapes = {}
    for shape in Grammar(lexicon(language)).held_out_shapes:
        pairs = evaluation.pairs(language, "test", count=PAIRS_PER_SHAPE, shape=shape)
        shapes[shape] = float(noun_weights(model, pairs)[1].mean())

    def shown(sentences: Encoded) -> dict[str, float]:
        shares = by_link(model, sentences)
        return {name: shares[name] for name in ("pronoun to noun", "verb to subject", "verb to object")}

    return {
        "questions": questions,
        "links": links,
        "nothing": right["nothing"],
        "shapes": float(np.mean([*shapes.values()])),
        "by_shape": shapes,
        "unknown": {
            str(n): shown(evaluation.everyday(language, unknown=n)) for n in range(MAX_UNKNOWN_SCORED + 1)
        },
        "long": shown(evaluation.everyday(language, long=True)),
        "hidden": hidden_words(model, language),
        "divergence": divergence(measured.weights),
    }


@torch.inference_mode()
def hidden_words(model: SmallModel, language: str) -> float:
    """How often the most probable word is the one behind [MASK], with one in each held-out sentence."""
    words, sentences = lexicon(language), evaluation.everyday(language)
    rng = np.random.default_rng(0)
    at = rng.integers(1, sentences.lengths)
    numbers = np.arange(len(sentences.ids))
    hidden, ids = sentences.ids[numbers, at], sentences.ids.copy()
    ids[numbers, at] = words.number[HIDDEN]
    right = []
    for start, batch, padding in in_batches(model, replace(sentences, ids=ids)):
        of_batch = torch.arange(len(batch), device=batch.device)
        place = torch.from_numpy(at[start : start + len(batch)]).to(batch.device)
        read = model.read_rows(model(batch, padding=padding), of_batch, place, model.gates((HIDDEN_WORD,)))
        logits = model.logits(read, slice(len(words.vocabulary) - len(words.spares)))
        right.append(logits.argmax(-1).cpu().numpy() == hidden[start : start + len(batch)])
    return float(np.concatenate(right).mean())


def divergence(weights: Sequence[np.ndarray]) -> float:
    """The mean Jensen–Shannon divergence between the rows of two heads of the last layer, in bits.

    ``JS(p, q) = (KL(p ‖ m) + KL(q ‖ m)) / 2`` with ``m = (p + q) / 2``, over all rows and pairs of heads; 0
    for one head. `weights` are of sentences, each (layer, head, query, key). Source: Lin 1991.
    """
    total, count = 0.0, 0
    for of_sentence in weights:
        rows = of_sentence[-1].astype(float)
        for one in range(len(rows)):
            for other in range(one):
                p, q = rows[one], rows[other]
                middle = (p + q) / 2
                for part in (p, q):
                    positive = part > 0  # a weight of 0 adds nothing
                    total += (part[positive] * np.log2(part[positive] / middle[positive])).sum() / 2
                count += len(p)
    return total / max(1, count)


@torch.inference_mode()
def two_hops(model: SmallModel, language: str = "en", *, count: int = evaluation.PAIRS) -> dict:
    """How well the pronoun finds the right noun by two hops, ``A² A¹``, with the best pair of heads.

    The pair, `first` in the layer before the last and `second` in the last, both from 0, is chosen on
    validation pairs; `accuracy`, `right` and `wrong` are measured on test pairs as in `HeldOutScores`.
    """
    first, second = best_head(_two_hop_weights(model, evaluation.pairs(language, "validation", count=count)))
    weights = _two_hop_weights(model, evaluation.pairs(language, "test", count=count))
    right, wrong = weights[:, first, second].T
    return {
        "first": first,
        "second": second,
        "accuracy": float((right > wrong).mean()),
        "right": float(right.mean()),
        "wrong": float(wrong.mean()),
    }


def _two_hop_weights(model: SmallModel, sentences: Encoded) -> np.ndarray:
    """``A² A¹`` from the pronoun to both nouns. (sentence, head of layer 1, head of layer 2, noun)"""
    (ids, padding), nouns = sentences.batch(), torch.from_numpy(sentences.nouns)
    flows, pronoun = model(ids, padding=padding).flows, torch.from_numpy(sentences.pronoun)
    before, last = flows[-2].weights(), flows[-1].weights()[torch.arange(len(ids)), :, pronoun]
    to_nouns = before.gather(3, nouns[:, None, None].expand(-1, *before.shape[1:3], -1))
    return torch.einsum("bjt,bitn->bijn", last, to_nouns).numpy()


# How sure the answers are


@torch.inference_mode()
def scored(model: SmallModel, language: str, half: str) -> list[tuple[str, torch.Tensor, int]]:
    """Questions that a model has heads for, the scores of all possible answers, and which of these is right.

    No temperature is in the scores.
    """
    words, found = lexicon(language), []
    for text, question, word, answer in written(language)[half]:
        if question not in model.questions:
            continue
        tokens, numbers = words.cut(text, limit=MAX_WORDS)
        read = model.read(model(torch.tensor([numbers])), question)[0, tokens.index(word)]
        could_be = sorted({*numbers})
        wanted = words.number[START] if answer == NOTHING else numbers[tokens.index(answer)]
        found.append((question, model.logits(read, torch.tensor(could_be)), could_be.index(wanted)))
    return found


def temperatures(model: SmallModel, language: str) -> dict[str, float]:
    """The temperature of each question with the least Brier score on the first half.

    The score is the squared distance of all probabilities from 1 for the right answer and 0 for the others
    (Brier 1950). No temperature is below 1: an answer is never made surer than the model is.
    """
    found = scored(model, language, HALVES[0])

    def score(question: str, temperature: float) -> float:
        total = 0.0
        for asked, logits, right in found:
            if asked == question:
                chances = (logits / temperature).softmax(-1)
                chances[right] -= 1
                total += float((chances**2).sum())
        return total

    fitted = {}
    for question in sorted({asked for asked, *_ in found}, key=QUESTIONS.index):
        scores = [score(question, temperature) for temperature in TEMPERATURES]
        fitted[question] = round(float(TEMPERATURES[int(np.argmin(scores))]), 3)
    return fitted


def reliability(model: SmallModel, language: str) -> dict[str, float]:
    """How often the model is right on sentences written by hand, and how often where it says so.

    `asked` questions; `right`, the share of right answers; `sure`, the share of answers with a probability of
    at least `SURE`; `sure_right`, the share of right ones among these.
    """
    sure, right = [], []
    for question, logits, wanted in scored(model, language, HALVES[1]):
        chances = (logits / model.temperatures.get(question, 1.0)).softmax(-1)
        sure.append(float(chances.max()) >= SURE)
        right.append(int(chances.argmax()) == wanted)
    certain = np.array(sure)
    return {
        "asked": len(right),
        "right": float(np.mean(right)),
        "sure": float(certain.mean()),
        "sure_right": float(np.array(right)[certain].mean()) if certain.any() else 1.0,
    }
