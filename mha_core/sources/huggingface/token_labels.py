"""A tokenizer's pieces in readable form, with their spans and words in the text.

Tokenizers write a space as Ġ or ▁ and a byte as a letter or as <0xE5>, and split characters into bytes. The
readable form omits the space before a piece, shows other white space by a sign, and writes each part of a
split character as that character with the number of the part.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import regex

from mha_core.errors import MhaError
from mha_core.traces.tokens import Tokens
from mha_core.traces.tokens import words as cut_into_words

SIGNS = str.maketrans({" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\u00a0": "␣", "\u3000": "␣"})
SPACE = "▁"  # a space in sentencepiece
BYTE = regex.compile(r"<0x([0-9A-Fa-f]{2})>")
INVISIBLE = regex.compile(r"[\p{Cc}\p{Cf}\p{Zs}\p{Zl}\p{Zp}]")
WHITE_SPACE = regex.compile(r"\s")
VISIBLE = regex.compile(r"[\p{L}\p{N}\p{S}\p{P}]")
SEPARATOR = regex.compile(r"[\p{Z}\p{Cc}]")
PART = regex.compile(r"(U\+[0-9A-F]{4,6}|.)·([1-4])", regex.DOTALL)  # a part of a split character


def readable_tokens(
    text: str,
    raw: Sequence[str],
    *,
    special: Sequence[bool],
    letters: Mapping[str, int] | None,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> Tokens:
    """The pieces of a text as `Tokens`: readable, with their spans in the text and their words.

    `raw` are the tokenizer's pieces. `letters` maps letters to bytes if the tokenizer writes bytes as
    letters: `BYTES` or `LATIN`. Without `offsets` (a tokenizer in Python) the pieces are searched in the
    text.
    """
    pieces = readable(raw, special=special, letters=letters)
    spans = _trimmed(text, offsets, special) if offsets is not None else _searched(text, pieces, special)
    return Tokens(
        text,
        tuple(pieces),
        tuple(spans),
        _words(text, spans, special),
        tuple(at for at, is_special in enumerate(special) if is_special),
    )


def readable(raw: Sequence[str], *, special: Sequence[bool], letters: Mapping[str, int] | None) -> list[str]:
    """The pieces in readable form: without spaces and bytes, none of them empty.

    A piece with some bytes of a character becomes that character, "·" and the number of the part; bytes that
    are no character become hexadecimal digits.
    """
    pieces = [*raw]
    for start, contents in _runs(raw, special, letters):
        pieces[start : start + len(contents)] = _of_bytes(contents)
    return [_signed(piece, is_special) for piece, is_special in zip(pieces, special, strict=True)]


def _runs(
    raw: Sequence[str], special: Sequence[bool], letters: Mapping[str, int] | None
) -> Iterator[tuple[int, list[bytes]]]:
    """Runs of neighbouring pieces of text, as bytes: a character may be split over several pieces."""
    for is_special, places in groupby(range(len(raw)), special.__getitem__):
        if not is_special:
            run = [*places]
            yield run[0], [_as_bytes(raw[at], letters) for at in run]


def _as_bytes(piece: str, letters: Mapping[str, int] | None) -> bytes:
    if not letters:
        byte = BYTE.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece.replace(SPACE, " ").encode(errors="replace")
    if all(letter in letters for letter in piece):
        return bytes(letters[letter] for letter in piece)
    return piece.encode(errors="replace")  # an added token, written as text


def _of_bytes(contents: list[bytes]) -> list[str]:
    """The characters of each piece; for a character split over pieces, with the number of the part."""
    try:
        return [content.decode() for content in contents]
    except UnicodeDecodeError:
        return _of_cut_characters(contents)


def _of_cut_characters(contents: list[bytes]) -> list[str]:
    """The same where a character is split over pieces, or bytes do not form a character."""
    whole = b"".join(contents)
    owner = [at for at, content in enumerate(contents) for _ in content]
    pieces = [""] * len(contents)
    position = 0
    while position < len(whole):
        character, size = _character(whole, position)
        owners = list(dict.fromkeys(owner[position : position + size]))
        for number, at in enumerate(owners, start=1):
            # With an invisible character only the number would be on the screen.
            pieces[at] += character if len(owners) == 1 else f"{_signed(character, False)}·{number}"
        position += size
    return pieces


def _character(whole: bytes, position: int) -> tuple[str, int]:
    """The character that starts at a byte, and its number of bytes; else the byte in hexadecimal digits."""
    for size in range(1, 5):
        try:
            return whole[position : position + size].decode(), size
        except UnicodeDecodeError:
            continue
    return f"0x{whole[position]:02X}", 1


def _signed(piece: str, is_special: bool) -> str:
    """A piece without the space before it; other invisible characters get a sign or their code point."""
    if is_special and piece.strip() and not WHITE_SPACE.search(piece):
        return piece
    if piece.startswith(" ") and len(piece) > 1 and piece.strip(" "):
        piece = piece[1:]
    piece = piece.translate(SIGNS)
    if not piece:
        return "∅"
    if INVISIBLE.search(piece) and not VISIBLE.search(INVISIBLE.sub("", piece)):
        return "".join(f"U+{ord(letter):04X}" if INVISIBLE.match(letter) else letter for letter in piece)
    return INVISIBLE.sub("", piece) if SEPARATOR.search(piece) else piece


def _trimmed(text: str, offsets: Sequence[tuple[int, int]], special: Sequence[bool]) -> list[tuple[int, int]]:
    """Spans in the text without surrounding white space; a special piece has a span of width 0."""
    spans, reached = [], 0
    for (start, end), is_special in zip(offsets, special, strict=True):
        if is_special and (start, end) == (0, 0):
            spans.append((reached, reached))
            continue
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        spans.append((start, end))
        reached = max(reached, end)
    return spans


def _searched(text: str, pieces: list[str], special: Sequence[bool]) -> list[tuple[int, int]]:
    """Spans found by searching each piece after the previous one; of width 0 if it does not occur."""
    spans, reached = [], 0
    folded = text.casefold() if len(text.casefold()) == len(text) else text
    for piece, is_special in zip(pieces, special, strict=True):
        target, start = piece.removeprefix("##").casefold(), reached
        at = -1 if is_special or not target else folded.find(target, start)
        if at < 0 and not is_special and (part := PART.match(piece)):  # a part gets the span of its character
            target = PART.sub(_whole, piece).casefold()
            start -= part[2] != "1" and len(_whole(part))
            at = folded.find(target, max(start, 0))
        if 0 <= at <= start + 8:  # further on it is another occurrence
            spans.append((at, at + len(target)))
            reached = at + len(target)
        else:
            spans.append((reached, reached))
    return spans


def _whole(part: regex.Match) -> str:
    """The character of a part."""
    return chr(int(part[1][2:], 16)) if len(part[1]) > 2 else part[1]


def _words(text: str, spans: list[tuple[int, int]], special: Sequence[bool]) -> tuple[int, ...]:
    """The number of each piece's word. Words are those of `traces.tokens.words`: in Chinese, characters."""
    starts = [0] * (len(text) + 1)
    if text.strip():
        for number, (start, end) in enumerate(_word_spans(text), start=1):
            starts[start:end] = [number] * (end - start)
    numbers, last, number = [], None, -1
    for at, ((start, end), is_special) in enumerate(zip(spans, special, strict=True)):
        # A piece without a span is a word by itself.
        word = ("alone", at) if is_special or start == end else starts[start] or ("alone", at)
        if word != last:
            number += 1
        numbers.append(number)
        last = word
    return tuple(numbers)


def _word_spans(text: str) -> tuple[tuple[int, int], ...]:
    try:
        return cut_into_words(text, limit=len(text) + 1).spans
    except MhaError:  # only white space and invisible characters
        return ()


def _byte_letters() -> dict[str, int]:
    """The byte of each letter, as in GPT-2: visible characters are themselves, others are Ā and following."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {chr(byte): byte for byte in visible}
    others = (byte for byte in range(256) if byte not in visible)
    return letters | {chr(256 + at): byte for at, byte in enumerate(others)}


BYTES = _byte_letters()  # GPT-2 and later models
LATIN = {chr(byte): byte for byte in range(256)}  # ByT5
