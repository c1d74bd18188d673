"""Typed text to tokens: words in any language, one unique label per position.

A tokenizer's pieces are joined to the words that they were cut from by `joined`.
"""

import difflib
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count
from typing import NamedTuple

import regex

from mha_core.errors import MhaError, listed

MAX_TOKENS = 4096
# Characters of scripts that put no spaces between words: each becomes a token of its own.
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
LETTER = rf"(?:(?!{UNSPACED})(?=[\p{{L}}\p{{N}}_])\X)"
# Nothing may end inside what is read as one character, such as a bracket with an accent on it.
WHOLE = r"(?![\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}])"
PIECE = regex.compile(
    rf"""
      (?={UNSPACED})\X                                        # 动 物: one character, its marks kept
    | (?:<[^\s<>]{{1,20}}> | \[[A-Z]{{2,12}}\]){WHOLE}         # <s> [MASK]: other tokenizers' special tokens
    | (?:(?=\p{{N}})\X)+(?:[.,:](?:(?=\p{{N}})\X)+)+          # 3.14  1,000  12:30
    | {LETTER}+(?:['’\-‑]{LETTER}+)*                          # didn't  l’eau  well-known
    | ([.!?…-])\1+{WHOLE}                                     # ... !! --
    | \X                                                     # punctuation, emoji with all their joiners
    """,
    regex.VERBOSE,
)
# White space, control characters and the marks that only steer direction or line breaks.
SEPARATOR = regex.compile(r"[\s\p{Cc}\p{Bidi_Control}\u200b\u2060\ufeff]+")
MARKS = "Ġ▁"  # a tokenizer's mark of a space before a piece
INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}+")


@dataclass(frozen=True)
class Tokens:
    """A text and the pieces it was cut into, in reading order.

    ``text[start:end]`` for each of `spans` is the piece as it was typed. Where a tokenizer cuts words,
    `words` has the number of each piece's word, from 0; `special` are the positions of pieces that
    stand for no text, such as [CLS], as far as the tokenizer says.
    """

    text: str
    pieces: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    words: tuple[int, ...] = ()
    special: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A label for each position, no two alike: the n-th repetition of a piece gets a small n.

        The thin space before the n keeps labels apart from anything typed: no piece holds a space.
        """
        looks = [unicodedata.normalize("NFC", piece) for piece in self.pieces]
        total = Counter(looks)
        nth = {look: count(1) for look in total}
        return tuple(
            f"{look}\u2009{_subscript(next(nth[look]))}" if total[look] > 1 else look for look in looks
        )

    def index(self, word: str) -> int:
        """The position of a word, from 0: ``index("it")``; of one that is there more than once ``"the~2"``.

        A label is its position, too, and so is a word that a tokenizer marks, ``"Ġit"`` or ``"▁it"``, without
        the mark. Raises `MhaError` for a word that is not there, and for one that is there more than once or
        was cut into pieces, with the positions.
        """
        if not isinstance(word, str):
            raise MhaError(f"A word is looked up, as in index('it'); got {word!r}.")
        look = unicodedata.normalize("NFC", word)
        if look in self.labels:
            return self.labels.index(look)
        pieces = [unicodedata.normalize("NFC", piece) for piece in self.pieces]
        for names in (pieces, [piece.lstrip(MARKS) for piece in pieces]):
            if found := [at for at, name in enumerate(names) if name == look]:
                break
            name, _, nth = look.rpartition("~")
            if found := [at for at, one in enumerate(names) if name and one == name and nth.isdecimal()]:
                if not 1 <= int(nth) <= len(found):
                    raise MhaError(f"There are {len(found)} {name!r}, at {listed(found, 'and')}; not {nth}.")
                return found[int(nth) - 1]
        if len(found) > 1:
            raise MhaError(
                f"{word!r} is at the positions {listed(found, 'and')}; say which, as in '{word}~2'.",
                fixes=tuple({"token": at} for at in found),
            )
        return found[0] if found else self._missing(look)

    def _missing(self, word: str) -> int:
        """The position of a word that is no piece: there is none, and the error says why."""
        words = joined(self)
        for at, label in enumerate(words.labels if words else ()):
            if label.partition("\u2009")[0] == word:
                cut = [position for position, number in enumerate(words.of) if number == at]
                raise MhaError(
                    f"{word!r} was cut into {listed([self.pieces[position] for position in cut], 'and')}, at "
                    f"the positions {listed(cut, 'and')}.",
                    fixes=tuple({"token": position} for position in cut),
                )
        near = difflib.get_close_matches(word, self.pieces, 3, 0.6) or self.pieces[:8]
        raise MhaError(f"There is no token {word!r}; there is {listed(dict.fromkeys(near), 'and')}.")


@dataclass(frozen=True)
class Sides:
    """The two texts of an attention: the tokens that look and those that are looked at.

    A text that looks at itself is one object on both sides; a copy of it would be a second text.
    """

    queries: Tokens
    keys: Tokens

    @property
    def same(self) -> bool:
        """Does a text look at itself? Between two texts, positions cannot be compared."""
        return self.queries is self.keys

    @property
    def named(self) -> bool:
        """Does anybody know the texts? A layer that stands in no trace has positions in their place."""
        return bool(self.queries.spans)

    @property
    def title(self) -> str:
        """The text, or the one that looks → the one that it looks at, each in its own direction."""
        return (
            self.keys.text if self.same else f"\u2068{self.queries.text}\u2069 → \u2068{self.keys.text}\u2069"
        )


@lru_cache(maxsize=8)
def positions(count: int) -> Tokens:
    """Tokens of which nothing is known but their number: their labels are 1, 2, 3 …, their places nowhere."""
    return Tokens("", tuple(map(str, range(1, count + 1))), ())


def words(text: str, *, limit: int = MAX_TOKENS) -> Tokens:
    """Cut typed text into words, numbers and punctuation marks.

    Contractions and hyphenated words stay whole ("didn't"); scripts written without spaces are
    cut by character; emoji and letters with combining marks are never broken.

    Raises `MhaError` for text without a single token and for more than `limit` tokens.
    """
    pieces, spans = [], []
    for chunk, offset in _between_separators(text):
        for match in PIECE.finditer(chunk):
            if INVISIBLE.fullmatch(match[0]):
                continue  # a joiner with nothing to join
            pieces.append(match[0])
            spans.append((offset + match.start(), offset + match.end()))
    if not pieces:
        raise MhaError("There is no text to look at; type at least one word.")
    if len(pieces) > limit:
        cut = text[: spans[limit - 1][1]]
        raise MhaError(
            f"The text has {len(pieces):,} tokens and the limit is {limit:,}; "
            f"remove {len(pieces) - limit:,} or keep the first {limit:,}.",
            fixes=({"text": cut},),
        )
    return Tokens(text, tuple(pieces), tuple(spans))


# [CLS] [SEP] [PAD] <s> <|endoftext|>, and what stands for a word that is asked for.
SPECIAL = re.compile(r"\[[A-Z]{2,12}\]|<[^\s<>]{1,20}>")
ASKED = ("[MASK]", "<mask>")


def special_positions(tokens: Tokens) -> list[int]:
    """Positions of tokens that stand for no word, as [CLS] and padding: the tokenizer's, or by their form.

    A mask token stands for a word that is asked for, and is none of them.
    """
    special = tokens.special or [at for at, piece in enumerate(tokens.pieces) if SPECIAL.fullmatch(piece)]
    return [at for at in special if tokens.pieces[at] not in ASKED]


def _between_separators(text: str):
    start = 0
    for gap in SEPARATOR.finditer(text):
        yield text[start : gap.start()], start
        start = gap.end()
    yield text[start:], start


def _subscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


CUT = re.compile(r"(U\+[0-9A-F]{4,6}|.)·1(?:\1·[2-4])+", re.DOTALL)  # a character in numbered parts


class Joined(NamedTuple):
    """The number of each piece's word, rising from 0 without a gap, and a label for each word."""

    of: tuple[int, ...]
    labels: tuple[str, ...]


def joined(tokens: Tokens) -> Joined | None:
    """The words of a text's pieces; None where every piece is a word, or nobody knows.

    Pieces that follow each other and have one number in ``tokens.words`` are one word; a special piece is
    a word of its own. A word is written as in the text, or else as its pieces together, no two alike.
    """
    special, of = set(tokens.special), []
    for at, number in enumerate(tokens.words):
        same = at and number == tokens.words[at - 1] and not {at - 1, at} & special
        of.append((of[-1] if of else -1) + (not same))
    if not of or of[-1] == len(of) - 1:
        return None
    texts = []
    for word in range(of[-1] + 1):
        first = of.index(word)
        last = len(of) - 1 - of[::-1].index(word)
        typed = tokens.text[tokens.spans[first][0] : tokens.spans[last][1]]
        # White space between them would be none of a label's: it keeps labels apart from what is typed.
        together = CUT.sub(r"\1", "".join(tokens.pieces[first : last + 1]))
        texts.append(typed if typed and not typed[0].isspace() else together)
    named = Tokens(tokens.text, tuple("".join(text.split()) or "·" for text in texts), ((0, 0),) * len(texts))
    return Joined(tuple(of), named.labels)
