"""The cost of one layer of attention: its tensors' shapes, parameters, operations, memory and cache.

Sizes are counts of numbers. For memory, multiply by the bytes of a number: 4 in fp32, 2 in half precision.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np
import pandas as pd

from mha_core.analysis.published import kind
from mha_core.attention.latent import LatentSpec
from mha_core.attention.module import AttentionSpec
from mha_core.traces.layer import LayerTrace

KINDS = ("mha", "gqa", "mqa", "mla")
HEAD_COUNTS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class TensorShape:
    """A tensor of a layer: its symbol, the length of each axis, and whether it is learned."""

    symbol: str
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    learned: bool = False

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return prod(self.sizes)


@dataclass(frozen=True)
class Cost:
    """The cost of one pass through a layer.

    `flops` counts a multiplication and an addition as two operations, as torch's `FlopCounterMode` does, and
    only in matrix products: softmax, norms and biases are not counted. `activations` counts the numbers of
    all tensors that are not learned; `cache` those that generation keeps for all tokens.
    """

    parameters: int
    flops: int
    activations: int
    cache: int


def shapes(spec: AttentionSpec | LatentSpec, tokens: int, *, batch: int = 1) -> tuple[TensorShape, ...]:
    """Every tensor of a layer, in the order of computation.

    Sources: Vaswani et al. 2017, section 3.2; for a `LatentSpec` DeepSeek-AI 2024, "DeepSeek-V2", section
    2.1.
    """
    if isinstance(spec, LatentSpec):
        width, n_kv = spec.d_k + spec.rotary_width, spec.n_heads
    else:
        width, n_kv = spec.d_k, spec.n_kv_heads

    def activation(symbol: str, axis: str, size: int) -> TensorShape:
        return TensorShape(symbol, ("batch", "token", axis), (batch, tokens, size))

    def of_heads(symbol: str, axis: str, heads: int, size: int) -> TensorShape:
        kind = "head" if heads == spec.n_heads else "kv_head"
        return TensorShape(symbol, ("batch", kind, "token", axis), (batch, heads, tokens, size))

    def matrix(symbol: str, rows: tuple[str, int], columns: tuple[str, int]) -> TensorShape:
        (down, n_rows), (across, n_columns) = rows, columns
        return TensorShape(symbol, (down, across), (n_rows, n_columns), learned=True)

    model = ("d_model", spec.d_model)
    q, k, v = (
        of_heads("Q", "d_k", spec.n_heads, width),
        of_heads("K", "d_k", n_kv, width),
        of_heads("V", "d_v", n_kv, spec.d_v),
    )
    if isinstance(spec, LatentSpec):
        queries, made_of = [], model
        if spec.q_rank is not None:
            made_of = ("q_rank", spec.q_rank)
            queries = [matrix("W^DQ", model, made_of), activation("c^Q", *made_of)]
        short = ("kv_rank", spec.kv_rank)
        position = ("rotary_width", spec.rotary_width)
        projected = [
            *queries,
            matrix("W^UQ", made_of, ("h·d_k", spec.n_heads * width)),
            q,
            matrix("W^DKV", model, short),
            activation("c^KV", *short),
            *([matrix("W^KR", model, position), activation("k^R", *position)] if spec.rotary_width else []),
            matrix("W^UK", short, ("h·d_k", spec.n_heads * spec.d_k)),
            k,
            matrix("W^UV", short, ("h·d_v", spec.n_heads * spec.d_v)),
            v,
        ]
    else:
        projected = [
            matrix("W^Q", model, ("h·d_k", spec.n_heads * width)),
            q,
            matrix("W^K", model, ("n_kv·d_k", n_kv * width)),
            k,
            matrix("W^V", model, ("n_kv·d_v", n_kv * spec.d_v)),
            v,
        ]
    square = ("batch", "head", "query", "key"), (batch, spec.n_heads, tokens, tokens)
    joined = ("h·d_v", spec.n_heads * spec.d_v)
    return (
        activation("X", *model),
        *projected,
        TensorShape("S", *square),
        TensorShape("A", *square),
        of_heads("head_i", "d_v", spec.n_heads, spec.d_v),
        activation("concat", *joined),
        matrix("W^O", joined, model),
        activation("Z", *model),
    )


def cost(spec: AttentionSpec | LatentSpec, tokens: int, *, batch: int = 1) -> Cost:
    """The cost of a pass over `batch` texts of `tokens` tokens.

    With N texts of L tokens, queries of d numbers and values of d_v numbers: ``flops = 2·N·L·(numbers of the
    matrices) + 2·N·h·L²·(d + d_v)``; `cache` is ``N·L·n_kv·(d_k + d_v)``, and for latent attention
    ``N·L·(kv_rank + rotary_width)``. Sources: Kaplan et al. 2020, table 1; Shazeer 2019; DeepSeek-AI 2024.
    """
    tensors = {tensor.symbol: tensor for tensor in shapes(spec, tokens, batch=batch)}
    learned = [tensor for tensor in tensors.values() if tensor.learned]
    matrices = sum(matrix.count for matrix in learned)
    if isinstance(spec, LatentSpec):
        beside, kept = spec.kv_rank + (spec.q_rank or 0), ("c^KV", "k^R")  # the factors of the norms
    else:
        beside, kept = spec.bias * sum(matrix.sizes[1] for matrix in learned), ("K", "V")
    mixing = tensors["S"].count * (tensors["Q"].sizes[-1] + spec.d_v)
    return Cost(
        parameters=matrices + beside,
        flops=2 * (batch * tokens * matrices + mixing),
        activations=sum(tensor.count for tensor in tensors.values() if not tensor.learned),
        cache=sum(tensors[symbol].count for symbol in kept if symbol in tensors),
    )


def step_flops(spec: AttentionSpec | LatentSpec, tokens: int) -> int:
    """The operations of a decoding step: a pass of the last of so many tokens, the others being in the cache.

    ``2·(numbers of the matrices) + 2·h·L·(d + d_v)``; latent attention computes the keys and values of all L
    tokens again from its cache, ``2·(L − 1)·(numbers of W^UK and W^UV)`` more. Source: Pope et al. 2022,
    section 2.1; DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.2.
    """
    tensors = {tensor.symbol: tensor for tensor in shapes(spec, tokens)}
    matrices = sum(tensor.count for tensor in tensors.values() if tensor.learned)
    again = sum(tensors[symbol].count for symbol in ("W^UK", "W^UV") if symbol in tensors)
    mixing = spec.n_heads * tokens * (tensors["Q"].sizes[-1] + spec.d_v)
    return 2 * (matrices + (tokens - 1) * again + mixing)


def variants(spec: AttentionSpec | LatentSpec) -> dict[str, AttentionSpec | LatentSpec]:
    """A layer of the same width, heads and d_k of each kind, "mha" to "mla"; the layer stands for its own."""
    heads = AttentionSpec(spec.d_model, spec.n_heads, d_k=spec.d_k, d_v=spec.d_v, bias=False)
    groups = next((n for n in range(max(2, spec.n_heads // 4), spec.n_heads) if spec.n_heads % n == 0), None)
    kinds: dict[str, AttentionSpec | LatentSpec] = {"mha": heads}
    if groups is not None:
        kinds["gqa"] = replace(heads, n_kv_heads=groups)
    if spec.n_heads > 1:
        kinds["mqa"] = replace(heads, n_kv_heads=1)
    # The published ratio: a short vector four times as long as a head's key (DeepSeek-V2, section 3.1.2).
    kinds["mla"] = LatentSpec(spec.d_model, spec.n_heads, 4 * spec.d_k, d_k=spec.d_k, d_v=spec.d_v)
    kinds[kind(spec)] = spec
    return {name: kinds[name] for name in KINDS if name in kinds}


def spec_of(layer: LayerTrace) -> AttentionSpec | LatentSpec | None:
    """The sizes of a traced layer; None if its keys or its width are not known."""
    if not layer.knows("k") or layer.d_model is None:
        return None
    latent = layer.about.latent
    if latent is None:
        bias = layer.knows("b_q")
        return AttentionSpec(layer.d_model, layer.n_heads, layer.n_kv_heads, layer.d_k, layer.d_v, bias)
    rotary = latent.rotary_width or 0
    plain = layer.d_k - rotary
    ranks = (latent.kv_rank, latent.q_rank)
    return LatentSpec(layer.d_model, layer.n_heads, *ranks, plain, layer.d_v, rotary)


def by_heads(d_model: int, tokens: int, *, batch: int = 1) -> pd.DataFrame:
    """The cost of h heads of d_model / h numbers each, without biases: a row for each h that divides d_model.

    All have the same number of parameters and of operations, since ``h·d_k = d_model``; only the number of
    scores grows, ``h·L²``. Source: Vaswani et al. 2017, section 3.2.2.
    """
    rows = []
    for h in HEAD_COUNTS:
        if d_model % h == 0:
            spec = AttentionSpec(d_model, h, bias=False)
            rows.append({"h": h, "d_k": spec.d_k} | vars(cost(spec, tokens, batch=batch)))
    return pd.DataFrame(rows).set_index("h")


def cache_sizes(layer: LayerTrace) -> dict[str, int] | None:
    """The count of numbers that a layer caches for one token: "own" of this layer, the others for comparison.

    With h heads, n_kv key/value heads and sizes d_k, d_v: "all" (multi-head) ``h·(d_k + d_v)``, "shared"
    (grouped query) ``n_kv·(d_k + d_v)``, "one" (multi-query) ``d_k + d_v``, and for a layer with latent
    attention "latent" ``kv_rank + rotary_width``. None if the keys are not known. Sources: Shazeer 2019
    (multi-query), Ainslie et al. 2023 (grouped), DeepSeek-AI 2024 (latent).
    """
    if not layer.knows("k"):
        return None
    width = layer.d_k + layer.d_v
    sizes = {"all": layer.n_heads * width, "one": width}
    latent = layer.about.latent
    if latent is not None:
        sizes["latent"] = latent.kv_rank + (latent.rotary_width or 0)
        return {"own": sizes["latent"], **sizes}
    sizes["shared"] = layer.n_kv_heads * width
    return {"own": sizes["shared"], **sizes}


def short_vectors(layer: LayerTrace) -> dict[str, np.ndarray]:
    """The latent vectors of a layer with latent attention, as far as they are known.

    "kv" for keys and values, (key, kv_rank); "position", the rotated part of the key that all heads share,
    (key, rotary_width): together they are the cache of a token. "q" for queries, (query, q_rank). Empty for
    any other layer. Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    """
    vectors: dict[str, np.ndarray] = {}
    if layer.about.latent is None:
        return vectors
    if "kv_short" in layer.tensors:
        vectors["kv"] = layer.tensors["kv_short"].float().numpy()
    if (rotary := layer.about.rotary) is not None:
        vectors["position"] = layer.k[0, :, rotary.start : rotary.start + rotary.width]
    if "q_short" in layer.tensors:
        vectors["q"] = layer.tensors["q_short"].float().numpy()
    return vectors
