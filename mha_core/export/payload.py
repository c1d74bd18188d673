"""Attention layers as bytes for the browser.

*scores*: q, k, v, the score rule and each row's log-sum-exp, numbers as float32. The browser computes
``weight = exp(score / temperature − lse)`` for the cells that are looked at, so a layer takes O(L · d_k)
bytes instead of O(L²) (the log-sum-exp as FlashAttention keeps it: Dao et al. 2022).

*weights*: each weight as 16 bits of its square root, so that small ones survive: the error is at most
``√w / 65535 + 1 / (4 · 65535²)``, below 0.00002 everywhere. For layers of which only weights are known, and
where this form is the smaller one, as of short texts, and values are not asked for. As 8 bits, with 255 for
65535, for pictures that nobody reads a number from.

A payload is b"mha0", the length of a JSON header as 4 bytes (little endian), the header, and the arrays, each
from a multiple of 4 bytes on. `assets/components/numbers/payload.js` reads it.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from mha_core.attention.functional import row_blocks
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, listed
from mha_core.traces.indices import LAYER, index
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tensors import array

MARK = b"mha0"
# What a browser computes a weight with; sinks are in the log-sum-exp alone.
UNDERSTOOD = {"scale", "soft_cap", "bias", "distance_bias", "mask", "sinks", "temperature"}
UNDERSTOOD |= {"patched_weights", "patched_outputs"}
BUDGET = 4_000_000  # bytes that a page loads at once


@dataclass(frozen=True, eq=False)
class Panel:
    """One sentence to look at: its title, a label for each token, and its layers by number from 0.

    A layer is a `LayerTrace`, or its weights as an array (head, query, key), NaN where a mask hides them.
    `keys` are the labels of the tokens that are looked at, where they belong to another text. `names` and
    `key_names` are what a link calls the tokens, none where no link does.
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
    """All layers of all panels as one payload; of each layer `heads`, counted from 0, or all.

    With `values` q, k and v travel wherever they are known, else of two forms the smaller one, without v.
    Weights that are arrays have so many `bits`, 8 or 16.
    Raises `MhaError` for a head that a layer does not have, and for a score rule that a browser does not
    understand: what it would draw is not what the model computed.
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
    """Bytes that so many heads of a layer take at most, all of them by default, as `pack` sends them."""
    n_heads = layer.n_heads if n_heads is None else n_heads
    form = _weights_size if _as_weights(layer, n_heads, values) else _scores_size
    return form(layer, n_heads, values)


def fitting(
    layers: Sequence[LayerTrace], layer: int, head: int, *, budget: int = BUDGET, values: bool = False
) -> tuple[list[int], list[int] | None]:
    """Which layers and heads to load, so that they fit the budget: the chosen ones always do.

    All layers; else the chosen one; else as many of its heads around the chosen one as fit. None for the
    heads stands for all of them.
    """
    if sum(size(each, values=values) for each in layers) <= budget:
        return list(range(len(layers))), None
    chosen = layers[layer]
    if size(chosen, values=values) <= budget:
        return [layer], None
    count = max(1, min(chosen.n_heads, int(budget / size(chosen, 1, values=values))))
    first = min(max(0, head - count // 2), chosen.n_heads - count)
    return [layer], list(range(first, first + count))


class _Body:
    """The arrays of a blob, one behind the other."""

    def __init__(self):
        self.parts: list[bytes] = []
        self.length = 0

    def add(self, array: np.ndarray) -> dict:
        """Append an array and return its entry in the header: place, shape and type."""
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
    if isinstance(layer, np.ndarray):
        count = len(layer)
        numbers = range(count)
        if heads is not None:
            numbers = [index("head", head, count, of=LAYER) for head in heads]
        weights = layer[list(numbers)]
        hidden = np.isnan(weights)
        described = {"n_heads": count, "weights": body.add(coded(np.where(hidden, 0, weights), bits))}
        if hidden.any():
            described["visible"] = body.add(np.packbits(~hidden, axis=-1))
    else:
        numbers = range(layer.n_heads) if heads is None else [layer.head_index(head) for head in heads]
        form = _weights if _as_weights(layer, len(numbers), values) else _scores
        described = (
            {"n_heads": layer.n_heads}
            | _mask(body, layer, list(numbers))
            | form(body, layer, list(numbers), values)
        )
    return {"number": number, "heads": list(numbers)} | described


def _as_weights(layer: LayerTrace, n_heads: int, values: bool) -> bool:
    if not layer.knows("q"):
        return True
    _check_understood(layer.rule)
    return not values and _weights_size(layer, n_heads) <= _scores_size(layer, n_heads)


def _check_understood(rule: ScoreRule) -> None:
    for field in fields(rule):
        value = getattr(rule, field.name)
        if field.name not in UNDERSTOOD and value != field.default:
            raise MhaError(
                "A browser cannot compute weights of a score rule with {field}={value!r}; "
                "it understands {fields}.",
                field=field.name,
                value=value,
                fields=listed(sorted(UNDERSTOOD), "comma"),
            )


def _weights(body: _Body, layer: LayerTrace, heads: list[int], values: bool) -> dict:
    # One head after the other: all at once would be larger than what is sent.
    return {"weights": body.add(np.stack([coded(layer.weights(head)) for head in heads]))}


def coded(weights: np.ndarray, bits: int = 16) -> np.ndarray:
    """Each weight as 8 or 16 bits of its square root."""
    return np.rint(np.sqrt(np.clip(weights, 0, 1)) * (2**bits - 1)).astype(f"<u{bits // 8}")


def _weights_size(layer: LayerTrace, n_heads: int, values: bool = False) -> int:
    return 2 * n_heads * layer.n_query * layer.n_key


def _scores_size(layer: LayerTrace, n_heads: int, values: bool = False) -> int:
    n_kv = -(-n_heads * layer.n_kv_heads // layer.n_heads)
    tables = (layer.rule.bias, layer.rule.patched_weights, layer.rule.patched_outputs)
    return 4 * (
        n_heads * layer.n_query * (layer.d_k + 1)
        + n_kv * layer.n_key * (layer.d_k + (layer.d_v if values and layer.knows("v") else 0))
        + sum(n_heads * table.shape[-2] * table.shape[-1] for table in tables if table is not None)
    )


def _scores(body: _Body, layer: LayerTrace, heads: list[int], values: bool) -> dict:
    kv = sorted({layer.kv_head(head) for head in heads})
    rule = layer.rule
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
    for name in ("bias", "patched_weights", "patched_outputs"):
        if (table := getattr(rule, name)) is not None:
            described[name] = body.add(_of_heads(array(table), heads).astype("<f4"))
    if rule.distance_bias is not None:
        described["distance_bias"] = body.add(_of_heads(array(rule.distance_bias), heads, 2).astype("<f4"))
    return described


def _mask(body: _Body, layer: LayerTrace, heads: list[int]) -> dict:
    """Which cells may be looked at: a first and a last key for each row, or a bit for each cell."""
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
    """The table of the heads that are sent, with a head axis, of length 1 where all heads share it."""
    table = table if table.ndim >= axes else table[None]
    return table if len(table) == 1 else table[heads]
