"""A student's papers: a token that says who they are in a room, and a receipt of what they did there.

Both are signed with the room's own key (HMAC, RFC 2104), so that nobody can make one for somebody else.
"""

import hmac
from dataclasses import dataclass
from datetime import date

from mha_core.errors import MhaError, shown

ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"  # no letter or digit that is taken for another one
BETWEEN = "-"


def sign(key: bytes, *words: object, length: int) -> str:
    """The signature of some words, in letters and digits that can be read aloud (4.9 bits each)."""
    told = "\n".join(map(str, words)).encode()
    number = int.from_bytes(hmac.digest(key, told, "sha256"))
    letters = []
    for _ in range(length):
        number, at = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[at])
    return "".join(letters)


def token(key: bytes, number: int) -> str:
    """The token of a student: the number in the room and its signature."""
    return f"{number}{BETWEEN}{sign(key, 'student', number, length=26)}"


def number_of(key: bytes, held: str) -> int | None:
    """The number of the student who holds that token; None for a forged one."""
    number, _, _ = held.partition(BETWEEN)
    if not (held.isascii() and number.isdecimal() and len(number) < 7):
        return None
    return int(number) if hmac.compare_digest(token(key, int(number)).encode(), held.encode()) else None


@dataclass(frozen=True)
class Receipt:
    """How many screens of a room's lessons a student had answered on a day.

    Its text is a short code, ``K7QM2X-17-6-20261126-8ZKQ3MWY2B``, which the room's desk can check.
    """

    code: str
    number: int
    answered: int
    day: date

    def written(self, key: bytes) -> str:
        words = self.code, self.number, self.answered, f"{self.day:%Y%m%d}"
        return BETWEEN.join([*map(str, words), sign(key, "receipt", *words, length=10)])

    @classmethod
    def read(cls, text: str, key: bytes) -> "Receipt":
        """The receipt that a code is. Raises `MhaError` for one that this room did not sign."""
        found = None
        try:
            code, number, answered, day, _ = text.strip().upper().split(BETWEEN)
            found = cls(code, int(number), int(answered), date.fromisoformat(day))
            is_ours = hmac.compare_digest(found.written(key).encode(), text.strip().upper().encode())
        except ValueError:
            is_ours = False
        if found is None or not is_ours:
            raise MhaError(
                "This room has not signed the receipt {text}. Type all of its five parts.",
                text=shown(text),
            )
        return found
