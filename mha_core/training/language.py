"""The small languages: made-up sentences in which one word decides what a pronoun refers to.

"The animal didn't cross the street because it was too tired": with *wide* instead of *tired*, *it* is the
street. Neither position nor kind of word gives the answer away: both nouns take the same pronoun, in many
patterns both are of one kind, and passives put the second noun first. Some pairs of nouns are held out: those
of the sets "validation" and "test" never occur together around a pronoun in training. All sentences follow
from a `random.Random`, and so from a seed.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any
from zlib import crc32

from mha_core.training.lexicon import (
    ACTIVE,
    BRACKETS,
    CAPITALS,
    FORMS,
    PART,
    START,
    Lexicon,
    Noun,
    is_plural,
    normalized,
    spelled,
)
from mha_core.training.links import (
    ADJECTIVE,
    BOUNDARY,
    CONTENT,
    DETERMINER,
    NOUN,
    PARTICLE,
    PREDICATE,
    PREPOSITION,
    PRONOUN,
    STOPS,
    Link,
    TaggedWord,
    links,
)

MAX_WORDS = 64  # tokens of the longest text, [CLS] and full stop included
LONGEST_ALONE = 32  # words of a sentence on its own
HELD_OUT_PERCENT = 8  # of all pairs of nouns, for each of the sets "validation" and "test"
ALONE = "alone"  # the pattern of sentences with only one noun for the pronoun
# Of the pronouns that agree with one noun: a cue may speak for the other noun; or there is no other noun.
SHARE_OVERRULING, SHARE_ALONE = 0.12, 0.22
CUT = 0.15  # of the unknown words of a Chinese sentence: read character by character
MAX_UNKNOWN = 3  # words of a training sentence that become spares
# The links that are answered by the pronoun's noun; without the cue nobody can tell.
DECIDED = ("pronoun to noun", "cue to noun", "predicate to noun")
EVENT = "{event}"  # the slot of a shape for the event, which contains both nouns
NEUTRAL_SHAPE = "event that says nothing"  # one of the held-out shapes


@dataclass(frozen=True)
class Mix:
    """How frequent each feature of a sentence is: shares from 0 to 1."""

    reference: float = 0.6  # of all: a pronoun that one word decides
    agreement: float = 0.15  # of all: a pronoun that agrees with only one of the nouns; the rest has none
    shaped: float = 0.65  # of the references: another shape than "… because it was too tired"
    neutral: float = 0.12  # of these: an event that gives no hint which noun is meant
    plural: float = 0.2
    adjective: float = 0.25
    distractor: float = 0.2
    sentence_before: float = 0.12
    long: float = 0.08  # of all: preceded by as many sentences as fit
    no_stop: float = 0.15
    unknown: float = 0.45  # of all: with one to three unknown words
    hidden: float = 0.1  # of the words: the model has to guess them


EVERYDAY = Mix()
# For the first steps of a short training: pronouns in the shortest sentences, with no word hidden.
BARE = Mix(
    reference=1.0, agreement=0.0, shaped=0.0, adjective=0.0, distractor=0.0, sentence_before=0.0, long=0.0,
    unknown=0.0, hidden=0.0,
)  # fmt: skip


class Phrases:
    """Fills templates with the words of one small language; a copy of it holds the state of one sentence."""

    rng: Random  # makes every choice
    banned: frozenset[str]
    words: list[TaggedWord]
    at: dict[str, int]  # positions of A, B, P and the cue among the words

    def __init__(self, lexicon: Lexicon, mix: Mix):
        self.lexicon, self.mix = lexicon, mix
        grammar = lexicon.grammar
        self.distractors = [parts(template) for template in grammar["distractors"]]
        self.stop = grammar.get("stop", ".")
        self._begin_otherwise = frozenset(grammar.get("begin_otherwise", "").split())

    def filled(
        self,
        rng: Random,
        template: tuple[str, ...],
        roles: Mapping[str, Any],
        banned: frozenset[str] = frozenset(),
    ) -> tuple[list[TaggedWord], dict[str, int]]:
        """The words of a template, [CLS] first, and the positions of A, B, P and the cue among them.

        The roles A and B are a noun and the kind of its pronoun each, P is the kind of the pronoun. A plural
        decides between was and were.
        """
        one = copy(self)
        one.rng, one.banned, one.words, one.at = rng, banned, [TaggedWord(START, BOUNDARY)], {}
        one._fill(template, roles)
        if one.words[-1].text not in STOPS:
            one.words.append(TaggedWord(self.stop, BOUNDARY))
        return one.words, one.at

    def _fill(
        self, template: tuple[str, ...], roles: Mapping[str, Any], depth: int = 0, plural: bool = False
    ) -> None:
        rng, words, at = self.rng, self.words, self.at
        # for each open clause: the grammatical number outside it, and its start
        outside: list[tuple[bool, int]] = []
        for part in template:
            if part in BRACKETS:
                depth += 1 if part == "(" else -1
                if part == "(":
                    outside.append((plural, len(words)))
                else:
                    plural, first = outside.pop()
                    words[first] = words[first]._replace(begins=True)
                continue
            if not part.startswith("{"):
                forms = spelled(part)
                text = forms[plural and len(forms) > 1]
                given = part.partition("/")[2].replace("_", " ")
                words.append(TaggedWord(text, given or self.lexicon.parts[forms[0]], depth))
                continue
            slot = part[1:-1]
            if slot in ("A", "B"):
                noun, kind = roles[slot]
                plural = is_plural(kind)
                words += self._phrase(noun, plural, depth)
                at[slot] = len(words) - 1
                if slot == "A" and self.distractors and "B" not in at and rng.random() < self.mix.distractor:
                    # a clause about the first noun, with words that the pronoun could be thought to refer to
                    clause = rng.choice(self.distractors)
                    if "who" in clause and noun.kind == "other":
                        clause = tuple("that/relative" if one == "who" else one for one in clause)
                    self._fill(clause, {}, depth, plural)
            elif slot == "P":
                plural = is_plural(roles["P"])
                at["P"] = len(words)
                words.append(TaggedWord(self.lexicon.grammar["pronouns"][roles["P"]], PRONOUN, depth))
            elif slot == "cue":
                at["cue"] = len(words)
                words.append(TaggedWord("", PREDICATE, depth))
            else:
                filled, number = self._slot(slot, plural, depth)
                if words[-1].part != PREPOSITION:  # the hands of the man are cold
                    plural = number
                words += filled

    def _slot(self, slot: str, plural: bool, depth: int) -> tuple[list[TaggedWord], bool]:
        (name, _, form), rng = slot.partition("."), self.rng
        if name in self.lexicon.verbs:
            form = "base" if plural and form == "third" else form  # the men eat
            verb = rng.choice(self._verbs(name, form))[FORMS.index(form or "base")]
            return [TaggedWord(verb, "verb", depth)], plural
        if name in self.lexicon.words:
            allowed = [word for word in self._members(name, None) if word not in self.banned]
            return [TaggedWord(rng.choice(allowed), self.lexicon.parts[f"{{{name}}}"], depth)], plural
        nouns = self._nouns(name, form)
        if form == "bare":
            return [TaggedWord(rng.choice(nouns).one, NOUN, depth)], False
        many = [noun for noun in nouns if noun.many]
        if form == "plural":
            return [TaggedWord(rng.choice(many).form(plural=True), NOUN, depth)], True
        plural = bool(many) and rng.random() < self.mix.plural
        return self._phrase(rng.choice(many if plural else nouns), plural, depth), plural

    def _phrase(self, noun: Noun, plural: bool, depth: int) -> list[TaggedWord]:
        """A noun with its article and perhaps an adjective; the noun comes last."""
        if noun.is_name:
            return [TaggedWord(noun.one, NOUN, depth)]
        articles = self.lexicon.grammar["articles"]
        kind = f"plural {noun.group}" if plural else noun.group
        if kind not in articles:
            kind = "plural" if plural else "singular"
        if kind == "singular" and not noun.many:
            kind = "mass"  # "my bread", never "a bread"
        article = self.rng.choice(articles[kind if kind in articles else "default"]).split()
        words = [TaggedWord(word, PARTICLE if word == "的" else DETERMINER, depth) for word in article]
        if self.rng.random() < self.mix.adjective:
            adjective = self.rng.choice(self._members("adjective", noun))
            if adjective not in self.banned:
                words.append(TaggedWord(adjective, ADJECTIVE, depth))
                link = self.lexicon.grammar.get("adjective_link", "").split()
                words += [TaggedWord(word, PARTICLE, depth) for word in link]
        words.append(TaggedWord(noun.form(plural=plural), NOUN, depth))
        following = words[1].text if len(words) > 1 else ""
        if words[0].text == "a" and (following[0] in "aeiou") != (following in self._begin_otherwise):
            words[0] = words[0]._replace(text="an")
        return words

    def _verbs(self, name: str, form: str) -> Sequence[tuple[str, ...]]:
        """The verbs of a class that can stand here."""
        return self.lexicon.verbs[name]

    def _nouns(self, name: str, form: str) -> Sequence[Noun]:
        """The nouns of a class that can stand here."""
        return self.lexicon.groups[name]

    def _members(self, name: str, noun: Noun | None) -> Sequence[str]:
        """The words of a class that can stand here, before a noun if there is one."""
        return self.lexicon.words[name]


@cache
def parts(template: str) -> tuple[str, ...]:
    """A template split into words, {slots} and brackets."""
    return tuple(PART.findall(template))


@dataclass(frozen=True)
class Sentence:
    """Words from [CLS] on, their parts of speech, and the links between questions and answers.

    With a resolved pronoun: its position, those of both nouns, the one that it refers to first, and that of
    the cue; 0 for a noun that is not there. `shape` is the name of the pattern around the event.
    """

    words: tuple[str, ...]
    pronoun: int = 0
    nouns: tuple[int, int] = (0, 0)
    cue: int = 0
    schema: str = ""
    shape: str = ""
    parts: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


Pair = tuple[Sentence, Sentence]


class Grammar:
    """Generates sentences of one small language. Every choice is made by `rng`."""

    def __init__(self, lexicon: Lexicon, mix: Mix = EVERYDAY):
        self.lexicon, self.mix = lexicon, mix
        self.phrases = Phrases(lexicon, mix)
        grammar = lexicon.grammar
        self.schemas = {schema["name"]: schema for schema in grammar["schema"]}
        self.shapes, self.held_out_shapes = grammar["shapes"], grammar["held_out_shapes"]
        self.statements = [parts(template) for template in grammar["statements"]]
        self._held_out = {" ".join(sorted(pair.split())) for pair in grammar.get("held_out", ())}

    def sentences(self, rng: Random) -> Pair:
        """Two training sentences: a pair that differs in one word, or two statements without a pronoun.

        No pronoun in them is between a held-out pair of nouns.
        """
        while True:
            kind = rng.random()
            pair: tuple[Sentence, ...]
            if kind < self.mix.reference:
                shape = rng.choice([*self.shapes]) if rng.random() < self.mix.shaped else ""
                pair = self._reference(rng, rng.choice([*self.schemas]), "train", shape)
            elif kind < self.mix.reference + self.mix.agreement:
                pair = self._agreement_to_train(rng)
            else:
                pair = tuple(self.statement(rng) for _ in range(2))
            longest = LONGEST_ALONE
            if rng.random() < self.mix.long:
                longest = MAX_WORDS
                pair = self.lengthened(rng, pair)
            elif rng.random() < self.mix.sentence_before:
                pair = self._after_statement(rng, pair)
            if rng.random() < self.mix.no_stop:
                pair = tuple(self._without_stop(sentence) for sentence in pair)
            if rng.random() < self.mix.unknown:
                state, unknown = rng.getstate(), []
                for sentence in pair:
                    if sentence.pronoun:  # the same words in both
                        rng.setstate(state)
                    unknown.append(self.with_unknown(rng, sentence))
                pair = tuple(unknown)
            if max(len(sentence.words) for sentence in pair) <= longest:
                one, other = pair
                return one, other

    def with_unknown(self, rng: Random, sentence: Sentence, count: int | None = None) -> Sentence:
        """The sentence with `count` of its words (by default one to three) replaced by spares.

        If the cue is unknown, nobody can tell what the pronoun refers to: neither the pronoun nor its
        predicate is asked for a noun.
        """
        count = rng.randint(1, MAX_UNKNOWN) if count is None else count
        words = [*zip(sentence.words, sentence.parts, strict=True)]
        could_be = [*dict.fromkeys(word for word in words if word[1] in CONTENT)]
        signs = [word for word in words if word[0] in STOPS]
        chosen = rng.sample(could_be, min(count, len(could_be)))
        if count and signs and rng.random() < 0.1:
            chosen = [*chosen[: count - 1], rng.choice(signs)]
        spares: dict[str, tuple[str, ...]] = {}
        used: set[str] = set()
        for text, part in chosen:
            if text not in spares:
                spares[text] = self._spares_for(rng, text, part, used)
        return with_spares(sentence, {at: spares[word[0]] for at, word in enumerate(words) if word in chosen})

    def _spares_for(self, rng: Random, word: str, part: str, used: set[str]) -> tuple[str, ...]:
        """The spares that an unknown word in this place is read as; in Chinese it may have been cut."""
        kind, count = self._kind_of_spare(rng, word, part), 1
        if kind == "word":
            count = len(word) if rng.random() < CUT else 1
        free: Sequence[str] = self.lexicon.spares_of[kind]
        free = [spare for spare in free if spare not in used] or free
        taken = tuple(rng.sample(free, min(count, len(free))))
        used.update(taken)
        return taken

    def _kind_of_spare(self, rng: Random, word: str, part: str) -> str:
        if part == BOUNDARY:
            return "symbol"
        if self.lexicon.code != "en":
            return "latin" if part == NOUN and rng.random() < 0.2 else "word"
        has_capital = self.lexicon.classes.get(word, ("",))[0] in CAPITALS
        if has_capital or word in self.lexicon.names or (part in (NOUN, ADJECTIVE) and rng.random() < 0.1):
            return "name"
        return self.lexicon.spare_kind(word) if rng.random() < 0.9 else "other"

    def _after_statement(self, rng: Random, pair: tuple[Sentence, ...]) -> tuple[Sentence, ...]:
        """The pair after a statement, or unchanged if the pronoun could then refer to more nouns."""
        before = self.statement(rng)
        longer = tuple(_joined(before, sentence) for sentence in pair)
        by_form = pair[0].schema in ("agreement", ALONE)
        return pair if by_form and not all(map(self._pronoun_decides, longer)) else longer

    def lengthened(self, rng: Random, pair: tuple[Sentence, ...]) -> tuple[Sentence, ...]:
        """The sentences after as many statements as fit, or unchanged."""
        for _ in range(12):
            longer = self._after_statement(rng, pair)
            if max(len(sentence.words) for sentence in longer) > MAX_WORDS:
                break
            pair = longer
        return pair

    def _without_stop(self, sentence: Sentence) -> Sentence:
        """The sentence without its full stop, as people often type."""
        last = len(sentence.words) - 1
        if sentence.words[-1] != self.phrases.stop:
            return sentence
        kept = tuple(link for link in sentence.links if last not in (link.query, link.key))
        return replace(sentence, words=sentence.words[:-1], parts=sentence.parts[:-1], links=kept)

    def pair(self, rng: Random, schema: str, split: str, shape: str = "") -> Pair:
        """Two sentences that differ in one word, which moves the pronoun from one noun to the other.

        `schema` is one of `schemas`; in "agreement" that word is the pronoun itself. `shape` is the name of a
        sentence shape, trained or held out.
        """
        if schema == "agreement":
            return self._agreement(rng, split)
        return self._reference(rng, schema, split, shape)

    def famous(self) -> Pair:
        """The famous pair of sentences, as a held-out pair of the first pattern."""
        pair = []
        for entry in self.lexicon.grammar["famous"]:
            tokens, _ = self.lexicon.cut(entry["text"], limit=MAX_WORDS)
            texts = [START, *map(normalized, tokens.pieces[1:])]
            words = [
                TaggedWord(*both) for both in zip(texts, (BOUNDARY, *entry["parts"].split()), strict=True)
            ]
            at = {role: texts.index(entry[role]) for role in ("pronoun", "right", "wrong", "cue")}
            pair.append(_sentence(words, at["pronoun"], (at["right"], at["wrong"]), at["cue"], "famous"))
        one, other = pair
        return one, other

    def split(self, one: Noun, other: Noun) -> str:
        """The set that a pair of nouns belongs to, in either order, by a hash of their words."""
        key = " ".join(sorted((one.one, other.one)))
        share = crc32(key.encode()) % 100
        if key in self._held_out or share < HELD_OUT_PERCENT:
            return "test"
        return "validation" if share < 2 * HELD_OUT_PERCENT else "train"

    # The three kinds of sentence

    def _reference(self, rng: Random, name: str, split: str, shape: str) -> Pair:
        schema = self.schemas[name]
        pronoun, one, other = self._noun_pair(rng, schema["a"], schema["b"], split)
        template = parts(self._template(rng, schema, shape))
        cues = tuple(schema[to].split() for to in ("to_a", "to_b"))
        banned = frozenset(cues[0] + cues[1])
        roles = {"A": (one, pronoun), "B": (other, pronoun), "P": pronoun}
        words, at = self.phrases.filled(rng, template, roles, banned)
        nouns = (at["A"], at["B"])
        pair = []
        for to in (0, 1):
            cued = [*words]
            cued[at["cue"]] = words[at["cue"]]._replace(text=rng.choice(cues[to]))
            pair.append(_sentence(cued, at["P"], (nouns[to], nouns[1 - to]), at["cue"], name, shape))
        of_one, of_other = pair
        return of_one, of_other

    def _template(self, rng: Random, schema: dict, shape: str) -> str:
        """The template of a sentence: an event in the shape of that name, or with a common "because"."""
        held_out = shape in self.held_out_shapes
        neutral = self.lexicon.grammar["neutral_held_out" if held_out else "neutral"]
        says_nothing = schema.get("neutral") and shape and rng.random() < self.mix.neutral
        events = neutral if says_nothing or shape == NEUTRAL_SHAPE else schema["clauses"]
        if shape in ("", NEUTRAL_SHAPE):
            because = rng.choice(schema.get("because") or self.lexicon.grammar["because"])
            return f"{rng.choice(events)} {because}"
        pattern = (self.held_out_shapes if held_out else self.shapes)[shape]
        if pattern.startswith(ACTIVE):
            pattern, events = pattern[1:], [event for event in events if event.startswith("{A}")]
        return pattern.replace(EVENT, rng.choice(events))

    def _agreement(self, rng: Random, split: str) -> Pair:
        firsts, seconds = self.lexicon.grammar["agreement_classes"]
        while True:
            one = rng.choice(_nouns_with_pronouns(self.lexicon, firsts))
            other = rng.choice(_nouns_with_pronouns(self.lexicon, seconds))
            if one[0].one != other[0].one and self.split(one[0], other[0]) == split:
                pair = self._agreeing(rng, one, other)
                if all(map(self._pronoun_decides, pair)):
                    return pair

    def _agreement_to_train(self, rng: Random) -> Pair:
        """A pair in which the pronoun decides; in some languages despite a cue, too, or for a noun alone."""
        chosen = rng.random() if ALONE in self.lexicon.grammar else 1.0
        if chosen < SHARE_OVERRULING:
            return self._overruling(rng)
        if chosen < SHARE_OVERRULING + SHARE_ALONE:
            return self._alone(rng)
        return self._agreement(rng, "train")

    def _overruling(self, rng: Random) -> Pair:
        """Two sentences with a cue, in which the form of the pronoun alone decides what it refers to."""
        while True:
            schema = rng.choice([*self.schemas.values()])
            one, one_is = first = rng.choice(_nouns_with_pronouns(self.lexicon, schema["a"]))
            other, other_is = second = rng.choice(_nouns_with_pronouns(self.lexicon, schema["b"]))
            if one.one == other.one or one_is == other_is or self.split(one, other) != "train":
                continue
            cue = rng.choice(f"{schema['to_a']} {schema['to_b']}".split())
            template = self._template(rng, schema, rng.choice(["", *self.shapes])).replace(
                "{cue}", f"{cue}/predicate"
            )
            pair = self._agreeing(rng, first, second, template)
            if all(map(self._pronoun_decides, pair)):
                return pair

    def _agreeing(
        self, rng: Random, one: tuple[Noun, str], other: tuple[Noun, str], pattern: str = ""
    ) -> Pair:
        """Two sentences that differ in the pronoun: that of the one noun, then that of the other."""
        template = parts(pattern or self._ending(rng, rng.choice(self.lexicon.grammar["agreement"])))
        state, pair = rng.getstate(), []
        for referent, (_, pronoun) in zip("AB", (one, other), strict=True):
            rng.setstate(state)  # the same adjectives and articles in both
            words, at = self.phrases.filled(rng, template, {"A": one, "B": other, "P": pronoun})
            further = "B" if referent == "A" else "A"
            pair.append(_sentence(words, at["P"], (at[referent], at[further]), at["P"], "agreement"))
        of_one, of_other = pair
        return of_one, of_other

    def _alone(self, rng: Random) -> Pair:
        """Two sentences that differ in their only noun and in the pronoun that refers to it."""
        nouns = _nouns_with_pronouns(self.lexicon, self.lexicon.grammar["alone_classes"])
        while True:
            template = parts(self._ending(rng, rng.choice(self.lexicon.grammar["alone"])))
            state, pair = rng.getrandbits(32), []
            for noun, pronoun in rng.sample(nouns, 2):
                roles = {"A": (noun, pronoun), "P": pronoun}
                words, at = self.phrases.filled(Random(state), template, roles)
                pair.append(_sentence(words, at["P"], (at["A"], 0), at["P"], ALONE))
            one, other = pair
            if self._pronoun_decides(one) and self._pronoun_decides(other):
                return one, other

    def _ending(self, rng: Random, template: str) -> str:
        """The template, with one of the language's endings about the pronoun if it has none itself."""
        return template if "{P}" in template else template + rng.choice(self.lexicon.grammar["endings"])

    def _pronoun_decides(self, sentence: Sentence) -> bool:
        """Whether the pronoun fits no other word than the noun that it refers to."""
        pronoun, fitting = sentence.words[sentence.pronoun], self.lexicon.fitting
        return not any(
            pronoun in fitting.get(word, ())
            for at, word in enumerate(sentence.words)
            if at != sentence.nouns[0] and at < max(sentence.pronoun, *sentence.nouns)
        )

    def statement(self, rng: Random) -> Sentence:
        """A sentence without a pronoun to resolve."""
        words, _ = self.phrases.filled(rng, rng.choice(self.statements), {})
        return _sentence(words)

    # Choosing nouns

    def _noun_pair(self, rng: Random, firsts: str, seconds: str, split: str) -> tuple[str, Noun, Noun]:
        """A pronoun and two nouns that it could refer to."""
        ways = _pools(self.lexicon, firsts, seconds)
        plurals = [pronoun for pronoun in ways if is_plural(pronoun)]
        singular = [pronoun for pronoun in ways if not is_plural(pronoun)]
        while True:
            plural = plurals and (not singular or rng.random() < self.mix.plural)
            if plural:
                pronoun = plurals[0] if len(plurals) == 1 else rng.choice(plurals)
            else:
                pronoun = rng.choice(singular)
            # the classes list common words first, and those are more frequent
            one, other = (pool[int(len(pool) * rng.random() ** 2)] for pool in ways[pronoun])
            if one.one != other.one and self.split(one, other) == split:
                return pronoun, one, other


@cache
def _pools(lexicon: Lexicon, firsts: str, seconds: str) -> dict[str, tuple[list[Noun], list[Noun]]]:
    """For each pronoun that can refer to nouns of both classes: all those nouns."""
    pools = {
        kind: (_pool(lexicon, firsts, kind), _pool(lexicon, seconds, kind))
        for kind in lexicon.grammar["pronouns"]
    }
    return {kind: both for kind, both in pools.items() if all(both)}


@cache
def _nouns_with_pronouns(lexicon: Lexicon, classes: str) -> list[tuple[Noun, str]]:
    """Every noun of the classes with every pronoun that can refer to it."""
    return [(noun, kind) for kind in lexicon.grammar["pronouns"] for noun in _pool(lexicon, classes, kind)]


def _pool(lexicon: Lexicon, classes: str, pronoun: str) -> list[Noun]:
    nouns = [noun for group in classes.split() for noun in lexicon.groups[group]]
    return [noun for noun in nouns if pronoun in lexicon.pronoun_kinds(noun)]


def _sentence(
    words: Sequence[TaggedWord],
    pronoun: int = 0,
    nouns: tuple[int, int] = (0, 0),
    cue: int = 0,
    schema: str = "",
    shape: str = "",
) -> Sentence:
    """A sentence with the links of its grammar, and those of its pronoun, which refers to the first noun.

    The cue shows that it does. If the cue is the pronoun itself, its form fits this noun alone.
    """
    found = {(link.query, link.question): link for link in links(words)}
    if pronoun and pronoun == cue:
        found[pronoun, "noun"] = Link(pronoun, "noun", nouns[0], "agreement: pronoun to noun")
    elif pronoun:
        found[pronoun, "noun"] = Link(pronoun, "noun", nouns[0], "pronoun to noun")
        found[pronoun, "decider"] = Link(pronoun, "decider", cue, "pronoun to cue")
        found[cue, "noun"] = Link(cue, "noun", nouns[0], "cue to noun")
    if pronoun:  # the pronoun's predicate belongs to the noun that it refers to
        for place, link in found.items():
            if link.name == "predicate to noun" and link.key == pronoun:
                found[place] = link._replace(key=nouns[0])
    return Sentence(
        tuple(word.text for word in words),
        pronoun,
        nouns,
        cue,
        schema,
        shape,
        parts=tuple(word.part for word in words),
        links=tuple(found.values()),
    )


def _joined(before: Sentence, sentence: Sentence) -> Sentence:
    """Both sentences as one text."""
    shift = len(before.words) - 1
    moved = _moved(sentence, [0, *range(1 + shift, len(sentence.words) + shift)])
    return replace(
        moved,
        words=(*before.words, *sentence.words[1:]),
        parts=(*before.parts, *sentence.parts[1:]),
        links=(*before.links, *moved.links),
    )


def with_spares(sentence: Sentence, spares: dict[int, tuple[str, ...]]) -> Sentence:
    """The sentence with spares in place of some words; of several for one word the last one is the answer."""
    words: list[str] = []
    new_parts: list[str] = []
    now: list[int] = []
    for at, (word, part) in enumerate(zip(sentence.words, sentence.parts, strict=True)):
        pieces = spares.get(at, (word,))
        words += pieces
        new_parts += [part] * len(pieces)
        now.append(len(words) - 1)
    found = sentence.links
    if sentence.cue in spares and sentence.cue != sentence.pronoun:
        referent = sentence.nouns[0]
        found = tuple(
            link._replace(key=None) if link.name in DECIDED and link.key == referent else link
            for link in found
        )
    return _moved(replace(sentence, words=tuple(words), parts=tuple(new_parts), links=found), now)


def _moved(sentence: Sentence, now: Sequence[int]) -> Sentence:
    """The sentence with its positions moved to where they are `now`; 0 for what is not there stays 0."""
    links = (link._replace(query=now[link.query], key=link.key and now[link.key]) for link in sentence.links)
    one, other = (now[noun] for noun in sentence.nouns)
    pronoun, cue = now[sentence.pronoun], now[sentence.cue]
    return replace(sentence, links=tuple(links), pronoun=pronoun, nouns=(one, other), cue=cue)
