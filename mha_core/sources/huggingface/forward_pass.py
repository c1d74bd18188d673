"""One forward pass of a model: its inputs, its results, and the kind of each attention in it."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mha_core.capture.call import Call
from mha_core.capture.gap import CLOSE
from mha_core.capture.special_layers import bands
from mha_core.errors import MhaError, Phrase, listed
from mha_core.sources.huggingface import PreTrainedModel
from mha_core.traces.layer import KINDS, LayerTrace

PassLayers = tuple[tuple[LayerTrace, ...], tuple[str, ...]]  # and sentences about the layers left out
PROBE = 7  # tokens of a trial
# The names under which a model returns attention weights, in their order, and their kinds.
RETURNED = {
    "encoder_attentions": "encoder",
    "attentions": "self",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
# Reasons to leave a layer out.
IN_PARTS = Phrase("its weights are not those of token to token")
NO_WEIGHTS = Phrase("what the model returns by the name of weights are none")
_results: ContextVar[list | None] = ContextVar("headscope_results", default=None)
ELSEWHERE = Phrase("it does not look from token to token, or at two texts at once")


def left_out(name: str, reason: str) -> Phrase:
    """The sentence about a part of a model that is not shown."""
    return Phrase("{name}: {reason}", name=name, reason=reason)


def nothing_shown(name: str, reasons: Iterable[str]) -> MhaError:
    """The error for a model of which nothing can be shown."""
    return MhaError(
        "Nothing of {name} can be shown: {reasons}.", name=name, reasons=listed(reasons, "semicolon")
    )


def has_target(module: PreTrainedModel) -> bool:
    """Whether a model is an encoder–decoder. A decoder alone can have the configuration of one."""
    takes = inspect.signature(type(module).forward).parameters
    return bool(module.config.is_encoder_decoder) and "decoder_input_ids" in takes


def forward(module: nn.Module, inputs: Mapping[str, Tensor], **more: object) -> object:
    # Not in inference mode, not even the caller's: its tensors do not count changes in place.
    with torch.inference_mode(False), torch.no_grad():
        result = module(**inputs, **more, return_dict=True)
    if (results := _results.get()) is not None:
        results[:] = [result]
    return result


class Spelled(TorchFunctionMode):
    """Computes `scaled_dot_product_attention` operation by operation, so that it is followed as code is."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        run = _spelled if func is F.scaled_dot_product_attention else func
        return run(*args, **(kwargs or {}))


def _spelled(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], 1) for one in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:  # a row may be hidden as a whole
        attn_mask = torch.zeros_like(attn_mask, dtype=scores.dtype).masked_fill(
            ~attn_mask, torch.finfo(scores.dtype).min
        )
    scores = scores if attn_mask is None else scores + attn_mask
    return scores.softmax(-1) @ value


@contextmanager
def keeping_result() -> Iterator[list]:
    """The result of the last pass in this block and thread, as a list of one; blocks inside share it."""
    outer = _results.get()
    own: list = [] if outer is None else outer
    token = _results.set(own)
    try:
        yield own
    finally:
        _results.reset(token)


def probe(module: PreTrainedModel, n: int = PROBE) -> dict[str, Tensor]:
    """Inputs of a few tokens, different ones for text and target, without repetition if possible."""
    config, device = module.config.get_text_config(), next(module.parameters()).device
    n_ids = getattr(config, "vocab_size", None) or 8
    special = set()
    for name in ("pad", "bos", "eos"):
        number = getattr(config, f"{name}_token_id", None)  # one id or a list of ids
        special |= set(number) if isinstance(number, list | tuple) else {number}
    # From the middle of the vocabulary: at its ends are tokens for images and the like.
    around = [*range(n_ids // 2, n_ids), *range(n_ids // 2 - 1, -1, -1)]
    ids = [number for number in around[: n + 9] if number not in special] or [0]
    inputs = {"input_ids": torch.tensor([ids[:n]], device=device)}
    if has_target(module):
        inputs["decoder_input_ids"] = torch.tensor([ids[:-n:-1] or ids[:1]], device=device)
    return inputs


class ModelPass(NamedTuple):
    """A model that is to read something: the names of its modules by their ids, and its inputs."""

    module: PreTrainedModel
    names: Mapping[int, str]
    inputs: Mapping[str, Tensor]

    def run(self, **more: object) -> object:
        return forward(self.module, self.inputs, **more)

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """The numbers of queries and keys in layers of each kind; (0, 0) for a kind that the model lacks."""
        n_target = self.inputs["decoder_input_ids"].shape[1] if "decoder_input_ids" in self.inputs else 0
        n = {"text": self.inputs["input_ids"].shape[1], "target": n_target}
        return {layer_kind: (n[queries], n[keys]) for layer_kind, (queries, keys) in KINDS.items()}

    def kind(self, call: Call) -> str | None:
        """The kind of a call: encoder, self, decoder or cross; None where its sizes are not of that kind."""
        if call.q.shape[0] != 1:
            return None
        found = "self"
        if "decoder_input_ids" in self.inputs:
            encoder = self.names.get(id(self.module.get_encoder()))
            is_in_encoder = encoder and call.name.startswith(f"{encoder}.")
            found = "encoder" if is_in_encoder else "cross" if call.looks_outside else "decoder"
        return found if self.sizes[found] == (call.q.shape[2], call.k.shape[2]) else None

    def layers(self, calls: list[Call]) -> Iterator[tuple[str, LayerTrace | None]]:
        """The name of each call and its layer, None without a kind; the list is emptied to free the calls."""
        shared: dict = {}
        calls.reverse()
        while calls:
            call = calls.pop()
            kind = self.kind(call)
            yield call.name, None if kind is None else call.layer(kind, shared)


def close(module: nn.Module) -> float:
    """The largest gap between two computations of a model that rounding explains."""
    return CLOSE[next(module.parameters()).dtype]


def output(result: Any) -> Tensor:
    """The first floating-point tensor of a model's result: hidden states or logits."""
    values = result.values() if hasattr(result, "values") else result
    return next(v for v in values if isinstance(v, Tensor) and v.is_floating_point())


def returned(module: PreTrainedModel, result: object) -> list[tuple[str, Tensor]]:
    """The kind and the weights of each layer, as the model itself returns them.

    Weights are (1, head, query, key), or have more axes where the model reads a text in parts.
    """
    weights_by_layer, reaches = [], bands.reaches(module)
    for name, layer_kind in RETURNED.items():
        for at, weights in enumerate(getattr(result, name, None) or ()):
            if isinstance(weights, Mapping):  # Pegasus-X: weights of the parts of a text, by name
                weights = max(weights.values(), key=Tensor.dim)
            if reaches and layer_kind in ("self", "encoder"):
                weights = bands.dense(weights, reaches[at])
            if isinstance(weights, Tensor) and weights.dim() >= 4:
                weights_by_layer.append((layer_kind, weights))
    return weights_by_layer


def are_weights(matrix: Tensor) -> bool:
    """Whether each row can be weights. ProphetNet returns its scores under that name."""
    return bool(matrix.min() >= 0) and bool(matrix.float().sum(-1).max() <= 1.1)
