"""Training data: questions about each word, right answers, and each sentence with its twin."""

import hashlib
from random import Random

import numpy as np
import pytest
import torch

from mha_core.training.data import (
    EPOCHS,
    GROUPS,
    IN_PLACE,
    LINK_NAMES,
    NEIGHBOURS,
    NOT_ASKED,
    NOTHING,
    Batches,
    encode,
    hide,
    training_sentences,
)
from mha_core.training.language import MAX_WORDS, Grammar, Sentence
from mha_core.training.lexicon import LANGUAGES, PAD, lexicon
from mha_core.training.links import Link
from mha_core.training.questions import QUESTIONS

NOUN = QUESTIONS.index("noun")


def test_a_sentence_is_encoded_by_hand():
    words = lexicon()
    text = ["[CLS]", "the", "cat", "ate", "the", "soup", "because", "it", "was", "hungry", "."]
    links = (
        Link(1, "noun", 2, "article to noun"),
        Link(3, "doer", 2, "verb to subject"),
        Link(3, "object", 5, "verb to object"),
        Link(7, "noun", 2, "pronoun to noun"),
        Link(7, "decider", 9, "pronoun to cue"),
        Link(9, "noun", None, "cue to noun"),  # not asked
    )
    two = [Sentence(tuple(text), 7, (2, 5), 9, links=links), Sentence(("[CLS]", "hello", "!"))]
    encoded = encode(two, words)
    assert encoded.ids.shape == (2, MAX_WORDS)
    assert [words.vocabulary[i] for i in encoded.ids[0]] == text + [PAD] * (MAX_WORDS - 11)
    assert [words.vocabulary[i] for i in encoded.ids[1]] == ["[CLS]", "hello", "!"] + [PAD] * (MAX_WORDS - 3)
    assert encoded.lengths.tolist() == [11, 3]
    assert encoded.pronoun.tolist() == [7, 0]
    assert encoded.nouns.tolist() == [[2, 5], [0, 0]]
    assert encoded.cue.tolist() == [9, 0]
    asked = {question: encoded.keys[0, :11, number].tolist() for number, question in enumerate(QUESTIONS)}
    assert asked == {  # 0 is [CLS]: nothing to find; -1: not asked
        "noun": [-1, 2, 0, 0, 0, 0, 0, 2, 0, -1, 0],
        "doer": [-1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
        "object": [-1, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
        "before": [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        "after": [-1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0],
        "decider": [-1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0],
    }
    names = [LINK_NAMES[n] if n != NOT_ASKED else None for n in encoded.links[0, :11, NOUN]]
    assert names == [
        None, "article to noun", *["nothing"] * 5, "pronoun to noun", "nothing", None, "nothing",
    ]  # fmt: skip
    before, after = (encoded.links[1, :3, at].tolist() for at in NEIGHBOURS)
    first, second = LINK_NAMES.index("word before"), LINK_NAMES.index("word after")
    assert before == [NOT_ASKED, first, first]  # [CLS] is the word before the first one
    assert after == [NOT_ASKED, second, NOTHING]  # behind the last one there is nothing
    assert encoded.keys[1, :3, NEIGHBOURS[1]].tolist() == [NOT_ASKED, 2, 0]
    for answers in (encoded.keys, encoded.links):  # padding has no questions
        assert (answers[0, 11:] == NOT_ASKED).all()
        assert (answers[1, 3:] == NOT_ASKED).all()


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_hidden_word_leaves_to_ask(language):
    """A hidden word has the questions for its neighbours, also if it stayed visible, and is no answer.

    If the cue is hidden, nobody can tell the noun of the pronoun and its predicate; the word that decides and
    everything else remains.
    """
    words, rng = lexicon(language), Random(7)
    grammar = Grammar(words)
    encoded = encode([sentence for _ in range(1000) for sentence in grammar.sentences(rng)], words)
    _, was, links = hide(encoded, words, np.random.default_rng(7), 0.15)
    chosen = was != NOT_ASKED
    row, position, question = np.nonzero(encoded.links != NOT_ASKED)
    key, name = encoded.keys[row, position, question], encoded.links[row, position, question]
    answer_hidden = chosen[row, key]
    is_hidden = chosen[row, position] & ~np.isin(question, NEIGHBOURS)
    is_predicate = (name == LINK_NAMES.index("predicate to noun")) & (key == encoded.nouns[row, 0])
    is_pronoun = (position == encoded.pronoun[row]) & (question == NOUN)
    blind = (is_pronoun | is_predicate) & chosen[row, encoded.cue[row]]
    for reason in (answer_hidden, is_hidden, blind & ~answer_hidden, blind & is_predicate):
        assert reason.any()
    expected = np.full_like(links, NOT_ASKED)
    expected[row, position, question] = np.where(answer_hidden | is_hidden | blind, NOT_ASKED, name)
    assert np.array_equal(links, expected)


# The first digits of a hash of batches from the first reading and from a later one: see `test_language`.
DIGESTS = {"en": "7581fba853a3b4d8", "zh": "a53e3d84363f740a"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_batches_are_those_that_the_shipped_models_were_trained_on(little, language):
    batches, later = Batches(language, 5), IN_PLACE * little
    read = [batches[n] for n in (3, later, 3, *range(later, later + 2 * little))]
    arrays = [[part.tolist() if torch.is_tensor(part) else part for part in batch] for batch in read]
    assert arrays[0] == arrays[2]
    assert hashlib.sha256(repr(arrays).encode()).hexdigest()[:16] == DIGESTS[language]


def original(chunk):
    """Each sentence of a chunk, as a tuple of words without padding."""
    encoded = training_sentences("en", 5, chunk)
    return [tuple(row[:length]) for row, length in zip(encoded.ids, encoded.lengths, strict=True)]


def restored(batch):
    """The sentences of a batch with the hidden words put back."""
    ids, guessed = batch.ids.clone(), batch.group == len(GROUPS)
    ids[batch.sentence[guessed], batch.position[guessed]] = batch.answer[guessed]
    whole = torch.ones_like(ids) if batch.padding is None else batch.padding
    return [tuple(row[:length].tolist()) for row, length in zip(ids, whole.sum(1), strict=True)]


def test_a_reading_has_every_sentence_once_and_the_next_hides_other_words(little):
    batches = Batches("en", 5)
    readings = [[batches[e * little + n] for n in range(little)] for e in range(EPOCHS + 1)]
    for epoch, reading in enumerate(readings):
        read = sorted(sentence for batch in reading for sentence in restored(batch))
        assert read == sorted(original(epoch // EPOCHS))
    first, second = (
        {tuple(row) for batch in reading for row in batch.ids.tolist()} for reading in readings[:2]
    )
    assert len(first & second) < len(first) / 2
    assert original(0) != original(1)
