"""Swapping two words of a text: the new text, and where each token is in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mha_core.errors import MhaError
from mha_core.traces.tokens import Sides, Tokens, word_groups


@dataclass(frozen=True)
class Swap:
    """Two words of the typed text change places. Each is named by one of its tokens, from 0.

    Raises `MhaError` for a token with itself, and for several tokens.
    """

    one: int
    other: int

    def __post_init__(self) -> None:
        if not isinstance(self.one, int) or not isinstance(self.other, int) or self.one == self.other:
            raise MhaError("One word changes places with another one.")
        first, second = sorted((self.one, self.other))
        object.__setattr__(self, "one", first)
        object.__setattr__(self, "other", second)


def typed_tokens(text: str, sides: Sides) -> Tokens:
    """The tokens of the typed text, whose words can change places.

    Raises `MhaError` if the attention is between other texts.
    """
    for side in (sides.keys, sides.queries):
        if side.text == text:
            return side
    raise MhaError("These are not the words of the text that is typed, so they cannot change places.")


class WordPlace(NamedTuple):
    """A place of a word in a text: its tokens' positions, and where it starts and ends."""

    tokens: tuple[int, ...]
    start: int
    end: int


def places(tokens: Tokens) -> list[WordPlace]:
    """The places of words, in reading order; tokens without text, such as [CLS], are left out."""
    groups = word_groups(tokens)
    of = range(len(tokens)) if groups is None else groups.of
    words: dict[int, list[int]] = {}
    for at, number in enumerate(of):
        start, end = tokens.spans[at]
        if start < end and at not in tokens.special:
            words.setdefault(number, []).append(at)
    return [WordPlace(tuple(at), tokens.spans[at[0]][0], tokens.spans[at[-1]][1]) for at in words.values()]


def word(tokens: Tokens, place: WordPlace) -> str:
    """The word at that place, as typed."""
    return tokens.text[place.start : place.end]


def text(tokens: Tokens, swaps: Sequence[Swap]) -> str:
    """The text with its words in their new places. Raises `MhaError` for a token that is not a word."""
    slots, written, end = places(tokens), [], 0
    for place, number in zip(slots, arrangement(tokens, swaps), strict=True):
        written += [tokens.text[end : place.start], word(tokens, slots[number])]
        end = place.end
    return "".join(written) + tokens.text[end:]


def arrangement(tokens: Tokens, swaps: Sequence[Swap]) -> list[int]:
    """For each place, the number of the place that its word came from.

    Swaps are applied in order: each exchanges the words at its two places.
    """
    slots = places(tokens)
    place_of = {at: number for number, place in enumerate(slots) for at in place.tokens}
    now = [*range(len(slots))]
    for swap in swaps:
        missing = next((at for at in (swap.one, swap.other) if at not in place_of), None)
        if missing is not None:
            raise MhaError("There is no word at token {number} that could change places.", number=missing + 1)
        one, other = place_of[swap.one], place_of[swap.other]
        now[one], now[other] = now[other], now[one]
    return now


def order(before: Tokens, after: Tokens, swaps: Sequence[Swap]) -> tuple[int, ...] | None:
    """For each token of the changed text, its position in the text before.

    None if a word has another number of tokens than before: some tokenizers split it differently elsewhere.
    """
    if not swaps or before.text == after.text:  # only the other of two texts changed
        return tuple(range(len(before)))
    old, new = places(before), places(after)
    if len(old) != len(new) or len(before) != len(after):
        return None
    positions: dict[int, int] = {}
    for place, number in zip(new, arrangement(before, swaps), strict=True):
        if len(place.tokens) != len(old[number].tokens):
            return None
        positions |= zip(place.tokens, old[number].tokens, strict=True)
    used = positions.keys(), set(positions.values())
    rest = ([at for at in range(len(before)) if at not in of_words] for of_words in used)
    positions |= zip(*rest, strict=True)  # tokens without text keep their order
    return tuple(positions[at] for at in range(len(after)))
