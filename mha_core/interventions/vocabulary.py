"""The words that a model can answer with, by their ids and as they are written."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from mha_core.errors import MhaError, Phrase, listed
from mha_core.sources.huggingface.logits import word_of
from mha_core.sources.huggingface.switches import tokens_of, words_of
from mha_core.training.lexicon import Lexicon, normalized

MAX_PIECES = 4  # named of a word that is several tokens


class Vocabulary(NamedTuple):
    """How each word is written, by its id, the ids of the words that are written so, and those of a text."""

    word: Callable[[int], str]
    ids: Callable[[str], Sequence[int]]
    tokens: Callable[[str], Sequence[int]]

    def number(self, word: str | int | None, scores: Tensor, name: str) -> int:
        """The id of a word, by default the most probable one.

        Of several tokens with the same spelling it is the most probable. `scores` (word) are −∞ for what is
        no answer. Raises `MhaError`, with the `name` of the argument, for any other word.
        """
        if word is None:
            return int(scores.argmax())
        if isinstance(word, str):
            finite = scores.isfinite().nonzero().flatten()
            best = finite[scores[finite].topk(min(3, len(finite))).indices].tolist()
            if numbers := self.ids(word) or [number for number in best if self.word(number) == word]:
                return max(numbers, key=lambda number: float(scores[number]))
            tokens = self.tokens(word)
            pieces = [one for one in dict.fromkeys(map(self.word, tokens)) if self.ids(one)][:MAX_PIECES]
            is_several = len(tokens) > 1 and bool(pieces)
            others = pieces if is_several else [self.word(number) for number in best]
            raise MhaError(
                "{name} {word!r} is several tokens of this model, and it answers with one; ask for one "
                "of {words}."
                if is_several
                else "The model cannot answer with {name} {word!r} here; its most probable answers are "
                "{words}.",
                name=name,
                word=word,
                words=listed([Phrase("“{word}”", word=one) for one in others], "and"),
                fixes=tuple({name: one} for one in others),
            )
        if isinstance(word, bool) or not isinstance(word, int) or not 0 <= word < len(scores):
            raise MhaError(
                "{name} is a word, or its number from 0 to {last:,}; got {word:.60}.",
                name=name,
                last=len(scores) - 1,
                word=repr(word),
            )
        if not scores[word].isfinite():
            return self.number(self.word(word), scores, name)  # raises the error
        return word


def of_tokenizer(tokenizer: object) -> Vocabulary:
    """The words of a model of transformers; without a tokenizer they are known by their ids alone."""
    return Vocabulary(
        lambda number: word_of(tokenizer, number),
        lambda word: () if tokenizer is None else words_of(tokenizer, word),
        lambda text: () if tokenizer is None else tokens_of(tokenizer, f" {text}"),
    )


def of_answers(words: Lexicon, spelled: dict[int, str]) -> Vocabulary:
    """The possible answers of a small model, by their ids."""
    return Vocabulary(
        lambda number: spelled.get(number, words.vocabulary[number]),
        lambda word: [number for number, one in spelled.items() if one in (word, normalized(word))],
        lambda text: (),
    )
