"""Answers that are as sure as they are right: a temperature for each question.

The models learn from generated sentences, on which they are nearly always right. On sentences that people
write they are right less often, and would be as sure. Dividing the scores of a question by a temperature
changes no answer, only its probability (temperature scaling, Guo et al. 2017). The temperatures are fitted to
one half of the sentences of `written`; what the manifest says of the model is measured on the other half.
"""

import numpy as np
import torch

from mha_core.traces.answers import SURE
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import START, lexicon
from mha_core.training.model import SmallModel
from mha_core.training.questions import QUESTIONS
from mha_core.training.written import HALVES, NOTHING, written

TEMPERATURES = np.geomspace(1, 12, 60)


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
