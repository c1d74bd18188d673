"""What the model reads and is asked: right words at right places, and each sentence beside its twin."""

from random import Random

import numpy as np
import pytest
import torch

from mha_core.training import data
from mha_core.training.data import EPOCHS, NONE, Batches, encode, hide, training_sentences
from mha_core.training.language import EVERYDAY, MAX_WORDS, Grammar, Mix, Sentence
from mha_core.training.lexicon import HIDDEN, LANGUAGES, PAD, START, lexicon

SHARE = 0.15


def same(one, other) -> bool:
    return all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
        for a, b in zip(one, other, strict=True)
    )


@pytest.fixture(scope="module", params=LANGUAGES)
def words(request):
    return lexicon(request.param)


@pytest.fixture(scope="module")
def encoded(words):
    """6,000 sentences as numbers."""
    grammar, rng = Grammar(words), Random("data")
    return encode([s for _ in range(3000) for s in grammar.sentences(rng)], words)


# Sentences as numbers


def test_a_sentence_is_encoded_by_hand():
    words = lexicon()
    text = ["[CLS]", "the", "cat", "ate", "the", "soup", "because", "it", "was", "hungry", "."]
    encoded = encode([Sentence(tuple(text), 7, (2, 5), 9), Sentence(("[CLS]", "hello", "!"))], words)
    assert encoded.ids.shape == (2, MAX_WORDS)
    assert [words.vocabulary[i] for i in encoded.ids[0]] == text + [PAD] * 21
    assert [words.vocabulary[i] for i in encoded.ids[1]] == ["[CLS]", "hello", "!"] + [PAD] * 29
    assert encoded.lengths.tolist() == [11, 3]
    assert encoded.pronoun.tolist() == [7, 0]
    assert encoded.nouns.tolist() == [[2, 5], [0, 0]]
    assert encoded.cue.tolist() == [9, 0]


def test_padding_is_behind_the_words_and_nowhere_else(encoded, words):
    place = np.arange(MAX_WORDS)
    assert ((encoded.ids == words.number[PAD]) == (place >= encoded.lengths[:, None])).all()
    assert (encoded.ids[:, 0] == words.number[START]).all()
    assert not (encoded.ids == words.number[HIDDEN]).any()


# Hiding


@pytest.fixture(scope="module")
def hidden(encoded, words):
    return hide(encoded, words, np.random.default_rng(7), SHARE)


def test_words_are_asked_with_themselves_and_pronouns_with_their_noun(encoded, hidden):
    _, targets = hidden
    at = np.arange(len(encoded.ids))
    asked = targets != NONE
    resolved = np.zeros_like(asked)
    resolved[at[encoded.pronoun > 0], encoded.pronoun[encoded.pronoun > 0]] = True
    assert (targets[asked & ~resolved] == encoded.ids[asked & ~resolved]).all()
    nouns = np.broadcast_to(encoded.ids[at, encoded.nouns[:, 0]][:, None], asked.shape)
    assert (targets[asked & resolved] == nouns[asked & resolved]).all()
    assert asked[:, 0].sum() == 0  # [CLS] never
    assert not (asked & (np.arange(MAX_WORDS) >= encoded.lengths[:, None])).any()  # padding never


def test_about_fifteen_percent_of_the_words_are_asked_and_most_of_them_are_masks(encoded, hidden, words):
    ids, targets = hidden
    real = np.arange(MAX_WORDS) < encoded.lengths[:, None]
    real[:, 0] = False
    at = np.arange(len(ids))
    real[at[encoded.pronoun > 0], encoded.pronoun[encoded.pronoun > 0]] = False
    asked = (targets != NONE) & real
    assert asked.sum() / real.sum() == pytest.approx(SHARE, abs=0.01)
    masked = ids == words.number[HIDDEN]
    assert not (masked & ~asked).any()
    assert masked.sum() / asked.sum() == pytest.approx(0.8, abs=0.02)
    another = asked & ~masked & (ids != encoded.ids)
    assert another.sum() / asked.sum() == pytest.approx(0.1, abs=0.02)
    assert (ids[another] > words.number[HIDDEN]).all()  # never a special token
    assert (asked & (ids == encoded.ids)).sum() / asked.sum() == pytest.approx(0.1, abs=0.02)


def test_with_nothing_hidden_every_resolved_pronoun_is_asked_and_no_word(encoded, words):
    ids, targets = hide(encoded, words, np.random.default_rng(7), 0.0)
    assert np.array_equal(ids, encoded.ids)
    assert np.array_equal(
        targets != NONE,
        (np.arange(ids.shape[1]) == encoded.pronoun[:, None]) & (encoded.pronoun > 0)[:, None],
    )


def test_what_is_not_asked_is_left_as_it_was(encoded, hidden):
    ids, targets = hidden
    assert (ids[targets == NONE] == encoded.ids[targets == NONE]).all()


def test_the_resolved_pronoun_stays_in_sight(encoded, hidden):
    ids, _ = hidden
    at = np.flatnonzero(encoded.pronoun)
    assert (ids[at, encoded.pronoun[at]] == encoded.ids[at, encoded.pronoun[at]]).all()


def test_a_pronoun_is_asked_where_its_noun_and_the_cue_are_in_sight_and_only_there(encoded, hidden):
    ids, targets = hidden
    at = np.flatnonzero(encoded.pronoun)
    asked = targets[at, encoded.pronoun[at]] != NONE
    noun, cue = encoded.nouns[at, 0], encoded.cue[at]
    chosen_noun = targets[at, noun] != NONE  # hidden, changed, or merely asked for
    chosen_cue = (targets[at, cue] != NONE) & (cue != encoded.pronoun[at])
    assert (asked == ~(chosen_noun | chosen_cue)).all()
    assert 0.1 < (~asked).mean() < 0.4
    # What the model reads where it is asked still has the noun and the cue.
    assert (ids[at, noun] == encoded.ids[at, noun])[asked].all()
    assert (ids[at, cue] == encoded.ids[at, cue])[asked].all()
    # The other noun may be hidden: that does not change what is right.
    assert ((targets[at, encoded.nouns[at, 1]] != NONE) & asked).any()


def test_hiding_depends_on_the_generator_alone(encoded, words):
    first, again, other = (hide(encoded, words, np.random.default_rng(seed), SHARE) for seed in (3, 3, 5))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[1] != other[1]).any()


# Batches


@pytest.mark.parametrize("language", LANGUAGES)
def test_batch_n_is_the_same_in_whatever_order_batches_are_asked_for(little, language):
    straight = [Batches(language, 5)[n] for n in range(2 * little)]
    jumping, order = Batches(language, 5), [13, 0, 7, 6, 13, 1]
    for n in order:
        assert same(jumping[n], straight[n])
    data.training_sentences.cache_clear()
    assert same(Batches(language, 5)[9], straight[9])


def test_another_seed_or_language_makes_other_batches(little):
    first = Batches("en", 5)[0]
    assert not same(first, Batches("en", 7)[0])
    assert not same(first, Batches("zh", 5)[0])


def original(language, seed, chunk):
    """Each sentence of a chunk, as a tuple of words without padding."""
    encoded = training_sentences(language, seed, chunk)
    return [tuple(row[:length]) for row, length in zip(encoded.ids, encoded.lengths, strict=True)]


def restored(batch):
    """The sentences of a batch with everything that is asked, pronouns apart, put back."""
    ids = batch.ids.clone()
    asked = (batch.targets != NONE) & ~batch.is_pronoun
    row = torch.arange(len(ids))[:, None].expand_as(asked)
    ids[row[asked], batch.rows[asked]] = batch.targets[asked]
    lengths = [len(r) for r in ids] if batch.padding is None else batch.padding.sum(1).tolist()
    return [tuple(r[:length].tolist()) for r, length in zip(ids, lengths, strict=True)]


def test_a_reading_has_every_sentence_once_and_the_next_hides_other_words(little):
    batches = Batches("en", 5)
    readings = [[batches[e * little + n] for n in range(little)] for e in range(EPOCHS + 1)]
    for epoch, reading in enumerate(readings):
        read = sorted(sentence for batch in reading for sentence in restored(batch))
        assert read == sorted(original("en", 5, epoch // EPOCHS))
    asked = [
        sorted(
            (sentence, tuple(rows[targets != NONE].tolist()))
            for batch in reading
            for sentence, rows, targets in zip(restored(batch), batch.rows, batch.targets, strict=True)
        )
        for reading in readings[:2]
    ]
    both = sum(one == other for one, other in zip(*asked, strict=True))
    assert both < len(asked[0]) / 4  # short sentences are asked for nothing twice
    assert original("en", 5, 0) != original("en", 5, 1)


def test_rows_and_targets_of_a_batch_fit_what_it_holds(little):
    batches = Batches("en", 5)
    n_words = len(lexicon().vocabulary)
    for n in range(little):
        ids, padding, rows, targets, is_pronoun = batches[n]
        assert len(ids) == data.BATCH
        assert rows.shape == targets.shape == is_pronoun.shape
        assert 0 <= int(rows.min()) <= int(rows.max()) < MAX_WORDS
        asked = targets != NONE
        assert bool(asked.any())
        assert int(targets[asked].min()) > lexicon().number[HIDDEN]  # special tokens are never right
        assert int(targets.max()) < n_words
        assert int(rows[asked].min()) > 0
        assert int(asked.sum(1).max()) == targets.shape[1]  # no column for nothing
        assert not (asked[:, 1:] & ~asked[:, :-1]).any()  # asked ones first, in reading order
        for row, some in zip(rows, asked, strict=True):
            assert row[some].tolist() == sorted(set(row[some].tolist()))
        if padding is None:
            assert not (ids == lexicon().number[PAD]).any()
        else:
            assert torch.equal(padding, ids != lexicon().number[PAD])
            assert bool(padding.any(0).all())  # no column of padding alone
        pronouns = torch.gather(ids, 1, rows)[is_pronoun & asked]
        assert {lexicon().vocabulary[i] for i in pronouns} <= lexicon().pronouns


def test_the_rows_of_a_batch_are_inside_its_length_wherever_something_is_computed(little):
    """The model gathers all rows, those without a target too."""
    batches = Batches("zh", 5)
    for n in range(3 * little):
        batch = batches[n]
        assert int(batch.rows.max()) < batch.ids.shape[1]


def test_sentences_of_a_batch_are_of_about_one_length():
    batches = Batches("en", 0)
    spread = []
    for n in range(60):
        batch = batches[n]
        lengths = torch.full((len(batch.ids),), batch.ids.shape[1])
        if batch.padding is not None:
            lengths = batch.padding.sum(1)
        spread.append(int(lengths.max() - lengths.min()))
    assert sum(s <= 1 for s in spread) > 50


@pytest.mark.slow
@pytest.mark.parametrize("mix", [EVERYDAY, Mix(reference=0.3, agreement=0.1)])
def test_the_twins_of_a_pair_are_in_one_batch(mix):
    batches = Batches("en", 0, mix)
    encoded = training_sentences("en", 0, 0, mix)
    there: dict[tuple, list[int]] = {}
    for n in range(data.SENTENCES // data.BATCH):
        for sentence in restored(batches[n]):
            there.setdefault(sentence, []).append(n)
    together = apart = 0
    for index in np.flatnonzero(encoded.pronoun[::2] > 0) * 2:
        one, other = (tuple(encoded.ids[i, : encoded.lengths[i]].tolist()) for i in (index, index + 1))
        if len(there[one]) == len(there[other]) == 1:
            together += there[one] == there[other]
            apart += there[one] != there[other]
    assert together > 3000
    assert apart == 0
