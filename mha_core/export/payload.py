"""Attention layers as bytes for the browser, in one of two forms.

*scores*: q, k, v, the score rule and each row's log-sum-exp, numbers as float32. The browser computes
``weight = exp(score / temperature − lse)`` for the cells that are looked at, so a layer takes O(L · d_k)
bytes instead of O(L²) (FlashAttention stores the same log-sum-exp: Dao et al. 2022). Of a long text it also
has the largest weight and the sum of each block of cells, to draw the whole matrix from.

*weights*: the square root of each weight in 16 bits, so that small weights are kept: the error is at most
``√w / 65535 + 1 / (4 · 65535²)``, below 0.00002 everywhere. This form is used for layers of which only the
weights are known, and if it is the smaller one, as for short texts, and values are not needed. 8 bits, with
255 in place of 65535, are for pictures that show no numbers.

A payload is b"mha0", the length of a JSON header as 4 bytes (little endian), the header, and the arrays, each
aligned to 4 bytes. `assets/components/numbers/payload.js` reads it.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mha_core.attention.functional import row_blocks
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tensors import array

MARK = b"mha0"
LONG, SIDE = 1024, 512  # tokens from which blocks are sent, and the most of them in a row or column
BUDGET = 4_000_000  # bytes that a page loads at once


@dataclass(frozen=True, eq=False)
class Panel:
    """One sentence to look at: its title, a label for each token, and its layers by number from 0.

    A layer is a `LayerTrace`, or its weights as an array (head, query, key), NaN where a mask hides them.
    `keys` are the labels of the keys if they belong to another text. `names` and `key_names` are the tokens'
    names in a link, empty if no link names them.
    """

    title: str
    labels: Sequence[str]
    layers: Mapping[int, "LayerTrace | np.ndarray"]
    keys: Sequence[str] | None = None
    names: Sequence[str] = ()
    key_names: Sequence[str] = ()


def pack(
    panels: Sequence[Panel], *, heads: Sequence[int] | None = None, values: bool = False, bits: int = 16
) -> bytes:
    """All layers of all panels as one payload; of each layer trace `heads`, counted from 0, or all.

    With `values`, q, k and v are sent wherever they are known; without, the smaller of the two forms, without
    v. Weights given as arrays are sent in 8 or 16 `bits`.
    """
    body = _Body()
    described = [
        {
            "title": panel.title,
            "tokens": list(panel.labels),
            "names": list(panel.names),
            **({} if panel.keys is None else {"keys": list(panel.keys), "key_names": list(panel.key_names)}),
            "layers": [
                _layer(body, number, layer, heads, values, bits) for number, layer in panel.layers.items()
            ],
        }
        for panel in panels
    ]
    header = json.dumps({"panels": described}).encode()
    header += b" " * (-len(header) % 4)
    return b"".join([MARK, struct.pack("<I", len(header)), header, *body.parts])


def size(layer: LayerTrace, n_heads: int | None = None, *, values: bool = False) -> int:
    """The most bytes that this many heads of a layer (by default all) take in a payload of `pack`."""
    n_heads = layer.n_heads if n_heads is None else n_heads
    if _as_weights(layer, n_heads, values):
        return _weights_size(layer, n_heads)
    return _scores_size(layer, n_heads, values)


def fitting(
    layers: Sequence[LayerTrace], layer: int, head: int, *, budget: int = BUDGET, values: bool = False
) -> tuple[list[int], list[int] | None]:
    """The layers and heads that fit into the budget, always with the chosen ones.

    As many layers as fit, the nearest to the chosen one first; or else as many heads around the chosen one.
    None for the heads means all of them.
    """
    chosen, numbers, left = layers[layer], [], budget
    for number in sorted(range(len(layers)), key=lambda other: abs(other - layer)):
        left -= size(layers[number], values=values)
        if left < 0:
            break
        numbers.append(number)
    if numbers:
        return sorted(numbers), None
    count = max(1, min(chosen.n_heads, int(budget / size(chosen, 1, values=values))))
    first = min(max(0, head - count // 2), chosen.n_heads - count)
    return [layer], list(range(first, first + count))


class _Body:
    """The arrays of a payload, one after the other."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.length = 0

    def add(self, array: np.ndarray) -> dict:
        """Append an array and return its entry in the header: offset, shape and type."""
        packed = np.ascontiguousarray(array).tobytes()
        entry = {"at": self.length, "shape": array.shape, "type": array.dtype.str[1:]}
        padding = -len(packed) % 4
        self.parts += [packed, b"\0" * padding]
        self.length += len(packed) + padding
        return entry


def _layer(
    body: _Body,
    number: int,
    layer: LayerTrace | np.ndarray,
    heads: Sequence[int] | None,
    values: bool,
    bits: int,
) -> dict:
    numbers: Sequence[int]
    if isinstance(layer, np.ndarray):
        numbers, hidden = range(len(layer)), np.isnan(layer)
        described = {"n_heads": len(layer), "weights": body.add(coded(np.where(hidden, 0, layer), bits))}
        if hidden.any():
            described["visible"] = body.add(np.packbits(~hidden, axis=-1))
    else:
        numbers = range(layer.n_heads) if heads is None else heads
        described = {"n_heads": layer.n_heads} | _mask(body, layer, list(numbers))
        if _as_weights(layer, len(numbers), values):
            # One head at a time: all at once would take more memory than the payload.
            described["weights"] = body.add(np.stack([coded(layer.weights(head)) for head in numbers]))
        else:
            described |= _scores(body, layer, list(numbers), values)
    return {"number": number, "heads": list(numbers)} | described


def _as_weights(layer: LayerTrace, n_heads: int, values: bool) -> bool:
    return not layer.knows("q") or (
        not values and _weights_size(layer, n_heads) <= _scores_size(layer, n_heads)
    )


def coded(weights: np.ndarray, bits: int = 16) -> np.ndarray:
    """The square root of each weight in 8 or 16 bits."""
    return np.rint(np.sqrt(np.clip(weights, 0, 1)) * (2**bits - 1)).astype(f"<u{bits // 8}")


def _weights_size(layer: LayerTrace, n_heads: int) -> int:
    return 2 * n_heads * layer.n_query * layer.n_key


def _scores_size(layer: LayerTrace, n_heads: int, values: bool = False) -> int:
    n_kv = -(-n_heads * layer.n_kv_heads // layer.n_heads)
    tables = (layer.rule.bias, layer.rule.patched_weights, layer.rule.patched_outputs)
    return 4 * (
        n_heads * layer.n_query * (layer.d_k + 1)
        + n_kv * layer.n_key * (layer.d_k + (layer.d_v if values and layer.knows("v") else 0))
        + sum(n_heads * table.shape[-2] * table.shape[-1] for table in tables if table is not None)
        + (2 * n_heads * SIDE**2 if block_size(layer) > 1 else 0)
    )


def block_size(layer: LayerTrace) -> int:
    """The rows and columns of a block of cells that is sent; 1 for a text of which none are."""
    longest = max(layer.n_query, layer.n_key)
    return -(-longest // SIDE) if longest > LONG else 1


def _scores(body: _Body, layer: LayerTrace, heads: list[int], values: bool) -> dict:
    kv = sorted({layer.kv_head(head) for head in heads})
    rule, block = layer.rule, block_size(layer)
    blocks = [layer.blocks(head, block) for head in heads] if block > 1 else []  # with the sums of rows
    described = {
        "q": body.add(layer.q[heads].astype("<f4")),
        "k": body.add(layer.k[kv].astype("<f4")),
        "kv": [kv.index(layer.kv_head(head)) for head in heads],
        "lse": body.add(np.stack([layer.log_sum_exp(head) for head in heads]).astype("<f4")),
        "scale": layer.scale,
        "soft_cap": rule.soft_cap,
        "temperature": rule.temperature,
    }
    if values and layer.knows("v"):
        described["v"] = body.add(layer.v[kv].astype("<f4"))
    if blocks:
        described["block"] = block
        described["largest"] = body.add(np.stack([one.largest for one in blocks]).astype("<f4"))
        described["sums"] = body.add(np.stack([one.sums for one in blocks]).astype("<f4"))
    for name in ("bias", "patched_weights", "patched_outputs"):
        if (table := getattr(rule, name)) is not None:
            described[name] = body.add(_of_heads(array(table), heads).astype("<f4"))
    if rule.distance_bias is not None:
        described["distance_bias"] = body.add(_of_heads(array(rule.distance_bias), heads, 2).astype("<f4"))
    return described


def _mask(body: _Body, layer: LayerTrace, heads: list[int]) -> dict:
    """The visible cells: a first and a last key for each row, or a bit for each cell."""
    mask = layer.rule.mask
    if mask is None:
        return {}
    cells = np.broadcast_to(mask.numpy(), (*mask.shape[:-2], layer.n_query, layer.n_key))
    cells = _of_heads(cells, heads)
    count = cells.sum(-1, dtype=np.int32)
    start = cells.argmax(-1).astype("<i4")
    keys = np.arange(layer.n_key, dtype=np.int32)
    unbroken = all(
        np.array_equal(one[rows], (keys >= s[rows, None]) & (keys < (s + n)[rows, None]))
        for one, s, n in zip(cells, start, count, strict=True)
        for rows in row_blocks(layer.n_query, layer.n_key)
    )
    if unbroken:
        return {"range": body.add(np.stack([start, start + count], -1).astype("<i4"))}
    return {"visible": body.add(np.packbits(cells, axis=-1))}


def _of_heads(table: np.ndarray, heads: list[int], axes: int = 3) -> np.ndarray:
    """The table for the heads that are sent, with a head axis, of length 1 if all heads share it."""
    table = table if table.ndim >= axes else table[None]
    return table if len(table) == 1 else table[heads]
