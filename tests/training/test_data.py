"""Training data: questions about each word, right answers, and each sentence with its twin."""

from collections import Counter
from random import Random

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
    words_at,
)
from mha_core.training.language import EVERYDAY, MAX_WORDS, Grammar, Mix, Sentence
from mha_core.training.lexicon import HIDDEN, LANGUAGES, PAD, START, lexicon
from mha_core.training.links import Link
from mha_core.training.questions import LINKS, QUESTIONS

SHARE = 0.15
NOUN, DECIDER = QUESTIONS.index("noun"), QUESTIONS.index("decider")


def equal_batches(one, other) -> bool:
    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a is b or a == b
        for a, b in zip(one, other, strict=True)
    )


@pytest.fixture(scope="module", params=LANGUAGES)
def words(request):
    return lexicon(request.param)


@pytest.fixture(scope="module")
def sentences(words):
    """6,000 sentences, some of them with unknown words."""
    grammar, rng = Grammar(words), Random("data")
    return [s for _ in range(3000) for s in grammar.sentences(rng)]


@pytest.fixture(scope="module")
def encoded(sentences, words):
    return encode(sentences, words)


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


def test_padding_follows_the_words_and_has_no_questions(encoded, words):
    real = words_at(encoded.lengths, MAX_WORDS)
    assert ((encoded.ids != words.number[PAD]) == real).all()
    assert (encoded.ids[:, 0] == words.number[START]).all()
    assert not (encoded.ids[:, 1:] == words.number[START]).any()
    assert not (encoded.ids == words.number[HIDDEN]).any()
    assert (encoded.keys[~real] == NOT_ASKED).all()
    assert (encoded.links[~real] == NOT_ASKED).all()
    assert (encoded.keys[:, 0] == NOT_ASKED).all()
    assert (encoded.links[:, 0] == NOT_ASKED).all()


def test_answers_are_the_links_of_the_sentence_and_its_neighbours(encoded, sentences):
    for row in range(0, len(sentences), 7):
        sentence, length = sentences[row], len(sentences[row].words)
        expected = np.zeros((length, len(QUESTIONS)), int)
        for query, question, key, _ in sentence.links:
            expected[query, QUESTIONS.index(question)] = NOT_ASKED if key is None else key
        for number, neighbours in zip(
            NEIGHBOURS, (range(-1, length - 1), [*range(1, length), 0]), strict=True
        ):
            expected[:, number] = neighbours
        expected[0] = NOT_ASKED
        assert (encoded.keys[row, :length] == expected).all(), sentence


def test_links_are_named_where_asked_and_nothing_where_cls_is_right(encoded):
    assert ((encoded.links == NOT_ASKED) == (encoded.keys == NOT_ASKED)).all()
    neighbour = encoded.links == LINK_NAMES.index("word before")
    assert ((encoded.links == NOTHING) == (encoded.keys == 0) & ~neighbour).all()
    for name, question in LINKS.items():
        where = np.argwhere(encoded.links == LINK_NAMES.index(name))
        assert len(where) > 0
        assert set(where[:, 2]) == {QUESTIONS.index(question)}


def test_every_link_belongs_to_one_group_and_every_group_is_asked(encoded):
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(LINK_NAMES)
    assert [list(GROUPS)[group] for group in GROUP_OF] == [
        next(group for group, names in GROUPS.items() if name in names) for name in LINK_NAMES
    ]
    assert set(GROUP_OF[encoded.links[encoded.links != NOT_ASKED]]) == set(range(len(GROUPS)))


# Hiding


@pytest.fixture(scope="module")
def hidden(encoded, words):
    return hide(encoded, words, np.random.default_rng(7), SHARE)


def test_hidden_words_are_known_words_with_their_numbers(encoded, hidden, words):
    ids, was, _ = hidden
    chosen = was != NOT_ASKED
    assert (was[chosen] == encoded.ids[chosen]).all()
    assert (ids[~chosen] == encoded.ids[~chosen]).all()  # what is not hidden is left as it was
    told = {words.vocabulary[number] for number in was[chosen]}
    assert told <= set(words.known)  # no spare, no [CLS], no padding
    assert len(told) > 1000


def test_of_the_hidden_words_most_are_masks_some_others_and_some_stay(encoded, hidden, words):
    ids, was, _ = hidden
    at = np.arange(len(ids))
    known = (encoded.ids > words.number[HIDDEN]) & (encoded.ids < words.number[words.spares[0]])
    known[at[encoded.pronoun > 0], encoded.pronoun[encoded.pronoun > 0]] = False
    chosen = was != NOT_ASKED
    assert not (chosen & ~known).any()
    assert chosen.sum() / known.sum() == pytest.approx(SHARE, abs=0.01)
    masked = ids == words.number[HIDDEN]
    assert not (masked & ~chosen).any()
    assert masked.sum() / chosen.sum() == pytest.approx(0.8, abs=0.02)
    another = chosen & ~masked & (ids != encoded.ids)
    assert another.sum() / chosen.sum() == pytest.approx(0.1, abs=0.02)
    assert {words.vocabulary[number] for number in ids[another]} <= set(words.known)
    assert (chosen & (ids == encoded.ids)).sum() / chosen.sum() == pytest.approx(0.1, abs=0.02)


def test_without_hidden_words_all_questions_remain(encoded, words):
    ids, was, links = hide(encoded, words, np.random.default_rng(7), 0.0)
    assert np.array_equal(ids, encoded.ids)
    assert (was == NOT_ASKED).all()
    assert np.array_equal(links, encoded.links)


def test_a_hidden_word_has_only_the_questions_for_its_neighbours(encoded, hidden):
    """Also if it stayed visible: the model must not learn the difference."""
    _, was, links = hidden
    chosen = was != NOT_ASKED
    asked = links != NOT_ASKED
    row, position, question = np.nonzero(asked)
    assert not chosen[row, encoded.keys[row, position, question]].any()
    assert set(question[chosen[row, position]]) == set(NEIGHBOURS)


def test_all_other_questions_remain(encoded, hidden):
    """Visible answers about visible words, except what depends on a hidden cue."""
    _, was, links = hidden
    chosen = was != NOT_ASKED
    row, position, question = np.nonzero((encoded.links != NOT_ASKED) & (links == NOT_ASKED))
    answer_hidden = chosen[row, encoded.keys[row, position, question]]
    is_hidden = chosen[row, position] & ~np.isin(question, NEIGHBOURS)
    of_pronoun = encoded.keys[row, position, question] == encoded.nouns[row, 0]
    is_predicate = encoded.links[row, position, question] == LINK_NAMES.index("predicate to noun")
    blind = (position == encoded.pronoun[row]) | (is_predicate & of_pronoun)
    blind &= (question == NOUN) & chosen[row, encoded.cue[row]]
    assert (blind & is_predicate & ~answer_hidden & ~is_hidden).any()
    assert (answer_hidden | is_hidden | blind).all()
    assert min(answer_hidden.sum(), is_hidden.sum(), (blind & ~answer_hidden).sum()) > 100
    both = (encoded.links != NOT_ASKED) & (links != NOT_ASKED)
    assert (links[both] == encoded.links[both]).all()
    assert not ((encoded.links == NOT_ASKED) & (links != NOT_ASKED)).any()


def test_the_resolved_pronoun_is_never_hidden(encoded, hidden):
    ids, was, links = hidden
    at = np.flatnonzero(encoded.pronoun)
    pronoun, noun, cue = encoded.pronoun[at], encoded.nouns[at, 0], encoded.cue[at]
    assert (ids[at, pronoun] == encoded.ids[at, pronoun]).all()
    before = encoded.links[at, pronoun, NOUN] != NOT_ASKED  # not where the cue is an unknown word
    asked = links[at, pronoun, NOUN] != NOT_ASKED
    noun_hidden, cue_hidden = was[at, noun] != NOT_ASKED, (was[at, cue] != NOT_ASKED) & (cue != pronoun)
    assert (asked == before & ~(noun_hidden | cue_hidden)).all()
    assert 0.6 < asked.mean() < 0.9
    # The other noun may be hidden: that does not change what is right.
    assert ((was[at, encoded.nouns[at, 1]] != NOT_ASKED) & asked).any()
    # Which word decides can be seen as long as it can be seen.
    references = cue != pronoun
    assert ((links[at, pronoun, DECIDER] != NOT_ASKED) == ~cue_hidden)[references].all()


def test_hiding_depends_on_the_generator_alone(encoded, words):
    first, again, other = (hide(encoded, words, np.random.default_rng(seed), SHARE) for seed in (3, 3, 5))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[1] != other[1]).any()


# Batches


@pytest.fixture
def reading(monkeypatch):
    """`reading(count)`: from now on a reading has this many batches."""

    def make(count: int) -> int:
        monkeypatch.setattr(data, "SENTENCES", count * data.BATCH)
        return count

    data.training_sentences.cache_clear()
    yield make
    data.training_sentences.cache_clear()


@pytest.mark.parametrize("language", LANGUAGES)
def test_batch_n_is_the_same_in_whatever_order_batches_are_asked_for(little, language):
    straight = [Batches(language, 5)[n] for n in range(2 * little)]
    jumping, order = Batches(language, 5), [13, 0, 7, 6, 13, 1]
    for n in order:
        assert equal_batches(jumping[n], straight[n])
    training_sentences.cache_clear()
    assert equal_batches(Batches(language, 5)[9], straight[9])


def test_another_seed_language_or_mix_makes_other_batches(little):
    first = Batches("en", 5)[0]
    assert equal_batches(first, Batches("en", 5)[0])
    assert not equal_batches(first, Batches("en", 7)[0])
    assert not equal_batches(first, Batches("zh", 5)[0])
    assert not equal_batches(first, Batches("en", 5, Mix(reference=0.3))[0])


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


def guessed(batch):
    """Each sentence with the positions that are hidden in it."""
    rows = batch.group == len(GROUPS)
    places = [batch.position[rows & (batch.sentence == n)].tolist() for n in range(len(batch.ids))]
    return list(zip(restored(batch), map(tuple, places), strict=True))


def test_a_reading_has_every_sentence_once_and_the_next_hides_other_words(little):
    batches = Batches("en", 5)
    readings = [[batches[e * little + n] for n in range(little)] for e in range(EPOCHS + 1)]
    for epoch, reading in enumerate(readings):
        read = sorted(sentence for batch in reading for sentence in restored(batch))
        assert read == sorted(original("en", 5, epoch // EPOCHS))
    first, second = (sorted(one for batch in reading for one in guessed(batch)) for reading in readings[:2])
    both = sum(one == other for one, other in zip(first, second, strict=True))
    assert both < len(first) / 2  # in short sentences nothing is hidden twice
    assert original("en", 5, 0) != original("en", 5, 1)


@pytest.fixture
def some_batches(little):
    """Batches from the first readings and from later ones, in both languages."""
    found = []
    for language in LANGUAGES:
        batches = Batches(language, 5)
        found += [
            (language, batches[n]) for first in (0, IN_PLACE * little) for n in range(first, first + little)
        ]
    return found


def test_rows_and_candidates_of_a_batch_fit_what_it_holds(some_batches):
    for language, batch in some_batches:
        words = lexicon(language)
        assert len(batch.ids) == data.BATCH
        rows = batch.sentence, batch.position, batch.question, batch.group, batch.answer
        assert len({row.shape for row in rows}) == 1
        assert batch.candidates.tolist() == sorted({*batch.ids.flatten().tolist()} - {words.number[PAD]})
        of = torch.tensor(lengths(batch))
        assert bool((batch.position < of[batch.sentence]).all())
        assert int(batch.position.min()) > 0  # [CLS] is asked nothing
        guess = batch.group == len(GROUPS)
        assert bool((guess == (batch.question == len(QUESTIONS))).all())
        assert int(batch.answer[~guess].max()) < len(batch.candidates)
        assert {words.vocabulary[number] for number in batch.answer[guess]} <= set(words.known)
        places = list(zip(*(row.tolist() for row in rows[:3]), strict=True))
        assert len(places) == len(set(places))  # nothing is asked twice
        masks = batch.ids == words.number[HIDDEN]
        told = torch.zeros_like(masks)
        told[batch.sentence[guess], batch.position[guess]] = True
        assert not bool((masks & ~told).any())  # what every mask was is told
        if batch.padding is None:
            assert not bool((batch.ids == words.number[PAD]).any())
        else:
            assert torch.equal(batch.padding, batch.ids != words.number[PAD])
            assert bool(batch.padding.any(0).all())  # no column of padding alone
            assert not bool(batch.padding.all())


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


def test_large_groups_are_sampled_and_small_ones_complete(little, monkeypatch):
    plenty = [Batches("en", 5)[n] for n in range(little)]
    monkeypatch.setattr(data, "MAX_ROWS", 20)
    fewer = [Batches("en", 5)[n] for n in range(little)]
    for all_of_them, some_of_them in zip(plenty, fewer, strict=True):
        assert torch.equal(all_of_them.ids, some_of_them.ids)
        counts, kept = (Counter(batch.group.tolist()) for batch in (all_of_them, some_of_them))
        for group, count in counts.items():
            assert kept[group] == (count if group == len(GROUPS) else min(count, 20))
        places = [
            set(zip(*(row.tolist() for row in (b.sentence, b.position, b.question, b.answer)), strict=True))
            for b in (all_of_them, some_of_them)
        ]
        assert places[1] <= places[0]


def test_rows_of_large_groups_are_sampled_uniformly(some_batches):
    """From all places of a sentence, not from its beginning."""
    nothing = list(GROUPS).index("nothing")
    for _, batch in some_batches:
        places = batch.position[batch.group == nothing].float() / torch.tensor(lengths(batch)).float().max()
        assert 0.3 < float(places.mean()) < 0.7


def test_every_position_in_a_batch_has_a_vector(little):
    """Moved texts begin anywhere and end before the last position; the first readings are in place."""
    for language in LANGUAGES:
        batches = Batches(language, 5)
        first = [batches[n] for n in range(IN_PLACE * little)]
        later = [batches[n] for n in range(IN_PLACE * little, (IN_PLACE + 8) * little)]
        assert {batch.shift for batch in first} == {0}
        assert all(0 <= batch.shift <= MAX_WORDS - batch.ids.shape[1] for batch in later)
        moved = sum(batch.shift > 0 for batch in later) / len(later)
        assert 0.35 < moved < 0.75
        assert max(batch.shift + batch.ids.shape[1] for batch in later) > 48


def test_sentences_of_a_batch_are_of_about_one_length(reading):
    count, batches = reading(60), Batches("en", 0)
    spread = [max(of) - min(of) for of in map(lengths, (batches[n] for n in range(count)))]
    assert sum(s <= 2 for s in spread) > 45


MIXES = {"everyday": EVERYDAY, "few pronouns": Mix(reference=0.3, agreement=0.1)}


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_twins_of_a_pair_are_in_one_batch(language, mix, reading):
    count, batches = reading(40), Batches(language, 0, MIXES[mix])
    encoded = training_sentences(language, 0, 0, MIXES[mix])
    there: dict[tuple, list[int]] = {}
    for n in range(count):
        for sentence in restored(batches[n]):
            there.setdefault(sentence, []).append(n)
    together = apart = 0
    for index in np.flatnonzero(encoded.pronoun[::2] > 0) * 2:
        one, other = (tuple(encoded.ids[i, : encoded.lengths[i]].tolist()) for i in (index, index + 1))
        if len(there[one]) == len(there[other]) == 1:
            together += there[one] == there[other]
            apart += there[one] != there[other]
    assert together > 300
    assert apart == 0
