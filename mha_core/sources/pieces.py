"""What a model's own tokenizer made of a text, in characters that a person can read.

Tokenizers write a space as Ġ or ▁, a byte as a letter that stands for it or as <0xE5>, and cut
characters into bytes. Here a space before a piece is left away, other white space gets a sign, and
each part of a cut character is that character with the number of the part.
"""

from collections.abc import Iterator, Mapping, Sequence

import regex

from mha_core.errors import MhaError
from mha_core.tokens import Tokens
from mha_core.tokens import words as cut_into_words

SIGNS = str.maketrans({" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\u00a0": "␣", "\u3000": "␣"})
SPACE = "▁"  # what sentencepiece writes for a space
BYTE = regex.compile(r"<0x([0-9A-Fa-f]{2})>")
UNSEEN = regex.compile(r"[\p{Cc}\p{Cf}\p{Zs}\p{Zl}\p{Zp}]")
PART = regex.compile(r"(U\+[0-9A-F]{4,6}|.)·([1-4])", regex.DOTALL)  # of a character that was cut


def tokens(
    text: str,
    raw: Sequence[str],
    *,
    special: Sequence[bool],
    letters: Mapping[str, int] | None,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> Tokens:
    """The pieces of a text as `Tokens`: readable, with their places in the text and their words.

    `raw` are the tokenizer's own pieces, `letters` the byte for which each letter stands where letters
    stand for bytes: `BYTES`, `LATIN`. Without `offsets` (a tokenizer in Python) the pieces are looked
    for in the text.
    """
    shown = readable(raw, special=special, letters=letters)
    spans = _trimmed(text, offsets, special) if offsets is not None else _searched(text, shown, special)
    return Tokens(
        text,
        tuple(shown),
        tuple(spans),
        _words(text, spans, special),
        tuple(at for at, is_special in enumerate(special) if is_special),
    )


def readable(raw: Sequence[str], *, special: Sequence[bool], letters: Mapping[str, int] | None) -> list[str]:
    """Each piece as it can be read: no space, no byte, never an empty one.

    A piece that has only some bytes of a character is shown as that character, "·" and the number of
    the part; bytes that are no character at all are shown in hexadecimal digits.
    """
    shown = [""] * len(raw)
    for start, stop, contents in _runs(raw, special, letters):
        shown[start:stop] = _of_bytes(contents)
    for at, is_special in enumerate(special):
        if is_special:
            shown[at] = raw[at]
    return [_signed(piece, is_special) for piece, is_special in zip(shown, special, strict=True)]


def _runs(
    raw: Sequence[str], special: Sequence[bool], letters: Mapping[str, int] | None
) -> Iterator[tuple[int, int, list[bytes]]]:
    """Neighbouring pieces that are text, as bytes: a character may be spread over several of them."""
    start, contents = 0, []
    for at, piece in enumerate(raw):
        if special[at]:
            if contents:
                yield start, at, contents
            contents = []
            continue
        if not contents:
            start = at
        contents.append(_letters_to_bytes(piece, letters) if letters else _marks_to_bytes(piece))
    if contents:
        yield start, len(raw), contents


def _letters_to_bytes(piece: str, letters: Mapping[str, int]) -> bytes:
    if all(letter in letters for letter in piece):
        return bytes(letters[letter] for letter in piece)
    return piece.encode(errors="replace")  # an added token, which is written as it is


def _marks_to_bytes(piece: str) -> bytes:
    byte = BYTE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(SPACE, " ").encode(errors="replace")


def _of_bytes(contents: list[bytes]) -> list[str]:
    """Each piece's own characters; where a character is spread over pieces, its part of it."""
    whole = b"".join(contents)
    owner = [at for at, content in enumerate(contents) for _ in content]
    shown = [""] * len(contents)
    position = 0
    while position < len(whole):
        character, size = _character(whole, position)
        owners = list(dict.fromkeys(owner[position : position + size]))
        for number, at in enumerate(owners, start=1):
            # One that cannot be seen would leave its number alone on the screen.
            shown[at] += character if len(owners) == 1 else f"{_signed(character, False)}·{number}"
        position += size
    return shown


def _character(whole: bytes, position: int) -> tuple[str, int]:
    """The character that starts at a byte and how many bytes it has; a byte that starts none as digits."""
    for size in range(1, 5):
        try:
            return whole[position : position + size].decode(), size
        except UnicodeDecodeError:
            continue
    return f"0x{whole[position]:02X}", 1


def _signed(piece: str, is_special: bool) -> str:
    """A piece without the space before it; all else that cannot be seen gets a sign or its number."""
    if is_special and piece.strip() and not regex.search(r"\s", piece):
        return piece
    if piece.startswith(" ") and len(piece) > 1 and piece.strip(" "):
        piece = piece[1:]
    piece = piece.translate(SIGNS)
    if not piece:
        return "∅"
    if UNSEEN.search(piece) and not regex.search(r"[\p{L}\p{N}\p{S}\p{P}]", UNSEEN.sub("", piece)):
        return "".join(f"U+{ord(letter):04X}" if UNSEEN.match(letter) else letter for letter in piece)
    return UNSEEN.sub("", piece) if regex.search(r"\p{Z}|\p{Cc}", piece) else piece


def _trimmed(text: str, offsets: Sequence[tuple[int, int]], special: Sequence[bool]) -> list[tuple[int, int]]:
    """Places in the text without the white space around them; a special piece has a place of no width."""
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


def _searched(text: str, shown: list[str], special: Sequence[bool]) -> list[tuple[int, int]]:
    """Places found by looking for each piece after the one before; of no width where it is not found."""
    spans, reached = [], 0
    plain = text.casefold() if len(text.casefold()) == len(text) else text
    for piece, is_special in zip(shown, special, strict=True):
        looked_for, start = piece.removeprefix("##").casefold(), reached
        at = -1 if is_special or not looked_for else plain.find(looked_for, start)
        if at < 0 and not is_special and (part := PART.match(piece)):  # every part is where its character is
            looked_for = PART.sub(_whole, piece).casefold()
            start -= part[2] != "1" and len(_whole(part))
            at = plain.find(looked_for, max(start, 0))
        if 0 <= at <= start + 8:  # far away it would be another one
            spans.append((at, at + len(looked_for)))
            reached = at + len(looked_for)
        else:
            spans.append((reached, reached))
    return spans


def _whole(part: regex.Match) -> str:
    """The character that a part was cut from."""
    return chr(int(part[1][2:], 16)) if len(part[1]) > 2 else part[1]


def _words(text: str, spans: list[tuple[int, int]], special: Sequence[bool]) -> tuple[int, ...]:
    """The number of each piece's word. Words are those of `tokens.words`: of Chinese, the characters."""
    starts = [0] * (len(text) + 1)
    if text.strip():
        for number, (start, end) in enumerate(_house_spans(text), start=1):
            starts[start:end] = [number] * (end - start)
    numbers, last, number = [], None, -1
    for at, ((start, end), is_special) in enumerate(zip(spans, special, strict=True)):
        # A piece that is nowhere in the text is a word of its own.
        word = ("alone", at) if is_special or start == end else starts[start] or ("alone", at)
        if word != last:
            number += 1
        numbers.append(number)
        last = word
    return tuple(numbers)


def _house_spans(text: str) -> tuple[tuple[int, int], ...]:
    try:
        return cut_into_words(text, limit=len(text) + 1).spans
    except MhaError:  # nothing but white space and invisible characters
        return ()


def _byte_letters() -> dict[str, int]:
    """The letter that stands for each byte, as GPT-2 chose them: itself if it can be seen, else Ā and on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {chr(byte): byte for byte in seen}
    unseen = (byte for byte in range(256) if byte not in seen)
    return letters | {chr(256 + at): byte for at, byte in enumerate(unseen)}


BYTES = _byte_letters()  # GPT-2 and those after it
LATIN = {chr(byte): byte for byte in range(256)}  # ByT5
