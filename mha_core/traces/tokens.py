"""Splits typed text into tokens: words in any language, with one unique label per position.

`word_groups` groups a tokenizer's pieces into words.
"""

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, count
from typing import NamedTuple

import regex

from mha_core.errors import MhaError, Phrase, at_least_1, listed, named_type, shown

MAX_TOKENS = 32_768
EMPTY = Phrase("There is no text to look at; type at least one word.")
# Characters of scripts without spaces between words: each becomes a token.
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
LETTER = rf"(?:(?!{UNSPACED})(?=[\p{{L}}\p{{N}}_])\X)"
# The end of a whole character: no piece ends before an accent on a bracket.
CHARACTER_END = r"(?![\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}])"
PIECE = regex.compile(
    rf"""
      (?={UNSPACED})\X                                        # 动 物: one character, its marks kept
    | (?:<[^\s<>]{{1,20}}> | \[[A-Z]{{2,12}}\]){CHARACTER_END}  # <s> [MASK]: other tokenizers' special tokens
    | (?:(?=\p{{N}})\X)+(?:[.,:](?:(?=\p{{N}})\X)+)+          # 3.14  1,000  12:30
    | {LETTER}+(?:['’\-‑]{LETTER}+)*                          # didn't  l’eau  well-known
    | ([.!?…-])\1+{CHARACTER_END}                        # ... !! --
    | \X                                                     # punctuation, emoji with all their joiners
    """,
    regex.VERBOSE,
)
# What stands between white space, control characters, and marks of direction or line breaks.
CHUNK = regex.compile(r"[^\s\p{Cc}\p{Bidi_Control}\u200b\u2060\ufeff]+")
MARKS = "Ġ▁"  # a tokenizer's mark of a space before a piece
INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}+")


def too_long(count: int, limit: int, *, rule: str, fix: str) -> MhaError:
    """The error for a text with `count` tokens; `fix` is a beginning of it that is short enough."""
    return MhaError(
        "The text has {count:,} tokens and {rule} {limit:,}; remove {excess:,} or keep the first {limit:,}.",
        count=count,
        rule=rule,
        limit=limit,
        excess=count - limit,
        fixes=({"text": fix},),
    )


def check_characters(text: str) -> None:
    """Raise `MhaError` for half of a surrogate pair, as after cutting an emoji; it cannot be written."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MhaError(
            "The text has half of a character (U+{character:04X}); remove it.",
            character=ord(text[error.start]),
            fixes=({"text": text.encode(errors="ignore").decode()},),
        ) from None


@dataclass(frozen=True)
class Tokens:
    """A text and its pieces, in reading order.

    ``text[start:end]`` for each of `spans` is the piece as typed. If a tokenizer splits words into pieces,
    `words` has the number of each piece's word, from 0. `special` are the positions of pieces without text,
    such as [CLS], if the tokenizer marks them. `unknown` are the positions of words outside the source's
    vocabulary; the source only sees their form, such as a capital letter or an ending. Raises `MhaError` for
    half of a surrogate pair.
    """

    text: str
    pieces: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    words: tuple[int, ...] = ()
    special: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_characters("".join((self.text, *self.pieces)))

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A unique label for each position: a piece that occurs several times gets a subscript 1, 2, 3 …

        The thin space before the subscript keeps labels apart from pieces, which contain no space.
        """
        return tuple(f"{form}\u2009{subscript(nth)}" if nth else form for form, nth in self._numbered)

    @cached_property
    def typed(self) -> tuple[str, ...]:
        """The label of each position as it is typed: ``the~2`` for the second "the", which `index` reads."""
        pieces, labels = {form for form, _ in self._numbered}, zip(self._numbered, self.labels, strict=True)
        return tuple(
            name if nth and (name := f"{form}~{nth}") not in pieces else label
            for (form, nth), label in labels
        )

    @cached_property
    def _numbered(self) -> list[tuple[str, int]]:
        """Each piece, and which of several equal ones it is, from 1; 0 if it occurs once."""
        forms = [unicodedata.normalize("NFC", piece) for piece in self.pieces]
        total = Counter(forms)
        numbers = {form: count(1) for form in total}
        return [(form, next(numbers[form]) if total[form] > 1 else 0) for form in forms]

    def index(self, word: str) -> int:
        """The position of a word, from 0: ``index("it")``, or ``index("the~2")`` for the second "the".

        `word` may also be a label, or a piece without its tokenizer's mark: ``"it"`` for ``"Ġit"`` or
        ``"▁it"``. Raises `MhaError` for an unknown word, and, with the positions, for a word that occurs
        several times or was cut into pieces.
        """
        if not isinstance(word, str):
            raise MhaError("A word is looked up, as in index('it'); got {word}.", word=repr(word))
        form = unicodedata.normalize("NFC", word)
        stem, _, nth = form.rpartition("~")
        labels, *pieces = self._places
        if positions := labels.get(form, []):
            return positions[0]
        for places in pieces:
            if positions := places.get(form, []):
                break
            if stem and nth.isdecimal() and (positions := places.get(stem, [])):
                if len(nth) > 9 or not 1 <= int(nth) <= len(positions):
                    raise MhaError(
                        "There are {n} {stem!r}, at {places}; not {nth}.",
                        n=len(positions),
                        stem=stem,
                        places=listed(positions, "and"),
                        nth=nth,
                    )
                return positions[int(nth) - 1]
        if len(positions) > 1:
            raise MhaError(
                "{word!r} is at the positions {positions}; say which, as in '{word}~2'.",
                word=word,
                positions=listed(positions, "and"),
                fixes=tuple({"token": at} for at in positions),
            )
        if not positions:
            raise self._unknown(form)
        return positions[0]

    @cached_property
    def _places(self) -> tuple[dict[str, list[int]], ...]:
        """The positions of each label, of each piece, and of each piece without the tokenizer's mark."""
        pieces = [unicodedata.normalize("NFC", piece) for piece in self.pieces]
        places: tuple[dict[str, list[int]], ...] = ({}, {}, {})
        for of_kind, forms in zip(
            places, (self.labels, pieces, [piece.lstrip(MARKS) for piece in pieces]), strict=True
        ):
            for at, form in enumerate(forms):
                of_kind.setdefault(form, []).append(at)
        return places

    def _unknown(self, word: str) -> MhaError:
        """The error for a word that was split into pieces, or that does not occur."""
        words = word_groups(self)
        labels, numbers = (words.labels, words.of) if words else ((), ())
        for at, label in enumerate(labels):
            if label.partition("\u2009")[0] == word:
                cut = [position for position, number in enumerate(numbers) if number == at]
                return MhaError(
                    "{word!r} was cut into {pieces}, at the positions {positions}.",
                    word=word,
                    pieces=listed([self.pieces[position] for position in cut], "and"),
                    positions=listed(cut, "and"),
                    fixes=tuple({"token": position} for position in cut),
                )
        near = difflib.get_close_matches(word, self.pieces, 3, 0.6) or self.pieces[:8]
        return MhaError(
            "There is no token {word}; there is {near}.",
            word=shown(word),
            near=listed(dict.fromkeys(near), "and"),
        )


def spaced(pieces: Sequence[str], *, special: tuple[int, ...] = ()) -> Tokens:
    """The tokens of pieces whose text is not known: the text is the pieces joined by spaces."""
    ends = accumulate(len(piece) + 1 for piece in pieces)
    spans = tuple((end - 1 - len(piece), end - 1) for piece, end in zip(pieces, ends, strict=True))
    return Tokens(" ".join(pieces), tuple(pieces), spans, special=special)


@dataclass(frozen=True)
class Sides:
    """The two texts of an attention: the tokens of the queries and those of the keys.

    In self-attention both are the same object; an equal copy would count as a second text.
    """

    queries: Tokens
    keys: Tokens

    @property
    def same(self) -> bool:
        """Whether queries and keys are one text. Positions of two texts cannot be compared."""
        return self.queries is self.keys

    @property
    def named(self) -> bool:
        """Whether the texts are known. A layer outside a trace has numbered positions instead."""
        return bool(self.queries.spans)

    @property
    def length(self) -> int:
        """The number of tokens of the longer text."""
        return max(len(self.queries), len(self.keys))

    @property
    def title(self) -> str:
        """The text, or between two texts "queries → keys", each in its own writing direction."""
        return (
            self.keys.text if self.same else f"\u2068{self.queries.text}\u2069 → \u2068{self.keys.text}\u2069"
        )


@lru_cache(maxsize=8)  # long lists of numbers for layers without text
def numbered(count: int) -> Tokens:
    """Tokens without a text, of which only the count is known: labels 1, 2, 3 … and no spans."""
    return Tokens("", tuple(map(str, range(1, count + 1))), ())


def words(text: str, *, limit: int = MAX_TOKENS) -> Tokens:
    """Split typed text into words, numbers and punctuation marks.

    Contractions and hyphenated words stay whole ("didn't"). Scripts without spaces are split into characters.
    Emoji and letters with combining marks are never split.

    Raises `MhaError` for a text without tokens and for more than `limit` tokens.
    """
    if not isinstance(text, str):
        raise MhaError("The text must be a string; got {type}.", type=named_type(text))
    check_characters(text)
    pieces, spans = [], []
    for chunk in CHUNK.finditer(text):
        for match in PIECE.finditer(chunk[0]):
            if INVISIBLE.fullmatch(match[0]):
                continue  # only an invisible character
            pieces.append(match[0])
            spans.append((chunk.start() + match.start(), chunk.start() + match.end()))
    if not pieces:
        raise MhaError(EMPTY)
    if len(pieces) > at_least_1("limit", limit, Phrase("tokens")):
        raise too_long(len(pieces), limit, rule=Phrase("the limit is"), fix=text[: spans[limit - 1][1]])
    return Tokens(text, tuple(pieces), tuple(spans))


# [CLS] [SEP] [PAD] <s> <|endoftext|>, and mask tokens, which mark a word to predict.
SPECIAL = re.compile(r"\[[A-Z]{2,12}\]|<[^\s<>]{1,20}>")
MASK_TOKENS = ("[MASK]", "<mask>")


def special_positions(tokens: Tokens) -> list[int]:
    """Positions of tokens such as [CLS] and padding: as the tokenizer marks them, else by their form.

    A mask token is not special: it marks a word to predict.
    """
    special = tokens.special or [at for at, piece in enumerate(tokens.pieces) if SPECIAL.fullmatch(piece)]
    return [at for at in special if tokens.pieces[at] not in MASK_TOKENS]


def subscript(number: int) -> str:
    """A number in subscript digits: ₁₂ for 12."""
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


CUT = re.compile(r"(U\+[0-9A-F]{4,6}|.)·1(?:\1·[2-4])+", re.DOTALL)  # a character in numbered parts


class WordGroups(NamedTuple):
    """The number of each piece's word (0, 1, 2 … without gaps), and a label for each word."""

    of: tuple[int, ...]
    labels: tuple[str, ...]


def word_groups(tokens: Tokens) -> WordGroups | None:
    """The words of a text's pieces; None if every piece is a word, or if the words are not known.

    Adjacent pieces with the same number in ``tokens.words`` are one word; a special piece is a separate word.
    The labels are unique: the word as typed, or its joined pieces if it has no typed form.
    """
    special = set(tokens.special)
    of: list[int] = []
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
        together = CUT.sub(r"\1", "".join(tokens.pieces[first : last + 1]))
        texts.append(typed if typed and not typed[0].isspace() else together)
    # A label contains no white space, so that it differs from any typed text.
    named = Tokens(tokens.text, tuple("".join(text.split()) or "·" for text in texts), ((0, 0),) * len(texts))
    return WordGroups(tuple(of), named.labels)
