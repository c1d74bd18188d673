"""Compares two heads' weights on one sentence, word by word, even if two tokenizers split it differently."""

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
import pandas as pd

from mha_core.analysis.patterns import row_entropy
from mha_core.errors import MhaError
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tokens import Tokens, special_positions, word_groups

MAX_ALIGNED = 256  # tokens of a text: aligning its words compares all pairs of them


class Word(NamedTuple):
    """A word of a text, or a special token: its label, its form without case, its pieces' positions."""

    label: str
    form: str
    positions: tuple[int, ...]
    special: bool


@dataclass(frozen=True, eq=False)
class Comparison:
    """The weights of two heads between the words that both texts share, (query word, key word).

    `others` are the mean weights that each head puts on tokens missing from the other text; `positions` are
    the token positions of each row in the first text.
    """

    first: pd.DataFrame
    second: pd.DataFrame
    others: tuple[float, float]
    positions: tuple[tuple[int, ...], ...]

    def row_of(self, query: int) -> int | None:
        """The row of a token of the first text; None if the other text does not have its word."""
        return next((row for row, positions in enumerate(self.positions) if query in positions), None)


def is_same_text(first: LayerTrace, second: LayerTrace) -> bool:
    """Whether both layers have the same tokens on both sides, so that their matrices have the same cells."""
    return (
        first.sides.queries.labels == second.sides.queries.labels
        and first.sides.keys.labels == second.sides.keys.labels
    )


def compare(first: LayerTrace, second: LayerTrace, *, heads: tuple[int, int]) -> Comparison:
    """The weights of one head of each layer between the words that both texts share.

    ``W(a, b) = mean over pieces i of a of Σ over pieces j of b of weights(i, j)``: rows are averaged over the
    pieces of the query word, columns are summed over the pieces of the key word. Words are paired in reading
    order, ignoring case; a word that replaces another one is paired with it.

    Raises `MhaError` for a text that is too long, and for texts without a common word.
    """
    longest = max(first.n_query, first.n_key, second.n_query, second.n_key)
    if longest > MAX_ALIGNED:
        raise MhaError(
            "Words of two texts are paired up to {limit} tokens; the longer one has {longest:,}.",
            limit=MAX_ALIGNED,
            longest=longest,
        )
    queries = aligned(first.sides.queries, second.sides.queries)
    keys = queries if first.sides.same and second.sides.same else aligned(first.sides.keys, second.sides.keys)
    if not queries or not keys:
        raise MhaError("The two texts have no word in common; compare a sentence with one like it.")
    tables = []
    for side, (layer, head) in enumerate(zip((first, second), heads, strict=True)):
        rows, columns = ([pair[side] for pair in pairs] for pairs in (queries, keys))
        weights = layer.weights(head)
        of_words = np.stack([weights[:, list(word.positions)].sum(1) for word in columns], 1)
        cells = np.stack([of_words[list(word.positions)].mean(0) for word in rows])
        index = pd.Index(map(_label, queries), name="query")
        tables.append(pd.DataFrame(cells, index, pd.Index(map(_label, keys), name="key")))
    one, other = tables
    others = _missing(one), _missing(other)
    return Comparison(one, other, others, tuple(word.positions for word, _ in queries))


def _missing(table: pd.DataFrame) -> float:
    return float(1 - table.to_numpy().sum(1).mean())


def _label(pair: tuple[Word, Word]) -> str:
    one, other = pair
    return one.label if one.form == other.form else f"{one.label} / {other.label}"


def aligned(first: Tokens, second: Tokens) -> list[tuple[Word, Word]]:
    """The pairs of corresponding words of two texts, in reading order."""
    one_text, other_text = _words(first), _words(second)
    one_forms, other_forms = ([word.form for word in text] for text in (one_text, other_text))
    pairs: list[tuple[Word, Word]] = []
    matcher = SequenceMatcher(None, one_forms, other_forms, False)
    for kind, start, stop, other_start, other_stop in matcher.get_opcodes():
        if kind == "equal" or (kind == "replace" and stop - start == other_stop - other_start):
            pairs += zip(one_text[start:stop], other_text[other_start:other_stop], strict=True)
    return [(one, other) for one, other in pairs if one.special == other.special]


def _words(tokens: Tokens) -> list[Word]:
    groups = word_groups(tokens)
    of, labels = groups or (tuple(range(len(tokens))), tokens.labels)
    positions: dict[int, list[int]] = {}
    for at, number in enumerate(of):
        positions.setdefault(number, []).append(at)
    special = set(special_positions(tokens))
    words = []
    for number, places in positions.items():
        typed = tokens.text[tokens.spans[places[0]][0] : tokens.spans[places[-1]][1]].strip()
        form = (typed or "".join(tokens.pieces[at] for at in places)).casefold()
        words.append(Word(labels[number], form, tuple(places), places[0] in special))
    return words


def divergence(first: pd.DataFrame, second: pd.DataFrame) -> pd.Series:
    """The Jensen–Shannon divergence of two heads, for each query word: 0 for equal, 1 for disjoint rows.

    ``JSD(p, q) = H((p + q)/2) − (H(p) + H(q))/2`` in bits, p and q being the rows divided by their sums; NaN
    for a row of zeros. Source: Lin 1991.
    """
    p, q = (_shares(table.to_numpy(np.float64)) for table in (first, second))
    bits = row_entropy((p + q) / 2) - (row_entropy(p) + row_entropy(q)) / 2
    return pd.Series(bits.clip(0, 1), first.index)


def _shares(rows: np.ndarray) -> np.ndarray:
    total = rows.sum(1, keepdims=True)
    return np.divide(rows, total, out=np.full_like(rows, np.nan), where=total > 0)
