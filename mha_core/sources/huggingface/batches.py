"""Traces of many texts, several in one pass of the model, each as if the text were alone."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, repeat, zip_longest
from typing import Any, TypeVar

import torch
from torch import Tensor

from mha_core.capture import rotary
from mha_core.capture.batch import Batch
from mha_core.capture.gap import gap
from mha_core.device import memory_errors
from mha_core.errors import MhaError, Phrase
from mha_core.sources.huggingface import forward_pass, trial
from mha_core.sources.huggingface.forward_pass import PassLayers
from mha_core.sources.huggingface.model import Model, complete, flow, follow, inputs_of, read, trace_of
from mha_core.sources.huggingface.tokenizer import Ids
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tokens import MAX_TOKENS, Tokens
from mha_core.traces.trace import AttentionTrace

AHEAD = 4  # batches of texts that are read ahead, so that texts of similar length share a pass
# The largest allowed difference of a number to that of the same text alone.
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}

Result = TypeVar("Result")


def numbered(outcomes: Iterable) -> Iterator:
    """The outcomes of texts; raises the first `MhaError` among them, with the number of its text."""
    for number, outcome in enumerate(outcomes, start=1):
        if isinstance(outcome, MhaError):
            raise MhaError("Text {number}: {reason}", number=number, reason=outcome.phrase) from outcome
        yield outcome


def outcomes(
    model: Model,
    texts: Iterable[str | Ids],
    *,
    targets: Iterable[str | Ids] | None = None,
    batch: int,
    reduce: Callable[[AttentionTrace], object] | None = None,
    limit: int = MAX_TOKENS,
    **asked: Any,
) -> Iterator:
    """The traces of many texts, in their order, up to `batch` texts in one pass of the model.

    Texts are padded on the right and hidden from each other. Each trace equals that of `follow` up to
    rounding. If a trial of two texts shows a larger difference, or the model has a target, texts are read one
    by one, and so they are where more is `asked` of `follow`, such as edits. `targets` has one for each text.
    With `reduce` its result is yielded in place of each trace, and in place of a text that `follow` refuses
    its `MhaError`.
    """
    reduce = reduce or (lambda trace: trace)
    together = batch > 1 and targets is None and not asked and _texts_are_independent(model)
    pairs: Iterator[tuple] = zip(texts, repeat(None)) if targets is None else _pairs(texts, targets)
    while ahead := list(islice(pairs, batch * AHEAD if together else 1)):
        if together:
            yield from _followed(
                model, [outcome(read, model, text, limit) for text, _ in ahead], batch, reduce
            )
            continue
        for text, target in ahead:
            trace = outcome(follow, model, text, target=target, limit=limit, **asked)
            yield trace if isinstance(trace, MhaError) else reduce(trace)


def _pairs(texts: Iterable[str | Ids], targets: Iterable[str | Ids]) -> Iterator[tuple]:
    """Each text with its target. Raises `MhaError` where their counts differ."""
    nothing = object()
    for number, pair in enumerate(zip_longest(texts, targets, fillvalue=nothing), start=1):
        if any(part is nothing for part in pair):
            raise MhaError(
                "target has one for each text, and there are {n:,} texts and more targets."
                if pair[0] is nothing
                else "target has one for each text, and there are {n:,} targets and more texts.",
                n=number - 1,
            )
        yield pair


def outcome(function: Callable[..., Result], *args: object, **settings: object) -> Result | MhaError:
    """The result of a function, or the `MhaError` that it raised."""
    try:
        with memory_errors(Phrase("Its trace")):
            return function(*args, **settings)
    except MhaError as error:
        return error


def _followed(
    model: Model, texts: list[tuple[Tokens, dict[str, list[int]]] | MhaError], batch: int, reduce: Callable
) -> list:
    """The reduced traces of texts, or their errors, in their order; similar lengths share a pass."""
    results: list = [text if isinstance(text, MhaError) else None for text in texts]
    read = {n: text for n, text in enumerate(texts) if not isinstance(text, MhaError)}
    order = sorted(read, key=lambda n: len(read[n][0]))
    # The first token has the rotary angle 0, so a single token does not show whether there is a rotary code.
    single = [n for n in order if len(read[n][0]) == 1 or "position_ids" in read[n][1]]
    order = [n for n in order if n not in single]
    parts = [[n] for n in single] + [order[at : at + batch] for at in range(0, len(order), batch)]
    for part in parts:
        inputs = [read[n][1] for n in part]
        # An error in the model: reading each text alone shows which text causes it.
        together = trial.attempt(partial(_flow_many, model, inputs)) if len(part) > 1 else None
        flows: list = together or [outcome(flow, model, inputs_of(model, ids)) for ids in inputs]
        for n in part:
            trace = flows.pop(0)
            if not isinstance(trace, MhaError):
                tokens, ids = read[n]
                trace = outcome(trace_of, model, tokens, inputs_of(model, ids), *trace)
            results[n] = trace if isinstance(trace, MhaError) else reduce(trace)
    return results


def _flow_many(model: Model, texts: list[dict[str, list[int]]]) -> list[PassLayers]:
    """The layers of each text, all in one pass, by the route "attend". Raises `MixedTexts`."""
    lengths = [len(text["input_ids"]) for text in texts]
    inputs = _padded(model, texts, max(lengths))
    ids, route = inputs["input_ids"], model.route
    with Batch(model.names, lengths, ids.shape[1], route.by) as batch:
        forward_pass.forward(model.module, inputs)
    by_text = zip(ids.split(1), lengths, batch.texts(), strict=True)
    return [
        complete(model, *trial.layers_of(route, model.pass_of({"input_ids": row[:, :n]}), calls))
        for row, n, calls in by_text
    ]


def _padded(model: Model, texts: list[dict[str, list[int]]], width: int) -> dict[str, Tensor]:
    """The inputs of texts, padded on the right to at least `width` tokens."""
    config = model.module.config.get_text_config()
    counts = {getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads")}
    while width in counts:  # otherwise axes of heads and of tokens would have the same size
        width += 1
    paddings = (getattr(part, "pad_token_id", None) for part in (config, model.tokenizer))
    fill = {"input_ids": next((n for n in paddings if n is not None), 0)}
    lengths = [len(text["input_ids"]) for text in texts]
    inputs = {}
    for name in {"attention_mask"}.union(*texts):
        own = int(name == "attention_mask")  # without a mask all are read, without segments all are the first
        rows = [text.get(name, [own] * n) for text, n in zip(texts, lengths, strict=True)]
        inputs[name] = [row + [fill.get(name, 0)] * (width - len(row)) for row in rows]
    return {name: torch.tensor(rows, device=model.device) for name, rows in inputs.items()}


def _texts_are_independent(model: Model) -> bool:
    """Whether two texts in one pass have the same traces as alone."""
    config = model.module.config.get_text_config()
    # The longest text decides the rotary codes of all, and the capacity of experts.
    by_longest = bool(rotary.length_dependent(model.module)) or hasattr(config, "expert_capacity")
    alone = model.has_target or by_longest or model.mixers or model.foreign
    if model.route.name != "attend" or model.route.changes or alone:
        return False
    long = forward_pass.probe(model.module)["input_ids"][0].tolist()
    texts = [{"input_ids": long[:4]}, {"input_ids": long}]
    together = trial.attempt(lambda: _flow_many(model, texts))
    if together is None:
        return False
    return all(map(agree, together, (flow(model, inputs_of(model, ids))[:2] for ids in texts)))


def agree(one: PassLayers, other: PassLayers) -> bool:
    """Whether the layers of two passes are equal up to rounding, with the same parts left out."""
    (layers, skipped), (others, skipped_there) = one, other
    return len(layers) == len(others) and skipped == skipped_there and all(map(same_layer, layers, others))


def same_layer(one: LayerTrace, other: LayerTrace) -> bool:
    """Whether two layers are equal up to rounding: all tensors, the rule and the facts."""
    if (one.kind, one.name, one.about) != (other.kind, other.name, other.about):
        return False
    if (one.rule.scale, one.rule.soft_cap) != (other.rule.scale, other.rule.soft_cap):
        return False
    pairs = []
    for a, b in ((one.tensors, other.tensors), (one.rule.tensors(), other.rule.tensors())):
        if a.keys() != b.keys():
            return False
        pairs += [(a[name], b[name]) for name in a]
    if set(one.projections.known) != set(other.projections.known):
        return False
    return all(gap(a, b) <= ROUNDING.get(a.dtype, 0.0) for a, b in pairs)
