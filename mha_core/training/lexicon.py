"""The words of a small language, read from its file, and typed text cut into them."""

import hashlib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

import regex

from mha_core import resources
from mha_core.errors import MhaError, one_of
from mha_core.traces.tokens import Tokens, words

PAD, START, HIDDEN = "[PAD]", "[CLS]", "[MASK]"
LANGUAGES = ("en", "zh")
FORMS = ("base", "third", "past", "participle", "ing")
GENDERED = ("man", "woman", "person")  # noun classes that he or she can stand for
MERGED = dict.fromkeys(GENDERED, "person")
PART = regex.compile(r"\{[^}]+\}|[^\s{}.,?!。，？！]+|[.,?!。，？！]")


@dataclass(frozen=True)
class Noun:
    """A noun, its plural if it has one, and what kind of pronoun can stand for it."""

    one: str
    many: str | None
    group: str  # the class it is listed in
    kind: str  # man, woman, person (either) or other
    is_name: bool = False


@dataclass(frozen=True, eq=False)
class Lexicon:
    """One small language: everything its file says, ready to look up."""

    code: str
    grammar: dict
    nouns: tuple[Noun, ...]
    verbs: dict[str, tuple[tuple[str, ...], ...]]  # class → (base, third, past, participle, ing) each
    words: dict[str, tuple[str, ...]]

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word, sorted, behind the three special tokens; its position is its number."""
        return (PAD, START, HIDDEN, *sorted(set(self._all_words())))

    @property
    def n_words(self) -> int:
        """The number of words with a vector of their own, the hidden word and [CLS] among them."""
        return len(self.vocabulary) - 1  # without the padding

    @cached_property
    def number(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.vocabulary)}

    @cached_property
    def digest(self) -> str:
        """A short hash of the vocabulary: weights fit exactly the vocabulary they were trained with."""
        return hashlib.sha256("\n".join(self.vocabulary).encode()).hexdigest()[:16]

    @cached_property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Which classes of the language a word belongs to, for finding words that can replace it."""
        classes: dict[str, list[str]] = {}
        for noun in self.nouns:
            for form in (noun.one, noun.many):
                if form:
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
        shown_as = self.grammar["shown_as"].items()
        shown = MERGED | {name: kind for kind, names in shown_as for name in names.split()}
        cues = " ".join(f"{schema['to_a']} {schema['to_b']}" for schema in self.grammar["schema"]).split()
        kinds = {}
        for word in self.vocabulary:
            first, _, form = self.classes.get(word, ("other",))[0].partition(".")
            kinds[word] = "verb" if form else shown.get(first, first)
        return kinds | dict.fromkeys(self.pronouns, "pronoun") | dict.fromkeys(cues, "cue")

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.vocabulary))

    def cut(self, text: str, *, limit: int) -> tuple[Tokens, list[int | None]]:
        """Typed text as tokens behind [CLS], and each one's number; None for a word that is not known.

        Neighbouring pieces are taken together as long as they make a known word: the longest match.
        Raises `MhaError` for text without a token and for more than `limit` tokens, [CLS] included.
        """
        typed = words(text, limit=len(text))  # too long a text is refused below, in these tokens
        pieces, spans, numbers = [START], [(0, 0)], [self.number[START]]
        at = 0
        while at < len(typed):
            for end in range(min(len(typed), at + self._longest), at, -1):
                start, stop = typed.spans[at][0], typed.spans[end - 1][1]
                number = self.number.get(normalized(text[start:stop]))
                if number is not None or end == at + 1:
                    break
            pieces.append(text[start:stop])
            spans.append((start, stop))
            numbers.append(number)
            at = end
        if len(pieces) > limit:
            raise MhaError(
                f"The text has {len(pieces) - 1} tokens; the small models read up to {limit - 1}.",
                fixes=({"text": text[: spans[limit - 1][1]]},),
            )
        return Tokens(text, tuple(pieces), tuple(spans)), numbers

    @cached_property
    def groups(self) -> dict[str, tuple[Noun, ...]]:
        """The nouns and names of each class, in the order of the file."""
        groups: dict[str, list[Noun]] = {}
        for noun in self.nouns:
            groups.setdefault(noun.group, []).append(noun)
        return {name: tuple(nouns) for name, nouns in groups.items()}

    @cached_property
    def fitting(self) -> dict[str, frozenset[str]]:
        """The pronouns that can stand for each form of a noun: for sheep, one or many, it and they."""
        table, fitting = self.grammar["pronouns"], {}
        for noun in self.nouns:
            kinds = ("man", "woman") if noun.kind == "person" else (noun.kind,)
            fitting.setdefault(noun.one, set()).update(table[kind] for kind in kinds)
            if noun.many:
                fitting.setdefault(noun.many, set()).add(table["plural"])
        return {form: frozenset(pronouns) for form, pronouns in fitting.items()}

    @cached_property
    def noun_forms(self) -> frozenset[str]:
        """Every noun and name, in the singular and in the plural: what a pronoun can stand for."""
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
                if not part.startswith("{"):
                    yield from part.split("|")
        for schema in self.grammar["schema"]:
            yield from f"{schema['to_a']} {schema['to_b']}".split()

    def templates(self) -> Iterable[str]:
        grammar = self.grammar
        yield from (*grammar["statements"], *grammar["agreement"], *grammar.get("because", ()))
        for schema in grammar["schema"]:
            yield from (*schema["clauses"], *schema.get("because", ()))


@cache
def lexicon(code: str = "en") -> Lexicon:
    """The small language of that code, "en" or "zh". Raises `MhaError` for another one."""
    file = resources.path("assets", "small_languages", f"{one_of('small language', code, LANGUAGES)}.toml")
    grammar = tomllib.loads(file.read_text(encoding="utf-8"))
    nouns = []
    for group, entries in grammar["nouns"].items():
        kind = group if group in GENDERED else "other"
        for entry in entries.split():
            one, _, many = entry.partition("/")
            nouns.append(Noun(one, many or None, group, kind))
    for group, entries in grammar["names"].items():
        nouns += [Noun(name, None, group, group, is_name=True) for name in entries.split()]
    verbs = {
        name: tuple(_forms(entry) for entry in entries.split()) for name, entries in grammar["verbs"].items()
    }
    classes = {name: tuple(entries.split()) for name, entries in grammar["words"].items()}
    return Lexicon(code, grammar, tuple(nouns), verbs, classes)


def normalized(piece: str) -> str:
    """A typed piece as it would stand in the vocabulary: small letters, straight apostrophes."""
    return piece if piece == HIDDEN else piece.casefold().replace("’", "'")


def _forms(entry: str) -> tuple[str, ...]:
    """The five forms of a verb; a language without inflection writes one for all."""
    forms = tuple(entry.split("/"))
    return forms if len(forms) == len(FORMS) else forms * len(FORMS)
