"""Generated sentences are grammatical, their pairs are minimal, and only the cue decides the answer."""

import re
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from random import Random

import pytest

from mha_core.training.language import (
    BARE,
    EVERYDAY,
    LONGEST_ALONE,
    MAX_UNKNOWN,
    MAX_WORDS,
    NEUTRAL_SHAPE,
    STOPS,
    Grammar,
    Noun,
    Phrases,
    Sentence,
    parts,
    with_spares,
)
from mha_core.training.lexicon import ACTIVE, LANGUAGES, PART, START, lexicon, spelled
from mha_core.training.links import CONTENT, PARTS, PRONOUN, Link

N_TRAIN = 4000  # pairs
N_EVERYDAY = 2500  # with unknown words
N_HELD_OUT = 60  # pairs of each pattern and set
KNOWN = replace(EVERYDAY, unknown=0.0)


class Corpus:
    """One language's grammar, and many of its sentences."""

    def __init__(self, language: str):
        self.language = language
        self.words = lexicon(language)
        self.grammar = Grammar(self.words, KNOWN)
        self.noun = {
            form: noun for noun in self.words.nouns for form in (noun.one, noun.many) if form is not None
        }
        rng = Random(f"train {language}")
        self.train = [self.grammar.sentences(rng) for _ in range(N_TRAIN)]
        self.asked = [pair for pair in self.train if pair[0].pronoun]
        self.held_out = {
            split: [
                self.grammar.pair(rng, name, split, self.shape(rng, name))
                for name in (*self.grammar.names, "agreement")
                for _ in range(N_HELD_OUT)
            ]
            for split in ("validation", "test")
        }
        self.reference = [p for p in self.held_out["test"] if p[0].schema != "agreement"]
        self.every = self.asked + self.held_out["validation"] + self.held_out["test"]

    def shape(self, rng: Random, schema: str) -> str:
        """A shape that is trained on, or one that never is."""
        of_all = ["", *self.grammar.shapes, *self.grammar.held_out_shapes]
        neutral = self.grammar.schemas.get(schema, {}).get("neutral")
        return rng.choice([shape for shape in of_all if neutral or shape != NEUTRAL_SHAPE])

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


@pytest.fixture(scope="module")
def everyday(corpus):
    """Pairs for training, some of them with unknown words."""
    grammar, rng = Grammar(corpus.words), Random("everyday")
    return [grammar.sentences(rng) for _ in range(N_EVERYDAY)]


# Every sentence


def test_a_sentence_starts_with_cls_and_holds_known_words_only(corpus):
    known = {START, *corpus.words.known}
    for pair in corpus.train + corpus.every:
        for sentence in pair:
            assert sentence.words[0] == START
            assert START not in sentence.words[1:]
            assert known.issuperset(sentence.words)
            assert 2 <= len(sentence.words) <= MAX_WORDS


def test_every_word_has_a_part_of_speech(corpus, everyday):
    for pair in corpus.every + everyday:
        for sentence in pair:
            assert len(sentence.parts) == len(sentence.words)
            assert set(sentence.parts) <= set(PARTS)
            if sentence.pronoun:
                assert sentence.parts[sentence.pronoun] == PRONOUN


def test_most_sentences_are_short_and_some_fill_the_room_there_is(corpus):
    lengths = [max(len(sentence.words) for sentence in pair) for pair in corpus.train]
    long = sum(length > LONGEST_ALONE for length in lengths) / N_TRAIN
    assert long == pytest.approx(EVERYDAY.long, abs=0.02)
    assert max(lengths) == MAX_WORDS
    assert sorted(lengths)[N_TRAIN // 2] < 20


def test_sentences_of_every_length_up_to_the_longest_are_trained_on(corpus, everyday):
    """A model has questions about the words of all of them."""
    lengths = {len(sentence.words) for pair in corpus.train + everyday for sentence in pair}
    assert lengths >= {*range(5, LONGEST_ALONE), *range(56, MAX_WORDS + 1)}


def test_the_same_seed_makes_the_same_sentences_and_another_one_others(corpus):
    first, again, other = (
        [corpus.grammar.sentences(rng) for _ in range(200)] for rng in (Random(3), Random(3), Random(5))
    )
    assert first == again
    assert Grammar(corpus.words).pair(Random(7), corpus.grammar.names[2], "test") == corpus.grammar.pair(
        Random(7), corpus.grammar.names[2], "test"
    )
    unknown = [[Grammar(corpus.words).sentences(rng) for _ in range(200)] for rng in (Random(3), Random(3))]
    assert unknown[0] == unknown[1]
    assert sum(one == two for one, two in zip(first, other, strict=True)) < 10


def test_kinds_of_sentences_are_as_frequent_as_the_mix_says(corpus):
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
    shapes = Counter(one.shape for one, _ in corpus.asked if one.schema != "agreement")
    assert set(shapes) == {"", *corpus.grammar.shapes}
    assert 1 - shapes[""] / share["reference"] == pytest.approx(EVERYDAY.shaped, abs=0.03)
    fair = EVERYDAY.shaped * share["reference"] / len(corpus.grammar.shapes)
    assert all(shapes[shape] > 0.4 * fair for shape in corpus.grammar.shapes)


def test_bare_sentences_all_ask_for_a_pronoun_in_as_few_words_as_there_are(corpus):
    rng = Random(11)
    bare = [Grammar(corpus.words, BARE).sentences(rng) for _ in range(600)]
    adjectives = set(corpus.words.words["adjective"])
    for pair in bare:
        for sentence in pair:
            one, other = corpus.nouns(sentence)
            assert corpus.grammar.split(one, other) == "train"
            schemas = corpus.grammar.schemas.values()
            cues = {cue for schema in schemas for to in ("to_a", "to_b") for cue in schema[to].split()}
            between = set(sentence.words[1 : sentence.pronoun]) - cues
            assert not (between - set(corpus.noun)) & adjectives, sentence
            assert sentence.shape == ""
            assert set(sentence.words).isdisjoint(corpus.words.spares)
    lengths = [[len(s.words) for s, _ in pairs] for pairs in (bare, corpus.reference)]
    assert max(lengths[0]) < max(lengths[1])
    assert {pair[0].schema for pair in bare} == set(corpus.grammar.names)


def test_sentences_come_with_and_without_a_full_stop(corpus):
    stops = sum(one.words[-1] in STOPS for one, _ in corpus.train) / N_TRAIN
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
def test_no_article_counts_a_noun_without_a_plural(corpus):
    """Never "a bread"."""
    nouns, adjectives, seen = corpus.noun, set(corpus.words.words["adjective"]), 0
    for pair in corpus.train:
        for sentence in pair:
            for one, other in pairwise(sentence.words):
                if other in nouns and other not in adjectives and nouns[other].many is None:
                    seen += 1
                    assert one not in ("a", "an", "these", "those", "many"), sentence
    assert seen > 50


@pytest.mark.parametrize("corpus", ["en"], indirect=True)
def test_verbs_follow_their_noun_in_english(corpus):
    """Never "the dogs eats", not even with a phrase between them."""
    verbs = [verb for verbs in corpus.words.verbs.values() for verb in verbs]
    spelled_out = {part for template in corpus.words.templates() for part in parts(template)}
    third = {verb[1] for verb in verbs} - spelled_out  # "our teacher teaches" has one form
    seen = 0
    for pair in corpus.train:
        for sentence in pair:
            for query, _, key, name in sentence.links:
                noun = corpus.noun.get(sentence.words[key])
                if name == "verb to subject" and sentence.words[query] in third and noun:
                    seen += 1
                    assert sentence.words[key] == noun.one, sentence
    assert seen > 50


def test_a_verb_follows_its_noun_past_another_one_in_english():
    phrases = Phrases(lexicon("en"), replace(EVERYDAY, plural=1.0, adjective=0.0))
    for template in (
        "{animal.bare} of {animal} is|are old",
        "{animal.bare} in {place} is|are old",
        "{animal.bare} ( that/relative {person} {transitive.past} ) is|are old",
        "{animal.bare} ( that/relative {transitive.third} {person} ) is|are old",
    ):
        for form, verb in (("bare", "is"), ("plural", "are")):
            written, _ = phrases.filled(Random(1), parts(template.replace("bare", form)), {}, "", frozenset())
            assert [word.text for word in written if word.text in ("is", "are")] == [verb]


def test_a_or_an_is_chosen_by_the_first_sound():
    words, rng = lexicon("en"), Random("sounds")
    phrases, before = Phrases(words, EVERYDAY), defaultdict(set)
    for _ in range(20_000):
        written, _ = phrases.filled(rng, parts("{place} {abstract} {animal}"), {}, "", frozenset())
        for article, word in pairwise(word.text for word in written):
            before[word] |= {article} & {"a", "an"}
    assert before["hour"] == before["animal"] == before["old"] == {"an"}
    assert before["university"] == before["horse"] == before["new"] == {"a"}


def test_words_with_an_unusual_first_sound_are_listed():
    words = lexicon("en")
    listed = words.grammar["begin_otherwise"].split()
    said = re.compile("uni(?![mn])|us[aeu]|ut[ei]|uk|eu|ewe|hones|hono|hour|heir|herb")
    after_a = {noun.one for noun in words.nouns if not noun.is_name} | {*words.words["adjective"]}
    assert {word for word in after_a if said.match(word)} <= set(listed)
    assert all(said.match(word) for word in listed if word != "one")


# The pronoun and its nouns


def test_the_pronoun_agrees_with_its_noun(corpus):
    for pair in corpus.every:
        for sentence in pair:
            right, other = sentence.nouns
            assert sentence.words[sentence.pronoun] in corpus.words.pronouns
            assert sentence.words[sentence.pronoun] in corpus.pronouns(sentence.words[right])
            assert len({right, other, sentence.pronoun}) == 3
            assert min(right, other, sentence.pronoun) > 0
            if sentence.shape == "" and sentence.schema != "agreement":
                assert max(right, other) < sentence.pronoun


def test_the_pronoun_comes_before_its_noun_often_enough_to_be_learned(corpus):
    asked = [one for one, _ in corpus.asked if one.schema != "agreement"]
    assert 0.05 < sum(one.pronoun < min(one.nouns) for one in asked) / len(asked) < 0.3


def test_both_nouns_of_a_reference_take_the_same_pronoun(corpus):
    for pair in corpus.every:
        for sentence in pair:
            if sentence.schema != "agreement":
                pronoun = sentence.words[sentence.pronoun]
                assert all(pronoun in corpus.pronouns(sentence.words[at]) for at in sentence.nouns), sentence


def test_the_pronoun_of_an_agreement_fits_only_its_own_noun(corpus):
    others = 0
    for pair in corpus.every:
        for sentence in pair:
            if sentence.schema == "agreement":
                pronoun = sentence.words[sentence.pronoun]
                before = set(range(max(sentence.pronoun, *sentence.nouns))) - {sentence.nouns[0]}
                nouns = [sentence.words[at] for at in before if sentence.words[at] in corpus.noun]
                assert not any(pronoun in corpus.pronouns(word) for word in nouns), sentence
                others += len(nouns) > 1
    assert others > 30  # nouns that the pronoun does not fit may stand there


@pytest.mark.parametrize("corpus", ["en"], indirect=True)
def test_was_and_were_follow_the_pronoun_in_english(corpus):
    plural = {"was": False, "is": False, "has": False, "were": True, "are": True, "have": True}
    plural |= {"wasn't": False, "weren't": True}
    seen = Counter()
    for pair in corpus.every:
        for sentence in pair:
            following = sentence.words[sentence.pronoun + 1]
            if following in plural:
                pronoun = sentence.words[sentence.pronoun]
                assert (pronoun == "they") is plural[following], sentence
                seen[pronoun, following] += 1
    assert len(seen) == 16  # he, she, it with was, is, has, wasn't; they with were, are, have, weren't


def test_the_cue_is_one_that_moves_the_pronoun_to_that_noun(corpus):
    schemas = corpus.grammar.schemas
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


def test_the_cues_occur_nowhere_else_in_a_held_out_pair(corpus):
    schemas = corpus.grammar.schemas
    literal = {
        word
        for template in corpus.words.templates()
        for part in PART.findall(template)
        if not part.startswith("{")
        for word in spelled(part)
    }
    for pair in corpus.reference:
        schema = schemas[pair[0].schema]
        cues = set(f"{schema['to_a']} {schema['to_b']}".split()) - literal
        adjectives = cues & set(corpus.words.words["adjective"])
        for sentence in pair:
            others = [word for at, word in enumerate(sentence.words) if at != sentence.cue]
            assert not adjectives & set(others), sentence


def test_no_word_moves_the_pronoun_to_both_nouns_of_one_pattern(corpus):
    for schema in corpus.words.grammar["schema"]:
        assert not set(schema["to_a"].split()) & set(schema["to_b"].split()), schema["name"]


def test_the_two_sentences_of_a_reference_differ_in_the_cue_only_and_mean_the_other_noun(corpus):
    for one, other in corpus.every:
        assert (one.schema, one.shape) == (other.schema, other.shape)
        assert (one.pronoun, one.cue) == (other.pronoun, other.cue)
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
            assert {one.words[at], other.words[at]} in ({"was", "were"}, {"is", "are"})


# Shapes


def test_every_shape_makes_a_minimal_pair_of_every_schema(corpus):
    rng = Random("shapes")
    for split, shapes in (("train", corpus.grammar.shapes), ("test", corpus.grammar.held_out_shapes)):
        for shape in ("", *shapes):
            for name, schema in corpus.grammar.schemas.items():
                if shape == NEUTRAL_SHAPE and not schema.get("neutral"):
                    continue
                one, other = corpus.grammar.pair(rng, name, split, shape)
                assert one.shape == other.shape == shape
                assert one.nouns == other.nouns[::-1]
                differ = [at for at in range(len(one.words)) if one.words[at] != other.words[at]]
                assert differ == [one.cue] == [other.cue]
                assert one.words[one.pronoun] in corpus.words.pronouns
                assert corpus.grammar.split(*corpus.nouns(one)) == split
                assert len(one.words) <= MAX_WORDS
                for sentence in (one, other):
                    asked = {(query, question): key for query, question, key, _ in sentence.links}
                    assert asked[sentence.pronoun, "noun"] == sentence.nouns[0]
                    assert asked[sentence.pronoun, "decider"] == sentence.cue
                    assert asked[sentence.cue, "noun"] == sentence.nouns[0]


def test_a_shape_with_two_predicates_continues_with_its_first_noun(corpus):
    rng, all_shapes = Random("active"), corpus.grammar.shapes | corpus.grammar.held_out_shapes
    active = [name for name, shape in all_shapes.items() if shape.startswith(ACTIVE)]
    assert len(active) >= 2
    for shape in active:
        for name in corpus.grammar.names:
            for _ in range(5):
                one, _ = corpus.grammar.pair(rng, name, "test", shape)
                assert one.nouns[0] < one.nouns[1] < one.pronoun


def plain(template: str) -> str:
    """A template without the parts that do not show in its sentences."""
    said = [
        "|".join(spelled(part)) if not part.startswith("{") else part
        for part in parts(template.removeprefix(ACTIVE))
        if part not in "()"
    ]
    return " ".join(said)


def test_there_are_many_shapes_and_none_is_both_trained_on_and_held_out(corpus):
    because = corpus.words.grammar["because"]
    trained = {plain(shape) for shape in corpus.grammar.shapes.values()}
    trained |= {plain("{event} " + ending) for ending in because}
    held_out = {plain(shape) for shape in corpus.grammar.held_out_shapes.values()}
    assert len(corpus.grammar.shapes) >= 3 * len(because) == 24
    assert len({plain(shape) for shape in corpus.grammar.shapes.values()}) == len(corpus.grammar.shapes)
    assert len(held_out) == len(corpus.grammar.held_out_shapes) >= 12
    assert trained.isdisjoint(held_out)
    assert set(corpus.grammar.shapes).isdisjoint(corpus.grammar.held_out_shapes)


def test_events_that_say_nothing_are_of_two_sets(corpus):
    trained, held_out = (set(corpus.words.grammar[name]) for name in ("neutral", "neutral_held_out"))
    assert trained.isdisjoint(held_out)
    assert sum(bool(schema.get("neutral")) for schema in corpus.grammar.schemas.values()) >= 5


def test_every_shape_and_event_has_each_required_slot_once(corpus):
    grammar = corpus.words.grammar
    for name, shape in {**corpus.grammar.shapes, **corpus.grammar.held_out_shapes}.items():
        if name != NEUTRAL_SHAPE:
            assert [shape.count(slot) for slot in ("{event}", "{P}", "{cue}")] == [1, 1, 1], name
            assert shape.count("(") == shape.count(")")
    for ending in grammar["because"]:
        assert [ending.count(slot) for slot in ("{A}", "{B}", "{P}", "{cue}")] == [0, 0, 1, 1]
    events = [event for schema in grammar["schema"] for event in schema["clauses"]]
    for event in (*events, *grammar["neutral"], *grammar["neutral_held_out"]):
        assert [event.count(slot) for slot in ("{A}", "{B}", "{P}", "{cue}")] == [1, 1, 0, 0], event
    for schema in grammar["schema"]:  # a shape with two predicates goes on about the first noun
        assert any(event.startswith("{A}") for event in schema["clauses"])


# Parts of speech


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_word_or_class_is_listed_as_two_parts_of_speech(language):
    listed = Counter(
        entry
        for entries in lexicon(language).grammar["parts_of_speech"].values()
        for entry in entries.split()
    )
    assert [entry for entry, count in listed.items() if count > 1] == []


def test_every_word_and_class_of_every_template_has_a_part_of_speech(corpus):
    words = corpus.words
    for template in words.templates():
        for part in parts(template):
            slot = part[1:-1].partition(".")[0]
            if part in "()" or slot in ("A", "B", "P", "cue", "event"):
                continue
            if not part.startswith("{"):
                _, _, given = part.partition("/")
                assert (given.replace("_", " ") or words.parts[spelled(part)[0]]) in PARTS, (part, template)
            elif slot not in words.verbs and slot not in words.groups:
                assert words.parts[f"{{{slot}}}"] in PARTS, (part, template)


def test_only_parts_of_speech_are_listed_and_only_classes_that_there_are(corpus):
    words = corpus.words
    assert set(words.parts.values()) <= set(PARTS)
    classes = {f"{{{name}}}" for name in (*words.verbs, *words.groups, *words.words)}
    assert {entry for entry in words.parts if entry.startswith("{")} <= classes


# Unknown words


def test_unknown_words_are_as_frequent_as_the_mix_says(corpus, everyday):
    spares = set(corpus.words.spares)
    counts = [len({word for word in one.words if word in spares}) for one, _ in everyday]
    assert sum(count > 0 for count in counts) / len(counts) == pytest.approx(EVERYDAY.unknown, abs=0.03)
    if corpus.language == "en":  # one for each word
        assert max(counts) == MAX_UNKNOWN


def test_twins_have_the_same_unknown_words_unless_the_word_that_decides_is_one(corpus, everyday):
    """Equal parts cancel out of the gradient; only one word may differ."""
    spares, seen = set(corpus.words.spares), 0
    for one, other in everyday:
        if one.pronoun and one.schema != "agreement" and one.words[one.cue] not in spares:
            assert len(one.words) == len(other.words)
            differ = [at for at in range(len(one.words)) if one.words[at] != other.words[at]]
            assert differ == [one.cue], (one, other)
            seen += bool(spares & set(one.words))
    assert seen > 300


def test_with_an_unknown_cue_the_pronoun_is_not_asked_for_its_noun(corpus, everyday):
    spares, seen = set(corpus.words.spares), Counter()
    for pair in everyday:
        for sentence in pair:
            if not sentence.pronoun:
                continue
            unknown = sentence.words[sentence.cue] in spares
            asked = {(query, question): key for query, question, key, _ in sentence.links}
            assert asked[sentence.pronoun, "noun"] == (None if unknown else sentence.nouns[0])
            if sentence.schema != "agreement":
                assert asked[sentence.cue, "noun"] == asked[sentence.pronoun, "noun"]
                assert asked[sentence.pronoun, "decider"] == sentence.cue  # which word it is can be seen
            seen[unknown] += 1
    assert min(seen.values()) > 100


def test_with_an_unknown_cue_the_predicate_is_not_asked_for_its_noun(corpus):
    grammar, rng = Grammar(corpus.words, replace(KNOWN, distractor=0.0)), Random("old and unknown")
    shape = {"en": "adjective and", "zh": "both, adjective first"}[corpus.language]
    for _ in range(100):
        sentence = grammar.with_unknown(rng, grammar.pair(rng, "lift", "test", shape)[0], 20)
        assert sentence.words[sentence.cue] in corpus.words.spares
        said = {key for _, _, key, name in sentence.links if name == "predicate to noun"}
        assert said == {None}


def test_as_many_words_are_unknown_as_were_asked_for(corpus):
    rng = Random("count")
    for count in range(5):
        for _ in range(100):
            known = corpus.grammar.pair(rng, "lift", "test")[0]
            sentence = corpus.grammar.with_unknown(rng, known, count)
            changed = {*known.words} - {*sentence.words}
            could_be = {word for word, part in zip(known.words, known.parts, strict=True) if part in CONTENT}
            assert changed - STOPS <= could_be
            signs = len(changed & STOPS)
            assert len(changed) == min(count, len(could_be) + signs), (known, sentence)
            assert signs <= 1
            assert sentence.words[sentence.pronoun] == known.words[known.pronoun]
            if not changed:
                assert sentence == known


def test_links_and_positions_move_with_the_words(corpus):
    """In Chinese an unknown word may be several characters: questions and answers use the last one."""
    rng, longest = Random("moved"), 1 if corpus.language == "en" else 3
    for name in corpus.grammar.names:
        for _ in range(20):
            known = corpus.grammar.pair(rng, name, "test", rng.choice([*corpus.grammar.shapes]))[0]
            others = {*range(1, len(known.words))} - {known.pronoun}
            spares = {at: corpus.words.spares[: rng.randint(1, longest)] for at in rng.sample([*others], 2)}
            sentence = with_spares(known, spares)
            pieces = [spares.get(at, (word,)) for at, word in enumerate(known.words)]
            now = [position - 1 for position in accumulate(map(len, pieces))]
            assert sentence.words == tuple(word for word in chain(*pieces))
            assert sentence.parts == tuple(
                part for part, of in zip(known.parts, pieces, strict=True) for _ in of
            )
            assert sentence.pronoun == now[known.pronoun]
            assert sentence.nouns == tuple(now[noun] for noun in known.nouns)
            assert sentence.cue == now[known.cue]
            decided = ("pronoun to noun", "cue to noun", "predicate to noun") if known.cue in spares else ()
            assert sentence.links == tuple(
                Link(
                    now[query],
                    question,
                    None if link in decided and key == known.nouns[0] else now[key],
                    link,
                )
                for query, question, key, link in known.links
            )


def test_an_unknown_word_of_several_characters_by_hand():
    words = (START, "小狗", "吃", "面包", "。")
    links = (Link(2, "doer", 1, "verb to subject"), Link(2, "object", 3, "verb to object"))
    sentence = Sentence(words, parts=("boundary", "noun", "verb", "noun", "boundary"), links=links)
    unknown = with_spares(sentence, {1: ("[character 1]", "[character 2]"), 3: ("[latin 4]",)})
    assert unknown.words == (START, "[character 1]", "[character 2]", "吃", "[latin 4]", "。")
    assert unknown.parts == ("boundary", "noun", "noun", "verb", "noun", "boundary")
    assert unknown.links == (Link(3, "doer", 2, "verb to subject"), Link(3, "object", 4, "verb to object"))


def test_a_word_that_comes_twice_is_unknown_twice_and_two_words_differ(corpus):
    statement = corpus.grammar.statement
    rng, twice, of_two = Random("twice"), 0, 0
    for _ in range(2000):
        known = statement(rng)
        sentence = corpus.grammar.with_unknown(rng, known, 3)
        if len(known.words) != len(sentence.words):
            continue
        spares = {}
        for word, spare in zip(known.words, sentence.words, strict=True):
            if word != spare:
                twice += word in spares
                assert spares.setdefault(word, spare) == spare
        of_two += len(spares) > 1
        assert len(set(spares.values())) == len(spares)
    assert twice > 5
    assert of_two > 100


KINDS = {
    "en": {
        "john": "name", "london": "name", "dogs": "s", "walked": "ed", "walking": "ing", "quickly": "ly",
        ".": "symbol", "dog": "other",
    },
    "zh": {"小猫": "character", "。": "symbol"},
}  # fmt: skip


def test_an_unknown_word_has_the_form_of_the_word_it_replaces(corpus):
    rng = Random("kinds")
    for word, kind in KINDS[corpus.language].items():
        known = Sentence((START, word), parts=("boundary", "boundary" if word in STOPS else "noun"))
        unknown = [corpus.grammar.with_unknown(rng, known, 1).words[1] for _ in range(2000)]
        kinds = Counter(spare[1:].split()[0] for spare in unknown if spare != word)
        assert kinds.most_common(1)[0][0] == kind
        assert kinds[kind] > 0.6 * kinds.total() > 60


def test_every_kind_of_unknown_word_is_trained_on(corpus, everyday):
    kinds = Counter(word.split()[0] for pair in everyday for one in pair for word in one.words if " " in word)
    expected = {spare.split()[0] for spare in corpus.words.spares}
    assert all(kinds[kind] > 25 for kind in expected), kinds


def test_every_spare_of_a_kind_is_trained_on_as_often_as_the_others(corpus, everyday):
    times = Counter(word for one, _ in everyday for word in set(one.words))
    by_kind = defaultdict(list)
    for spare in corpus.words.spares:
        by_kind[spare.split()[0]].append(times[spare])
    for kind, counts in by_kind.items():
        if sum(counts) > 20 * len(counts):
            assert min(counts) > 0.25 * sum(counts) / len(counts), (kind, counts)


@pytest.mark.parametrize("corpus", ["en"], indirect=True)
def test_an_equal_word_of_another_part_of_speech_stays(corpus):
    words = (START, "book", "a", "book", ".")
    sentence = Sentence(words, parts=("boundary", "verb", "determiner", "noun", "boundary"))
    rng, seen = Random("book"), set()
    for _ in range(100):
        unknown = corpus.grammar.with_unknown(rng, sentence, 1)
        changed = tuple(at for at, word in enumerate(words) if unknown.words[at] != word)
        assert len(changed) == 1
        seen |= {changed}
    assert seen == {(1,), (3,), (4,)}


# Sentences before


def test_a_lengthened_sentence_ends_as_it_was_and_keeps_its_links(corpus):
    rng, long = Random("long"), 0
    for name in (*corpus.grammar.names, "agreement"):
        for sentence in corpus.grammar.pair(rng, name, "test"):
            longer = corpus.grammar.lengthened(rng, sentence)
            shift = len(longer.words) - len(sentence.words)
            assert len(longer.words) <= MAX_WORDS
            assert longer.words[shift + 1 :] == sentence.words[1:]
            assert longer.parts[shift + 1 :] == sentence.parts[1:]
            assert longer.pronoun == sentence.pronoun + shift
            assert longer.nouns == tuple(noun + shift for noun in sentence.nouns)
            assert longer.cue == sentence.cue + shift
            moved = {(q + shift, question, k + shift, link) for q, question, k, link in sentence.links}
            assert moved <= set(longer.links)
            before = set(longer.links) - moved
            assert all(query <= shift and key <= shift for query, _, key, _ in before)
            long += len(longer.words) > LONGEST_ALONE
    assert long > 20


def test_leaving_out_the_full_stop_changes_nothing_else(corpus):
    without = Grammar(corpus.words, replace(KNOWN, no_stop=1.0, long=0.0, sentence_before=0.0))
    rng, seen = Random("stops"), 0
    for _ in range(300):
        for sentence in without.sentences(rng):
            assert sentence.words[-1] != corpus.grammar.phrases.stop
            assert len(sentence.parts) == len(sentence.words)
            assert all(max(query, key) < len(sentence.words) for query, _, key, _ in sentence.links)
            seen += bool(sentence.links)
    assert seen > 500


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


def test_the_links_of_the_famous_pair_are_those_of_its_grammar():
    for code, expected in {
        "en": "the>animal didn't>animal cross>animal animal>cross cross>street street>cross the>street "
        "it>animal was>it it>tired tired>animal",
        "zh": "没有>小猫 过>小猫 小猫>过 过>马路 马路>过 它>小猫 它>累 累>小猫",
    }.items():
        sentence, _ = Grammar(lexicon(code)).famous()
        said = {f"{sentence.words[query]}>{sentence.words[key]}" for query, _, key, _ in sentence.links}
        assert said == set(expected.split())
        names = {name for _, _, _, name in sentence.links}
        assert {"pronoun to noun", "pronoun to cue", "cue to noun"} <= names


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


def test_cue_and_position_alone_do_not_decide_the_noun(corpus):
    """How often each cue goes with the first or last noun in training is far from enough."""
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
    assert right / len(asked) < 0.75


def test_in_many_sentences_the_second_role_comes_first(corpus):
    by_schema = defaultdict(list)
    for one, _ in corpus.asked + corpus.reference:
        if one.schema != "agreement":
            by_schema[one.schema].append(one.nouns[0] > one.nouns[1])
    shares = {name: sum(order) / len(order) for name, order in by_schema.items()}
    assert set(shares) == set(corpus.grammar.names)
    assert all(0.12 < share < 0.55 for share in shares.values()), shares


def test_in_several_patterns_both_nouns_are_of_one_class(corpus):
    same = {
        schema["name"]
        for schema in corpus.words.grammar["schema"]
        if schema["a"].split() == schema["b"].split()
    }
    assert len(same) >= 5
    alike = sum(len({n.group for n in corpus.nouns(pair[0])}) == 1 for pair in corpus.reference)
    assert alike / len(corpus.reference) > 0.15


def test_each_noun_is_the_pronouns_answer_equally_often(corpus):
    """No noun is the answer more often than not: knowing the noun does not help."""
    right, other = Counter(), Counter()
    for pair in corpus.asked:
        for sentence in pair:
            right[sentence.words[sentence.nouns[0]]] += 1
            other[sentence.words[sentence.nouns[1]]] += 1
    assert right == other
