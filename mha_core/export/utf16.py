"""Bytes as the characters of a UTF-16 text: two in one, where letters of ASCII take five for four."""

import codecs

import numpy as np

# What a page would not hand back as it was read: halves of pairs, the end of a tag, NUL and CR, and what says
# that one of these follows.
MARK = 0x21
FLIPPED = 0x8000  # the bit in which the character behind a mark differs from what is meant
MARKED = (MARK, ord("<"), 0, ord("\r"))


def encoded(data: bytes) -> str:
    """Each two bytes as one character (little endian), some with a mark before them: 3 % more at random.

    One or two bytes are added so that their number is even; the last of them says how many.
    `assets/components/utf16.js` reads it.
    """
    units = np.frombuffer(data + (b"\1" if len(data) % 2 else b"\0\2"), "<u2")
    marked = (units >= 0xD800) & (units < 0xE000) | np.isin(units, MARKED)
    places = np.flatnonzero(marked)
    written = np.insert(np.where(marked, units ^ FLIPPED, units), places, MARK)
    return written.astype("<u2").tobytes().decode("utf-16-le")


def file(text: str) -> bytes:
    """The text as a file that every reader knows to be UTF-16, whatever a server says of it."""
    return codecs.BOM_UTF16_LE + text.encode("utf-16-le")
