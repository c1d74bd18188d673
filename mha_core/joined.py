"""Pieces of a tokenizer joined to the words that they were cut from."""

import re
from typing import NamedTuple

from mha_core.tokens import Tokens

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
