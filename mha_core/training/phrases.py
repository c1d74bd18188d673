"""Sentence templates filled with words: noun phrases, verb forms, was or were."""

from dataclasses import dataclass
from functools import cache
from random import Random

from mha_core.training.lexicon import FORMS, PART, START, Lexicon, Noun

STOPS = frozenset(".?!。？！")


@dataclass(frozen=True)
class Mix:
    """How often sentences have what: shares from 0 to 1."""

    reference: float = 0.6  # of all: a pronoun that one word decides
    agreement: float = 0.15  # of all: a pronoun that agrees with one of the nouns only; the rest has none
    plural: float = 0.2
    adjective: float = 0.25
    distractor: float = 0.15
    sentence_before: float = 0.1
    no_stop: float = 0.15
    hidden: float = 0.15  # of the words: the model is asked which they were


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

    def written(self, rng: Random, template: str) -> tuple[tuple[str, ...], list[tuple[object, slice]]]:
        """A template without A, B, P and cue, filled: its words, [CLS] first, and what each part became."""
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
            return [rng.choice(self.lexicon.verbs[name])[FORMS.index(form or "base")]], plural
        if name in self.lexicon.words:
            allowed = [word for word in self.lexicon.words[name] if word not in banned]
            return [rng.choice(allowed)], plural
        nouns = self.lexicon.group(name)
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
        words = rng.choice(articles[kind if kind in articles else "default"]).split()
        if rng.random() < self.mix.adjective:
            adjective = rng.choice(self.lexicon.words["adjective"])
            if adjective not in banned:
                words += [adjective, *self.lexicon.grammar.get("adjective_link", "").split()]
        words.append(noun.many if plural else noun.one)
        if words[0] == "a" and words[1][0] in "aeiou":
            words[0] = "an"
        return words


@cache
def parts(template: str) -> tuple:
    """A template cut into words, {slots}, and pairs of forms for one and for many."""
    return tuple(tuple(part.split("|")) if "|" in part else part for part in PART.findall(template))
