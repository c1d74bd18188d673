"""Random weights for any words, any number of heads and any width: true numbers without meaning."""

import unicodedata
from dataclasses import replace
from types import MappingProxyType

import torch
from torch import Tensor

from mha_core import device as devices
from mha_core.attention import masks, positions
from mha_core.attention.functional import attend
from mha_core.attention.initialization import MAX_SEED, normal
from mha_core.attention.module import Attended, AttentionSpec, MultiHeadAttention
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import in_range, one_of
from mha_core.traces.layer import LayerTrace
from mha_core.traces.source import RandomSource
from mha_core.traces.tensors import on_cpu
from mha_core.traces.tokens import MAX_TOKENS, Tokens, words
from mha_core.traces.trace import AttentionTrace

MAX_LAYERS = 128
BIAS_STD = 0.1


def word_vectors(pieces: tuple[str, ...], d_model: int, *, seed: int) -> Tensor:
    """One vector for each word, the same for the same word wherever it stands. (token, d_model)

    Capital letters and the two ways of writing an accented letter do not make another word.
    """
    canonical = [unicodedata.normalize("NFD", unicodedata.normalize("NFD", p).casefold()) for p in pieces]
    table = {word: normal((d_model,), seed=seed, name=f"word {word}") for word in set(canonical)}
    return torch.stack([table[word] for word in canonical])


def trace(
    text: str,
    *,
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
    device: str | None = None,
) -> AttentionTrace:
    """Trace a text through `layers` attention layers whose weights are drawn from the seed.

    A word's vector depends on the word and the seed alone, each weight matrix on its layer, its
    name, its shape and the seed. With ``layers > 1`` the output Z of one layer is the X of the
    next, directly; a transformer block would add residual, norm and MLP.
    `position` is one of `positions.POSITIONS`, `mask` a name that `masks.build` knows or a boolean
    (query, key) tensor. The base setting h 8, d_model 512 is that of Vaswani et al. 2017.

    Raises `MhaError` for sizes that do not fit, unknown names, and texts that are empty or longer
    than `limit` tokens.
    """
    spec = AttentionSpec(d_model, h, n_kv_heads, d_k, d_v, bias)
    in_range("seed", seed, 0, MAX_SEED)
    in_range("layers", layers, 1, MAX_LAYERS)
    one_of("position", position, positions.POSITIONS)
    return follow(
        words(text, limit=limit), spec, seed=seed, layers=layers, position=position, mask=mask, device=device
    )


def follow(
    tokens: Tokens,
    spec: AttentionSpec,
    *,
    seed: int = 0,
    layers: int = 1,
    position: str = "sinusoidal",
    mask: str | Tensor | None = "full",
    device: str | None = None,
) -> AttentionTrace:
    """Trace tokens through layers of these sizes, with weights drawn as `trace` draws them."""
    n_tokens, place = len(tokens), devices.pick(device)

    rule = ScoreRule(
        mask=masks.build(mask, n_tokens, n_tokens),
        distance_bias=positions.alibi(spec.n_heads, n_tokens, n_tokens) if position == "alibi" else None,
    )
    x = _embedded(tokens.pieces, spec.d_model, position, seed=seed).unsqueeze(0).to(place.name)
    on_device, recorded = rule.mapped(lambda t: t.to(place.name)), []
    with torch.no_grad():
        for index in range(layers):
            module = drawn(spec, seed=seed, layer=index).to(place.name)
            recorded.append(_layer(module, x, on_device, rotary=position == "rotary"))
            if len(recorded) < layers:  # the output of the last one is not used
                # From the copies: the tensors that they are copies of are freed by now.
                q, k, v, x = (recorded[-1].tensors[name][None].to(place.name) for name in "qkvx")
                x = module.join(attend(q, k, v, on_device))
    mask_name = mask if isinstance(mask, str) else "full" if mask is None else "drawn"
    source = RandomSource(seed, position, mask_name, place.name, str(torch.__version__))
    return AttentionTrace(tokens, tuple(recorded), source)


def _embedded(pieces: tuple[str, ...], d_model: int, position: str, *, seed: int) -> Tensor:
    """The vectors of words, with a code of their positions where that is added to them. (token, d_model)"""
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
    layer = LayerTrace.of(Attended(None, q, k, v, rule), projections=module.projections())
    # No copy of X, which has no other user: memory is at its highest here.
    return replace(layer, tensors=MappingProxyType({**layer.tensors, "x": on_cpu(x[0])}))


def drawn(spec: AttentionSpec, *, seed: int, layer: int) -> MultiHeadAttention:
    """An attention layer with weights N(0, 1/fan_in) and biases N(0, 0.1²) drawn from the seed."""
    with torch.device("meta"):  # sizes only: the numbers come from the seed
        module = MultiHeadAttention(spec)
    state = {}
    for name, part in module.state_dict().items():
        # Drawn as it stands in the formula, (in, out): the same W^Q for every h that divides d_model.
        shape = part.mT.shape if part.dim() == 2 else part.shape
        std = BIAS_STD if part.dim() == 1 else shape[0] ** -0.5
        numbers = normal(shape, seed=seed, name=f"layer {layer} {name}", std=std)
        state[name] = (numbers.mT if part.dim() == 2 else numbers).contiguous()
    # Put in place, not copied: `to_empty` would load torch's symbolic shapes for it, 40 MB and half a second.
    module.load_state_dict(state, assign=True)
    return module.requires_grad_(False).eval()
