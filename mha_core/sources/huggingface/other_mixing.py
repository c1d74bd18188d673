"""Finds parts of a model that mix tokens beside the attention that is shown.

The model reads a text with all attention blocked: each token looks only at itself. If one token of the text
is changed and another token of the output changes, too, something else has mixed the two.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.collector import Collector, collecting
from mha_core.capture.families import file_of
from mha_core.capture.token_mixing import MIXES, UNCHECKED, TokenMixing
from mha_core.errors import Phrase
from mha_core.sources.huggingface import forward_pass
from mha_core.sources.huggingface.trial import Route, attempt
from mha_core.sources.huggingface.twin import twin

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BESIDE = Phrase("it mixes tokens beside what is shown")
REARRANGED = (
    "bands",
    "chunks",
)  # files of families whose parts compute attention in another layout, and nothing else
NOT_CHECKED = Phrase("Whether anything beside its attention mixes tokens could not be checked.")


def checked(route: Route, module: "PreTrainedModel", known: Iterable[str]) -> Route:
    """The route, with the parts that mix tokens beside the shown attention, by a trial of a few tokens.

    `known` are the names of the parts that are already shown or named.
    """
    found = attempt(lambda: mixing(route, module, known, forward_pass.probe(module)))
    if found is None or UNCHECKED in found.values():
        return replace(route, notes=(*route.notes, NOT_CHECKED))
    return replace(route, skipped=(*route.skipped, *(forward_pass.left_out(name, BESIDE) for name in found)))


def mixing(
    route: Route, module: "PreTrainedModel", known: Iterable[str], inputs: Mapping[str, Tensor]
) -> dict[str, str]:
    """The parts of a model that mix tokens beside the shown attention, each with a sentence about it.

    The model is tried as a whole, and its parts only if other tokens change then.
    """
    if route.name == "weights":  # weights alone make no claim about the rest
        return {}
    # A text and a target of equal length, so that each token can look at the same position of the other.
    shortest = min(ids.shape[1] for ids in inputs.values())
    inputs = {name: ids[:, :shortest] for name, ids in inputs.items()}
    if route.changes:
        module = twin(module)
        forward_pass.forward(module, inputs)
    names, known = {part: name for name, part in module.named_modules()}, set(known)
    given = [part for part, name in names.items() if name in known or file_of(name, part) in REARRANGED]
    wholes = [module, *([module.get_decoder()] if forward_pass.has_target(module) else ())]
    found = _found(route, module, {part: names[part] for part in (*wholes, *given)}, given, inputs)
    return found and _found(route, module, names, given, inputs)


def _found(
    route: Route,
    module: "PreTrainedModel",
    names: dict[nn.Module, str],
    given: list[nn.Module],
    inputs: Mapping[str, Tensor],
) -> dict[str, str]:
    length = inputs["input_ids"].shape[1]
    check = TokenMixing(names, [length], given.__contains__, nullcontext, beside=False)
    with _blocked(route, length), check:
        forward_pass.forward(module, inputs)
    return {name: said for name, said in check.findings.items() if said in (MIXES, UNCHECKED)}


def _blocked(route: Route, length: int) -> AbstractContextManager:
    """In this block each token looks only at itself, in every attention of a route."""
    return OwnKeys(length) if route.name == "watch" else collecting(Collector({}, _own_values))


def _own_values(q: Tensor, _k: Tensor, v: Tensor, _rule: ScoreRule) -> Tensor:
    if q.shape[-2] != v.shape[-2]:
        return v.new_zeros(*q.shape[:-1], v.shape[-1])
    return v.repeat_interleave(q.shape[-3] // v.shape[-3], dim=-3)


class OwnKeys(TorchFunctionMode):
    """In a model's own softmaxes of `length` queries and keys, each query looks only at its own position."""

    def __init__(self, length: int):
        super().__init__()
        self.length = length

    def __torch_function__(
        self, function: Callable, _types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        result = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") != "softmax" or result.shape[-2:] != (self.length, self.length):
            return result
        return torch.eye(self.length).to(result).expand_as(result).contiguous()
