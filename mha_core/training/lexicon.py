"""The words of a small language, read from its file, and the tokenizer for typed text."""

import hashlib
import tomllib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from zlib import crc32

import regex

from mha_core import resources
from mha_core.errors import MhaError, Phrase, one_of, shown
from mha_core.traces.tokens import Tokens, words

PAD, START, HIDDEN = "[PAD]", "[CLS]", "[MASK]"
LANGUAGES = ("en", "zh")
FORMS = ("base", "third", "past", "participle", "ing")
GENDERED = ("man", "woman", "person")  # noun classes that he or she can refer to
PART = regex.compile(r"\{[^}]+\}|[^\s{}.,?!。，？！]+|[.,?!。，？！]")
# Words outside the vocabulary are read as spare vectors, by the form of the word: so many of each kind.
# Numbers have none: they are read as number words.
SPARES = {
    "en": {"name": 12, "s": 10, "ed": 8, "ing": 8, "ly": 6, "symbol": 6, "other": 20},
    "zh": {"word": 48, "latin": 12, "symbol": 6},
}
ENDINGS = ("ing", "ed", "ly", "s")  # of English words, if the rest of the word is long enough
KNOWN_COST, UNKNOWN_COST = 10, 11  # of a word of a text: the cheapest way to cut it is taken
CAPITALS = ("city", "country", "day", "month", "language", "nationality")  # word classes with a capital
MIN_STEM = 3  # letters in front of an ending
LETTERS, DIGIT, HAN = regex.compile(r"\p{L}"), regex.compile(r"\p{N}"), regex.compile(r"\p{Han}")
ACTIVE = "*"  # before a shape that continues with the first noun
BRACKETS = "()"  # around a clause inside another one
SENTENCE_END = regex.compile(r"[.!?。！？…]+[\"'”’)）」]*\s*|\s*\n\s*")
ABBREVIATIONS = frozenset(["mr", "mrs", "ms", "dr", "st", "prof"])  # whose full stop ends no sentence


@dataclass(frozen=True)
class Noun:
    """A noun, its plural if it has one, and the kind of pronoun that can refer to it."""

    one: str
    many: str | None
    group: str  # the class that lists it
    kind: str  # man, woman, person (either) or other
    is_name: bool = False

    def form(self, *, plural: bool) -> str:
        """The noun in this number; a noun without a plural has one form."""
        return self.many if plural and self.many else self.one


@dataclass(frozen=True, eq=False)
class Lexicon:
    """One small language: the contents of its file, ready for look-up."""

    code: str
    grammar: dict
    nouns: tuple[Noun, ...]
    verbs: dict[str, tuple[tuple[str, ...], ...]]  # class → (base, third, past, participle, ing) each
    words: dict[str, tuple[str, ...]]

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word by its number: three special tokens, the known words, sorted, and the spares."""
        return (PAD, START, HIDDEN, *self.known, *self.spares)

    @cached_property
    def known(self) -> tuple[str, ...]:
        """The words that can be typed, sorted."""
        return tuple(sorted(set(self._all_words())))

    @cached_property
    def spares_of(self) -> dict[str, tuple[str, ...]]:
        """The vectors that unknown words of each form are read as, such as "[name 3]"."""
        counts = SPARES[self.code].items()
        return {kind: tuple(f"[{kind} {nth}]" for nth in range(1, count + 1)) for kind, count in counts}

    @cached_property
    def spares(self) -> tuple[str, ...]:
        """The vectors of all forms, in the order of their numbers."""
        return tuple(chain.from_iterable(self.spares_of.values()))

    @cached_property
    def number(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.vocabulary)}

    @cached_property
    def digest(self) -> str:
        """A short hash of the vocabulary: weights fit only the vocabulary they were trained with."""
        return hashlib.sha256("\n".join(self.vocabulary).encode()).hexdigest()[:16]

    @cached_property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The classes of the language that each word belongs to; their other words can replace it."""
        classes: dict[str, list[str]] = {}
        for noun in self.nouns:
            for form in filter(None, (noun.one, noun.many)):
                classes.setdefault(form, []).append(noun.group)
        for name, forms in self.verbs.items():
            for verb in forms:
                for form, word in zip(FORMS, verb, strict=True):
                    classes.setdefault(word, []).append(f"{name}.{form}")
        for name, members in self.words.items():
            for word in members:
                classes.setdefault(word, []).append(name)
        return {word: tuple(names) for word, names in classes.items()}

    @cached_property
    def kinds(self) -> dict[str, str]:
        """One class for every word, for pictures: as the file lists it or shows it (`shown_as`), or verb,
        pronoun, cue, other.

        A cue is an adjective that decides what a pronoun stands for.
        """
        shown = dict.fromkeys(GENDERED, "person")
        for kind, names in self.grammar["shown_as"].items():
            shown |= dict.fromkeys(names.split(), kind)
        cues = " ".join(f"{schema['to_a']} {schema['to_b']}" for schema in self.grammar["schema"]).split()
        kinds = {}
        for word in (START, HIDDEN, *self.known):
            first, _, form = self.classes.get(word, ("other",))[0].partition(".")
            kinds[word] = "verb" if form else shown.get(first, first)
        return kinds | dict.fromkeys(self.pronouns, "pronoun") | dict.fromkeys(cues, "cue")

    @cached_property
    def _longest(self) -> int:
        return max(map(len, (*self.known, *self.unlisted)))

    @cached_property
    def unlisted(self) -> frozenset[str]:
        """Words that the language lacks, but that a text written without spaces is not cut through."""
        file = resources.path("assets", "small_languages", f"{self.code}_words.txt")
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else ()
        return frozenset(line for line in lines if not line.startswith("#"))

    @cached_property
    def parts(self) -> dict[str, str]:
        """The part of speech of each class and of each word that templates spell out."""
        return {
            entry: part.replace("_", " ")
            for part, entries in self.grammar["parts_of_speech"].items()
            for entry in entries.split()
        }

    def cut(self, text: str, *, limit: int) -> tuple[Tokens, list[int]]:
        """Typed text as tokens after [CLS], and the number of each.

        Neighbouring pieces that form a known or an `unlisted` word are joined, to as few words as possible.
        An unknown word has the number of a spare of its form, and its position is in `unknown` of the tokens.
        Raises `MhaError` for text without a token and for more than `limit` tokens, [CLS] included.
        """
        tokens, numbers = self._cut(text)
        if len(tokens) > limit:
            kept = self.sentences(text[: tokens.spans[limit][1]], limit=limit)[0]
            raise MhaError(
                "The text has {n_tokens} tokens; the small models read up to {limit} at a time. "
                "Take one sentence: {sentence}",
                n_tokens=len(tokens) - 1,
                limit=limit - 1,
                sentence=shown(kept),
                fixes=({"text": kept},),
            )
        return tokens, numbers

    def sentences(self, text: str, *, limit: int) -> tuple[str, ...]:
        """A text split into parts of at most `limit` tokens with [CLS], at ends of sentences if possible.

        Raises `MhaError` for text without a token.
        """
        tokens, _ = self._cut(text)
        ends = deque(match.end() for match in SENTENCE_END.finditer(text))
        parts, first = [], 1
        for at in range(1, len(tokens)):
            stop = tokens.spans[at][1]
            following = tokens.spans[at + 1][0] if at + 1 < len(tokens) else len(text)
            while ends and ends[0] < stop:
                ends.popleft()
            is_end = ends and ends[0] <= following and normalized(tokens.pieces[at - 1]) not in ABBREVIATIONS
            if is_end or at + 1 == len(tokens) or at - first + 2 == limit:
                parts.append(text[tokens.spans[first][0] : stop])
                first = at + 1
        return tuple(parts)

    def spare_kind(self, piece: str, *, first: bool = False) -> str:
        """The kind of spare that a word of this form is read as, or "number".

        The `first` word of a sentence has a capital letter in any case.
        """
        if DIGIT.search(piece):
            return "number"
        if not LETTERS.search(piece):
            return "symbol"
        if self.code != "en":
            return "word" if HAN.search(piece) else "latin"
        for ending in ENDINGS:
            if piece.endswith(ending) and len(piece) >= MIN_STEM + len(ending):
                if piece[0].isupper() and (not first or ending in ("s", "ed")):
                    break
                return ending
        return "name" if piece[0].isupper() else "other"

    def _cut(self, text: str) -> tuple[Tokens, list[int]]:
        typed = words(text, limit=len(text))
        spans = [(0, 0), *self._best_cut(text, typed.spans)]
        pieces = [START, *(text[start:stop] for start, stop in spans[1:])]
        found = [self.number[START], *(self._typed.get(normalized(piece)) for piece in pieces[1:])]
        unknown = tuple(at for at, number in enumerate(found) if number is None)
        read_as = self._read_as(pieces, unknown)
        numbers = [read_as[normalized(p)] if n is None else n for p, n in zip(pieces, found, strict=True)]
        return Tokens(text, tuple(pieces), tuple(spans), unknown=unknown), numbers

    def _best_cut(self, text: str, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The spans of the words that the parts form: as few words as possible, and of these most known."""
        cheapest, first = [0], [0]  # of the words up to each part, and where the last of them begins
        for end in range(1, len(parts) + 1):
            cost, at = cheapest[end - 1] + UNKNOWN_COST, end - 1
            for start in range(max(0, end - self._longest), end):
                word = text[parts[start][0] : parts[end - 1][1]]
                is_known = normalized(word) in self._typed
                of_word = KNOWN_COST if is_known else UNKNOWN_COST
                if (is_known or word in self.unlisted) and cheapest[start] + of_word <= cost:
                    cost, at = cheapest[start] + of_word, start
            cheapest.append(cost)
            first.append(at)
        spans, end = [], len(parts)
        while end:
            spans.append((parts[first[end]][0], parts[end - 1][1]))
            end = first[end]
        return spans[::-1]

    @cached_property
    def _typed(self) -> dict[str, int]:
        """The words that can be typed, with their numbers: all but the spares."""
        return {word: number for word, number in self.number.items() if word not in set(self.spares)}

    @cached_property
    def _stand_ins(self) -> dict[str, list[int]]:
        """The numbers that unknown words of each kind are read as: spares, for a number the number words."""
        words = self.spares_of | {"number": self.words["number"]}
        return {kind: [self.number[word] for word in of_kind] for kind, of_kind in words.items()}

    def _read_as(self, pieces: list[str], unknown: tuple[int, ...]) -> dict[str, int]:
        """The spare for each unknown word, by its form and its letters.

        A word has the same spare in every sentence, unless two words of a sentence would share it. They do
        share one if there are more words of a form than spares.
        """
        read_as, taken = {}, set()
        for at in unknown:
            word = normalized(pieces[at])
            if word in read_as:
                continue
            kind = self.spare_kind(pieces[at], first=at == 1)
            spares = self._stand_ins[kind]
            start = crc32(word.encode()) % len(spares)
            spares = spares[start:] + spares[:start]
            read_as[word] = next((spare for spare in spares if spare not in taken), spares[0])
            taken.add(read_as[word])
        return read_as

    @cached_property
    def groups(self) -> dict[str, tuple[Noun, ...]]:
        """The nouns and names of each class, in the order of the file."""
        groups: dict[str, list[Noun]] = {}
        for noun in self.nouns:
            groups.setdefault(noun.group, []).append(noun)
        return {name: tuple(nouns) for name, nouns in groups.items()}

    def pronoun_kinds(self, noun: Noun) -> tuple[str, ...]:
        """The kinds of pronouns that can refer to a noun, or to several of it: man, woman, other, plural.

        A language with plurals by gender lists them as "plural man" and so on.
        """
        kinds = ("man", "woman") if noun.kind == "person" else (noun.kind,)
        plurals = ("plural", *(f"plural {kind}" for kind in kinds)) if noun.many else ()
        return tuple(kind for kind in (*kinds, *plurals) if kind in self.grammar["pronouns"])

    @cached_property
    def fitting(self) -> dict[str, frozenset[str]]:
        """The pronouns that can refer to each form of a noun: for sheep, one or many, it and they."""
        fitting: dict[str, set[str]] = {}
        for noun in self.nouns:
            for kind in self.pronoun_kinds(noun):
                pronoun = self.grammar["pronouns"][kind]
                fitting.setdefault(noun.form(plural=is_plural(kind)), set()).add(pronoun)
        return {form: frozenset(pronouns) for form, pronouns in fitting.items()}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of persons."""
        return frozenset(noun.one for noun in self.nouns if noun.is_name)

    @cached_property
    def capitalized(self) -> frozenset[str]:
        """The words that are written with a capital letter: names of persons, places, days and the like."""
        of_classes = (word for name in CAPITALS for word in self.words.get(name, ()))
        return self.names.union(of_classes)

    @cached_property
    def noun_forms(self) -> frozenset[str]:
        """Every noun and name, singular and plural: everything that a pronoun can refer to."""
        return frozenset(form for noun in self.nouns for form in (noun.one, noun.many) if form)

    @cached_property
    def pronouns(self) -> frozenset[str]:
        return frozenset(self.grammar["pronouns"].values())

    def _all_words(self) -> Iterable[str]:
        for noun in self.nouns:
            yield from filter(None, (noun.one, noun.many))
        for verbs in self.verbs.values():
            for verb in verbs:
                yield from verb
        for members in self.words.values():
            yield from members
        for articles in self.grammar["articles"].values():
            yield from " ".join(articles).split()
        yield from self.grammar["pronouns"].values()
        yield from self.grammar.get("always", "").split()
        for template in self.templates():
            for part in PART.findall(template):
                if not part.startswith("{") and part not in BRACKETS:
                    yield from spelled(part)
        for schema in self.grammar["schema"]:
            yield from f"{schema['to_a']} {schema['to_b']}".split()

    def templates(self) -> Iterable[str]:
        grammar = self.grammar
        yield from (*grammar["statements"], *grammar["agreement"], *grammar.get("because", ()))
        yield from (*grammar.get("alone", ()), *grammar.get("endings", ()))
        for shapes in (grammar["shapes"], grammar["held_out_shapes"]):
            yield from (shape.removeprefix(ACTIVE) for shape in shapes.values())
        yield from (*grammar["distractors"], *grammar["neutral"], *grammar["neutral_held_out"])
        for schema in grammar["schema"]:
            yield from (*schema["clauses"], *schema.get("because", ()))


def is_plural(pronoun_kind: str) -> bool:
    return pronoun_kind.startswith("plural")


def spelled(part: str) -> list[str]:
    """The words that a part of a template spells out, without their part of speech: was|were, like/verb."""
    return part.partition("/")[0].split("|")


@cache
def lexicon(code: str = "en") -> Lexicon:
    """The small language of that code, "en" or "zh". Raises `MhaError` for another one."""
    file = resources.path(
        "assets", "small_languages", f"{one_of(Phrase('small language'), code, LANGUAGES)}.toml"
    )
    grammar = tomllib.loads(file.read_text(encoding="utf-8"))
    nouns = []
    countable = grammar.get("countable", "").split()  # classes whose plural is spelled as the singular
    suffix = grammar.get("plural_suffix")  # of nouns for persons
    for group, entries in grammar["nouns"].items():
        kind = group if group in GENDERED else "other"
        for entry in entries.split():
            one, _, many = entry.partition("/")
            if suffix and kind != "other" and not many:
                many = one + suffix
            nouns.append(Noun(one, many or (one if group in countable else None), group, kind))
    for group, entries in grammar["names"].items():
        nouns += [Noun(name, None, group, group, is_name=True) for name in entries.split()]
    verbs = {
        name: tuple(_forms(entry) for entry in entries.split()) for name, entries in grammar["verbs"].items()
    }
    classes = {name: tuple(entries.split()) for name, entries in grammar["words"].items()}
    return Lexicon(code, grammar, tuple(nouns), verbs, classes)


def normalized(piece: str) -> str:
    """A typed piece in the spelling of the vocabulary: lower case, straight apostrophes."""
    return piece if piece == HIDDEN else piece.casefold().replace("’", "'")


def _forms(entry: str) -> tuple[str, ...]:
    """The five forms of a verb; a language without inflection lists one for all."""
    forms = tuple(entry.split("/"))
    return forms if len(forms) == len(FORMS) else forms * len(FORMS)
