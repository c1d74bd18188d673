"""The attention of a model's own code, as `watched` sees it: what is believed of it, and a trace of it."""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor, nn

from mha_core.capture.call import Call
from mha_core.capture.collector import Collector, collecting
from mha_core.capture.rotary import codes
from mha_core.layer import LayerTrace
from mha_core.sources.passes import RETURNED, are_weights, forward, gap, kind, sizes
from mha_core.sources.products import Seen, heads
from mha_core.sources.watched import Watcher

BY_WORDS = (
    "What is added to the scores of this layer depends on the words, too: it is made for this text, "
    "and is not what stands between the same two places of another one."
)
BESIDE = "it mixes other values by weights that the model does not return"
IN_PARTS = "its weights are not those of token to token"
ELSEWHERE = "it does not look from token to token, or at two texts at once"


@dataclass(frozen=True)
class Understood:
    """What a trial found of a model's own attention: its calls in order, and which of them are shown."""

    calls: tuple[str, ...]  # the name of each
    shown: tuple[bool, ...]  # False for one that the model returns no weights of, beside others
    by_words: frozenset[int]  # those whose bias is another one with other words
    skipped: tuple[str, ...]  # what the model returns weights of and no call is
    difference: float


def tried(
    module: nn.Module,
    names: Mapping[int, str],
    inputs: Mapping[str, Tensor],
    weights: list[tuple[str, Tensor]],
    close: float,
) -> Understood | None:
    """What can be seen of a model's own attention, in a pass that returned `weights` when it was asked to.

    None if any attention in it was not followed from end to end, or is not what the model returns.
    """
    calls, watcher = _watch(module, names, inputs, close, every_row=True)
    whose = [kind(call, module, names, inputs) for call in calls]
    given = Counter((call.q.shape[2], call.k.shape[2]) for call in calls)
    if not any(whose) or any(watcher.softmaxes[size] > given[size] for size in sizes(inputs).values()):
        return None
    shown, difference = [True] * len(calls), watcher.gap
    for name in RETURNED.values():
        at = [n for n, of in enumerate(whose) if of == name]
        theirs = [w for of, w in weights if of == name and w.shape[2:] == sizes(inputs)[name]]
        if len(theirs) > len(at):
            return None
        theirs = [w for w in theirs if are_weights(w)]
        found = _paired([calls[n] for n in at], theirs, close)
        if found is None:
            return None
        for n, gap_there in zip(at, found, strict=True):
            shown[n] = gap_there is not None or not theirs
            difference = max(difference, gap_there or 0.0)
    turned = {name: ids.flip(1) for name, ids in inputs.items()}
    others, _ = _watch(module, names, turned, close, every_row=True)
    if [call.name for call in others] != [call.name for call in calls]:
        return None
    by_words = {n for n, pair in enumerate(zip(calls, others, strict=True)) if _bias_differs(*pair)}
    called = tuple(call.name for call in calls)
    return Understood(called, tuple(shown), frozenset(by_words), _unseen(weights, given), difference)


def traced(
    understood: Understood,
    module: nn.Module,
    names: Mapping[int, str],
    inputs: Mapping[str, Tensor],
    close: float,
) -> tuple[tuple[LayerTrace, ...], tuple[str, ...]] | None:
    """The layers of a pass, and what is not shown of it; None if it was not the same code that ran."""
    calls, _ = _watch(module, names, inputs, close, every_row=False)
    if tuple(call.name for call in calls) != understood.calls:
        return None
    layers, skipped, shared = [], [*understood.skipped], {}
    calls = calls[::-1]
    for n, is_shown in enumerate(understood.shown):
        call = calls.pop()  # each is let go when it has been copied
        whose = kind(call, module, names, inputs)
        if whose is None or not is_shown:
            skipped.append(f"{call.name}: {ELSEWHERE if whose is None else BESIDE}")
            continue
        layer = call.layer(whose, shared)
        if n in understood.by_words:
            layer = replace(layer, about=MappingProxyType({**layer.about, "bias": BY_WORDS}))
        layers.append(layer)
    return tuple(layers), tuple(skipped)


def _watch(
    module: nn.Module,
    names: Mapping[int, str],
    inputs: Mapping[str, Tensor],
    close: float,
    *,
    every_row: bool,
) -> tuple[list[Call], "Collecting"]:
    """The calls of a pass."""
    with collecting(names) as collector, Collecting(collector, close, every_row=every_row) as watcher:
        forward(module, inputs)
    return collector.calls, watcher


class Collecting(Watcher):
    """Hands a collector each call that is no further than `close` from what ran; `gap` is the largest."""

    def __init__(self, collector: Collector, close: float, *, every_row: bool):
        super().__init__(self._collect, every_row=every_row)
        self.collector, self.close, self.gap = collector, close, 0.0

    def _collect(self, seen: Seen, output: Tensor) -> None:
        if seen.gap > self.close:
            return
        self.gap = max(self.gap, seen.gap)
        # Cosines and sines that the attention module was not handed, so that its matrices are found.
        handed = any("position_embeddings" in given for *_, given in self.collector._frames)
        if not handed and (found := codes(seen.k, self.outputs)) is not None:
            self.collector.entered("", None, (), {"position_embeddings": found})
        self.outputs.clear()
        joined = heads(output, output.shape[:-2]).transpose(1, 2).contiguous()
        self.collector.add(_running(), seen.q, seen.k, seen.v, seen.rule, joined)


def _running() -> nn.Module | None:
    """The innermost module that is running now and holds others: a product may be a module of its own."""
    frame, found = sys._getframe(1), None
    while frame is not None:
        part = frame.f_locals.get("self")
        if isinstance(part, nn.Module):
            found = part if found is None else found
            if next(part.children(), None) is not None:
                return part
        frame = frame.f_back
    return found


def _paired(calls: list[Call], theirs: list[Tensor], close: float) -> list[float | None] | None:
    """For each call how far it is from the weights that were returned of it; None of a call without.

    The last ones first: what is made of other weights beside comes before them (LiLT's layout). None in
    all if some weights belong to no call.
    """
    found: list[float | None] = [None] * len(calls)
    n = len(calls)
    for asked in reversed(theirs):
        while n > 0:
            n -= 1
            apart = gap(calls[n].weights(), asked)
            if apart <= close:
                found[n] = apart
                break
        else:
            return None
    return found


def _unseen(weights: list[tuple[str, Tensor]], given: Counter[tuple[int, int]]) -> tuple[str, ...]:
    """Layers that the model returns weights of, of other sizes than any call that was seen."""
    left, unseen = given.copy(), []
    for name, matrix in weights:
        size = tuple(matrix.shape[2:])
        left[size] -= 1
        if left[size] < 0:
            unseen.append(f"{name} layer: {IN_PARTS}")
    return tuple(unseen)


def _bias_differs(one: Call, other: Call) -> bool:
    first, second = ({k: v for k, v in call.rule.tensors().items() if "bias" in k} for call in (one, other))
    return first.keys() != second.keys() or any(not torch.equal(first[k], second[k]) for k in first)
