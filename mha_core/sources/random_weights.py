"""Random weights for any words, any number of heads and any width: real computations without meaning."""

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mha_core import device as devices
from mha_core.attention import masks, positions
from mha_core.attention.edits import Edit, ModuleEdit, Position, Site, by_layer, checked, edited
from mha_core.attention.functional import CELLS, MIN_ROWS, attend
from mha_core.attention.initialization import MAX_SEED, normal
from mha_core.attention.module import Attended, AttentionSpec, MultiHeadAttention
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, Phrase, in_range, listed, one_of
from mha_core.traces.layer import LayerTrace
from mha_core.traces.source import DRAWN, EditedSource, RandomSource, Source
from mha_core.traces.tensors import on_cpu, shared
from mha_core.traces.tokens import MAX_TOKENS, Tokens, words
from mha_core.traces.trace import AttentionTrace

MAX_LAYERS = 128
MAX_BYTES = 2_000_000_000
MAX_FLOPS = 4_000_000_000_000  # a layer of 32,768 tokens with h · d_k = d_model = 768; two minutes on a core
BIAS_STD = 0.1


def word_vectors(pieces: tuple[str, ...], d_model: int, *, seed: int) -> Tensor:
    """One vector for each word, the same at all its positions. (token, d_model)

    Capital letters, and the two encodings of an accented letter, do not make another word.
    """
    canonical = [unicodedata.normalize("NFD", unicodedata.normalize("NFD", p).casefold()) for p in pieces]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(canonical))}
    table = torch.stack([normal((d_model,), seed=seed, name=f"word {word}") for word in vocabulary])
    return nn.functional.embedding(torch.tensor([vocabulary[word] for word in canonical]), table)


def trace(
    text: str,
    *,
    source: Literal["random"] = "random",
    h: int = 8,
    d_model: int = 512,
    seed: int = 0,
    layers: int = 1,
    d_k: int | None = None,
    d_v: int | None = None,
    n_kv_heads: int | None = None,
    position: str = "sinusoidal",
    mask: str | Tensor | None = "full",
    bias: bool = True,
    limit: int = MAX_TOKENS,
    max_bytes: int = MAX_BYTES,
    max_flops: int = MAX_FLOPS,
    device: str | None = None,
    edits: Sequence[Edit] = (),
) -> AttentionTrace:
    """Trace a text through `layers` attention layers whose weights are drawn from the seed.

    The vector of a word depends only on the word and the seed, a weight matrix on its layer, its name, its
    shape and the seed. With ``layers > 1`` the output Z of one layer is directly the X of the next; a
    transformer block would add a residual connection, a norm and an MLP.
    The arguments are explained in `mha_core.trace`.

    Raises `MhaError` for sizes and edits that do not fit, unknown names, and texts that are empty or longer
    than `limit` tokens; also, before anything is allocated, where `nbytes` exceeds `max_bytes` or `flops`
    exceeds `max_flops`.
    """
    sizes: dict[str, Any] = {"d_model": d_model, "h": h, "n_kv_heads": n_kv_heads, "d_k": d_k, "d_v": d_v}
    sizes["bias"] = bias
    spec = AttentionSpec(*sizes.values())
    in_range("seed", seed, 0, MAX_SEED)
    in_range("layers", layers, 1, MAX_LAYERS)
    one_of("position", position, positions.POSITIONS)
    tokens = words(text, limit=limit)
    masked = masks.is_square(mask, len(tokens))
    _check_cost(tokens, sizes, layers, masked=masked, max_bytes=max_bytes, max_flops=max_flops)
    settings: dict[str, Any] = {"position": position, "mask": mask, "device": device}
    return follow(tokens, spec, seed=seed, layers=layers, edits=checked(edits), **settings)


def nbytes(spec: AttentionSpec, tokens: int, layers: int = 1, *, masked: bool = False) -> int:
    """An estimate of the bytes of memory for computing a trace of these sizes.

    With W = d_model · (h·d_k + n_kv·d_k + n_kv·d_v + h·d_v) and qkv = h·d_k + n_kv·d_k + n_kv·d_v, the trace
    holds ``4 · layers · (W + tokens · (qkv + d_model))`` bytes in float32 (W, q, k, v and x). Computing one
    layer needs ``4 · (W + tokens · (qkv + 2·h·d_v + d_model))`` more for drawing W and for products, 12 bytes
    for each score of a block of rows, and with a mask 17 bytes for each pair of tokens.
    """
    h, d_model = spec.n_heads, spec.d_model
    qkv = h * spec.d_k + spec.n_kv_heads * (spec.d_k + spec.d_v)
    matrices = d_model * (qkv + h * spec.d_v)
    held = layers * (matrices + tokens * (qkv + d_model))
    beside = matrices + tokens * (qkv + 2 * h * spec.d_v + d_model)
    block = min(h * tokens**2, max(CELLS, MIN_ROWS * h * tokens))
    return 4 * (held + beside) + 12 * block + (17 * tokens**2 if masked else 0)


def flops(spec: AttentionSpec, tokens: int, layers: int = 1) -> int:
    """The number of operations in the matrix products of these layers; a sum and a product count as one each.

    It is ``layers · (2 · tokens · W + 2 · h · tokens² · (d_k + d_v))``, where W is the count of numbers in a
    layer's matrices, as in `analysis.cost`.
    """
    h = spec.n_heads
    matrices = spec.d_model * (h * (spec.d_k + spec.d_v) + spec.n_kv_heads * (spec.d_k + spec.d_v))
    return 2 * layers * (tokens * matrices + h * tokens**2 * (spec.d_k + spec.d_v))


def _check_cost(
    tokens: Tokens, sizes: dict, layers: int, *, masked: bool, max_bytes: int, max_flops: int
) -> None:
    """Raise `MhaError` where a trace needs too much memory or time, with the nearest sizes that fit.

    `sizes` are the arguments of `trace` for the sizes of a layer, in the order of `AttentionSpec`. Each fix
    changes one of them, the number of layers, or the length of the text.
    """

    def needed(count: int = len(tokens), layers: int = layers, **change: int) -> tuple[int, int]:
        try:
            spec = AttentionSpec(*(sizes | change).values())
        except MhaError:  # sizes that do not fit together
            return sys.maxsize, sys.maxsize
        return nbytes(spec, count, layers, masked=masked), flops(spec, count, layers)

    def fits(*args: int, **change: int) -> bool:
        total_bytes, total_flops = needed(*args, **change)
        return total_bytes <= max_bytes and total_flops <= max_flops

    if fits():
        return
    fixes: list[dict] = []
    for name in ("layers", "d_model", "h", "d_k", "d_v"):
        value = layers if name == "layers" else sizes[name]
        smaller = range((value or 1) - 1, 0, -1)
        fixes += [{name: n} for n in islice((n for n in smaller if fits(**{name: n})), 1)]
    count = next((n for n in range(len(tokens) - 1, 0, -1) if fits(n)), None)
    fitting = [f"{name} {value:,}" for fix in fixes for name, value in fix.items()]
    if count and tokens.spans[count - 1][1]:
        fixes.append({"text": tokens.text[: tokens.spans[count - 1][1]]})
        fitting.append(Phrase("the first {n:,} tokens", n=count))
    total_bytes, total_flops = needed()
    sentences = [
        Phrase(
            "W, q, k, v and x take about {size:,.2f} GB while they are computed (layers {layers}, tokens "
            "{n_tokens:,}); the limit is {limit:,.2f} GB (max_bytes).",
            size=total_bytes / 1e9,
            layers=layers,
            n_tokens=len(tokens),
            limit=max_bytes / 1e9,
        )
        if total_bytes > max_bytes
        else Phrase(
            "The products of q, k, v and W take {operations:,.1f} billion operations, at least "
            "{seconds:,.2g} s on this processor (layers {layers}, tokens {n_tokens:,}); the limit is "
            "{limit:,.1f} billion (max_flops).",
            operations=total_flops / 1e9,
            seconds=total_flops * devices.seconds_per_operation(),
            layers=layers,
            n_tokens=len(tokens),
            limit=max_flops / 1e9,
        )
    ]
    if fitting:
        sentences.append(Phrase("With all else as it is, {sizes} would fit.", sizes=listed(fitting, "or")))
    raise MhaError(listed(sentences, "space"), fixes=tuple(fixes))


def follow(
    tokens: Tokens,
    spec: AttentionSpec,
    *,
    seed: int = 0,
    layers: int = 1,
    position: str = "sinusoidal",
    mask: str | Tensor | None = "full",
    device: str | None = None,
    edits: Sequence[Edit] = (),
) -> AttentionTrace:
    """Trace tokens through layers of these sizes, with weights drawn as `trace` draws them."""
    n_tokens, place = len(tokens), devices.pick(device)
    site = Site("self", spec.n_heads, spec.d_v, tokens, tokens)
    edits_by_layer = by_layer(edits, [site] * layers, modules=True)
    code = next((edit.code for edit in reversed(edits) if isinstance(edit, Position)), position)
    fields = masks.fields(mask, n_heads=spec.n_heads, n_query=n_tokens, n_key=n_tokens)
    if code == "alibi":
        fields["distance_bias"] = fields.get("distance_bias", 0) + positions.alibi(
            spec.n_heads, n_tokens, n_tokens
        )
    rule = ScoreRule(**fields)
    x = embedded(tokens.pieces, spec.d_model, code, seed=seed).unsqueeze(0).to(place)
    recorded: list[LayerTrace] = []
    with torch.no_grad():
        for index, edits_of_layer in enumerate(edits_by_layer):
            on_device = edited(rule, edits_of_layer, site).mapped(lambda t: t.to(place))
            module = drawn(spec, seed=seed, layer=index).to(place)
            for edit in edits_of_layer:
                if isinstance(edit, ModuleEdit):
                    edit.on_module(module)
            recorded.append(_layer(module, x, on_device, rotary=code == "rotary"))
            if len(recorded) < layers:  # the output of the last one is not used
                # From the copies: the original tensors are already freed.
                q, k, v, x = (shared(recorded[-1].tensors)[name][None].to(place) for name in "qkvx")
                x = module.join(attend(q, k, v, on_device))
    mask_name = mask if isinstance(mask, str) else "full" if mask is None else DRAWN
    source: Source = RandomSource(seed, position, mask_name, place, str(torch.__version__))
    source = EditedSource(source, tuple(edits)) if edits else source
    return AttentionTrace(tokens, tuple(recorded), source)


def embedded(pieces: tuple[str, ...], d_model: int, position: str, *, seed: int) -> Tensor:
    """The vectors of words, plus a position encoding if it is an added one. (token, d_model)"""
    x = word_vectors(pieces, d_model, seed=seed)
    if position == "sinusoidal":
        return x + positions.sinusoidal(len(pieces), d_model)
    if position == "learned":
        return x + normal((len(pieces), d_model), seed=seed, name="positions")
    return x


def _layer(module: MultiHeadAttention, x: Tensor, rule: ScoreRule, *, rotary: bool) -> LayerTrace:
    q, k, v = module.project(x)
    if rotary:
        q, k = positions.rotate(q), positions.rotate(k)
    attended = Attended(None, q, k, v, rule)  # type: ignore[arg-type]  # nobody asks for the output
    layer = LayerTrace.of(attended, projections=module.projections())
    # X is not copied, since nothing else uses it: memory use peaks here.
    return replace(layer, tensors={**shared(layer.tensors), "x": on_cpu(x[0])})


def drawn(spec: AttentionSpec, *, seed: int, layer: int) -> MultiHeadAttention:
    """An attention layer with weights N(0, 1/fan_in) and biases N(0, 0.1²) drawn from the seed."""
    with torch.device("meta"):  # shapes only: the numbers come from the seed
        module = MultiHeadAttention(spec)
    state = {}
    for name, part in module.state_dict().items():
        # Drawn as in the formula, (in, out), so that W^Q is the same for every h that divides d_model.
        shape = part.mT.shape if part.dim() == 2 else part.shape
        std = BIAS_STD if part.dim() == 1 else shape[0] ** -0.5
        numbers = normal(shape, seed=seed, name=f"layer {layer} {name}", std=std)
        state[name] = (numbers.mT if part.dim() == 2 else numbers).contiguous()
    # Assigned, not copied: `to_empty` would load torch's symbolic shapes, 40 MB and half a second.
    module.load_state_dict(state, assign=True)
    return module.requires_grad_(False).eval()
