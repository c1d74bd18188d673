"""Attention layers as bytes for the browser, in the smaller of two forms.

*weights*: each weight as 16 bits of its square root, so that small ones survive: the error is at most
``√w / 65535 + 1 / (4 · 65535²)``, below 0.00002 everywhere.

*scores*: q, k, the score rule and each row's log-sum-exp. The browser computes
``weight = exp(score / temperature − lse)`` for the cells that are looked at, so a layer takes O(L · d_k)
bytes instead of O(L²) (the log-sum-exp as FlashAttention keeps it: Dao et al. 2022). q and k are float32
numbers of which only so many bits are not zero as `rounding` finds to be enough.

A blob is b"mha0", the length of a JSON header as 4 bytes (little endian), the header, and the arrays, each
from a multiple of 4 bytes on; b"mha1" says that what follows the mark is deflated. `assets/components/
attention.js` reads it.
"""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mha_core.attention.functional import row_blocks
from mha_core.errors import MhaError
from mha_core.export.rounding import few_bits, rounded
from mha_core.traces.layer import LayerTrace

LEVELS = 65535
PLAIN, DEFLATED = b"mha0", b"mha1"
WORTH_DEFLATING = 1 << 14  # bytes
# The digits of q and k repeat nothing, so runs alone are looked for in them; weights do repeat themselves.
DEFLATING = ((1, zlib.Z_RLE), (1, zlib.Z_DEFAULT_STRATEGY))
CLEAR = 4  # times that one form is larger than the other, where its size before deflating is enough to know
SAMPLE = 3  # heads that are tried where it is not
BUDGET = 4_000_000  # bytes that a page loads at once before anything is deflated


@dataclass(frozen=True, eq=False)
class Panel:
    """One sentence to look at: its title, a label for each token, and its layers by number from 0.

    A layer is a `LayerTrace`, or its weights as an array (head, query, key). `keys` are the labels of the
    tokens that are looked at, where they belong to another text.
    """

    title: str
    labels: Sequence[str]
    layers: Mapping[int, "LayerTrace | np.ndarray"]
    keys: Sequence[str] | None = None


def pack(panels: Sequence[Panel], *, heads: Sequence[int] | None = None, deflate: bool = True) -> bytes:
    """All layers of all panels as one blob; of each layer `heads`, counted from 0, or all.

    Raises `MhaError` for a head that a layer does not have.
    """
    body = _Body()
    described = [
        {
            "title": panel.title,
            "tokens": list(panel.labels),
            **({} if panel.keys is None else {"keys": list(panel.keys)}),
            "layers": [_layer(body, number, layer, heads) for number, layer in panel.layers.items()],
        }
        for panel in panels
    ]
    header = json.dumps({"panels": described}).encode()
    header += b" " * (-len(header) % 4)
    inner = struct.pack("<I", len(header)) + header + b"".join(body.parts)
    if deflate and len(inner) >= WORTH_DEFLATING:
        return DEFLATED + _best(inner)
    return PLAIN + inner


def _best(data: bytes) -> bytes:
    return min((_deflated(data, how) for how in DEFLATING), key=len)


def _deflated(data: bytes, how: tuple[int, int]) -> bytes:
    level, strategy = how
    deflate = zlib.compressobj(level, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    return deflate.compress(data) + deflate.flush()


def size(layer: LayerTrace, n_heads: int | None = None) -> int:
    """Bytes that so many heads of a layer take at most, all of them if not said, in the smaller form."""
    n_heads = layer.n_heads if n_heads is None else n_heads
    weights = _weights_size(layer, n_heads)
    return min(weights, _scores_size(layer, n_heads)) if layer.knows("q") else weights


def fitting(
    layers: Sequence[LayerTrace], layer: int, head: int, *, budget: int = BUDGET
) -> tuple[list[int], list[int] | None]:
    """Which layers and heads to load, so that they fit the budget: the chosen ones always do.

    All layers; else the chosen one; else as many of its heads around the chosen one as fit. None for the
    heads stands for all of them.
    """
    if sum(map(size, layers)) <= budget:
        return list(range(len(layers))), None
    chosen = layers[layer]
    if size(chosen) <= budget:
        return [layer], None
    most = max(1, min(chosen.n_heads, int(budget / size(chosen, 1))))
    first = min(max(0, head - most // 2), chosen.n_heads - most)
    return [layer], list(range(first, first + most))


class _Body:
    """The arrays of a blob, one behind the other."""

    def __init__(self):
        self.parts: list[bytes] = []
        self.length = 0

    def add(self, array: np.ndarray) -> dict:
        """Append an array; what is said about it in the header."""
        return self._append(np.ascontiguousarray(array).tobytes(), array.shape, array.dtype.str[1:])

    def add_floats(self, array: np.ndarray, bits: int) -> dict:
        """Append float32 numbers with so many bits behind the point: all first bytes, then all second ones
        and so on, which deflates better; what is zero in all of them is left out."""
        n_bytes = -(-(9 + bits) // 8)  # a sign and an exponent of 8 bits stand before
        planes = array.astype(">f4").reshape(-1, 1).view(np.uint8)[:, :n_bytes].T
        return self._append(np.ascontiguousarray(planes).tobytes(), array.shape, f"p{n_bytes}")

    def _append(self, packed: bytes, shape: tuple[int, ...], kind: str) -> dict:
        said = {"at": self.length, "shape": shape, "type": kind}
        padding = -len(packed) % 4
        self.parts += [packed, b"\0" * padding]
        self.length += len(packed) + padding
        return said


def _layer(body: _Body, number: int, layer: LayerTrace | np.ndarray, heads: Sequence[int] | None) -> dict:
    if isinstance(layer, np.ndarray):
        shown = range(len(layer)) if heads is None else [_checked(head, len(layer)) for head in heads]
        described = {"n_heads": len(layer), "weights": body.add(coded(layer[list(shown)]))}
    else:
        shown = range(layer.n_heads) if heads is None else [layer.checked(head) for head in heads]
        described = {"n_heads": layer.n_heads} | _smaller(body, layer, list(shown))
    return {"number": number, "heads": list(shown)} | described


def _checked(head: int, n_heads: int) -> int:
    if not 0 <= head < n_heads:
        raise MhaError(f"This layer has heads 0 to {n_heads - 1}; head {head} was asked for.")
    return head


def _smaller(body: _Body, layer: LayerTrace, heads: list[int]) -> dict:
    described = _mask(body, layer, heads)
    form = _weights if not layer.knows("q") or _weights_are_smaller(layer, heads) else _scores
    return described | form(body, layer, heads)


def _weights_are_smaller(layer: LayerTrace, heads: list[int]) -> bool:
    """Found out with a few heads, deflated, where it is not clear from the sizes before.

    How many bits q and k need and how often a code repeats is another matter with every layer.
    """
    plain = _weights_size(layer, len(heads)), _scores_size(layer, len(heads))
    if max(plain) > CLEAR * min(plain):
        return plain[0] < plain[1]
    some = heads[:: -(-len(heads) // SAMPLE)]
    found = []
    for form, size_of in ((_weights, _weights_size), (_scores, _scores_size)):
        body = _Body()
        form(body, layer, some)
        # Heads that share keys take less together than one by one: the sizes before tell how much.
        share = len(_best(b"".join(body.parts))) / size_of(layer, len(some))
        found.append(share * size_of(layer, len(heads)))
    return found[0] <= found[1]


def _weights(body: _Body, layer: LayerTrace, heads: list[int]) -> dict:
    # One head after the other: all at once would be larger than what is sent.
    return {"weights": body.add(np.stack([coded(layer.weights(head)) for head in heads]))}


def coded(weights: np.ndarray) -> np.ndarray:
    """Each weight as 16 bits of its square root."""
    return np.rint(np.sqrt(np.clip(weights, 0, 1)) * LEVELS).astype("<u2")


def _weights_size(layer: LayerTrace, n_heads: int) -> int:
    return 2 * n_heads * layer.n_query * layer.n_key


def _scores_size(layer: LayerTrace, n_heads: int) -> int:
    n_kv = -(-n_heads * layer.n_kv_heads // layer.n_heads)
    bias = layer.rule.bias
    return 4 * (
        n_heads * layer.n_query * (layer.d_k + 1)
        + n_kv * layer.n_key * layer.d_k
        + (0 if bias is None else n_heads * bias.shape[-2] * bias.shape[-1])
    )


def _scores(body: _Body, layer: LayerTrace, heads: list[int]) -> dict:
    kv = sorted({layer.kv_head(head) for head in heads})
    rule, lse = layer.rule, np.stack([layer.log_sum_exp(head) for head in heads])
    bits = few_bits(layer, heads, lse)
    described = {
        "q": body.add_floats(rounded(layer.q[heads], bits), bits),
        "k": body.add_floats(rounded(layer.k[kv], bits), bits),
        "kv": [kv.index(layer.kv_head(head)) for head in heads],
        "lse": body.add(lse.astype("<f4")),
        "scale": layer.scale,
        "soft_cap": rule.soft_cap,
        "temperature": rule.temperature,
    }
    if rule.bias is not None:
        described["bias"] = body.add(_of_heads(rule.bias.numpy(), heads).astype("<f4"))
    if rule.distance_bias is not None:
        described["distance_bias"] = body.add(_of_heads(rule.distance_bias.numpy(), heads, 2).astype("<f4"))
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
