"""Training data: questions about each word, right answers, and each sentence with its twin."""

import hashlib

import numpy as np
import pytest
import torch

from mha_core.training import data
from mha_core.training.data import (
    EPOCHS,
    GROUP_OF,
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
from mha_core.training.language import EVERYDAY, MAX_WORDS, Mix, Sentence
from mha_core.training.lexicon import HIDDEN, LANGUAGES, PAD, lexicon
from mha_core.training.links import Link
from mha_core.training.questions import QUESTIONS

SHARE = 0.15
NOUN, DECIDER = QUESTIONS.index("noun"), QUESTIONS.index("decider")


@pytest.fixture(scope="module")
def encoded(corpus):
    """6,000 sentences, some of them with unknown words."""
    return encode([sentence for pair in corpus.unknown for sentence in pair], corpus.words)


# Sentences as numbers


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


# Hiding


@pytest.fixture(scope="module")
def hidden(encoded, corpus):
    return hide(encoded, corpus.words, np.random.default_rng(7), SHARE)


def test_most_hidden_words_are_masks_some_others_and_some_stay(encoded, hidden, corpus):
    ids, was, _ = hidden
    words, row = corpus.words, np.arange(len(ids))
    known = (encoded.ids > words.number[HIDDEN]) & (encoded.ids < words.number[words.spares[0]])
    known[row[encoded.pronoun > 0], encoded.pronoun[encoded.pronoun > 0]] = False  # is never hidden
    chosen, masked = was != NOT_ASKED, ids == words.number[HIDDEN]
    assert not (chosen & ~known).any()
    assert (was[chosen] == encoded.ids[chosen]).all()
    assert (ids[~chosen] == encoded.ids[~chosen]).all()
    another = chosen & ~masked & (ids != encoded.ids)
    assert {words.vocabulary[number] for number in ids[another]} <= {*words.known}
    assert len({*was[chosen]}) > 1000
    assert chosen.sum() / known.sum() == pytest.approx(SHARE, abs=0.01)
    for part, share in ((masked, 0.8), (another, 0.1), (chosen & (ids == encoded.ids), 0.1)):
        assert part.sum() / chosen.sum() == pytest.approx(share, abs=0.02)


def test_what_a_hidden_word_leaves_to_ask(encoded, hidden):
    """A hidden word has the questions for its neighbours, also if it stayed visible, and is no answer.

    If the cue is hidden, nobody can tell the noun of the pronoun and its predicate; the word that decides and
    everything else remains.
    """
    _, was, links = hidden
    chosen = was != NOT_ASKED
    row, position, question = np.nonzero(encoded.links != NOT_ASKED)
    key, name = encoded.keys[row, position, question], encoded.links[row, position, question]
    answer_hidden = chosen[row, key]
    is_hidden = chosen[row, position] & ~np.isin(question, NEIGHBOURS)
    is_predicate = (name == LINK_NAMES.index("predicate to noun")) & (key == encoded.nouns[row, 0])
    is_pronoun = (position == encoded.pronoun[row]) & (question == QUESTIONS.index("noun"))
    blind = (is_pronoun | is_predicate) & chosen[row, encoded.cue[row]]
    for reason in (answer_hidden, is_hidden, blind & ~answer_hidden, blind & is_predicate):
        assert reason.any()
    expected = np.full_like(links, NOT_ASKED)
    expected[row, position, question] = np.where(answer_hidden | is_hidden | blind, NOT_ASKED, name)
    assert np.array_equal(links, expected)


# Batches


# The first digits of a hash of batches from the first reading and from a later one: see `test_language`.
DIGESTS = {"en": "7581fba853a3b4d8", "zh": "a53e3d84363f740a"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_batches_are_those_that_the_shipped_models_were_trained_on(little, language):
    batches, later = Batches(language, 5), IN_PLACE * little
    read = [batches[n] for n in (3, later, 3, *range(later, later + 2 * little))]
    arrays = [[part.tolist() if torch.is_tensor(part) else part for part in batch] for batch in read]
    assert arrays[0] == arrays[2]
    assert hashlib.sha256(repr(arrays).encode()).hexdigest()[:16] == DIGESTS[language]


def original(language, seed, chunk):
    """Each sentence of a chunk, as a tuple of words without padding."""
    encoded = training_sentences(language, seed, chunk)
    return [tuple(row[:length]) for row, length in zip(encoded.ids, encoded.lengths, strict=True)]


def lengths(batch):
    return [batch.ids.shape[1]] * len(batch.ids) if batch.padding is None else batch.padding.sum(1).tolist()


def restored(batch):
    """The sentences of a batch with the hidden words put back."""
    ids, guessed = batch.ids.clone(), batch.group == len(GROUPS)
    ids[batch.sentence[guessed], batch.position[guessed]] = batch.answer[guessed]
    return [tuple(row[:length].tolist()) for row, length in zip(ids, lengths(batch), strict=True)]


def test_a_reading_has_every_sentence_once_and_the_next_hides_other_words(little):
    batches = Batches("en", 5)
    readings = [[batches[e * little + n] for n in range(little)] for e in range(EPOCHS + 1)]
    for epoch, reading in enumerate(readings):
        read = sorted(sentence for batch in reading for sentence in restored(batch))
        assert read == sorted(original("en", 5, epoch // EPOCHS))
    first, second = (
        {tuple(row) for batch in reading for row in batch.ids.tolist()} for reading in readings[:2]
    )
    assert len(first & second) < len(first) / 2
    assert original("en", 5, 0) != original("en", 5, 1)


def test_the_answers_of_a_batch_are_those_of_its_sentences(little):
    """Every row, found again in the sentences that it was made of."""
    encoded = training_sentences("en", 5, 0)
    by_words = {}
    for row, sentence in enumerate(original("en", 5, 0)):
        by_words.setdefault(sentence, row)
    for n in range(little):
        batch = Batches("en", 5)[n]
        rows = [by_words[sentence] for sentence in restored(batch)]
        seen = batch.group < len(GROUPS)
        columns = [batch.sentence, batch.position, batch.question, batch.group, batch.answer]
        for s, at, question, group, answer in zip(*(c[seen].tolist() for c in columns), strict=True):
            key = encoded.keys[rows[s], at, question]
            assert key != NOT_ASKED
            assert int(batch.ids[s, key]) == int(batch.candidates[answer]) == encoded.ids[rows[s], key]
            assert GROUP_OF[encoded.links[rows[s], at, question]] == group


def test_every_position_in_a_batch_has_a_vector(little):
    """Moved texts begin anywhere and end before the last position; the first readings are in place."""
    batches, start = Batches("en", 5), IN_PLACE * little
    later = [batches[n] for n in range(start, start + 8 * little)]
    assert {batches[n].shift for n in range(start)} == {0}
    assert all(0 <= batch.shift <= MAX_WORDS - batch.ids.shape[1] for batch in later)
    assert 0.35 < sum(batch.shift > 0 for batch in later) / len(later) < 0.75
    assert max(batch.shift + batch.ids.shape[1] for batch in later) > 48


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "mix", [EVERYDAY, Mix(reference=0.3, agreement=0.1)], ids=["everyday", "few pronouns"]
)
def test_the_twins_of_a_pair_are_in_one_batch_and_its_sentences_of_about_one_length(
    language, mix, monkeypatch
):
    count = 40
    monkeypatch.setattr(data, "SENTENCES", count * data.BATCH)
    data.training_sentences.cache_clear()
    encoded, batches = training_sentences(language, 0, 0, mix), Batches(language, 0, mix)
    data.training_sentences.cache_clear()
    spread = [max(of) - min(of) for of in (lengths(batches[n]) for n in range(count))]
    assert sum(s <= 2 for s in spread) > 0.7 * count
    there: dict[tuple, list[int]] = {}
    for n in range(count):
        for sentence in restored(batches[n]):
            there.setdefault(sentence, []).append(n)
    found = []
    for index in np.flatnonzero(encoded.pronoun[::2] > 0) * 2:
        one, other = (tuple(encoded.ids[i, : encoded.lengths[i]].tolist()) for i in (index, index + 1))
        if len(there[one]) == len(there[other]) == 1:
            found.append(there[one] == there[other])
    assert len(found) > 300
    assert all(found)
