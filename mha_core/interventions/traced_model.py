"""Finds the model of a trace, which the trace does not contain, and checks that its numbers are the same."""

from typing import Any

import torch
from torch import Tensor

from mha_core.errors import MhaError, named_type
from mha_core.sources import mini
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface.tokenizer import INPUTS
from mha_core.traces.source import MiniSource, ModelSource, Source
from mha_core.traces.trace import AttentionTrace
from mha_core.training.checkpoints import Trained

CLOSE = 1e-3  # largest difference of a text in two passes, or alone and in a batch
HALF_CLOSE = 5e-2


def trained_of(origin: Source) -> Trained:
    if not isinstance(origin, MiniSource):
        raise MhaError(
            "The model of the training {training!r} has to be at hand: source=….", training=origin.name
        )
    plan = mini.find(origin.language, origin.architecture, origin.h, origin.d_model)
    return mini.model(plan, trained=origin.step > 0)


def transformers_model(
    origin: Source, source: Any, tokenizer: object, *, answers: bool = False
) -> huggingface.Model:
    """The model of a trace: `source`, a model in memory or its place; without it by the name in the trace."""
    if isinstance(source, huggingface.Model):
        return source
    if source is not None or not isinstance(origin, ModelSource):
        return huggingface.model_of(source, tokenizer=tokenizer, answers=answers)
    return huggingface.model_of(
        origin.name, revision=origin.revision, device=origin.device, dtype=origin.dtype, answers=answers
    )


def text_of(trace: AttentionTrace) -> str | dict[str, list[int]]:
    """The inputs that the model of a trace has read, or the text if the trace does not have them."""
    origin = trace.source.origin
    if not isinstance(origin, ModelSource):
        return trace.tokens.text
    given = {name: list(getattr(origin, name)) for name in INPUTS}
    return {name: numbers for name, numbers in given.items() if numbers} or trace.tokens.text


def target_of(model: huggingface.Model, trace: AttentionTrace) -> str | list[int] | None:
    """The target of a trace, for an encoder–decoder to read again; None for a model that reads one text.

    It is a text; or ids, if the model generated other pieces than its tokenizer makes of the text.
    """
    if not model.has_target:
        return None
    text, pieces = trace.answered.text, trace.answered.pieces
    target = _read(model, trace, text).target if text.strip() and not trace.edits else None
    if not trace.edits and (target is None or target.pieces != pieces):
        return _read(model, trace, None).inputs["decoder_input_ids"][0].tolist()
    return text


def _read(model: huggingface.Model, trace: AttentionTrace, target: str | None) -> huggingface.Texts:
    return huggingface.reading(model, text_of(trace), target=target)


def check_trace(trace: object) -> None:
    """Raise `MhaError` for anything but a whole trace."""
    if not isinstance(trace, AttentionTrace):
        raise MhaError(
            "A trace is needed, as mha.trace(text) returns it; got {type}.", type=named_type(trace)
        )


def check_same(trace: AttentionTrace, again: AttentionTrace, close: float) -> None:
    """Raise `MhaError` unless the model now computes the same numbers as in the trace."""
    texts = [(one.tokens.pieces, one.answered.pieces) for one in (trace, again)]
    if texts[0] != texts[1]:
        raise MhaError(
            "The model reads other tokens in this text than the trace has. Give the model of the trace, with "
            "its tokenizer=, and of an encoder–decoder the whole trace, not a part of it."
        )
    queries = [
        [layer.tensors["q"].float() for layer in one.layers if layer.knows("q")] for one in (trace, again)
    ]
    pairs = zip(*queries, strict=False)
    if len(queries[0]) != len(queries[1]) or any(
        one.shape != other.shape or (one - other).abs().max() > close * other.abs().max().clamp_min(1.0)
        for one, other in pairs
    ):
        raise MhaError(
            "The model {name} computes other numbers than the trace has; the one that was "
            "traced has to be at hand: source=model.",
            name=again.source.name,
        )
    masks = [[layer.rule.mask for layer in one.layers] for one in (trace, again)]
    if any(not _equal(*pair) for pair in zip(*masks, strict=False)):
        raise MhaError(
            "The trace has another mask than the model makes for this text; trace it again with mha.trace, "
            "which remembers the mask and the positions that it was given."
        )


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))
