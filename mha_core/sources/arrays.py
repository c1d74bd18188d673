"""Traces of your own arrays: queries, keys and values, or attention weights alone.

Each of `q`, `k`, `v` and `weights` is one layer (head, row, column), or several as a list of such arrays or
as one array with a leading axis; a batch axis of 1 before the heads is removed.
"""

import numbers
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from mha_core.attention import masks
from mha_core.attention.module import Projections
from mha_core.attention.score_rule import ScoreRule
from mha_core.device import memory_errors
from mha_core.errors import MhaError, Phrase, listed, shown
from mha_core.export.head_view import HeadView
from mha_core.traces import limits
from mha_core.traces.layer import LayerTrace
from mha_core.traces.source import ArraySource, SourceValue, array_source
from mha_core.traces.tensors import native
from mha_core.traces.tokens import MAX_TOKENS, Sides, Tokens, spaced, words
from mha_core.traces.trace import AttentionTrace

NO_TEXT = "␣"  # shown for a piece of white space alone
MAX_WHOLE = 2**24  # float32 holds every whole number up to here


def sides_of(tokens: "str | Sequence[str] | Tokens", keys: "str | Sequence[str] | Tokens | None") -> Sides:
    """The tokens of the queries and of the keys; without `keys` both are the same."""
    query_tokens = as_tokens(tokens, "tokens")
    if keys is None:
        return Sides(query_tokens, query_tokens)
    key_tokens = as_tokens(keys, "keys")
    return Sides(query_tokens, replace(key_tokens) if key_tokens is query_tokens else key_tokens)


def as_tokens(value: "str | Sequence[str] | Tokens", name: str = "tokens") -> Tokens:
    """`Tokens` of a list of pieces, or of a text, which `mha.words` splits; `Tokens` are returned unchanged.

    Raises `MhaError` for any other value, for an empty list, and for more than `MAX_TOKENS`.
    """
    if isinstance(value, Tokens):
        return value
    if isinstance(value, str):
        return words(value)
    pieces: list[Any]
    try:
        pieces = list(value)
    except TypeError:
        pieces = [None]
    if not pieces or not all(isinstance(piece, str) for piece in pieces):
        raise MhaError(
            "{name} is a list of strings; got {value}. Give the pieces of the text, such as "
            "tokenizer.convert_ids_to_tokens(ids), or the text itself.",
            name=name,
            value=shown(value),
        )
    if len(pieces) > MAX_TOKENS:
        raise MhaError(
            "{name} has {n_tokens:,} tokens; the limit is {limit:,}.",
            name=name,
            n_tokens=len(pieces),
            limit=MAX_TOKENS,
        )
    return spaced([piece if piece.strip() else NO_TEXT for piece in pieces])


@memory_errors(Phrase("This trace"))
def from_tensors(
    *,
    q: Real[Any, "*layer head query d_k"] | Sequence[Real[Any, "*one head query d_k"]],
    k: Real[Any, "*layer kv_head key d_k"] | Sequence[Real[Any, "*one kv_head key d_k"]],
    v: Real[Any, "*layer kv_head key d_v"] | Sequence[Real[Any, "*one kv_head key d_v"]],
    tokens: "str | Sequence[str] | Tokens",
    keys: "str | Sequence[str] | Tokens | None" = None,
    scale: float | None = None,
    mask: Bool[Any, "*head query key"] | str | None = None,
    bias: Real[Any, "*head query key"] | None = None,
    rule: ScoreRule | None = None,
    w_o: Float[Any, "*layer width d_model"] | Sequence[Float[Any, "width d_model"]] | None = None,
    source: SourceValue = "tensors",
) -> AttentionTrace:
    """A trace of your queries, keys and values: ``softmax(scale · q kᵀ + bias) v``.

    q, k and v are arrays of numpy, torch or a library that numpy understands, all of one dtype (whole numbers
    count as float32), for one layer or several. A leading axis counts layers, so choose one item of a batch,
    as in q[0].
    `tokens` are the tokens of the queries. If the keys have other tokens, give them as `keys`: the layers are
    then cross-attention, and ``trace.layers[0].sides`` has both texts. `mask` is True where a query may
    look, or a name as in `mha_core.trace`, such as "causal", which takes O(tokens) memory; `bias` is added to
    the scores. Both are the same for all layers. `rule` replaces `scale`, `mask` and `bias`, and has further
    settings. `w_o` is W^O, h · d_v wide, one for each layer; transpose the weight
    of an `nn.Linear` (.T).

    Raises `MhaError` where shapes, lengths or dtypes do not fit, and for numbers that are not finite or so
    large that scores, outputs or their norms could overflow.
    """
    sides, described = sides_of(tokens, keys), array_source(source, ArraySource)
    n_query, n_key = len(sides.queries), len(sides.keys)
    parts = {"q": _layers("q", q), "k": _layers("k", k), "v": _layers("v", v)}
    counts = {name: len(layers) for name, layers in parts.items()}
    if len(set(counts.values())) > 1:
        raise MhaError(
            "q, k and v are of {counts} layers; all need as many. A leading "
            "axis counts layers; of a batch give one item, as in q[0].",
            counts=listed(counts.values(), "comma"),
        )
    sizes = {"n_heads": len(parts["q"][0]), "n_query": n_query, "n_key": n_key}
    rule = _rule(rule, scale, mask, bias, **sizes)
    matrices = [None] * counts["q"] if w_o is None else _matrices(w_o, counts["q"])
    layers = []
    for number, (*tensors, matrix) in enumerate(zip(*parts.values(), matrices, strict=True)):
        shapes = [tuple(tensor.shape) for tensor in tensors]
        named = dict(zip(parts, tensors, strict=True))
        _check_shapes(number, shapes, n_query, n_key)
        _check_dtypes(number, named | {"w_o": matrix})
        _check_matrix(number, matrix, height=shapes[0][0] * shapes[2][2])
        _check_rule(Phrase("layer {number}", number=number), named, rule, sides)
        layer = LayerTrace(named, rule, Projections(w_o=matrix), kind=_kind(sides), sides=sides)
        held = named | {f"rule.{name}": table for name, table in rule.tensors().items()}
        held |= {} if matrix is None else {"w_o": matrix}
        limits.check_results(
            f"layer {number}", layer, {name: limits.norm(tensor) for name, tensor in held.items()}
        )
        layers.append(layer)
    return AttentionTrace(sides.queries, tuple(layers), described)


@memory_errors(Phrase("This trace"))
def from_weights(
    weights: Real[Any, "*layer head query key"] | Sequence[Real[Any, "*one head query key"]],
    tokens: "str | Sequence[str] | Tokens",
    keys: "str | Sequence[str] | Tokens | None" = None,
    *,
    source: SourceValue = "weights",
) -> AttentionTrace:
    """A trace of attention weights alone, such as a model's `attentions`; q, k and v are unknown.

    weights are arrays of numpy or torch, for one layer or several: (head, query, key), or a list of these. A
    batch looks the same, so choose one item of it, as in weights[0]. No weight is below 0 and no row sums to
    more than 1 + 0.001 (0.01 in half precision). Rows may sum to less than 1, as with sinks and hidden rows.
    `tokens` are the tokens of the queries; if the keys have other tokens, give them as `keys`.

    Raises `MhaError` for numbers that are not weights, and for shapes that do not fit the tokens.
    """
    sides, described = sides_of(tokens, keys), array_source(source, ArraySource)
    _check_attentions(weights)
    layers = []
    for number, layer_weights in enumerate(_layers("weights", weights)):
        expected = (len(sides.queries), len(sides.keys))
        if tuple(layer_weights.shape[1:]) != expected:
            raise MhaError(
                "weights of layer {number} have shape {shape}; with "
                "{lengths} they are (head, {n_query}, {n_key}).",
                number=number,
                shape=tuple(layer_weights.shape),
                lengths=_lengths(*expected),
                n_query=expected[0],
                n_key=expected[1],
            )
        limits.check_weights(f"layer {number}", layer_weights)
        layers.append(LayerTrace({"weights": layer_weights}, kind=_kind(sides), sides=sides))
    return AttentionTrace(sides.queries, tuple(layers), described)


def view(
    weights: Real[Any, "*layer head query key"] | Sequence[Real[Any, "*one head query key"]],
    tokens: "str | Sequence[str] | Tokens",
    keys: "str | Sequence[str] | Tokens | None" = None,
) -> HeadView:
    """The head view of attention weights alone, such as a model's `attentions`: a notebook shows it.

    >>> import torch
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 3, 8)
    >>> _, weights = attention(x, x, x, average_attn_weights=False)
    >>> mha.view(weights, ["a", "small", "house"])
    <HeadView headscope-a-small-house: weights, h 2; layers[0] of 1, 2 heads>

    It takes and refuses what `from_weights` does; `AttentionTrace.view` has the options of the picture.
    """
    return from_weights(weights, tokens, keys).view()


def _kind(sides: Sides) -> str:
    return "self" if sides.same else "cross"


def _layers(name: str, value: Any) -> list[Tensor]:
    """The layers of an array or a list of arrays, each (head, row, column) on the CPU."""
    parts = list(value) if isinstance(value, list | tuple) else None
    if parts is None:
        whole = _tensor(name, value)
        parts = list(whole) if whole.dim() >= 4 else [whole]
    layers = [_layer_tensor(name, _tensor(name, part)) for part in parts]
    if not layers:
        raise MhaError("{name} has no layer; give at least one array (head, row, column).", name=name)
    return layers


def _check_attentions(value: Any) -> None:
    """Raise `MhaError` for what a model returns in place of its weights, with the way to have them."""
    if hasattr(value, "attentions"):
        raise MhaError(
            "weights are one field of what a model returns, as in outputs.attentions; got the whole {type}.",
            type=type(value).__name__,
        )
    parts = value if isinstance(value, list | tuple) else [value]
    if not parts or any(part is None for part in parts):
        raise MhaError(
            "The model returned no weights. A transformers model returns them if it is loaded with "
            'attn_implementation="eager" and called with output_attentions=True; mha.trace(text, '
            "source=model) needs neither."
        )
    if any(isinstance(part, tuple) and any(hasattr(one, "shape") for one in part) for part in parts):
        raise MhaError(
            "weights are the layers of one pass, and these are of several, as generate returns them; choose "
            "one, as in weights[0] for the prompt."
        )


def _layer_tensor(name: str, tensor: Tensor) -> Tensor:
    shape = tuple(tensor.shape)
    if tensor.dim() == 4 and shape[0] == 1:
        tensor = tensor[0]
    if tensor.dim() != 3 or 0 in tensor.shape:
        raise MhaError(
            "{name} has a layer of shape {shape}; expected (head, row, column). One item of the batch has to "
            "be chosen, as in x[0]."
            if tensor.dim() == 4
            else "{name} has a layer of shape {shape}; expected (head, row, column).",
            name=name,
            shape=shape,
        )
    if name == "weights" and tensor.isnan().any():
        raise MhaError(
            "weights have NaN, which torch gives in a row whose keys are all hidden. Such a row is 0: give "
            "torch.nan_to_num(weights), or that of numpy."
        )
    limits.check_finite(name, tensor)
    return tensor.clone(memory_format=torch.contiguous_format)


def _tensor(name: str, value: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(native(value)).detach().to("cpu")
    except (TypeError, ValueError, RuntimeError):
        raise MhaError(
            "{name} is {type}; give an array of numpy or torch.", name=name, type=type(value).__name__
        ) from None
    if tensor.is_complex():
        raise MhaError("{name} has complex numbers; give real ones.", name=name)
    if tensor.layout is not torch.strided or (tensor.is_floating_point() and tensor.dtype.itemsize < 2):
        raise MhaError(
            "{name} is {layout} of {dtype}; give a dense array of 16 bits or more.",
            name=name,
            layout=tensor.layout,
            dtype=tensor.dtype,
        )
    if tensor.is_floating_point() or tensor.dtype == torch.bool or name == "mask":
        return tensor
    whole = tensor.numpy()
    if whole.size and max(int(whole.max()), -int(whole.min())) > MAX_WHOLE:
        raise MhaError(
            "{name} has whole numbers above 2^24, which float32 rounds; give float64 numbers.", name=name
        )
    return tensor.float()


def _check_dtypes(number: int, tensors: dict[str, Tensor | None]) -> None:
    """Raise `MhaError` unless q, k, v and W^O have one dtype, since they are multiplied with each other."""
    dtypes = {
        name: str(tensor.dtype).removeprefix("torch.")
        for name, tensor in tensors.items()
        if tensor is not None
    }
    for name, dtype in dtypes.items():
        if dtype == "bool":
            raise MhaError("{name} of layer {number} is boolean; give numbers.", name=name, number=number)
    if len(set(dtypes.values())) > 1:
        each = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
        raise MhaError(
            "The arrays of layer {number} are of several number types: {dtypes}. All of a layer need one, "
            "as in k.astype({dtype!r}) of numpy or k.to(torch.{dtype}).",
            number=number,
            dtypes=each,
            dtype=dtypes["q"],
        )


def _rule(rule: ScoreRule | None, scale: float | None, mask: Any, bias: Any, **sizes: int) -> ScoreRule:
    if rule is not None:
        if not (scale is None and mask is None and bias is None):
            raise MhaError("rule replaces scale, mask and bias; leave these out, or rule.")
        if not isinstance(rule, ScoreRule):
            raise MhaError(
                "rule is a ScoreRule, as in ScoreRule(temperature=0.5); got {rule:.80}.", rule=repr(rule)
            )
        return rule
    hidden: dict[str, Any] = {}
    if mask is not None:
        hidden = masks.fields(mask, **sizes) if isinstance(mask, str) else {"mask": _table("mask", mask)}
    bias = None if bias is None else _table("bias", bias)
    if bias is not None and (bias.dtype == torch.bool or bias.isnan().any() or (bias == torch.inf).any()):
        raise MhaError("bias has to be numbers that are added to scores, at most −∞ among them.")
    if scale is not None and not _is_factor(scale):
        raise MhaError(
            "scale is what q kᵀ is multiplied with, such as d_k ** -0.5: a number, not 0; got {scale}.",
            scale=repr(scale),
        )
    return ScoreRule(scale=None if scale is None else float(scale), bias=bias, **hidden)


def _is_factor(scale: Any) -> bool:
    """Whether it is a finite number other than 0."""
    try:
        return (
            isinstance(scale, numbers.Real) and not isinstance(scale, bool) and isfinite(scale) and scale != 0
        )
    except OverflowError:  # a whole number too large for a float
        return False


def _table(name: str, value: Any) -> Tensor:
    table = _tensor(name, value)
    if table.dim() == 4 and table.shape[0] == 1:
        table = table[0]
    if table.dim() not in (2, 3):
        raise MhaError(
            "{name} has shape {shape}; expected ([head,] query, key).", name=name, shape=tuple(table.shape)
        )
    return table.clone()


def _matrices(w_o: Any, count: int) -> list[Tensor]:
    parts = list(w_o) if isinstance(w_o, list | tuple) else None
    if parts is None:
        whole = _tensor("w_o", w_o)
        parts = list(whole) if whole.dim() == 3 else [whole]
    if len(parts) != count:
        raise MhaError(
            "w_o is of {n_parts} layers and q of {count}; both need as many.", n_parts=len(parts), count=count
        )
    matrices = [_tensor("w_o", part).clone() for part in parts]
    for matrix in matrices:
        limits.check_finite("w_o", matrix)
    return matrices


def _check_shapes(number: int, shapes: list[tuple], n_query: int, n_key: int) -> None:
    (heads, rows, d_k), (kv_heads, columns, d_key), (v_heads, v_rows, _) = shapes
    fits = (
        (rows, columns, v_rows) == (n_query, n_key, n_key)
        and d_k == d_key
        and kv_heads == v_heads
        and heads % kv_heads == 0
    )
    if not fits:
        raise MhaError(
            "q {q}, k {k} and v {v} of layer {number} do not fit; with "
            "{lengths} expected q (h, {n_query}, d_k), k (n_kv, {n_key}, d_k), "
            "v (n_kv, {n_key}, d_v) with h a multiple of n_kv.",
            q=shapes[0],
            k=shapes[1],
            v=shapes[2],
            number=number,
            lengths=_lengths(n_query, n_key),
            n_query=n_query,
            n_key=n_key,
        )


def _check_matrix(number: int, w_o: Tensor | None, *, height: int) -> None:
    if w_o is not None and (w_o.dim() != 2 or w_o.shape[0] != height or not w_o.shape[1]):
        raise MhaError(
            "w_o of layer {number} has shape {shape}; expected ({height}, d_model), which "
            "is h · d_v rows. The weight of an nn.Linear is transposed: give its .T.",
            number=number,
            shape=tuple(w_o.shape),
            height=height,
        )


def _check_rule(where: str, tensors: dict[str, Tensor], rule: ScoreRule, sides: Sides) -> None:
    """Raise `MhaError` unless the tensors of a rule fit the heads and tokens."""
    of_rule = {f"rule.{name}": tensor for name, tensor in rule.tensors().items()}
    limits.check_sizes(where, limits.sizes_of(tensors | of_rule), sides)
    for name, tensor in of_rule.items():
        what = Phrase("{name} of {where}", name=name.removeprefix("rule."), where=where)
        limits.check_finite(what, tensor, infinite=name in limits.INFINITE)


def _lengths(n_query: int, n_key: int) -> str:
    if n_query == n_key:
        return Phrase("{n} tokens", n=n_query)
    return Phrase("{n_query} tokens that look at {n_key}", n_query=n_query, n_key=n_key)
