"""How well a decoder predicts new texts, beside what counting words in its training texts does.

The perplexity is ``exp(mean −log p(word))`` over the known words of texts that nobody was trained on.
"""

import numpy as np
import torch

from mha_core.training.lexicon import lexicon
from mha_core.training.model import SmallModel
from mha_core.training.workshop.next_words import BATCH, CHUNK_STEPS, next_word_losses, texts

HELD_OUT = 1_280  # texts


@torch.inference_mode()
def perplexities(model: SmallModel, language: str, *, seed: int, steps: int) -> dict[str, float]:
    """Perplexities on the same held-out texts, and the number of predicted `words`.

    `model` was trained for `steps` steps from this seed; `trigram` and `unigram` are of counts in the same
    training texts, with the two words before and with none.
    """
    words = lexicon(language)
    n_known = len(words.vocabulary) - len(words.spares)
    held_out = texts(language, "held out", 0, HELD_OUT)
    losses = [next_word_losses(model, batch, n_known) for batch in torch.from_numpy(held_out).split(BATCH)]
    n_chunks = -(-steps // CHUNK_STEPS)
    trained = np.concatenate([texts(language, seed, chunk) for chunk in range(n_chunks)])
    chances = counted_chances(trained, held_out, len(words.vocabulary), n_known)
    unigram, trigram = (float(np.exp(-np.log(chances[n]).mean())) for n in (1, 3))
    own = float(torch.cat(losses).mean().exp())
    return {"model": own, "trigram": trigram, "unigram": unigram, "words": len(chances[1])}


def counted_chances(
    trained: np.ndarray, held_out: np.ndarray, n_words: int, n_known: int
) -> dict[int, np.ndarray]:
    """The probability of each held-out word, by counts of 1, 2 and 3 words in a row of the trained texts.

    ``p_n = (c(context, word) + t(context) p_{n−1}) / (c(context) + t(context))``, where c counts how often
    and t how many different known words follow the context; ``p_0 = 1/n_known``.
    Source: Witten and Bell 1991.
    """
    wanted = held_out[:, 1:] < n_known
    chances = {0: np.full(int(wanted.sum()), 1 / n_known)}
    for n in (1, 2, 3):
        contexts, words = _contexts(trained, n, n_words, n_known)
        seen, times = np.unique(contexts * n_words + words, return_counts=True)
        context, first = np.unique(seen // n_words, return_index=True)
        counts, types = np.add.reduceat(times, first), np.diff(np.append(first, len(seen)))
        asked, words = _contexts(held_out, n, n_words, n_known)
        at, found = _find(context, asked)
        place, is_seen = _find(seen, asked * n_words + words)
        count = np.where(is_seen, times[place], 0)
        total, kinds = (np.where(found, one[at], 0) for one in (counts, types))
        mixed = (count + kinds * chances[n - 1]) / np.maximum(total + kinds, 1)
        chances[n] = np.where(found, mixed, chances[n - 1])
    return chances


def _contexts(ids: np.ndarray, n: int, n_words: int, n_known: int) -> tuple[np.ndarray, np.ndarray]:
    """For each known word after the first of a text: the n − 1 words before as one number, and the word.

    What is before the text is read as word 0, padding.
    """
    padded = np.pad(ids, ((0, 0), (1, 0)))
    context = np.zeros_like(ids[:, 1:])
    for back in range(n - 1, 0, -1):
        context = context * n_words + padded[:, 2 - back : padded.shape[1] - back]
    known = ids[:, 1:] < n_known
    return context[known], ids[:, 1:][known]


def _find(ordered: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of numbers in an ordered array, and whether they are there."""
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return at, ordered[at] == wanted
