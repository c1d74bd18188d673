"""Checks of a trace from a file or from your own arrays, before anything is computed from it."""

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from mha_core import device as devices
from mha_core.attention.functional import CELLS, HALF, MIN_ROWS, row_blocks
from mha_core.errors import MhaError, Phrase, listed
from mha_core.traces.tensors import shared
from mha_core.traces.tokens import Sides

if TYPE_CHECKING:
    from mha_core.traces.layer import LayerTrace

MAX_HEADER = 16_000_000  # characters of a file's description
MAX_LAYERS = 512
MAX_HEADS = 1024
SOFTMAX = 64  # operations counted for each score besides its products, which can be narrow
MAX_WHOLE = 2**64  # the largest whole number in a description
# Rounding may let the weights of a row sum to this much more than 1.
ROUNDING, HALF_ROUNDING = 1e-3, 1e-2

FLOATS = ("float16", "bfloat16", "float32", "float64")
BYTES = dict(zip(FLOATS, (2, 2, 4, 8), strict=True))
BYTES |= {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8}
# The axes of the tensors of a layer. None is any size; any other axis has one size in the whole layer.
AXES = {
    "q": ("head", "query", "d_k"),
    "k": ("kv_head", "key", "d_k"),
    "v": ("kv_head", "key", "d_v"),
    "weights": ("head", "query", "key"),
    **dict.fromkeys(("x", "concat", "result"), ("query", None)),
    "x_v": ("key", None),
    **dict.fromkeys(("q_linear", "q_raw", "q_turned"), (None, "query", None)),
    **dict.fromkeys(("k_linear", "k_raw", "k_turned", "v_linear"), (None, "key", None)),
    **dict.fromkeys((f"{name}_{what}" for name in "qkv" for what in ("gain", "shift")), (None, None)),
    "gate": ("head", "query", None),
    **dict.fromkeys(("cos", "sin", "output_cos", "output_sin", "q_short"), ("query", None)),
    "kv_short": ("key", None),
    "index_scores": (None, "query", None),
    "index_choice": (None, "query", None),
    "dense_mask": (None, "query", "key"),
    **dict.fromkeys(("w_q", "w_k", "w_v", "w_o", "w_o_b", "w_uk", "w_uv"), (None, None)),
    **dict.fromkeys(("b_q", "b_k", "b_v", "b_o"), (None,)),
    "w_o_a": (None, None, None),
    "rule.mask": ("head", "query", "key"),
    "rule.bias": ("head", "query", "key"),
    "rule.distance_bias": ("head", "distance"),
    "rule.sinks": ("head",),
    "rule.patched_weights": ("head", "query", "key"),
    "rule.patched_outputs": ("head", "query", "d_v"),
}
TENSORS = {name for name in AXES if name[:2] not in ("w_", "b_", "ru")}  # of `LayerTrace.tensors`
PATCHES = {"rule.patched_weights", "rule.patched_outputs"}
# They may lack their first axis, and have axes of length 1.
BROADCAST = {"dense_mask", "rule.mask", "rule.bias", *PATCHES}
DTYPES: Mapping[str, tuple[str, ...]] = {  # of a tensor whose numbers are no floats
    **dict.fromkeys(("dense_mask", "rule.mask"), ("bool",)),
    "index_choice": ("int64", "int32", "int16"),
}
INFINITE = {"index_scores", "rule.distance_bias", *PATCHES}  # −∞ and +∞ have a meaning there


class Size(NamedTuple):
    """The shape of a tensor in a file, and the name of its dtype in torch."""

    shape: tuple[int, ...]
    dtype: str


def sizes_of(tensors: Mapping[str, Tensor]) -> dict[str, Size]:
    """The shapes and dtypes of tensors by name."""
    return {name: Size(tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in tensors.items()}


def described(text: str) -> Any:
    """The values of a JSON text. Raises `MhaError` for a huge text, and for NaN, infinite or huge numbers."""
    if len(text) > MAX_HEADER:
        raise MhaError(
            "its description has {length:,} characters; the limit is {limit:,}.",
            length=len(text),
            limit=MAX_HEADER,
        )
    return json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_whole)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise MhaError("its description has {number}, which is no finite number.", number=text[:20])
    return number


def _whole(text: str) -> int:
    if len(text) > len(str(MAX_WHOLE)) + 1 or abs(int(text)) > MAX_WHOLE:
        raise MhaError(
            "its description has a whole number of {length} digits; 2^64 is the limit.", length=len(text)
        )
    return int(text)


def check_count(what: str, count: int, limit: int) -> None:
    """Raise `MhaError` for more tokens, layers or heads than `limit`."""
    if count > limit:
        raise MhaError(
            "it has {count:,} {what}; the limit is {limit:,}.", count=count, what=what, limit=limit
        )


def check_cost(
    header: dict, sizes: Mapping[str, Size], *, max_bytes: int | None, max_flops: int | None
) -> None:
    """Raise `MhaError` for a file whose layers need more than `max_bytes` or `max_flops`.

    A small file can use the same numbers in hundreds of layers, each of which is then computed. The `header`
    has been checked; `sizes` are those of all tensors in the file. Memory counts the tensors, and scores as
    in `random_weights.nbytes`: 12 bytes for each score of a block of rows. Operations are
    ``2 · (d_k + d_v) + SOFTMAX`` for each score. None means no limit.
    """
    flops, block = 0, 0
    for part in header["layers"]:
        named = {name: sizes[key] for name, key in part["tensors"].items()}
        n_query, n_key = (len(header["texts"][side]["pieces"]) for side in part["sides"])
        heads = named["q" if "q" in named else "weights"].shape[0]
        widths = named["q"].shape[2] + named["v"].shape[2] if "q" in named else 0
        cells = heads * n_query * n_key
        flops += cells * (2 * widths + SOFTMAX)
        block = max(block, min(cells, max(CELLS, MIN_ROWS * heads * n_key)))
    held = sum(math.prod(shape) * BYTES.get(dtype, 1) for shape, dtype in sizes.values()) + 12 * block
    what_works = Phrase("A file of fewer layers, fewer heads or a shorter text works.")
    if max_bytes is not None and held > max_bytes:
        raise MhaError(
            "its tensors and the scores of a block of rows take about {size:,.2f} GB; the limit is "
            "{limit:,.2f} GB (max_bytes). {what_works}",
            size=held / 1e9,
            limit=max_bytes / 1e9,
            what_works=what_works,
        )
    if max_flops is not None and flops > max_flops:
        raise MhaError(
            "the scores of its layers ({n_layers}) take {operations:,.1f} billion operations, at least "
            "{seconds:,.2g} s on this processor; the limit is "
            "{limit:,.1f} billion (max_flops). {what_works}",
            n_layers=len(header["layers"]),
            operations=flops / 1e9,
            seconds=flops * devices.seconds_per_operation(),
            limit=max_flops / 1e9,
            what_works=what_works,
        )


def check_sizes(where: str, sizes: Mapping[str, Size], sides: Sides) -> None:
    """Raise `MhaError` unless the shapes and dtypes of a layer's tensors fit each other and its texts.

    Where both texts are the same, K and V come from X, too. The error has the tensor's name, its shape or
    dtype, and the required one.
    """
    if not {"q", "weights"} & sizes.keys() or ("q" in sizes and not {"k", "v"} <= sizes.keys()):
        raise MhaError("{where} has neither weights nor queries, keys and values.", where=where)
    n_query, n_key = len(sides.queries), len(sides.keys)
    known = {"query": n_query, "key": n_key, "distance": n_query + n_key - 1}
    for name in AXES:  # in this order, so that q, k, v and weights set the sizes
        if name in sizes:
            _check_size(
                Phrase("{name} of {where}", name=name.removeprefix("rule."), where=where),
                name,
                sizes[name],
                known,
            )
    if known["head"] % known.get("kv_head", 1):
        raise MhaError(
            "{n_heads} heads of {where} cannot share {n_kv_heads} key/value heads.",
            n_heads=known["head"],
            where=where,
            n_kv_heads=known["kv_head"],
        )
    of_keys = "x" if sides.same else "x_v"
    for letter, x in (("q", "x"), ("k", of_keys), ("v", "x_v" if "x_v" in sizes else of_keys)):
        _check_matrix(where, letter, x, sizes)
    for letter in "kv":
        _check_matrix(where, f"u{letter}", "kv_short", sizes)
    if {"w_o", "b_o"} <= sizes.keys() and sizes["b_o"].shape != sizes["w_o"].shape[1:]:
        shape, columns = sizes["b_o"].shape, sizes["w_o"].shape[1:]
        raise MhaError(
            "b_o of {where} has shape {shape}; it has to be {columns}, as the columns of w_o.",
            where=where,
            shape=shape,
            columns=columns,
        )
    added = (("w_q", "b_q"), ("w_k", "b_k"), ("w_v", "b_v"), ("w_o", "b_o"))
    for name, other in (("q", "k"), *added, ("kv_short", "w_uk"), ("kv_short", "w_uv")):
        if {name, other} <= sizes.keys() and sizes[name].dtype != sizes[other].dtype:
            raise MhaError(
                "{name} of {where} has the number type {dtype} and {other} {other_dtype}; "
                "they have to have the same.",
                name=name,
                where=where,
                dtype=sizes[name].dtype,
                other=other,
                other_dtype=sizes[other].dtype,
            )


def _check_matrix(where: str, letter: str, x: str, sizes: Mapping[str, Size]) -> None:
    """Raise `MhaError` unless W and b fit the product X W + b, and X if it is known.

    `letter` is q, k or v, or uk or uv, where `x` are the latent vectors.
    """
    name = letter[-1]
    product = next((n for n in (f"{name}_linear", f"{name}_raw", name) if n in sizes), None)
    w, b = sizes.get(f"w_{letter}"), sizes.get(f"b_{letter}")
    if w is None or product is None:
        return
    heads, _, width = sizes[product].shape
    rows = sizes[x].shape[1] if x in sizes else w.shape[0]
    if w.shape != (rows, heads * width) or (b is not None and b.shape != (heads * width,)):
        raise MhaError(
            "w_{letter} of {where} has shape {shape} and its bias {bias}; it has to be "
            "({rows}, {columns}), as the {product} of {heads} heads and width {width} that it makes.",
            letter=letter,
            where=where,
            shape=w.shape,
            bias=b and b.shape,
            rows=rows,
            columns=heads * width,
            product=product,
            heads=heads,
            width=width,
        )


def _check_size(what: str, name: str, size: Size, known: dict[str, int]) -> None:
    axes, (shape, dtype) = AXES[name], size
    dtypes = DTYPES.get(name, FLOATS)
    if dtype not in dtypes:
        raise MhaError(
            "{what} has the number type {dtype}; it has to be {dtypes}.",
            what=what,
            dtype=dtype,
            dtypes=listed(dtypes, "or"),
        )
    if name in BROADCAST and len(shape) == len(axes) - 1:
        axes = axes[1:]
    for axis, length in zip(axes, shape, strict=False):
        fixed = known.setdefault(axis, length) if axis and length else length
        if (length != fixed and not (name in BROADCAST and length == 1)) or not length:
            break
    else:
        if len(axes) == len(shape):
            return
    rule = [f"{known[axis]} ({axis})" if axis in known else axis or Phrase("any size") for axis in axes]
    raise MhaError(
        "{what} has shape {shape}; it has to be ({rule}), no size 0.",
        what=what,
        shape=shape,
        rule=listed(rule, "comma"),
    )


def check_finite(what: str, tensor: Tensor, *, infinite: bool = False) -> None:
    """Raise `MhaError` for a tensor with NaN, or with infinite numbers where they have no meaning."""
    if tensor.is_floating_point() and not (~tensor.isnan() if infinite else tensor.isfinite()).all():
        raise MhaError(
            "{what} has numbers that are not finite (NaN or infinite); all of them have to be.", what=what
        )


def check_weights(where: str, weights: Tensor) -> None:
    """Raise `MhaError` for weights below 0 or NaN, and for a row that sums to more than 1."""
    largest_sum = float(weights.double().sum(-1).max())
    rounding = HALF_ROUNDING if weights.dtype in HALF else ROUNDING
    if weights.dtype == torch.bool or not weights.min() >= 0 or not largest_sum <= 1 + rounding:
        raise MhaError(
            "weights of {where} are no attention weights: the smallest is {smallest:.4g} "
            "and a row sums to up to {largest_sum:.4g}. Weights are at least 0 and a row sums to 1 or less. "
            "Scores become weights by torch.softmax(scores, dim=-1); a model in training drops some weights "
            "and enlarges others, and model.eval() does not.",
            where=where,
            smallest=float(weights.min()),
            largest_sum=largest_sum,
        )


def norm(tensor: Tensor) -> float:
    """The norm of all finite numbers, computed in blocks to limit the memory of a copy in float64."""
    rows, total = tensor.reshape(-1, tensor.shape[-1]), 0.0
    for block in row_blocks(len(rows), rows.shape[-1]):
        numbers = rows[block].double()
        total += float(numbers[numbers.isfinite()].square().sum())
    return total**0.5


def check_results(where: str, layer: "LayerTrace", norms: Mapping[str, float]) -> None:
    """Raise `MhaError` where scores or results of a layer can overflow their dtype.

    `norms` are the norms of its tensors by name. Products are bounded by |q·k| ≤ ‖q‖ ‖k‖ and ‖x W‖ ≤ ‖x‖ ‖W‖
    (Cauchy); the square of a bound of a result must not overflow either. A float16 ends at 65,504: if an
    output can be larger, it is computed completely.
    """
    q, k = (shared(layer.tensors)[name] for name in "qk")
    largest = torch.finfo(torch.float64 if q.dtype == torch.float64 else torch.float32).max
    bound = 1.0
    for tensor in (q, k):
        blocks = row_blocks(len(tensor), tensor[0].numel())  # of heads: to limit the memory of a float64 copy
        bound *= max(float(tensor[heads].double().square().sum(-1).max().sqrt()) for heads in blocks)
    factors = (1.0, abs(layer.scale), abs(layer.scale) / layer.rule.temperature)
    if not bound * max(factors) <= largest:
        raise MhaError(
            "q and k of {where} are too large: scores can reach {score:.2g}, and numbers of "
            "their type {largest:.2g}. Divide q or k by {divisor:.2g} or more.",
            where=where,
            score=bound * max(factors),
            largest=largest,
            divisor=bound * max(factors) / largest,
        )
    dtype = shared(layer.tensors)["v"].dtype
    rule = {name.removeprefix("rule."): length for name, length in norms.items() if name.startswith("rule.")}
    lengths = {name: length for name, length in norms.items() if name in TENSORS - INFINITE or name[1] == "_"}
    of_latent = (("uk", "kv_short"), ("uv", "kv_short"))
    for letter, x in (("q", "x"), ("k", "x"), ("v", "x"), ("k", "x_v"), ("v", "x_v"), *of_latent):
        if {x, f"w_{letter}"} <= norms.keys():
            product = norms[x] * norms[f"w_{letter}"] + norms.get(f"b_{letter}", 0)
            lengths[f"{x} times w_{letter}"] = product
    taken = max(1 + HALF_ROUNDING, layer.n_key * rule.get("patched_weights", 0))  # factor on the rows of v
    mixed = max(taken * norms["v"], layer.d_v**0.5 * rule.get("patched_outputs", 0))
    output = mixed * norms.get("gate", 1) * layer.n_heads**0.5 * norms.get("w_o", 1) + norms.get("b_o", 0)
    lengths["v times w_o" if "w_o" in norms else "v"] = output
    largest = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).max
    for name, length in lengths.items():
        if not length <= largest**0.5:
            raise MhaError(
                "{name} of {where} can be too large: it has a length up to {length:.2g}, and the square of "
                "that is no number of its type, whose largest is {largest:.2g}. Divide it by "
                "{divisor:.2g} or more.",
                name=name,
                where=where,
                length=length,
                largest=largest,
                divisor=length / largest**0.5,
            )
    if dtype == torch.float16 and output > torch.finfo(dtype).max and "w_o" in norms:
        for head in range(layer.n_heads):
            check_finite(
                Phrase("v times w_o of head {head} of {where}", head=head, where=where),
                torch.tensor(layer.contribution(head)),
            )
        check_finite(Phrase("v times w_o and b_o of {where}", where=where), torch.tensor(layer.result()))
