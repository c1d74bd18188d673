"""How a model's attention can be seen: our function inside it, its own code watched, or what it returns.

A route is believed only after a trial: a few tokens through the model with its own eager attention and
through the route. Weights and output must be the same, else the next route is tried. So an architecture
whose attention does something of its own is never shown wrongly; it is shown with less.
"""

import re
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from torch import Tensor, nn

from mha_core.attention import attend, fused
from mha_core.capture.call import Call
from mha_core.capture.collector import Attend, collecting, watch
from mha_core.errors import MhaError
from mha_core.layer import LayerTrace
from mha_core.sources import own_code
from mha_core.sources.passes import RETURNED, are_weights, forward, gap, kind, output, probe, returned, sizes
from mha_core.sources.products import CLOSE
from mha_core.sources.stateful import without_attention

MISSING = (
    "This architecture computes attention in a way of its own, outside the common interface. It returns "
    "its weights; queries, keys and values are not known."
)
DIFFERENT = (
    "What this architecture computes differs from the common attention function. It returns its weights; "
    "queries, keys and values are not known."
)
ANOTHER_WAY = (
    "For this text the model computes attention in another way than for short ones. It returns its weights; "
    "queries, keys and values are not known."
)
SPARSE = re.compile(r"sparse", re.IGNORECASE)
SWITCHED = "When the model read a few words it changed a part of itself for good: {one} became {other}."
FULL = (
    "Of a long text this model is made to look at parts only. When it reads a short one it changes itself "
    "for good: {one} became {other}. So here every word looks at all words, however long the text is."
)

Found = TypeVar("Found")


@dataclass(frozen=True)
class Route:
    """A way to a trace: "attend" and "watch" have all numbers, "weights" the weights alone, and why.

    `difference` is the largest one of weights and output between it and the model's own attention, in the
    trial. `by` is what our function attends by: torch's fused kernel, unless that went astray in its trial.
    `notes` say what else is to be known of what is shown.
    """

    name: str
    difference: float
    missing: str | None = None
    understood: own_code.Understood | None = None
    skipped: tuple[str, ...] = ()  # layers that the model returns weights of, of parts of a text
    notes: tuple[str, ...] = ()
    by: Attend = attend


def choose(module: nn.Module, ours: str) -> tuple[Route, dict[int, str]]:
    """The best route that gives what the model itself computes; the model is then set to it, for good.

    → the route, and the names of the model's parts by their ids. Raises `MhaError` for a model that
    cannot run on tokens alone and for one without attention.
    """
    inputs = probe(module)
    own = _set(module, "eager")
    before = {name: type(part).__name__ for name, part in module.named_modules()}
    try:
        asked = forward(module, inputs, output_attentions=True)
    except Exception as error:  # any library's any error: it is somebody else's model
        raise MhaError(
            f"{type(module).__name__} does not run on a text alone ({type(error).__name__}: {error}), "
            f"so it is no model of texts that can be traced."
        ) from error
    names = watch(module)  # now, since the pass may have changed the model: BigBird's does
    after = {name: type(part).__name__ for name, part in module.named_modules()}
    changed = {
        (before[name], after[name]) for name in before if before[name] != after.get(name, before[name])
    }
    notes = tuple(_switched(one, other) for one, other in sorted(changed))
    return replace(_route(module, names, ours if own else "", inputs, asked), notes=notes), names


def _switched(one: str, other: str) -> str:
    return (FULL if SPARSE.search(one) and not SPARSE.search(other) else SWITCHED).format(
        one=one, other=other
    )


def _route(module: nn.Module, names: Mapping[int, str], ours: str, inputs: dict, asked: object) -> Route:
    given, apart = returned(asked), None
    weights = [(whose, matrix) for whose, matrix in given if matrix.dim() == 4]
    skipped = tuple(f"{whose} layer: {own_code.IN_PARTS}" for whose, matrix in given if matrix.dim() > 4)
    close = _close(module)
    if ours and _set(module, ours):
        for by in (fused, attend):
            apart = _attempt(partial(_trial, module, names, inputs, asked, weights, by))
            if apart is not None and apart <= close:
                return Route("attend", apart, skipped=skipped, by=by)
    _set(module, "eager")
    understood = _attempt(lambda: own_code.tried(module, names, inputs, weights, close))
    if understood is not None:
        return Route("watch", understood.difference, understood=understood, skipped=skipped)
    if not given:
        raise MhaError(
            f"Nothing of {type(module).__name__} can be shown: "
            f"{'; '.join(without_attention(module)) or 'it has no attention that could be seen'}."
        )
    return Route("weights", 0.0, MISSING if apart is None else DIFFERENT)


def run(
    route: Route, module: nn.Module, names: Mapping[int, str], inputs: Mapping[str, Tensor]
) -> tuple[tuple[LayerTrace, ...], tuple[str, ...]]:
    """The layers of a forward pass by a route, and what was left out, each with its reason."""
    if route.name == "watch":
        found = own_code.traced(route.understood, module, names, inputs, _close(module))
        if found is None:
            return _weights_alone(ANOTHER_WAY, module, inputs)
        return found[0], (*route.skipped, *found[1])
    if route.name == "weights":
        return _weights_alone(route.missing, module, inputs)
    with collecting(names, route.by) as collector:
        forward(module, inputs)
    layers, skipped, shared = [], [*route.skipped], {}
    calls = collector.calls[::-1]
    collector.calls.clear()
    while calls:  # each is let go when it has been copied
        call = calls.pop()
        whose = kind(call, module, names, inputs)
        if whose is None:
            skipped.append(f"{call.name}: {own_code.ELSEWHERE}")
        else:
            layers.append(call.layer(whose, shared))
    return tuple(layers), tuple(skipped)


def _close(module: nn.Module) -> float:
    return CLOSE[next(module.parameters()).dtype]


def _attempt(trial: Callable[[], Found | None]) -> Found | None:
    """What a trial found; None if it ended in an error, as where an interface is used in a way of its own.

    The next route decides then. Where the error is in our own code, a warning says so: nobody would notice.
    """
    try:
        return trial()
    except MhaError:
        return None
    except Exception as error:
        *_, (last, _) = traceback.walk_tb(error.__traceback__)
        if last.f_globals.get("__name__", "").startswith("mha_core."):
            warnings.warn(f"A model is shown with less, by an error of ours: {error!r}", stacklevel=2)
        return None


def _trial(
    module: nn.Module,
    names: Mapping[int, str],
    inputs: dict,
    asked: object,
    weights: list,
    by: Attend,
) -> float | None:
    """The largest difference of weights or outputs between a route and the model itself.

    None if the route does not see all that the model returns weights of: a part would look like the whole.
    """
    with collecting(names, by) as collector:
        given = forward(module, inputs)
    if not collector.calls:
        return None
    apart = gap(output(given), output(asked))
    kinds = [kind(call, module, names, inputs) for call in collector.calls]
    for of in RETURNED.values():
        n_returned = sum(k == of and w.shape[2:] == sizes(inputs)[of] for k, w in weights)
        if n_returned > kinds.count(of) + kinds.count(None):  # BigBird-Pegasus: an encoder of its own
            return None
    theirs = [matrix for _, matrix in weights]
    if len(kinds) == len(theirs):
        order = [*RETURNED.values(), None]
        by_kind = sorted(zip(kinds, collector.calls, strict=True), key=lambda pair: order.index(pair[0]))
        apart = max([apart, *(_weights_gap(call, w) for (_, call), w in zip(by_kind, theirs, strict=True))])
    return apart


def _weights_gap(call: Call, theirs: Tensor) -> float:
    """How far a call's weights are from those that the model returned.

    Some models return weights as they are before the sink takes its share (Granite with windows): that
    is the same if the model's output, which is compared besides, has the share taken.
    """
    shown = call.weights()
    apart = gap(shown, theirs)
    if call.rule.sinks is not None:
        apart = min(apart, gap(shown / shown.sum(-1, keepdim=True), theirs))
    return apart


def _set(module: nn.Module, implementation: str) -> bool:
    """Set the attention implementation; False for a model that has its own and nothing else."""
    able = [part for part in module.modules() if hasattr(type(part), "_can_set_attn_implementation")]
    able = [part for part in able if part._can_set_attn_implementation()]
    if module in able:
        able = [module]  # it sets all that it holds
    for part in able:  # else one inside it may do what the whole does not: a reader of pictures with a Llama
        part.set_attn_implementation(implementation)
    return bool(able) or implementation == "eager"


def _weights_alone(
    missing: str, module: nn.Module, inputs: Mapping[str, Tensor]
) -> tuple[tuple[LayerTrace, ...], tuple[str, ...]]:
    asked = forward(module, inputs, output_attentions=True)
    layers, skipped = [], []
    for whose, weights in returned(asked):
        if weights.shape[0] != 1 or weights.shape[2:] != sizes(inputs)[whose]:
            skipped.append(f"{whose} layer: {own_code.IN_PARTS}")
        elif not are_weights(weights):
            skipped.append(f"{whose} layer: what the model returns by the name of weights are none")
        else:
            kept = weights[0].detach().to("cpu").clone()
            about = MappingProxyType({"missing": missing})
            layers.append(LayerTrace(MappingProxyType({"weights": kept}), kind=whose, about=about))
    return tuple(layers), tuple(skipped)
