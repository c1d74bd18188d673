"""Sentences as numbers: the model's input, the questions about each word, and the right answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mha_core.training.language import DECIDED, EVERYDAY, MAX_WORDS, Grammar, Mix, Sentence
from mha_core.training.lexicon import HIDDEN, PAD, START, Lexicon, lexicon
from mha_core.training.questions import HIDDEN_WORD, LINKS, QUESTIONS

SENTENCES = 24_000  # generated at a time, and read `EPOCHS` times with different words hidden
EPOCHS = 3
BATCH = 64
NOT_ASKED = -1  # instead of the position of an answer
LINK_NAMES = (*LINKS, "nothing")  # the last one: no answer in the sentence, [CLS] is right
NOTHING = len(LINKS)
NEIGHBOURS = [QUESTIONS.index("before"), QUESTIONS.index("after")]  # every word has these
ASKED = (*QUESTIONS, HIDDEN_WORD)  # the order gives a question's number in a batch

# The links whose mean losses are weighed against each other.
GROUPS = {
    "pronoun": ("pronoun to noun", "agreement: pronoun to noun"),
    "cue": ("cue to noun",),
    "describes": ("article to noun", "adjective to noun", "predicate to noun"),
    "doer": ("verb to subject", "auxiliary to subject", "subject to verb"),
    "object": ("verb to object", "object to verb", "object to preposition", "preposition to object"),
    "before": ("word before",),
    "after": ("word after",),
    "decider": ("pronoun to cue",),
    "nothing": ("nothing",),
}
GROUP_OF = np.array(
    [next(n for n, names in enumerate(GROUPS.values()) if link in names) for link in LINK_NAMES]
)
# Batches start at a random position, so that late positions are trained like early ones. With random
# positions from the start a model does not learn which words are neighbours: the first readings begin at 0.
IN_PLACE, SHIFTED = 5, 0.6  # readings that start at 0; share of shifted batches in the others
MAX_ROWS = 192  # of a group in a batch, chosen at random: more would cost time and teach little


class SentenceBatch(NamedTuple):
    """Sentences of similar length, and the questions about their words.

    `answers` are positions in `candidates`, for hidden words the word's number.
    """

    ids: Tensor  # (batch, L)
    padding: Tensor | None  # (batch, L), True where there is a word; None where all are words
    shift: int  # the number of the first position
    sentence: Tensor  # (row,)
    position: Tensor  # (row,)
    question: Tensor  # (row,), an index of ASKED
    group: Tensor  # (row,), an index of GROUPS; len(GROUPS) for hidden words
    answer: Tensor  # (row,)
    candidates: Tensor  # (word,): every word of the batch, padding left out


@dataclass(frozen=True, eq=False)
class Encoded:
    """Many sentences as arrays, padded to one length. Position 0 means "none"."""

    ids: np.ndarray  # (sentence, MAX_WORDS)
    lengths: np.ndarray  # (sentence,)
    pronoun: np.ndarray  # (sentence,)
    nouns: np.ndarray  # (sentence, 2): the noun that the pronoun refers to, and the other one
    cue: np.ndarray  # (sentence,)
    keys: np.ndarray  # (sentence, MAX_WORDS, question): position of the answer, 0 for nothing, or NOT_ASKED
    links: np.ndarray  # (sentence, MAX_WORDS, question): an index of LINK_NAMES, or NOT_ASKED

    def batch(self) -> tuple[Tensor, Tensor]:
        """All ids up to the longest sentence, and True where there is a word. (sentence, L) each"""
        length = self.lengths.max()
        return torch.from_numpy(self.ids[:, :length]), torch.from_numpy(words_at(self.lengths, length))


def words_at(lengths: np.ndarray, length: int) -> np.ndarray:
    """True where a padded sentence has a word. (sentence, length)"""
    return np.arange(length) < lengths[:, None]


def encode(sentences: Sequence[Sentence], words: Lexicon) -> Encoded:
    """Sentences as word numbers, with the positions of pronoun, nouns and cue, and of every answer."""
    n = len(sentences)
    ids = np.full((n, MAX_WORDS), words.number[PAD], np.int64)
    keys = np.full((n, MAX_WORDS, len(QUESTIONS)), NOT_ASKED, np.int8)
    links = np.full_like(keys, NOT_ASKED)
    numbers = {question: number for number, question in enumerate(QUESTIONS)}
    names = {name: number for number, name in enumerate(LINK_NAMES)}
    for row, sentence in enumerate(sentences):
        length = len(sentence.words)
        ids[row, :length] = [words.number[word] for word in sentence.words]
        keys[row, 1:length], links[row, 1:length] = 0, NOTHING
        for query, question, key, name in sentence.links:
            place = row, query, numbers[question]
            keys[place], links[place] = (NOT_ASKED, NOT_ASKED) if key is None else (key, names[name])
        before, after = NEIGHBOURS
        keys[row, 1:length, before] = np.arange(length - 1)
        links[row, 1:length, before] = names["word before"]
        keys[row, 1:length, after] = np.append(np.arange(2, length), 0)
        links[row, 1 : length - 1, after] = names["word after"]
    return Encoded(
        ids,
        np.array([len(sentence.words) for sentence in sentences]),
        np.array([sentence.pronoun for sentence in sentences]),
        np.array([sentence.nouns for sentence in sentences]).reshape(-1, 2),
        np.array([sentence.cue for sentence in sentences]),
        keys,
        links,
    )


class Batches:
    """An endless sequence of batches; batch n depends only on language, seed and mix."""

    def __init__(self, language: str, seed: int, mix: Mix = EVERYDAY):
        self.language, self.seed, self.mix = language, seed, mix
        self._epoch = -1
        self._prepared: list[SentenceBatch] = []

    def __getitem__(self, step: int) -> SentenceBatch:
        epoch, index = divmod(step, SENTENCES // BATCH)
        if epoch != self._epoch:
            self._epoch, self._prepared = epoch, self._prepare(epoch)
        return self._prepared[index]

    def _prepare(self, epoch: int) -> list[SentenceBatch]:
        words = lexicon(self.language)
        encoded = training_sentences(self.language, self.seed, epoch // EPOCHS, self.mix)
        rng = np.random.default_rng([self.seed, epoch])
        ids, hidden, links = hide(encoded, words, rng, self.mix.hidden)
        # Sorted by length, else random, and always in twos: the two sentences of a pair stay together, so
        # that their common part cancels out of the gradient. Other sentences are paired with one of their
        # length.
        others = np.flatnonzero(encoded.pronoun == 0)
        others = others[np.lexsort((rng.random(len(others)), encoded.lengths[others]))]
        twos = np.concatenate((np.flatnonzero(encoded.pronoun), others)).reshape(-1, 2)
        order = twos[np.lexsort((rng.random(len(twos)), encoded.lengths[twos].max(1)))].ravel()
        shifted = SHIFTED if epoch >= IN_PLACE else 0.0

        def batch(chosen: np.ndarray) -> SentenceBatch:
            """The chosen sentences, with all links of each group, or `MAX_ROWS` of them at random."""
            lengths, length = encoded.lengths[chosen], encoded.lengths[chosen].max()
            of_batch = links[chosen, :length]
            sentence, position, question = np.nonzero(of_batch != NOT_ASKED)
            group = GROUP_OF[of_batch[sentence, position, question]]
            mixed = rng.permutation(len(group))  # the first ones of each group in this order are used
            by_group = mixed[np.argsort(group[mixed], kind="stable")]
            counts = np.bincount(group, minlength=len(GROUPS))
            place = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
            kept = np.sort(by_group[place < MAX_ROWS])
            sentence, position, question, group = (
                part[kept] for part in (sentence, position, question, group)
            )
            present, words_here = words_at(lengths, length), ids[chosen, :length]
            candidates = np.unique(words_here[present])
            key = encoded.keys[chosen[sentence], position, question]
            answer = np.searchsorted(candidates, words_here[sentence, key])
            guessed, at = np.nonzero(hidden[chosen, :length] >= 0)
            return SentenceBatch(
                torch.from_numpy(words_here),
                None if present.all() else torch.from_numpy(present),
                int(rng.integers(0, MAX_WORDS - length + 1)) if rng.random() < shifted else 0,
                _rows(sentence, guessed),
                _rows(position, at),
                _rows(question, np.full(len(at), len(QUESTIONS))),
                _rows(group, np.full(len(at), len(GROUPS))),
                _rows(answer, hidden[chosen[guessed], at]),
                torch.from_numpy(candidates),
            )

        batches = [batch(chosen) for chosen in np.split(order, range(BATCH, len(order), BATCH))]
        return [batches[i] for i in rng.permutation(len(batches))]


def _rows(of_links: np.ndarray, of_hidden_words: np.ndarray) -> Tensor:
    return torch.from_numpy(np.append(of_links, of_hidden_words))


@lru_cache(maxsize=4)  # all chunks have the same size
def training_sentences(language: str, seed: int, chunk: int, mix: Mix = EVERYDAY) -> Encoded:
    """A chunk of training sentences, shared by all models that train with the same seed."""
    grammar, rng = Grammar(lexicon(language), mix), Random(f"{seed} {chunk}")
    pairs = (grammar.sentences(rng) for _ in range(SENTENCES // 2))
    return encode([sentence for pair in pairs for sentence in pair], grammar.lexicon)


def hide(
    encoded: Encoded, words: Lexicon, rng: np.random.Generator, share: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sentences with a share of their words hidden; the hidden words; and the remaining questions.

    Of the hidden words 80 % become [MASK], 10 % another word, and 10 % stay (Devlin et al. 2019, BERT). A
    pronoun to resolve is not hidden. A hidden word is no answer, and has only the questions for its
    neighbours; if the cue is hidden, nobody can tell what the pronoun and its predicate refer to. Shapes:
    (sentence, position), the same with NOT_ASKED for other words, and that of `Encoded.links`.
    """
    at, has_pronoun = np.arange(len(encoded.ids)), encoded.pronoun > 0
    last = words.number[HIDDEN] + len(words.known)
    can_hide = (
        words_at(encoded.lengths, MAX_WORDS) & (encoded.ids <= last) & (encoded.ids != words.number[START])
    )
    can_hide[at[has_pronoun], encoded.pronoun[has_pronoun]] = False
    hidden = can_hide & (rng.random(encoded.ids.shape) < share)
    links = encoded.links.copy()
    answers = np.maximum(encoded.keys, 0).reshape(len(at), -1)
    links[np.take_along_axis(hidden, answers.astype(np.int64), 1).reshape(links.shape)] = NOT_ASKED
    alone = np.setdiff1d(np.arange(len(QUESTIONS)), NEIGHBOURS)
    links[..., alone] = np.where(hidden[..., None], NOT_ASKED, links[..., alone])
    decided = np.isin(encoded.links, [LINK_NAMES.index(name) for name in DECIDED])
    decided &= encoded.keys == encoded.nouns[:, :1, None]
    links[decided & hidden[at, encoded.cue][:, None, None]] = NOT_ASKED
    chance = rng.random(encoded.ids.shape)
    other_words = rng.integers(words.number[HIDDEN] + 1, last + 1, encoded.ids.shape)
    ids = np.where(hidden & (chance < 0.8), words.number[HIDDEN], encoded.ids)
    ids = np.where(hidden & (chance >= 0.9), other_words, ids)
    return ids, np.where(hidden, encoded.ids, NOT_ASKED), links
