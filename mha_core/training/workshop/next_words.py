"""The training of decoders: the texts that they learn to continue, and the loss of the next word."""

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

    def filled(self, *args: Any) -> Any:
        self._verb, self._noun = "", PERSON
        return super().filled(*args)

    def _phrase(self, rng: Random, noun: Noun, *args: Any) -> Any:
        self._verb, self._noun = "", noun
        return super()._phrase(rng, noun, *args)

    def _slot(self, rng: Random, slot: str, *args: Any) -> Any:
        filled = super()._slot(rng, slot, *args)
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
