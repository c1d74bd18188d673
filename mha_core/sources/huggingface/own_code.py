"""The route "watch": models that compute attention in their own code, outside the common interface.

The code is followed while it runs, and the attention found is compared with the weights that the model
returns.
"""

from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mha_core.capture.call import Call
from mha_core.capture.collector import Collector
from mha_core.capture.gap import gap
from mha_core.capture.own_code.following import CollectingMode
from mha_core.errors import Phrase
from mha_core.sources.huggingface.forward_pass import (
    ELSEWHERE,
    IN_PARTS,
    RETURNED,
    ModelPass,
    PassLayers,
    Spelled,
    are_weights,
    close,
    left_out,
)

BY_WORDS = Phrase(
    "What is added to the scores of this layer depends on the words, too: it is made for this text, "
    "and is not what stands between the same two places of another one."
)
BESIDE = Phrase("it mixes other values by weights that the model does not return")


@dataclass(frozen=True)
class OwnCode:
    """The result of a trial of a model's own attention: its calls in order, and which of them are shown."""

    calls: tuple[str, ...]  # the name of each
    shown: tuple[bool, ...]  # False for a call without weights in the model's result, if others have some
    by_words: frozenset[int]  # calls whose bias depends on the words
    skipped: tuple[str, ...]  # sentences about returned weights that belong to no call
    difference: float
    softmaxes: int  # the number of softmaxes, followed or not

    def layers(self, of: ModelPass) -> PassLayers | None:
        """The layers of a pass, and sentences about what is left out; None if other code ran this time."""
        calls, watcher = collect(of, every_row=False)
        if tuple(call.name for call in calls) != self.calls:
            return None
        layers, skipped = [], [*self.skipped]
        if watcher.softmaxes.total() > self.softmaxes:
            skipped.append(
                Phrase(
                    "softmaxes that short texts do not have: {n}, which could not be followed",
                    n=watcher.softmaxes.total() - self.softmaxes,
                )
            )
        for n, (name, layer) in enumerate(of.layers(calls)):
            if layer is None or not self.shown[n]:
                skipped.append(left_out(name, ELSEWHERE if layer is None else BESIDE))
                continue
            if n in self.by_words:
                layer = replace(layer, about=replace(layer.about, bias=BY_WORDS))
            layers.append(layer)
        return tuple(layers), tuple(skipped)


def try_own_code(of: ModelPass, weights: list[tuple[str, Tensor]]) -> OwnCode | None:
    """The attention of a model's own code in a trial pass, compared with the returned `weights`.

    None if an attention was not followed to its end, or if it differs from the returned weights.
    """
    calls, watcher = collect(of, every_row=True)
    kinds = [of.kind(call) for call in calls]
    call_counts = Counter((call.q.shape[2], call.k.shape[2]) for call in calls)
    if not any(kinds) or any(watcher.softmaxes[size] > call_counts[size] for size in of.sizes.values()):
        return None
    shown, difference = [True] * len(calls), watcher.gap
    for name in RETURNED.values():
        at = [n for n, kind in enumerate(kinds) if kind == name]
        model_weights = [w for kind, w in weights if kind == name and w.shape[2:] == of.sizes[name]]
        if len(model_weights) > len(at):
            return None
        model_weights = [w for w in model_weights if are_weights(w)]
        gaps = _paired([calls[n] for n in at], model_weights, close(of.module))
        if gaps is None:
            return None
        for n, gap_there in zip(at, gaps, strict=True):
            shown[n] = gap_there is not None or not model_weights
            difference = max(difference, gap_there or 0.0)
    backwards = {name: ids.flip(1) for name, ids in of.inputs.items()}
    others, _ = collect(of._replace(inputs=backwards), every_row=True)
    if [call.name for call in others] != [call.name for call in calls]:
        return None
    by_words = {n for n, pair in enumerate(zip(calls, others, strict=True)) if _bias_differs(*pair)}
    return OwnCode(
        calls=tuple(call.name for call in calls),
        shown=tuple(shown),
        by_words=frozenset(by_words),
        skipped=_unseen(weights, call_counts),
        difference=difference,
        softmaxes=watcher.softmaxes.total(),
    )


def collect(of: ModelPass, *, every_row: bool) -> tuple[list[Call], CollectingMode]:
    """The calls of attention in a pass, and the mode that followed the code."""
    collector = Collector(of.names)
    mode = CollectingMode(collector, close(of.module), every_row=every_row)
    with collector, mode as watcher, Spelled():
        of.run()
    watcher.warn()
    return collector.calls, watcher


def _paired(calls: list[Call], model_weights: list[Tensor], close: float) -> list[float | None] | None:
    """The gap of each call to its returned weights; None for a call without returned weights.

    Calls and weights are paired from the last ones on: attention that only feeds another one comes before it
    (LiLT's layout). None instead of a list if some weights belong to no call.
    """
    gaps: list[float | None] = [None] * len(calls)
    n = len(calls)
    for weights in reversed(model_weights):
        while n > 0:
            n -= 1
            difference = gap(calls[n].weights(), weights)
            if difference <= close:
                gaps[n] = difference
                break
        else:
            return None
    return gaps


def _unseen(weights: list[tuple[str, Tensor]], call_counts: Counter[tuple[int, int]]) -> tuple[str, ...]:
    """Sentences about returned weights whose sizes no call has."""
    left, unseen = call_counts.copy(), []
    for name, matrix in weights:
        size = matrix.shape[2], matrix.shape[3]
        left[size] -= 1
        if left[size] < 0:
            unseen.append(left_out(Phrase("{kind} layer", kind=name), IN_PARTS))
    return tuple(unseen)


def _bias_differs(one: Call, other: Call) -> bool:
    first, second = ({k: v for k, v in call.rule.tensors().items() if "bias" in k} for call in (one, other))
    return first.keys() != second.keys() or any(not torch.equal(first[k], second[k]) for k in first)
