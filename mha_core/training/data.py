"""Sentences as numbers: what the model reads, where it is asked, and what would be right.

It is asked at pronouns (which noun does this stand for?) and at hidden words (which word was this?).
"""

from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mha_core.training.language import EVERYDAY, MAX_WORDS, Grammar, Mix, Sentence
from mha_core.training.lexicon import HIDDEN, PAD, Lexicon, lexicon

SENTENCES = 24_000  # generated at a time, and read `EPOCHS` times with other words hidden
EPOCHS = 4
BATCH = 64
NONE = -100  # no answer is asked for


class Batch(NamedTuple):
    """Sentences of about one length. A row that is asked for nothing has target `NONE`."""

    ids: Tensor  # (batch, L)
    padding: Tensor | None  # (batch, L), True where there is a word; None where all are words
    rows: Tensor  # (batch, R): the positions that are asked
    targets: Tensor  # (batch, R): the right words
    is_pronoun: Tensor  # (batch, R)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Many sentences as arrays, padded to one length. Position 0 stands for "none"."""

    ids: np.ndarray  # (sentence, MAX_WORDS)
    lengths: np.ndarray  # (sentence,)
    pronoun: np.ndarray  # (sentence,)
    nouns: np.ndarray  # (sentence, 2): what the pronoun stands for, and the other noun
    cue: np.ndarray  # (sentence,)

    def batch(self) -> tuple[Tensor, Tensor]:
        """All ids up to the longest sentence, and True where there is a word. (sentence, L) each"""
        length = self.lengths.max()
        return torch.from_numpy(self.ids[:, :length]), torch.from_numpy(words_at(self.lengths, length))


def words_at(lengths: np.ndarray, length: int) -> np.ndarray:
    """True where a padded sentence has a word. (sentence, length)"""
    return np.arange(length) < lengths[:, None]


def encode(sentences: list[Sentence], words: Lexicon) -> Encoded:
    """Sentences as word numbers with the positions of pronoun, nouns and cue."""
    ids = np.full((len(sentences), MAX_WORDS), words.number[PAD], np.int64)
    for row, sentence in zip(ids, sentences, strict=True):
        row[: len(sentence.words)] = [words.number[word] for word in sentence.words]
    return Encoded(
        ids,
        np.array([len(sentence.words) for sentence in sentences]),
        np.array([sentence.pronoun for sentence in sentences]),
        np.array([sentence.nouns for sentence in sentences]).reshape(-1, 2),
        np.array([sentence.cue for sentence in sentences]),
    )


class Batches:
    """Batches without end; batch n depends on language, seed and mix alone."""

    def __init__(self, language: str, seed: int, mix: Mix = EVERYDAY):
        self.language, self.seed, self.mix = language, seed, mix
        self._epoch, self._prepared = -1, []

    def __getitem__(self, step: int) -> Batch:
        epoch, index = divmod(step, SENTENCES // BATCH)
        if epoch != self._epoch:
            self._epoch, self._prepared = epoch, self._prepare(epoch)
        return self._prepared[index]

    def _prepare(self, epoch: int) -> list[Batch]:
        words = lexicon(self.language)
        encoded = training_sentences(self.language, self.seed, epoch // EPOCHS, self.mix)
        rng = np.random.default_rng([self.seed, epoch])
        ids, targets = hide(encoded, words, rng, self.mix.hidden)
        has_target = targets != NONE
        count = has_target.sum(1)
        # The positions with a target come first in each row, in reading order.
        positions = np.argsort(~has_target, axis=1, kind="stable")
        targets = np.take_along_axis(targets, positions, 1)
        is_pronoun = (positions == encoded.pronoun[:, None]) & (encoded.pronoun[:, None] > 0)
        # By length, else by chance, and always by twos. The two sentences of a pair stay together: what they
        # have in common then cancels out of the gradient, and what one word changes remains. The others are
        # put beside one of their length.
        others = np.flatnonzero(encoded.pronoun == 0)
        others = others[np.lexsort((rng.random(len(others)), encoded.lengths[others]))]
        twos = np.concatenate((np.flatnonzero(encoded.pronoun), others)).reshape(-1, 2)
        order = twos[np.lexsort((rng.random(len(twos)), encoded.lengths[twos].max(1)))].ravel()
        batches = []
        for chosen in np.split(order, range(BATCH, len(order), BATCH)):
            length, n_rows = encoded.lengths[chosen].max(), max(1, count[chosen].max())
            full = encoded.lengths[chosen].min() == length
            present = None if full else torch.from_numpy(words_at(encoded.lengths[chosen], length))
            batches.append(
                Batch(
                    torch.from_numpy(ids[chosen, :length]),
                    present,
                    torch.from_numpy(positions[chosen, :n_rows]),
                    torch.from_numpy(targets[chosen, :n_rows]),
                    torch.from_numpy(is_pronoun[chosen, :n_rows]),
                )
            )
        return [batches[i] for i in rng.permutation(len(batches))]


@lru_cache(maxsize=4)  # all chunks have one size
def training_sentences(language: str, seed: int, chunk: int, mix: Mix = EVERYDAY) -> Encoded:
    """A chunk of training sentences; several models that train with one seed share it."""
    grammar, rng = Grammar(lexicon(language), mix), Random(f"{seed} {chunk}")
    pairs = (grammar.sentences(rng) for _ in range(SENTENCES // 2))
    return encode([sentence for pair in pairs for sentence in pair], grammar.lexicon)


def hide(
    encoded: Encoded, words: Lexicon, rng: np.random.Generator, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """The sentences with a share of their words hidden, and the right word wherever the model is asked.

    Of the hidden words 80 % become [MASK], 10 % another word, and 10 % stay (Devlin et al. 2019, BERT).
    The pronoun that was resolved stays in sight, and is asked for the noun that it stands for.
    """
    at = np.arange(len(encoded.ids))
    has_pronoun = encoded.pronoun > 0
    can_hide = words_at(encoded.lengths, MAX_WORDS)
    can_hide[:, 0] = False  # [CLS]
    can_hide[at[has_pronoun], encoded.pronoun[has_pronoun]] = False
    hidden = can_hide & (rng.random(encoded.ids.shape) < share)
    targets = np.where(hidden, encoded.ids, NONE)
    answers = encoded.ids[at, encoded.nouns[:, 0]]
    # Where the noun or the cue is hidden nobody can answer: the pronoun is not asked.
    answerable = has_pronoun & ~hidden[at, encoded.nouns[:, 0]] & ~hidden[at, encoded.cue]
    targets[at[answerable], encoded.pronoun[answerable]] = answers[answerable]
    chance = rng.random(encoded.ids.shape)
    other_words = rng.integers(words.number[HIDDEN] + 1, len(words.vocabulary), encoded.ids.shape)
    ids = np.where(hidden & (chance < 0.8), words.number[HIDDEN], encoded.ids)
    return np.where(hidden & (chance >= 0.9), other_words, ids), targets
