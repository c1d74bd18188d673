"""Fixtures of the training tests: plans of tiny models, and sentences of both small languages."""

from dataclasses import replace
from random import Random

import pytest

from mha_core.training.fit import Plan
from mha_core.training.language import EVERYDAY, NEUTRAL_SHAPE, Grammar, Noun, Sentence
from mha_core.training.lexicon import LANGUAGES, lexicon

PAIRS = 3000  # for training, with known words only, and as many with unknown ones


@pytest.fixture
def tiny():
    """`tiny(steps=…)`: a plan for a model of 2 heads and 8 dimensions."""

    def make(**settings) -> Plan:
        return Plan(**{"h": 2, "d_model": 8, "steps": 23, "seed": 3, **settings})

    return make


class Corpus:
    """A small language, and the same pairs of its sentences in every session."""

    def __init__(self, language: str):
        self.language, self.words = language, lexicon(language)
        self.grammar = grammar = Grammar(self.words, replace(EVERYDAY, unknown=0.0))
        self.noun = {form: noun for noun in self.words.nouns for form in (noun.one, noun.many) if form}
        rng = Random(f"corpus {language}")
        self.train = [grammar.sentences(rng) for _ in range(PAIRS)]
        everyday = Grammar(self.words)
        self.unknown = [everyday.sentences(rng) for _ in range(PAIRS)]
        self.asked = [pair for pair in self.train if pair[0].nouns[1]]
        shapes = ("", *grammar.shapes, *grammar.held_out_shapes)
        self.held_out = {
            split: [
                grammar.pair(rng, name, split, shape)
                for name, schema in grammar.schemas.items()
                for shape in shapes
                if shape != NEUTRAL_SHAPE or schema.get("neutral")
            ]
            + [grammar.pair(rng, "agreement", split) for _ in range(60)]
            for split in ("validation", "test")
        }
        self.listed = {*self.words.known}
        self.known = [*self.train, *self.held_out["validation"], *self.held_out["test"]]

    def nouns(self, sentence: Sentence) -> tuple[Noun, ...]:
        """The nouns around the pronoun, the right one first."""
        return tuple(self.noun[sentence.words[at]] for at in sentence.nouns)

    def split(self, sentence: Sentence) -> str:
        return self.grammar.split(*self.nouns(sentence))


@pytest.fixture(scope="session", params=LANGUAGES)
def corpus(request) -> Corpus:
    return Corpus(request.param)
