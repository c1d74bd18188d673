"""Generated sentences are grammatical, their pairs are minimal, and nothing but the cue gives them away."""

import re
from collections import Counter, defaultdict
from itertools import pairwise
from random import Random

import pytest

from mha_core.training.language import BARE, EVERYDAY, MAX_WORDS, Grammar, Noun, Phrases
from mha_core.training.lexicon import LANGUAGES, START, lexicon

N_TRAIN = 4000  # pairs
N_HELD_OUT = 60  # pairs of each pattern and set


class Corpus:
    """One language's grammar, and many of its sentences."""

    def __init__(self, language: str):
        self.language = language
        self.words = lexicon(language)
        self.grammar = Grammar(self.words)
        self.noun = {
            form: noun for noun in self.words.nouns for form in (noun.one, noun.many) if form is not None
        }
        rng = Random(f"train {language}")
        self.train = [self.grammar.sentences(rng) for _ in range(N_TRAIN)]
        self.asked = [pair for pair in self.train if pair[0].pronoun]
        self.held_out = {
            split: [
                self.grammar.pair(rng, name, split)
                for name in (*self.grammar.names, "agreement")
                for _ in range(N_HELD_OUT)
            ]
            for split in ("validation", "test")
        }
        self.reference = [p for p in self.held_out["test"] if p[0].schema != "agreement"]
        self.every = self.asked + self.held_out["validation"] + self.held_out["test"]

    def nouns(self, sentence) -> tuple[Noun, Noun]:
        return tuple(self.noun[sentence.words[at]] for at in sentence.nouns)

    def met(self, sentence) -> frozenset[str]:
        """The pair of nouns around the pronoun, in either order, as singulars."""
        return frozenset(noun.one for noun in self.nouns(sentence))

    def pronouns(self, word: str) -> set[str]:
        """Every pronoun that can stand for a noun in this form."""
        noun, table = self.noun[word], self.words.grammar["pronouns"]
        if word == noun.many and word != noun.one:
            return {table["plural"]}
        kinds = {"person": ("man", "woman")}.get(noun.kind, (noun.kind,))
        also = ("plural",) if noun.many == noun.one else ()  # sheep
        return {table[kind] for kind in (*kinds, *also)}


@pytest.fixture(scope="module", params=LANGUAGES)
def corpus(request) -> Corpus:
    return Corpus(request.param)


# Every sentence


def test_a_sentence_starts_with_cls_and_holds_known_words_only(corpus):
    known = set(corpus.words.vocabulary)
    for pair in corpus.train + corpus.every:
        for sentence in pair:
            assert sentence.words[0] == START
            assert START not in sentence.words[1:]
            assert known.issuperset(sentence.words)
            assert 3 <= len(sentence.words) <= MAX_WORDS


def test_the_same_seed_makes_the_same_sentences_and_another_one_others(corpus):
    first, again, other = (
        [corpus.grammar.sentences(rng) for _ in range(200)] for rng in (Random(3), Random(3), Random(5))
    )
    assert first == again
    assert Grammar(corpus.words).pair(Random(7), corpus.grammar.names[2], "test") == corpus.grammar.pair(
        Random(7), corpus.grammar.names[2], "test"
    )
    assert sum(one == two for one, two in zip(first, other, strict=True)) < 10


def test_all_kinds_of_sentences_come_as_often_as_they_should(corpus):
    share = Counter(
        "statement" if not one.pronoun else "agreement" if one.schema == "agreement" else "reference"
        for one, _ in corpus.train
    )
    # Long ones are drawn again, so shares are near what was asked for and not exact.
    assert share["reference"] / N_TRAIN == pytest.approx(0.60, abs=0.03)
    assert share["agreement"] / N_TRAIN == pytest.approx(0.15, abs=0.03)
    names = Counter(one.schema for one, _ in corpus.asked)
    assert set(names) == {*corpus.grammar.names, "agreement"}
    fair = share["reference"] / len(corpus.grammar.names)
    assert all(names[name] > 0.7 * fair for name in corpus.grammar.names)


def test_bare_sentences_all_ask_for_a_pronoun_in_as_few_words_as_there_are(corpus):
    rng = Random(11)
    bare = [Grammar(corpus.words, BARE).sentences(rng) for _ in range(600)]
    adjectives = set(corpus.words.words["adjective"])
    for pair in bare:
        for sentence in pair:
            one, other = corpus.nouns(sentence)
            assert corpus.grammar.split(one, other) == "train"
            cues = {cue for s in corpus.grammar.schemas for to in ("to_a", "to_b") for cue in s[to].split()}
            between = set(sentence.words[1 : sentence.pronoun]) - cues
            assert not (between - set(corpus.noun)) & adjectives, sentence
    lengths = [[len(s.words) for s, _ in pairs] for pairs in (bare, corpus.reference)]
    assert max(lengths[0]) < max(lengths[1])
    assert {pair[0].schema for pair in bare} == set(corpus.grammar.names)


def test_sentences_come_with_and_without_a_full_stop(corpus):
    stops = sum(one.words[-1] in ".?!。？！" for one, _ in corpus.train) / N_TRAIN
    assert 0.8 < stops < 0.9


@pytest.mark.parametrize("corpus", ["en"], indirect=True)
def test_a_noun_and_its_article_agree_in_english(corpus):
    for pair in corpus.train:
        for sentence in pair:
            for one, other in zip(sentence.words, sentence.words[1:], strict=False):
                is_noun = other in corpus.noun and other not in corpus.words.words["adjective"]  # orange
                if one in ("these", "those", "many") and is_noun:
                    assert other == corpus.noun[other].many, sentence
            for at in sentence.nouns if sentence.pronoun else ():
                if corpus.noun[sentence.words[at]].is_name:
                    assert sentence.words[at - 1] not in ("the", "a", "my"), sentence


@pytest.mark.parametrize("corpus", ["en"], indirect=True)
def test_no_article_counts_a_noun_without_a_plural_and_verbs_follow_their_noun(corpus):
    """Never "a bread", and never "the dogs eats"."""
    nouns, adjectives = corpus.noun, set(corpus.words.words["adjective"])
    verbs = [verb for verbs in corpus.words.verbs.values() for verb in verbs]
    third = {verb[1] for verb in verbs} - set(nouns)
    seen = Counter()
    for pair in corpus.train:
        for sentence in pair:
            for one, other in zip(sentence.words, sentence.words[1:], strict=False):
                if other in nouns and other not in adjectives and nouns[other].many is None:
                    seen["mass"] += 1
                    assert one not in ("a", "an", "these", "those", "many"), sentence
                if one in nouns and other in third:
                    seen["third"] += 1
                    assert one == nouns[one].one, sentence
    assert min(seen["mass"], seen["third"]) > 50, seen


def test_a_or_an_is_chosen_by_the_first_sound():
    words, rng = lexicon("en"), Random("sounds")
    phrases, before = Phrases(words, EVERYDAY), defaultdict(set)
    for _ in range(20_000):
        text, _ = phrases.written(rng, "{place} {abstract} {animal}")
        for article, word in pairwise(text):
            before[word] |= {article} & {"a", "an"}
    assert before["hour"] == before["animal"] == before["old"] == {"an"}
    assert before["university"] == before["horse"] == before["new"] == {"a"}


def test_words_that_do_not_begin_as_they_are_written_are_in_the_list_of_these():
    words = lexicon("en")
    listed = words.grammar["begin_otherwise"].split()
    said = re.compile("uni(?![mn])|us[aeu]|ut[ei]|uk|eu|ewe|hones|hono|hour|heir|herb")
    after_a = {noun.one for noun in words.nouns if not noun.is_name} | {*words.words["adjective"]}
    assert {word for word in after_a if said.match(word)} <= set(listed)
    assert all(said.match(word) for word in listed if word != "one")


# The pronoun and its nouns


def test_the_pronoun_agrees_with_the_noun_it_stands_for(corpus):
    for pair in corpus.every:
        for sentence in pair:
            right, other = sentence.nouns
            assert sentence.words[sentence.pronoun] in corpus.words.pronouns
            assert sentence.words[sentence.pronoun] in corpus.pronouns(sentence.words[right])
            assert right != other
            assert right < sentence.pronoun
            assert other < sentence.pronoun


def test_both_nouns_of_a_reference_take_the_same_pronoun(corpus):
    for pair in corpus.every:
        for sentence in pair:
            if sentence.schema != "agreement":
                pronoun = sentence.words[sentence.pronoun]
                assert all(pronoun in corpus.pronouns(sentence.words[at]) for at in sentence.nouns), sentence


def test_the_pronoun_of_an_agreement_fits_no_noun_before_it_but_the_one_it_stands_for(corpus):
    others = 0
    for pair in corpus.every:
        for sentence in pair:
            if sentence.schema == "agreement":
                pronoun = sentence.words[sentence.pronoun]
                before = set(range(sentence.pronoun)) - {sentence.nouns[0]}
                nouns = [sentence.words[at] for at in before if sentence.words[at] in corpus.noun]
                assert not any(pronoun in corpus.pronouns(word) for word in nouns), sentence
                others += len(nouns) > 1
    assert others > 30  # nouns that the pronoun does not fit may stand there


@pytest.mark.parametrize("corpus", ["en"], indirect=True)
def test_was_and_were_follow_the_pronoun_in_english(corpus):
    plural = {"was": False, "is": False, "were": True, "are": True}
    seen = Counter()
    for pair in corpus.every:
        for sentence in pair:
            following = sentence.words[sentence.pronoun + 1]
            if following in plural:
                pronoun = sentence.words[sentence.pronoun]
                assert (pronoun == "they") is plural[following], sentence
                seen[pronoun, following] += 1
    assert len(seen) == 8  # he, she, it with was and is; they with were and are


def test_the_cue_is_one_that_moves_the_pronoun_to_that_noun(corpus):
    schemas = {schema["name"]: schema for schema in corpus.words.grammar["schema"]}
    for pair in corpus.every:
        if pair[0].schema == "agreement":
            assert all(sentence.cue == sentence.pronoun for sentence in pair)
            continue
        schema = schemas[pair[0].schema]
        for sentence, to in zip(pair, ("to_a", "to_b"), strict=True):
            assert sentence.words[sentence.cue] in schema[to].split()
            assert sentence.cue > sentence.pronoun
        classes = [schema["a"].split(), schema["b"].split()]
        for noun, allowed in zip(corpus.nouns(pair[0]), classes, strict=True):
            assert noun.group in allowed, pair[0]


def test_the_words_that_decide_stand_nowhere_else_in_a_held_out_pair(corpus):
    schemas = {schema["name"]: schema for schema in corpus.words.grammar["schema"]}
    literal = {
        name: set(" ".join([*schema["clauses"], *schema.get("because", ())]).split())
        for name, schema in schemas.items()
    }
    for pair in corpus.reference:
        schema = schemas[pair[0].schema]
        cues = set(f"{schema['to_a']} {schema['to_b']}".split()) - literal[pair[0].schema]
        adjectives = cues & set(corpus.words.words["adjective"])
        for sentence in pair:
            others = [word for at, word in enumerate(sentence.words) if at != sentence.cue]
            assert not adjectives & set(others), sentence


def test_no_word_moves_the_pronoun_to_both_nouns_of_one_pattern(corpus):
    for schema in corpus.words.grammar["schema"]:
        assert not set(schema["to_a"].split()) & set(schema["to_b"].split()), schema["name"]


def test_the_two_sentences_of_a_reference_differ_in_the_cue_only_and_mean_the_other_noun(corpus):
    for one, other in corpus.every:
        assert (one.schema, one.pronoun, one.cue) == (other.schema, other.pronoun, other.cue)
        assert one.nouns == other.nouns[::-1]
        assert len(one.words) == len(other.words)
        if one.schema != "agreement":
            differ = [
                at for at, words in enumerate(zip(one.words, other.words, strict=True)) if len({*words}) > 1
            ]
            assert differ == [one.cue]


def test_the_two_sentences_of_an_agreement_differ_in_the_pronoun_and_its_verb_only(corpus):
    pairs = [pair for pair in corpus.every if pair[0].schema == "agreement"]
    assert len(pairs) > 2 * N_HELD_OUT
    for one, other in pairs:
        differ = [
            at for at, words in enumerate(zip(one.words, other.words, strict=True)) if len({*words}) > 1
        ]
        assert differ[0] == one.pronoun
        for at in differ[1:]:
            assert at == one.pronoun + 1
            assert {one.words[at], other.words[at]} == {"was", "were"}


# What is held out


def test_no_training_sentence_has_a_held_out_pair_around_its_pronoun(corpus):
    assert len(corpus.asked) > 2500
    for pair in corpus.asked:
        for sentence in pair:
            assert corpus.grammar.split(*corpus.nouns(sentence)) == "train", sentence


def test_held_out_sentences_have_pairs_of_their_own_set_only(corpus):
    for split, pairs in corpus.held_out.items():
        for pair in pairs:
            assert all(corpus.grammar.split(*corpus.nouns(sentence)) == split for sentence in pair)


def test_no_pair_of_nouns_is_in_two_sets(corpus):
    train = {corpus.met(pair[0]) for pair in corpus.asked}
    validation, test = ({corpus.met(pair[0]) for pair in corpus.held_out[s]} for s in ("validation", "test"))
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert min(len(train), len(validation), len(test)) > 150


def test_every_noun_of_a_held_out_pair_is_met_with_other_nouns_in_training(corpus):
    trained = Counter(noun for pair in corpus.asked for noun in corpus.met(pair[0]))
    held = Counter(noun for pair in corpus.reference for noun in corpus.met(pair[0]))
    share = sum(n for noun, n in held.items() if trained[noun]) / held.total()
    assert share > 0.9  # of 4,000 pairs; a training reads many times more


def test_a_pair_is_in_the_same_set_in_either_order(corpus):
    rng, shares = Random(1), Counter()
    for _ in range(5000):
        one, other = rng.sample(corpus.words.nouns, 2)
        assert corpus.grammar.split(one, other) == corpus.grammar.split(other, one)
        shares[corpus.grammar.split(one, other)] += 1
    assert set(shares) == {"train", "validation", "test"}
    for split in ("validation", "test"):
        assert 0.06 < shares[split] / 5000 < 0.10


FAMOUS = {"en": [("animal", "street"), ("trophy", "suitcase")], "zh": [("小猫", "马路"), ("奖杯", "箱子")]}


def test_the_famous_pairs_of_nouns_are_for_testing(corpus):
    for one, other in FAMOUS[corpus.language]:
        assert corpus.grammar.split(corpus.noun[one], corpus.noun[other]) == "test"


def test_the_famous_pair_is_written_as_everybody_knows_it():
    tired, wide = Grammar(lexicon("en")).famous()
    assert " ".join(tired.words[1:]) == "the animal didn't cross the street because it was too tired ."
    assert " ".join(wide.words[1:]) == "the animal didn't cross the street because it was too wide ."
    for sentence, right, wrong in ((tired, "animal", "street"), (wide, "street", "animal")):
        assert sentence.words[sentence.pronoun] == "it"
        assert [sentence.words[at] for at in sentence.nouns] == [right, wrong]
    assert (tired.words[tired.cue], wide.words[wide.cue]) == ("tired", "wide")
    tired, wide = Grammar(lexicon("zh")).famous()
    assert "".join(tired.words[1:]) == "小猫没有过马路，因为它太累了。"
    assert [wide.words[at] for at in (*wide.nouns, wide.pronoun, wide.cue)] == ["马路", "小猫", "它", "宽"]


# No shortcut


def frequencies(corpus) -> Counter:
    return Counter(word for pair in corpus.train for sentence in pair for word in sentence.words)


# Each takes a sentence and says which of its two nouns, given by position in reading order.
BASELINES = {
    "the first noun": lambda corpus, sentence, first, last: first,
    "the last noun": lambda corpus, sentence, first, last: last,
    "the noun nearest to the pronoun": lambda corpus, sentence, first, last: min(
        (first, last), key=lambda at: abs(at - sentence.pronoun)
    ),
    "the noun farthest from the cue": lambda corpus, sentence, first, last: max(
        (first, last), key=lambda at: abs(at - sentence.cue)
    ),
    "the subject": lambda corpus, sentence, first, last: (
        last if {"by", "被"} & set(sentence.words[first:last]) else first
    ),
    "the class of the noun": lambda corpus, sentence, first, last: min(
        (first, last), key=lambda at: (corpus.noun[sentence.words[at]].group, at)
    ),
    "the more frequent noun": lambda corpus, sentence, first, last: max(
        (first, last), key=lambda at: (corpus.frequency[sentence.words[at]], at)
    ),
    "the shorter noun": lambda corpus, sentence, first, last: min(
        (first, last), key=lambda at: (len(sentence.words[at]), at)
    ),
}


@pytest.mark.parametrize("split", ["validation", "test"])
def test_no_choice_without_the_cue_is_better_than_a_coin(corpus, split):
    corpus.frequency = frequencies(corpus)
    asked = [s for pair in corpus.held_out[split] if pair[0].schema != "agreement" for s in pair]
    for name, choice in BASELINES.items():
        right = sum(choice(corpus, s, *sorted(s.nouns)) == s.nouns[0] for s in asked)
        assert right / len(asked) == pytest.approx(0.5, abs=0.01), name


def test_the_cue_and_the_place_alone_do_not_give_the_noun_away(corpus):
    """What each cue says of first and last noun, learned in training, is far from enough."""
    learned = defaultdict(Counter)
    for pair in corpus.asked:
        for sentence in pair:
            if sentence.schema != "agreement":
                learned[sentence.schema, sentence.words[sentence.cue]][
                    sentence.nouns[0] < sentence.nouns[1]
                ] += 1
    asked = [sentence for pair in corpus.reference for sentence in pair]
    right = sum(
        learned[s.schema, s.words[s.cue]].most_common(1)[0][0] == (s.nouns[0] < s.nouns[1]) for s in asked
    )
    assert right / len(asked) < 0.72


def test_in_many_sentences_the_second_role_comes_first(corpus):
    by_schema = defaultdict(list)
    for one, _ in corpus.asked + corpus.reference:
        if one.schema != "agreement":
            by_schema[one.schema].append(one.nouns[0] > one.nouns[1])
    shares = {name: sum(order) / len(order) for name, order in by_schema.items()}
    assert set(shares) == set(corpus.grammar.names)
    assert all(0.25 < share < 0.55 for share in shares.values()), shares


def test_in_several_patterns_both_nouns_are_of_one_class(corpus):
    same = {
        schema["name"]
        for schema in corpus.words.grammar["schema"]
        if schema["a"].split() == schema["b"].split()
    }
    assert len(same) >= 5
    alike = sum(len({n.group for n in corpus.nouns(pair[0])}) == 1 for pair in corpus.reference)
    assert alike / len(corpus.reference) > 0.15


def test_a_pronoun_stands_as_often_for_one_noun_as_for_the_other_in_training(corpus):
    """No noun is the answer more often than not: knowing the noun does not help."""
    right, other = Counter(), Counter()
    for pair in corpus.asked:
        for sentence in pair:
            right[sentence.words[sentence.nouns[0]]] += 1
            other[sentence.words[sentence.nouns[1]]] += 1
    assert right == other
