"""Other sentences for a question: with one word changed, or made in the small languages."""

from collections.abc import Iterator
from functools import cache
from random import Random

from mha_core.sources.mini import language
from mha_core.traces.tokens import Tokens
from mha_core.training.language import Grammar, Mix
from mha_core.training.lexicon import Lexicon, lexicon, normalized

SEED = 0
WORDS_OF_PLACE = 4  # that take the place of one word
# Plain sentences: all words known, none before them, each with its full stop.
PLAIN = Mix(
    agreement=0.0, long=0.0, sentence_before=0.0, no_stop=0.0, unknown=0.0, hidden=0.0, distractor=0.0
)


@cache
def _grammar(code: str) -> Grammar:
    return Grammar(lexicon(code), PLAIN)


def variants(text: str, tokens: Tokens, keep: int, *, one_word: bool) -> Iterator[str]:
    """Texts in which a condition may hold, always in the same order.

    The text itself first, then those with `one_word` changed to another of its kind, but not the token at
    `keep`, or sentences of the small language.
    """
    yield text
    rng = Random(SEED)
    if not one_word:
        while True:
            yield generated(language(text), rng)
    words = lexicon(language(text))
    alike: dict[str, list[str]] = {}
    for word in words.known:
        alike.setdefault(words.kinds[word], []).append(word)
    for _ in range(WORDS_OF_PLACE):
        for at in reversed(range(len(tokens))):
            start, end = tokens.spans[at] if tokens.spans else (0, 0)
            own = normalized(tokens.pieces[at])
            if start == end or at == keep or words.kinds.get(own, "other") == "other":
                continue
            word = rng.choice([one for one in alike[words.kinds[own]] if one != own] or [own])
            yield text[:start] + _typed_as(word, words) + text[end:]


def generated(code: str, rng: Random) -> str:
    """A plain sentence of a small language, typed as people do: with capitals, and no space before a stop."""
    words, text = lexicon(code), ""
    sentence = rng.choice(_grammar(code).sentences(rng)).words[1:]
    if code == "zh":
        return "".join(sentence)
    for word in sentence:
        text += word if not any(map(str.isalnum, word)) else f" {_typed_as(word, words)}"
    text = text.strip()
    return text[:1].upper() + text[1:]


def _typed_as(word: str, words: Lexicon) -> str:
    return word.title() if word in words.capitalized else word
