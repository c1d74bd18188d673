"""The measures of every head of a layer in one text, also by chance, and their strongest cells."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import regex

from mha_core.analysis.patterns import POSITIONS, Patterns, RowBlock, at_position, blocks, visible_keys
from mha_core.errors import MhaError
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tokens import MARKS, Tokens, special_positions
from mha_core.traces.trace import AttentionTrace
from mha_core.training.questions import LINKS

MEASURES = (
    *POSITIONS,
    "special tokens",
    "punctuation",
    "duplicate token",
    "induction",
    "entropy",
    "distance",
)
PUNCTUATION = regex.compile(r"[\p{P}\p{S}]+")
# The links of made-up sentences; those to neighbours are positions.
ROLES = tuple(name for name in LINKS if name not in ("word before", "word after"))

Links = Sequence[tuple[int, int, str]]  # query, key and name of each link, one of `ROLES`


class TextMeasures(NamedTuple):
    """The measures of a layer's heads in one text, a column for each; NaN and −1 where no row counts.

    `value` is the mean over the rows that count, `chance` the same for equal weights on all visible keys,
    `query` and `key` the cell in the row with the largest value.
    """

    value: np.ndarray  # (head, measure)
    chance: np.ndarray
    query: np.ndarray
    key: np.ndarray


class Looked(NamedTuple):
    """A measure in some rows of every head; `keys` are those it is about, None for all."""

    measure: str
    rows: np.ndarray  # (row,): positions in the block
    values: np.ndarray  # (head, row)
    counted: np.ndarray  # (head or 1, row)
    chance: np.ndarray  # (head or 1, row)
    keys: np.ndarray | None  # (row,): one key for each row; (row or 1, key): True at several


def columns(*, linked: bool) -> tuple[str, ...]:
    """The measures of a text, and after them those of its links if its right answers are known."""
    return (*MEASURES, *ROLES) if linked else MEASURES


def of_trace(trace: AttentionTrace, links: Links | None = None) -> list[TextMeasures]:
    """The measures of every head of each layer: see `of_layer`."""
    return [of_layer(layer, links) for layer in trace.layers]


def of_layer(layer: LayerTrace, links: Links | None = None) -> TextMeasures:
    """The measures of every head of a layer in one text, in the order of `columns`.

    - Those of `mha.metrics`: the mean weight on the previous, next, same and first token, the entropy
      relative to that of equal weights, and the distance in positions.
    - "special tokens", "punctuation": the mean weight on all tokens of that kind.
    - "duplicate token": the mean weight on earlier tokens that are equal to the row's token (Wang et al.
      2022, "Interpretability in the Wild").
    - "induction": the mean weight on the tokens that followed those (Olsson et al. 2022, "In-context Learning
      and Induction Heads").
    - For each kind of link, as "pronoun to noun": how often its right word gets the largest weight of the row
      (Clark et al. 2019). Without `links` these columns are left out.

    A mean runs over the rows with at least two visible keys, one of them of that kind. Raises `MhaError` for
    weights that are not numbers, as after an overflow in half precision.
    """
    names = columns(linked=links is not None)
    shape = layer.n_heads, len(names)
    sums, chances, counts = np.zeros((3, *shape))
    largest, query, key = np.full(shape, -np.inf), np.full(shape, -1), np.full(shape, -1)
    heads, kinds, patterns = np.arange(layer.n_heads), token_kinds(layer.sides.keys), Patterns(layer)
    for block in blocks(layer):
        for one in looked(block, patterns, kinds, links or ()):
            at = names.index(one.measure)
            counted = np.broadcast_to(one.counted, one.values.shape)
            sums[:, at] += np.where(counted, one.values, 0.0).sum(1, dtype=float)
            chances[:, at] += np.where(counted, one.chance, 0.0).sum(1, dtype=float)
            counts[:, at] += counted.sum(1)
            if not len(one.rows):
                continue
            values = np.where(counted, one.values, -np.inf)
            row = values.argmax(1)
            value = values[heads, row]
            more = value > largest[:, at]
            largest[more, at] = value[more]
            query[more, at] = block.rows.start + one.rows[row[more]]
            key[more, at] = _looked_at(block.weights, one, heads[more], row[more])
    if not np.isfinite(sums).all():
        raise MhaError("Some attention weights are not numbers (NaN): the model overflows on this text.")
    with np.errstate(invalid="ignore"):
        return TextMeasures(sums / counts, chances / counts, query, key)


def _looked_at(weights: np.ndarray, one: Looked, heads: np.ndarray, row: np.ndarray) -> np.ndarray:
    """The key of a row in each of these heads: of several the one with the most weight."""
    if one.keys is not None and one.keys.ndim == 1:
        return one.keys[row]
    there = weights[heads, one.rows[row]]
    if one.keys is None:
        return there.argmax(1)
    return np.where(one.keys[row if len(one.keys) > 1 else 0], there, -1).argmax(1)


class TokenKinds(NamedTuple):
    """Which tokens of a text are of a kind, and which earlier tokens each one repeats."""

    of_kind: dict[str, np.ndarray]  # (key,)
    repeated: dict[str, np.ndarray]  # (query, key): equal earlier tokens, and those that followed them


@lru_cache(maxsize=1)  # the same for every layer of a trace
def token_kinds(tokens: Tokens) -> TokenKinds:
    """The special tokens and punctuation marks of a text, and its repetitions."""
    pieces = np.array([piece.lstrip(MARKS) for piece in tokens.pieces], object)
    special = np.zeros(len(pieces), bool)
    special[special_positions(tokens)] = True
    marks = np.array([bool(PUNCTUATION.fullmatch(piece)) for piece in pieces], bool) & ~special
    _, number = np.unique(pieces.astype(str), return_inverse=True)
    equal = np.tril(number[:, None] == number, -1) & ~special
    after = np.zeros_like(equal)
    after[:, 1:] = np.tril(equal[:, :-1], -2)  # the token after an equal one, which is not the row itself
    return TokenKinds(
        {"special tokens": special, "punctuation": marks},
        {"duplicate token": equal, "induction": after},
    )


def looked(block: RowBlock, patterns: Patterns, kinds: TokenKinds, links: Links) -> Iterator[Looked]:
    """Every measure in the rows of a block that have it."""
    weights, allowed = block.weights, block.allowed
    n_key = weights.shape[2]
    queries = np.arange(block.rows.start, block.rows.stop)
    visible = visible_keys(block)
    several = visible >= 2

    def chance_of(keys: np.ndarray) -> np.ndarray:
        """The share of the visible keys that are among these. (head or 1, row)"""
        there = keys if allowed is None else keys & allowed
        return np.broadcast_to(there.sum(-1), visible.shape) / np.maximum(visible, 1)

    for name, rows, values, counted in patterns.rows(block):
        if name in POSITIONS:
            keys = at_position(name, queries, n_key)[1]
            yield Looked(name, rows, values, counted, 1 / np.maximum(visible[:, rows], 1), keys)
        else:
            equal = np.ones_like(visible, float)
            if name == "distance":
                offsets = np.abs(np.arange(n_key) - queries[:, None])
                equal = (offsets if allowed is None else offsets * allowed).sum(-1) / np.maximum(visible, 1)
            yield Looked(name, rows, values, counted, equal, None)
    everywhere = np.arange(len(queries))
    for name, keys in kinds.of_kind.items():
        keys = keys[:n_key]
        chance = chance_of(keys[None])
        value = np.vecdot(weights, keys.astype(weights.dtype))
        yield Looked(name, everywhere, value, several & (chance > 0), chance, keys[None])
    for name, repeated in kinds.repeated.items():
        keys = repeated[block.rows, :n_key]
        rows = np.flatnonzero(keys.any(1))
        chance = chance_of(keys)[:, rows]
        value = np.vecdot(weights[:, rows], keys[rows].astype(weights.dtype))
        yield Looked(name, rows, value, several[:, rows] & (chance > 0), chance, keys[rows])
    of_kind: dict[str, list[tuple[int, int]]] = {}
    for query, key, name in links:
        if block.rows.start <= query < block.rows.stop and key < n_key:  # others are hidden
            of_kind.setdefault(name, []).append((query - block.rows.start, key))
    for name, pairs in of_kind.items():
        rows, keys = np.array(pairs).T
        right = weights[:, rows].argmax(-1) == keys
        counted = several[:, rows] if allowed is None else several[:, rows] & allowed[:, rows, keys]
        yield Looked(name, rows, right.astype(float), counted, 1 / np.maximum(visible[:, rows], 1), keys)
