"""The small languages: made-up sentences in which one word decides what a pronoun stands for.

"The animal didn't cross the street because it was too tired": put *wide* for *tired* and *it* is the
street. Neither position nor kind of word gives the answer away: both nouns take the same pronoun, in
many patterns both are of one kind, and passives put the second noun first. Which two nouns meet is
held out: pairs of nouns of the sets "validation" and "test" never stand together around a pronoun in
training. All sentences follow from a `random.Random`, so from a seed.
"""

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from zlib import crc32

from mha_core.training.lexicon import FORMS, PART, START, Lexicon, Noun

MAX_WORDS = 32  # tokens of the longest sentence, [CLS] and full stop included
HELD_OUT_PERCENT = 8  # of all pairs of nouns, for each of the sets "validation" and "test"
STOPS = frozenset(".?!。？！")


@dataclass(frozen=True)
class Mix:
    """How often a sentence has which feature: shares from 0 to 1."""

    reference: float = 0.6  # of all: a pronoun that one word decides
    agreement: float = 0.15  # of all: a pronoun that agrees with one of the nouns only; the rest has none
    plural: float = 0.2
    adjective: float = 0.25
    distractor: float = 0.15
    sentence_before: float = 0.1
    no_stop: float = 0.15
    hidden: float = 0.15  # of the words: the model has to say which they were


EVERYDAY = Mix()
# For the first steps of a short training: the bare question, in as few words as there are, none hidden.
BARE = Mix(reference=1.0, agreement=0.0, adjective=0.0, distractor=0.0, sentence_before=0.0, hidden=0.0)


class Phrases:
    """Writes templates in the words of one small language. `rng` is asked for every choice."""

    def __init__(self, lexicon: Lexicon, mix: Mix):
        self.lexicon, self.mix = lexicon, mix
        grammar = lexicon.grammar
        self.distractor = parts(grammar["distractor"]) if "distractor" in grammar else None
        self.stop = grammar.get("stop", ".")
        self._begin_otherwise = frozenset(grammar.get("begin_otherwise", "").split())

    def written(self, rng: Random, template: str) -> tuple[tuple[str, ...], list[tuple[object, slice]]]:
        """The words of a template without A, B, P and cue, [CLS] first, and the slice of each part."""
        cut = parts(template)
        words, at = self.filled(rng, cut, {}, "", frozenset())
        return words, [(part, at[index]) for index, part in enumerate(cut)]

    def filled(self, rng: Random, template, roles: dict, number, banned: frozenset):
        """The words of a template, [CLS] first, and where A, B, P and the cue stand in them.

        `number` is the pronoun kind of both roles, or of each; "plural" decides between was and were.
        Under the number of each part of the template is the slice of words that it became.
        """
        kinds = dict(zip("AB", (number, number) if isinstance(number, str) else number, strict=True))
        words, at, plural = [START], {}, False
        for index, part in enumerate(template):
            start = len(words)
            if isinstance(part, tuple):
                words.append(part[plural and 1])
            elif not part.startswith("{"):
                words.append(part)
            else:
                slot = part[1:-1]
                if slot in "AB":
                    plural = kinds[slot] == "plural"
                    words += self._phrase(rng, roles[slot], plural, banned)
                    at[slot] = len(words) - 1
                    if (
                        slot == "A"
                        and self.distractor
                        and "B" not in at
                        and rng.random() < self.mix.distractor
                    ):
                        words += self.filled(rng, self.distractor, {}, "", banned)[0][1:]
                elif slot == "P":
                    plural = roles["P"] == "plural"
                    at["P"] = len(words)
                    words.append(self.lexicon.grammar["pronouns"][roles["P"]])
                elif slot == "cue":
                    at["cue"] = len(words)
                    words.append("")
                else:
                    filled, plural = self._slot(rng, slot, plural, banned)
                    words += filled
            at[index] = slice(start, len(words))
        if template is not self.distractor and words[-1] not in STOPS:
            words.append(self.stop)
        return tuple(words), at

    def _slot(self, rng: Random, slot: str, plural: bool, banned: frozenset) -> tuple[list[str], bool]:
        name, _, form = slot.partition(".")
        if name in self.lexicon.verbs:
            form = "base" if plural and form == "third" else form  # the men eat
            return [rng.choice(self.lexicon.verbs[name])[FORMS.index(form or "base")]], plural
        if name in self.lexicon.words:
            allowed = [word for word in self.lexicon.words[name] if word not in banned]
            return [rng.choice(allowed)], plural
        nouns = self.lexicon.groups[name]
        if form == "bare":
            return [rng.choice(nouns).one], False
        many = [noun for noun in nouns if noun.many]
        if form == "plural":
            return [rng.choice(many).many], True
        plural = bool(many) and rng.random() < self.mix.plural
        return self._phrase(rng, rng.choice(many if plural else nouns), plural, banned), plural

    def _phrase(self, rng: Random, noun: Noun, plural: bool, banned: frozenset) -> list[str]:
        """A noun with its article and perhaps an adjective; the noun comes last."""
        if noun.is_name:
            return [noun.one]
        articles = self.lexicon.grammar["articles"]
        kind = "plural" if plural else noun.group if noun.group in articles else "singular"
        if kind == "singular" and not noun.many:
            kind = "mass"  # "my bread", never "a bread"
        words = rng.choice(articles[kind if kind in articles else "default"]).split()
        if rng.random() < self.mix.adjective:
            adjective = rng.choice(self.lexicon.words["adjective"])
            if adjective not in banned:
                words += [adjective, *self.lexicon.grammar.get("adjective_link", "").split()]
        words.append(noun.many if plural else noun.one)
        if words[0] == "a" and (words[1][0] in "aeiou") != (words[1] in self._begin_otherwise):
            words[0] = "an"
        return words


@cache
def parts(template: str) -> tuple:
    """A template cut into words, {slots}, and pairs of forms for one and for many."""
    return tuple(tuple(part.split("|")) if "|" in part else part for part in PART.findall(template))


@dataclass(frozen=True)
class Sentence:
    """Words from [CLS] on; where a pronoun was resolved its position and the positions of both nouns.

    `nouns` has the noun it stands for first, the other one second; (0, 0) without such a pronoun.
    """

    words: tuple[str, ...]
    pronoun: int = 0
    nouns: tuple[int, int] = (0, 0)
    cue: int = 0
    schema: str = ""


Pair = tuple[Sentence, Sentence]


class Grammar:
    """Makes sentences of one small language. `rng` is asked for every choice."""

    def __init__(self, lexicon: Lexicon, mix: Mix = EVERYDAY):
        self.lexicon, self.mix = lexicon, mix
        self.phrases = Phrases(lexicon, mix)
        grammar = lexicon.grammar
        self.schemas = grammar["schema"]
        self.statements = [parts(template) for template in grammar["statements"]]
        self._held_out = {" ".join(sorted(pair.split())) for pair in grammar.get("held_out", ())}
        self._pools = {}

    def sentences(self, rng: Random) -> Pair:
        """Two sentences for training: a pair that one word tells apart, or two statements without a pronoun.

        No pronoun in them stands between a held-out pair of nouns.
        """
        while True:
            kind = rng.random()
            if kind < self.mix.reference:
                pair = self._reference(rng, rng.choice(self.schemas), "train")
            elif kind < self.mix.reference + self.mix.agreement:
                pair = self._agreement(rng, "train")
            else:
                pair = tuple(Sentence((START, *self._statement(rng))) for _ in range(2))
            if rng.random() < self.mix.sentence_before:
                before = tuple(self._statement(rng))
                longer = tuple(_after(before, sentence) for sentence in pair)
                if pair[0].schema != "agreement" or all(map(self._pronoun_decides, longer)):
                    pair = longer
            if rng.random() < self.mix.no_stop:
                pair = tuple(self._without_stop(sentence) for sentence in pair)
            if max(len(sentence.words) for sentence in pair) <= MAX_WORDS:
                return pair

    def _without_stop(self, sentence: Sentence) -> Sentence:
        """The sentence without its full stop, as people type."""
        ends = sentence.words[-1] == self.phrases.stop
        return replace(sentence, words=sentence.words[:-1]) if ends else sentence

    def pair(self, rng: Random, schema: str, split: str) -> Pair:
        """Two sentences that differ in one word, which moves the pronoun from one noun to the other.

        `schema` is a name in `names`, "agreement" among them, where that one word is the pronoun.
        """
        if schema == "agreement":
            return self._agreement(rng, split)
        return self._reference(rng, next(s for s in self.schemas if s["name"] == schema), split)

    def famous(self) -> Pair:
        """The pair that everybody knows, as a held-out pair of the first pattern."""
        pair = []
        for entry in self.lexicon.grammar["famous"]:
            tokens, _ = self.lexicon.cut(entry["text"], limit=MAX_WORDS)
            words = tuple(piece.lower() if piece != START else piece for piece in tokens.pieces)
            at = {role: words.index(entry[role]) for role in ("pronoun", "right", "wrong", "cue")}
            pair.append(Sentence(words, at["pronoun"], (at["right"], at["wrong"]), at["cue"], "famous"))
        return tuple(pair)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(schema["name"] for schema in self.schemas)

    def split(self, one: Noun, other: Noun) -> str:
        """The set that a pair of nouns belongs to, in either order, by a hash of their words."""
        key = " ".join(sorted((one.one, other.one)))
        share = crc32(key.encode()) % 100
        if key in self._held_out or share < HELD_OUT_PERCENT:
            return "test"
        return "validation" if share < 2 * HELD_OUT_PERCENT else "train"

    # The three kinds of sentence

    def _reference(self, rng: Random, schema: dict, split: str) -> Pair:
        pronoun, one, other = self._two(rng, schema["a"], schema["b"], split)
        because = schema.get("because") or self.lexicon.grammar["because"]
        template = parts(f"{rng.choice(schema['clauses'])} {rng.choice(because)}")
        cues = tuple(schema[to].split() for to in ("to_a", "to_b"))
        banned = frozenset(cues[0] + cues[1])
        words, at = self.phrases.filled(rng, template, {"A": one, "B": other, "P": pronoun}, pronoun, banned)
        nouns = (at["A"], at["B"])
        return tuple(
            Sentence(
                (*words[: at["cue"]], rng.choice(cues[to]), *words[at["cue"] + 1 :]),
                at["P"],
                (nouns[to], nouns[1 - to]),
                at["cue"],
                schema["name"],
            )
            for to in (0, 1)
        )

    def _agreement(self, rng: Random, split: str) -> Pair:
        firsts, seconds = self.lexicon.grammar["agreement_classes"]
        while True:
            one, one_is = rng.choice(self._any(firsts))
            other, other_is = rng.choice(self._any(seconds))
            if one.one != other.one and self.split(one, other) == split:
                pair = self._agreeing(rng, (one, other), (one_is, other_is))
                if all(map(self._pronoun_decides, pair)):
                    return pair

    def _agreeing(self, rng: Random, nouns: tuple[Noun, Noun], pronouns: tuple[str, str]) -> Pair:
        """Two sentences that differ in the pronoun, which is that of the one noun, then that of the other."""
        template = parts(rng.choice(self.lexicon.grammar["agreement"]))
        state, pair = rng.getstate(), []
        for referent, pronoun in enumerate(pronouns):
            rng.setstate(state)  # the same adjectives and articles in both
            roles = {"A": nouns[0], "B": nouns[1], "P": pronoun}
            words, at = self.phrases.filled(rng, template, roles, pronouns, frozenset())
            places = (at["A"], at["B"])
            pair.append(
                Sentence(words, at["P"], (places[referent], places[1 - referent]), at["P"], "agreement")
            )
        return tuple(pair)

    def _pronoun_decides(self, sentence: Sentence) -> bool:
        """Whether the pronoun fits no word before it but the noun that it stands for."""
        pronoun, fitting = sentence.words[sentence.pronoun], self.lexicon.fitting
        return not any(
            pronoun in fitting.get(word, ())
            for at, word in enumerate(sentence.words[: sentence.pronoun])
            if at != sentence.nouns[0]
        )

    def _statement(self, rng: Random) -> list[str]:
        words, _ = self.phrases.filled(rng, rng.choice(self.statements), {}, "", frozenset())
        return words[1:]

    # Choosing nouns

    def _two(self, rng: Random, firsts: str, seconds: str, split: str) -> tuple[str, Noun, Noun]:
        """A pronoun and two nouns that it could stand for."""
        ways = self._pools.get((firsts, seconds))
        if ways is None:
            pools = {
                p: (self._pool(firsts, p), self._pool(seconds, p))
                for p in ("man", "woman", "other", "plural")
            }
            ways = self._pools[firsts, seconds] = {p: both for p, both in pools.items() if all(both)}
        singular = [pronoun for pronoun in ways if pronoun != "plural"]
        while True:
            plural = "plural" in ways and (not singular or rng.random() < self.mix.plural)
            pronoun = "plural" if plural else rng.choice(singular)
            one, other = (_common(rng, pool) for pool in ways[pronoun])
            if one.one != other.one and self.split(one, other) == split:
                return pronoun, one, other

    def _pool(self, classes: str, pronoun: str) -> list[Noun]:
        nouns = [noun for group in classes.split() for noun in self.lexicon.groups[group]]
        if pronoun == "plural":
            return [noun for noun in nouns if noun.many]
        word = self.lexicon.grammar["pronouns"][pronoun]
        return [noun for noun in nouns if word in self.lexicon.fitting[noun.one]]

    def _any(self, classes: str) -> list[tuple[Noun, str]]:
        """Every noun of the classes with every pronoun that can stand for it."""
        key = (classes, "any")
        if key not in self._pools:
            self._pools[key] = [
                (noun, pronoun)
                for pronoun in ("man", "woman", "other", "plural")
                for noun in self._pool(classes, pronoun)
            ]
        return self._pools[key]


def _common(rng: Random, nouns: list[Noun]) -> Noun:
    """A noun by chance; the classes list common words first, and those come more often."""
    return nouns[int(len(nouns) * rng.random() ** 2)]


def _after(before: tuple[str, ...], sentence: Sentence) -> Sentence:
    """The sentence with another one before it."""
    shift = len(before)
    moved = (
        (sentence.pronoun + shift, tuple(n + shift for n in sentence.nouns), sentence.cue + shift)
        if sentence.pronoun
        else (0, (0, 0), 0)
    )
    return Sentence((START, *before, *sentence.words[1:]), *moved, sentence.schema)
