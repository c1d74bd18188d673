"""Decoders: the texts that they learn to continue, their training, and how well they predict new texts."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mha_core.training.fit import Plan, Training
from mha_core.training.language import MAX_WORDS, Grammar, Mix, Phrases, parts
from mha_core.training.lexicon import START, Lexicon, Noun, lexicon
from mha_core.training.model import SmallModel
from mha_core.training.questions import NEXT_WORD

TEXTS = 6_400  # generated at a time, and read `EPOCHS` times
EPOCHS = 2
BATCH = 16  # texts, each of `MAX_WORDS` tokens
CHUNK_STEPS = EPOCHS * TEXTS // BATCH
HELD_OUT = 1_280  # texts that no model was trained on
TOLD = "told"
TOLD_SHARE = 20  # how often each sentence of `told` is there, for once of each other statement
COMMON, COMMON_SHARE = 24, 4  # first nouns of a class, and how much more often than the others they are there
ANIMATE = ("person", "man", "woman", "animal")
PERSON = Noun("", None, "person", "person")  # whoever does something if nobody has been named
MIX = Mix(
    adjective=0.2, reference=0.25, agreement=0.07, sentence_before=0.0, long=0.0, no_stop=0.0, unknown=0.12
)


class FittingPhrases(Phrases):
    """Phrases in which words go together, as `told` of the language's file says.

    A verb fits its subject, a noun the verb that it is the object of, and an adjective its noun. The verbs
    with objects are the class "told".
    """

    def __init__(self, words: Lexicon, mix: Mix):
        told = words.grammar["told"]
        self._objects = {
            verb: [noun for name in nouns.split() for noun in _named(words, name)]
            for verbs, nouns in told["objects"].items()
            for verb in verbs.split()
        }
        verbs = {verb[0]: verb for of_class in words.verbs.values() for verb in of_class}
        with_objects = tuple(verbs[verb] for verb in self._objects)
        articles = words.grammar["articles"] | told.get("articles", {})
        grammar = words.grammar | {"articles": articles}
        super().__init__(replace(words, grammar=grammar, verbs=words.verbs | {TOLD: with_objects}), mix)
        self._does, self._is = (
            {group: set(fits.split()) for groups, fits in told[name].items() for group in groups.split()}
            for name in ("does", "is")
        )
        self._base = {form: verb[0] for verb in verbs.values() for form in verb}
        self._verb, self._noun = "", PERSON

    def _phrase(self, noun: Noun, *args: Any) -> Any:
        self._verb, self._noun = "", noun
        return super()._phrase(noun, *args)

    def _slot(self, slot: str, *args: Any) -> Any:
        filled = super()._slot(slot, *args)
        if slot.partition(".")[0] in self.lexicon.verbs:
            self._verb = self._base[filled[0][-1].text]
        return filled

    def _verbs(self, name: str, form: str) -> Any:
        verbs, subject = super()._verbs(name, form), self._noun
        if form == "participle" and subject.kind == "other" and subject.group != "animal":  # it was eaten
            does = {verb for verb, objects in self._objects.items() if subject in objects}
        else:
            does = self._does.get(subject.group, self._does["person"])
        return [verb for verb in verbs if verb[0] in does] or verbs

    def _nouns(self, name: str, form: str) -> Any:
        nouns, objects = super()._nouns(name, form), self._objects.get(self._verb)
        if not objects or name == "place":
            return [*list(nouns[:COMMON]) * COMMON_SHARE, *nouns]
        of_class = [noun for noun in objects if noun.group == name]
        fitting = of_class or (nouns if name in ANIMATE else objects)
        return [noun for noun in fitting if noun.many or form != "plural"] or nouns

    def _members(self, name: str, noun: Noun | None) -> Any:
        members = super()._members(name, noun)
        fits = self._is.get((noun or self._noun).group) if name == "adjective" else None
        return [word for word in members if word in fits] if fits else members


def _named(words: Lexicon, name: str) -> Sequence[Noun]:
    """The noun of that name, or those of a {class}; a class of words has nouns without an article."""
    group = name.strip("{}")
    if group == name:
        return [next(noun for noun in words.nouns if noun.one == name)]
    if group in words.groups:
        return words.groups[group]
    return [Noun(word, None, group, "other", is_name=True) for word in words.words[group]]


class Texts:
    """An endless sequence of batches of ids (text, word); batch n depends only on language and seed."""

    def __init__(self, language: str, seed: int | str):
        self.language, self.seed = language, seed

    def __getitem__(self, step: int) -> Tensor:
        epoch, index = divmod(step, TEXTS // BATCH)
        chunk = texts(self.language, self.seed, epoch // EPOCHS)
        order = np.random.default_rng(epoch).permutation(TEXTS)
        return torch.from_numpy(chunk[order[index * BATCH : (index + 1) * BATCH]])


@lru_cache(maxsize=8)
def texts(language: str, seed: int | str, chunk: int, count: int = TEXTS) -> np.ndarray:
    """A chunk of texts: [CLS] and sentences, the last one cut at `MAX_WORDS` tokens. (text, word)"""
    words, rng = lexicon(language), Random(f"texts {seed} {chunk}")
    grammar = _grammar(language)
    ids = np.empty((count, MAX_WORDS), np.int64)
    for row in ids:
        text = [words.number[START]]
        while len(text) < MAX_WORDS:
            sentence = rng.choice(grammar.sentences(rng))
            text += [words.number[word] for word in sentence.words[1:]]
        row[:] = text[:MAX_WORDS]
    return ids


@cache
def _grammar(language: str) -> Grammar:
    grammar = Grammar(lexicon(language), MIX)
    grammar.phrases = FittingPhrases(grammar.lexicon, MIX)
    told = [parts(sentence) for sentence in grammar.lexicon.grammar[TOLD]["sentences"]]
    grammar.statements += told * TOLD_SHARE
    return grammar


def next_word_losses(model: SmallModel, ids: Tensor, n_known: int) -> Tensor:
    """``−log p(next word)`` at each place of the texts where the next word is a known one. (place,)"""
    passed = model(ids[:, :-1])
    logits = model.logits(model.read(passed, NEXT_WORD), slice(n_known)).flatten(0, 1)
    wanted = ids[:, 1:].flatten()
    return F.cross_entropy(logits[wanted < n_known], wanted[wanted < n_known], reduction="none")


class NextWordTraining(Training):
    """The training of a decoder, which learns the next word in place of answers."""

    def __init__(self, plan: Plan):
        super().__init__(plan)
        self.batches = Texts(plan.language, plan.seed)

    def loss(self, batch: Tensor) -> Tensor:
        """The mean CE of the next word."""
        return next_word_losses(self.model, batch, self.n_known).mean()


def training_of(plan: Plan) -> Training:
    """The training of a plan before its first step."""
    return NextWordTraining(plan) if plan.is_decoder else Training(plan)


# How well they predict, beside counts of words


@torch.inference_mode()
def perplexities(model: SmallModel, language: str, *, seed: int, steps: int) -> dict[str, float]:
    """Perplexities on the same held-out texts, and the number of predicted `words`.

    A perplexity is ``exp(mean −log p(word))`` over the known words of the texts. `model` was trained for
    `steps` steps from this seed; `trigram` and `unigram` are of counts in the same training texts, with the
    two words before and with none.
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
