"""Other sentences for a question: with one word changed, or made in the small languages."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random

from mha_core.errors import MhaError
from mha_core.focus.token_names import names
from mha_core.lessons.item import Item
from mha_core.sources.mini import language
from mha_core.training.language import CAPITALS, Grammar, Mix, Sentence
from mha_core.training.lexicon import Lexicon, lexicon, normalized

SEED = 0
TRIES = 24  # sentences that are tried for a like case
WORDS_OF_PLACE = 4  # that take the place of one word
# Plain sentences: all words known, none before them, each with its full stop.
PLAIN = Mix(long=0.0, sentence_before=0.0, no_stop=0.0, unknown=0.0, hidden=0.0, distractor=0.0)


@cache
def _grammar(code: str) -> Grammar:
    return Grammar(lexicon(code), PLAIN)


def variants(item: Item, *, one_word: bool) -> Iterator[str]:
    """Texts in which a condition may hold, always in the same order.

    The item's own text first, then those with `one_word` changed to another of its kind, or sentences of the
    small language.
    """
    yield item.scene.text
    rng = Random(SEED)
    if not one_word:
        while True:
            yield generated(language(item.scene.text), rng)
    words, tokens = lexicon(language(item.scene.text)), item.trace.tokens
    alike: dict[str, list[str]] = {}
    for word in words.known:
        alike.setdefault(words.kinds[word], []).append(word)
    for _ in range(WORDS_OF_PLACE):
        for at in reversed(range(len(tokens))):
            start, end = tokens.spans[at] if tokens.spans else (0, 0)
            own = normalized(tokens.pieces[at])
            if start == end or at == item.place[2] or words.kinds.get(own, "other") == "other":
                continue
            word = rng.choice([one for one in alike[words.kinds[own]] if one != own] or [own])
            yield item.scene.text[:start] + _typed_as(word, words) + item.scene.text[end:]


def generated(code: str, rng: Random) -> str:
    """A plain sentence of a small language, as a person would type it."""
    return typed(rng.choice(_grammar(code).sentences(rng)), lexicon(code))


def typed(sentence: Sentence, words: Lexicon) -> str:
    """The sentence as a person would type it: with capitals, and no space before a stop."""
    if words.code == "zh":
        return "".join(sentence.words[1:])
    text = ""
    for word in sentence.words[1:]:
        text += word if not any(map(str.isalnum, word)) else f" {_typed_as(word, words)}"
    text = text.strip()
    return text[:1].upper() + text[1:]


def _typed_as(word: str, words: Lexicon) -> str:
    is_name = word in words.names or not set(CAPITALS).isdisjoint(words.classes.get(word, ()))
    return word.title() if is_name else word


def like(item: Item, number: int) -> Item | None:
    """The `number`-th like case: the same question about a like word of another sentence, None without one.

    It is an unambiguous question about the sentence, at a word of the same kind (a pronoun, a verb, …).
    """
    code = language(item.scene.text)
    words, rng = lexicon(code), Random(f"{number} {item.scene.link()}")
    kinds = words.kinds
    own = kinds.get(normalized(item.trace.tokens.pieces[item.place[2]]), "other")
    for _ in range(TRIES):
        scene = replace(item.scene, text=generated(code, rng), twin="")
        try:
            tokens = item.tracer(scene, ()).sides.queries
            places = [
                at for at, piece in enumerate(tokens.pieces) if kinds.get(normalized(piece), "other") == own
            ]
            if not places:
                continue
            token = names(tokens)[rng.choice(places)]
            other = replace(item, scene=replace(scene, focus=replace(scene.focus, token=token)))
            if item.scene.focus.key_token:
                other = _at_most_looked_at(other)
            _ = other.key
        except MhaError:
            continue
        return other
    return None


def _at_most_looked_at(item: Item) -> Item:
    """The item about the weight on the word that its token looks at most."""
    key = names(item.trace.layers[item.place[0]].sides.keys)[int(item.row.argmax())]
    return replace(item, scene=replace(item.scene, focus=replace(item.scene.focus, key_token=key)))
