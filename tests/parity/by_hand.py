"""Edits written by hand in torch, the reference for our edits inside a model of transformers.

The reference is transformers' own path through the kernel that it calls "sdpa"; in one call of it, scores,
softmax and mixture are written out with the change in the middle. Nothing of ours takes part in that.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from mha_core import edits

HEAD, ROW, KEY = 1, 7, 3  # where edits act
UNWRITTEN = ("s_aux", "sinks", "softcap", "indices", "block_indices")  # what a call may be handed


@dataclass(frozen=True)
class ByHand:
    """An edit written in torch: its effect on scores, weights and outputs of a call, (1, head, …)."""

    edit: Callable[[int, int], edits.Edit]  # of a layer with so many keys
    products: Callable[[Tensor, float], Tensor] = lambda products, scale: products * scale
    scores: Callable[[Tensor], Tensor] = lambda scores: scores
    weights: Callable[[Tensor], Tensor] = lambda weights: weights
    outputs: Callable[[Tensor], Tensor] = lambda outputs: outputs


def cell(number: float) -> Callable[[Tensor], Tensor]:
    """Add a number to the score of one cell of one head."""

    def changed(scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[0, HEAD, ROW, KEY] += number
        return scores

    return changed


def uniform(weights: Tensor) -> Tensor:
    weights = weights.clone()
    row = weights[0, :, ROW]
    weights[0, :, ROW] = (row > 0).float() / (row > 0).sum(-1, keepdim=True)
    return weights


def off(outputs: Tensor) -> Tensor:
    outputs = outputs.clone()
    outputs[0, HEAD] = 0.0
    return outputs


def own_row(weights: Tensor) -> Tensor:
    """In one row half of the weight for each of two keys."""
    weights = weights.clone()
    weights[0, HEAD, ROW] = 0.0
    weights[0, HEAD, ROW, [0, KEY]] = 0.5
    return weights


def prefix_of_three(scores: Tensor) -> Tensor:
    n_query, n_key = scores.shape[-2:]
    ahead = torch.arange(n_key) > torch.arange(n_key - n_query, n_key)[:, None]
    return scores.masked_fill(ahead & (torch.arange(n_key) >= 3), float("-inf"))


def halves(n_key: int) -> list[float]:
    return [0.5 if key in (0, KEY) else 0.0 for key in range(n_key)]


AT = {"heads": HEAD, "rows": ROW}
CHANGES = {
    "hide": ByHand(lambda at, n: edits.Hide(layer=at, keys=KEY, **AT), scores=cell(float("-inf"))),
    "mask": ByHand(lambda at, n: edits.Mask(layer=at, mask="prefix:3"), scores=prefix_of_three),
    "bias": ByHand(lambda at, n: edits.Bias(layer=at, values=1.75, keys=KEY, **AT), scores=cell(1.75)),
    "scale": ByHand(
        lambda at, n: edits.Scale(layer=at, factor=1.0), products=lambda products, scale: products
    ),
    "temperature": ByHand(
        lambda at, n: edits.Temperature(layer=at, temperature=3.0), scores=lambda scores: scores / 3
    ),
    "uniform": ByHand(lambda at, n: edits.Weights(layer=at, rows=ROW), weights=uniform),
    "weights": ByHand(lambda at, n: edits.Weights(layer=at, values=halves(n), **AT), weights=own_row),
    "off": ByHand(lambda at, n: edits.Output(layer=at, heads=HEAD), outputs=off),
}


@contextmanager
def changed(model: nn.Module, at: int, change: ByHand | None) -> Iterator[list[Tensor | None]]:
    """The model with a change in call `at`, and for each call the heads' outputs where they are changed."""
    called, function = [], ALL_ATTENTION_FUNCTIONS["sdpa"]

    def kernel(module, query, key, value, attention_mask, *args, scaling=None, is_causal=None, **more):
        called.append(None)
        if change is None or len(called) - 1 != at:
            return function(
                module, query, key, value, attention_mask, *args, scaling=scaling, is_causal=is_causal, **more
            )
        group = query.shape[1] // key.shape[1]
        k, v = (part.repeat_interleave(group, dim=1) for part in (key, value))
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        mask = torch.ones(query.shape[2], k.shape[2], dtype=torch.bool)
        mask = mask.tril() if causal and attention_mask is None and query.shape[2] > 1 else mask
        if attention_mask is not None and attention_mask.dtype == torch.bool:
            mask = mask & attention_mask[..., : k.shape[2]]
        scores = change.products(query @ k.mT, scale).masked_fill(~mask, float("-inf"))
        if attention_mask is not None and attention_mask.dtype != torch.bool:
            scores = scores + attention_mask[..., : k.shape[2]]
        if more.get("position_bias") is not None:
            scores = scores + more["position_bias"]
        if others := [name for name in UNWRITTEN if more.get(name) is not None]:
            raise NotImplementedError(f"{others} change scores, too")
        weights = change.weights(change.scores(scores).softmax(-1))
        called[-1] = change.outputs(weights @ v)
        return called[-1].transpose(1, 2).contiguous(), None

    model.set_attn_implementation("sdpa")
    ALL_ATTENTION_FUNCTIONS["sdpa"] = kernel
    try:
        yield called
    finally:
        ALL_ATTENTION_FUNCTIONS["sdpa"] = function


def by_hand(
    model: nn.Module, inputs: dict, at: int = -1, change: ByHand | None = None
) -> tuple[Tensor, list[Tensor | None]]:
    """The output of a model with a change in call `at`, and what `changed` returns for its calls."""
    with torch.no_grad(), changed(model, at, change) as called:
        output = model(**inputs, return_dict=True)
    return next(part for part in output.values() if torch.is_tensor(part)), called
