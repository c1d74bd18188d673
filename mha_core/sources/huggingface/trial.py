"""How a model's attention can be seen, and the trial that proves it.

There are four routes: our function inside the model, its own code followed, the weights that it returns, and
that of a model without attention, whose layers mix tokens by other means.
A route is believed only after a trial: a few tokens through the model with its own eager attention and
through the route. Weights and output must be the same, else the next route is tried. So an architecture
whose attention does something of its own is never shown wrongly; it is shown with less.
"""

import inspect
import os
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor, nn

from mha_core.attention.edits import Edit, Site
from mha_core.attention.functional import attend, fused
from mha_core.capture.call import Call
from mha_core.capture.collector import ATTENTION, Attend, Collector, UnknownKeyword, collecting, watch
from mha_core.capture.families import has, without_attention
from mha_core.capture.gap import CLOSE, gap
from mha_core.errors import MhaError, Phrase, listed
from mha_core.sources.huggingface.forward_pass import (
    ELSEWHERE,
    IN_PARTS,
    NO_WEIGHTS,
    RETURNED,
    PassLayers,
    are_weights,
    forward,
    kind,
    left_out,
    output,
    probe,
    returned,
    sizes,
)
from mha_core.sources.huggingface.tokenizer import max_tokens
from mha_core.sources.huggingface.twin import halves, in_float32, twin
from mha_core.traces.facts import Facts
from mha_core.traces.layer import KINDS, LayerTrace
from mha_core.traces.tokens import Tokens

if TYPE_CHECKING:  # loaded where a trial follows a model's own code
    from mha_core.sources.huggingface.own_code import OwnCode

WEIGHTS_ALONE = Phrase("It returns its weights; queries, keys and values are not known.")
MISSING = Phrase(
    "This architecture computes attention in a way of its own, outside the common interface. It returns its "
    "weights; queries, keys and values are not known."
)
DIFFERENT = Phrase(
    "What this architecture computes differs from the common attention function. It returns its weights; "
    "queries, keys and values are not known."
)
ANOTHER_WAY = Phrase(
    "For this text the model computes attention in another way than for short ones. It returns its weights; "
    "queries, keys and values are not known."
)
LIBRARY = re.compile(r"(torch|builtins|abc|transformers\.(?!models\.))")  # no model's own code
NAME_ASKED = re.compile(r"_attn_implementation\s*(?:[=!]=|(?:not\s+)?in\b)")
BUDGET = re.compile(r"^(?!.*(?:expert|moe|group)).*(?:top_?k|window|chunk|block|budget)")  # of keys
LONG_PROBE = 64  # tokens
EAGER = "eager_attention_forward"  # as each file of transformers calls its own function
SMALL_BUDGETS = (16, 2)  # 16 blocks of 16 keys are no choice of 64 keys, 2 of 2 are
ABSENT = Phrase("for this text it does not attend as it does for short ones")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Route:
    """A way to a trace: "attend" and "watch" have all numbers, "weights" the weights alone, and why.

    "mixing" is the way to a model without any attention: all its layers mix tokens by other means.

    `difference` is the largest one of weights and output between it and the model's own attention, in the
    trial, which runs in fp32 where there is room. `by` is what our function attends by: torch's fused kernel,
    unless that went astray in its trial. `notes` say what else is to be known of what is shown. A model that
    `changes` itself when it reads, as BigBird does for good when a text is short, runs as a twin each time.
    """

    name: str
    difference: float
    missing: str | None = None
    own_code: "OwnCode | None" = None
    skipped: tuple[str, ...] = ()  # layers of parts of a text, and what mixes tokens beside those shown
    notes: tuple[str, ...] = ()
    by: Attend = attend
    changes: bool = False
    layers: tuple[str, ...] = ()  # the names of those that a short text shows


def foreign_functions(module: nn.Module, functions: Mapping[str, Callable]) -> tuple[str, ...]:
    """The attention functions of the user's own that a model may call, by their names.

    They were registered among the `functions` that transformers knows, or put in the place of one of
    transformers or torch. The library's compute what is traced; one of these may compute anything.
    """
    registered = [name for name in implementations(module) if name in functions]
    names = [name for name in registered if not _is_of_library(functions[name])]
    files = {type(part).__module__ for part in module.modules()}
    for file in sorted(file for file in files if file.startswith("transformers.")):
        function = getattr(sys.modules[file], EAGER, None)
        if function is not None and not _is_of_library(function):
            names.append(f"{file}.{EAGER}")
    if not inspect.isbuiltin(nn.functional.scaled_dot_product_attention):
        names.append("torch.nn.functional.scaled_dot_product_attention")
    return tuple(names)


def _is_of_library(function: Callable) -> bool:
    """Is it a function of transformers or torch, or one of these with some arguments set?"""
    function = getattr(function, "func", function)
    code = getattr(function, "__code__", None)
    folders = [os.path.dirname(sys.modules[name].__file__) for name in ("transformers", "torch")]
    return code is None or code.co_filename.startswith(tuple(folders))


def same_as_run(as_run: nn.Module, module: nn.Module, inputs: Mapping[str, Tensor]) -> bool:
    """Does a model as its user runs it give the same result for a text as `module` does?

    Both run in fp32 if there is room for copies, and without a head, which may look at one row of the result
    alone. What is computed of padding is left out.
    """
    one, other = (in_float32(model, halves(model)) or twin(model) for model in (as_run, module))
    one, other = one.base_model, other.base_model
    inputs = {name: tensor for name, tensor in inputs.items() if name != "logits_to_keep"}
    theirs = attempt(lambda: output(forward(one, inputs)))
    own = attempt(lambda: output(forward(other, inputs)))
    if theirs is None or own is None:
        return False
    mask = None if "decoder_input_ids" in inputs else inputs.get("attention_mask")
    if mask is not None and theirs.shape[:2] == own.shape[:2] == mask.shape:
        theirs, own = theirs[mask != 0], own[mask != 0]
    return gap(theirs, own) <= _close(other)


def implementations(module: nn.Module) -> list[str | None]:
    """The names of the attention functions that a model and its parts are set to."""
    configs = (vars(part).get("config") for part in module.modules())
    return list(dict.fromkeys(getattr(config, "_attn_implementation", None) for config in configs))


def choose(module: nn.Module, ours: str) -> tuple[Route, dict[int, str]]:
    """The best route that gives what the model itself computes; the model is then set to it.

    The trial runs in a twin of the model, in fp32 if there is room for a copy: in half precision two ways to
    compute the same differ by more than some errors. → the route, and the names of the model's parts by their
    ids. Raises `MhaError` for a model that cannot run on tokens alone and for one without attention.
    """
    half = halves(module)
    route = attempt(lambda: _route_of_copy(module, half, ours)) if half else None
    if route is None:
        route = _tried(twin(module), ours)
        if half:
            note = Phrase(
                "There was no room for a copy of the model in float32, or it does not run in it, so the "
                "trial ran in {dtype}: small differences from the model's own attention would not have been "
                "noticed.",
                dtype=str(half[0].dtype).removeprefix("torch."),
            )
            route = replace(route, notes=(*route.notes, note))
    names, layers = _adjusted(module, route, ours)
    return replace(route, layers=layers), names


def _route_of_copy(module: nn.Module, half: list[Tensor], ours: str) -> Route | None:
    """The route that a trial in fp32 chooses. None if there is no room for a copy.

    Raises what the model itself raises in its own precision.
    """
    precise = in_float32(module, half)
    if precise is None:
        return None
    route = _tried(precise, ours)
    _adjusted(twin(module), route, ours)
    return route


def _adjusted(module: nn.Module, route: Route, ours: str) -> tuple[dict[int, str], tuple[str, ...]]:
    """Set a model to a route. → the names of its parts by their ids, and those of the layers that it shows

    There are no names of parts where twins of the model are run.
    """
    _set(module, ours if route.name == "attend" else "eager")
    names = {} if route.changes else watch(module)
    # What this proves of the matrices is known from then on.
    layers, _ = run(route, module, names, probe(module))
    return names, tuple(layer.name for layer in layers)


def _tried(module: nn.Module, ours: str) -> Route:
    """The best route of a model that nobody else uses. Raises `MhaError` if there is none."""
    inputs = probe(module)
    has_interface = _set(module, "eager")
    before = _classes(module)
    try:
        reference = forward(module, inputs, output_attentions=True)
    except Exception as error:  # any library's any error: it is somebody else's model
        raise MhaError(
            "{model} does not run on a text alone: {type}: {reason}. So nothing of it can be traced.",
            model=type(module).__name__,
            type=type(error).__name__,
            reason=str(error),
        ) from error
    names = watch(module)  # now, since the pass may have changed the model
    route = _route(module, names, ours if has_interface else "", inputs, reference)
    return replace(route, changes=_classes(module) != before or _keeps_buckets(module))


def _keeps_buckets(module: nn.Module) -> bool:
    """Does a model (Reformer) choose the number of its buckets by the first long text that it reads?"""
    return has(module, "chunks") and module.config.num_buckets is None


def _classes(module: nn.Module) -> dict[str, type]:
    return {name: type(part) for name, part in module.named_modules()}


def _route(module: nn.Module, names: Mapping[int, str], ours: str, inputs: dict, reference: object) -> Route:
    returned_weights, difference, reason = returned(module, reference), None, ""
    weights = [(layer_kind, matrix) for layer_kind, matrix in returned_weights if matrix.dim() == 4]
    skipped = tuple(
        left_out(Phrase("{kind} layer", kind=layer_kind), IN_PARTS)
        for layer_kind, matrix in returned_weights
        if matrix.dim() > 4
    )
    close = _close(module)
    if ours and _set(module, ours):
        try:
            for by in (fused, attend):
                difference = attempt(partial(_trial, module, names, inputs, reference, by))
                if difference is not None and difference <= close:
                    if asks_for_name(module):
                        _prove_beyond_budgets(module, names, ours, by)
                    return Route("attend", difference, skipped=skipped, by=by)
        except Unproven as error:
            difference, reason = None, error.phrase
    _set(module, "eager")
    notes = (reason,) if reason else ()
    from mha_core.sources.huggingface.own_code import try_own_code

    own_code = attempt(lambda: try_own_code(module, names, inputs, weights, close))
    if own_code is not None:
        return Route("watch", own_code.difference, own_code=own_code, skipped=skipped, notes=notes)
    if not returned_weights:
        if not reason and _has_mixers_alone(module, names, inputs, close):
            return Route("mixing", 0.0)
        reasons = (*without_attention(module).values(), *notes) or (
            Phrase("it has no attention that could be seen"),
        )
        raise MhaError(
            "Nothing of {model} can be shown: {reasons}.",
            model=type(module).__name__,
            reasons=listed(reasons, "semicolon"),
        )
    if reason:
        return Route("weights", 0.0, listed((reason, WEIGHTS_ALONE), "space"), notes=notes)
    return Route("weights", 0.0, MISSING if difference is None else DIFFERENT)


class Unproven(MhaError):
    """Our attention function is not known to understand all that a model hands it."""


def asks_for_name(module: nn.Module) -> bool:
    """Does the code of a model compare the name of its attention function with names that it knows?

    It may then hand ours something else than its own, and only for longer texts.
    """
    files = {kind.__module__ for part in module.modules() for kind in type(part).__mro__}
    return any(_file_asks_for_name(file) for file in files if not LIBRARY.match(file))


@cache
def _file_asks_for_name(file: str) -> bool:
    try:
        return NAME_ASKED.search(inspect.getsource(sys.modules[file])) is not None
    except (OSError, TypeError, KeyError):  # as of a class that was written in a notebook
        return True


def _prove_beyond_budgets(module: nn.Module, names: Mapping[int, str], ours: str, by: Attend) -> None:
    """A trial of a text longer than what a token may look at. Raises `Unproven` unless it succeeds.

    The numbers of keys, blocks or windows are made small for it: real ones are thousands of tokens.
    """
    inputs = probe(module, min(LONG_PROBE, max_tokens(module, None)))
    for budget in SMALL_BUDGETS:
        with small_budgets(module, budget) as smaller:
            _set(module, "eager")
            reference = attempt(lambda: forward(module, inputs, output_attentions=True))
            _set(module, ours)
            difference = (
                None if reference is None else attempt(partial(_trial, module, names, inputs, reference, by))
            )
        if difference is None or difference > _close(module):
            continue
        # What not even the smallest budget changes looks at all keys, as where no layer is sparse.
        if not smaller or budget == SMALL_BUDGETS[-1]:
            return
        _set(module, "eager")
        if gap(output(reference), output(forward(module, inputs))) > 0:
            return
    raise Unproven(
        "{model} treats attention functions differently by their names, and ours was not "
        "proven for texts longer than what a token may look at.",
        model=type(module).__name__,
    )


@contextmanager
def small_budgets(module: nn.Module, budget: int) -> Iterator[bool]:
    """While entered, modules and configs let attention choose at most `budget` keys. → did any let more?"""
    holders = [part for place, part in module.named_modules() if ATTENTION.search(place)]
    configs = {id(config): config for part in module.modules() if (config := vars(part).get("config"))}
    before = [
        (holder, name, value)
        for holder in (*holders, *configs.values())
        for name, value in vars(holder).items()
        if BUDGET.search(name) and type(value) is int and value > budget
    ]
    try:
        for holder, name, _ in before:
            setattr(holder, name, budget)
        yield bool(before)
    finally:
        for holder, name, value in before:
            setattr(holder, name, value)


def _has_mixers_alone(module: nn.Module, names: Mapping[int, str], inputs: dict, close: float) -> bool:
    """Has the model layers that mix tokens by other means, and nothing else that could be attention?"""
    if not without_attention(module):
        return False
    from mha_core.sources.huggingface.own_code import collect

    calls, watcher = collect(module, names, inputs, close, every_row=True)
    return not calls and not any(watcher.softmaxes[size] for size in sizes(inputs).values())


Edits = Mapping[int, tuple[Site, tuple[Edit, ...]]]  # of the calls of a pass, by their number


def run(
    route: Route,
    module: nn.Module,
    names: Mapping[int, str],
    inputs: Mapping[str, Tensor],
    edits: Edits = MappingProxyType({}),
) -> PassLayers:
    """The layers of a forward pass by a route, and what was left out, each with its reason.

    Raises `MhaError` where `edits`, which only the route "attend" takes, meet other calls than `sites` saw.
    """
    module, names = _to_run(route, module, names, inputs)
    if route.name == "watch":
        followed = route.own_code.layers(module, names, inputs, _close(module))
        if followed is None or not followed[0]:
            return _weights_alone(ANOTHER_WAY, module, inputs)
        layers, skipped = followed
        return layers, (*route.skipped, *skipped)
    if route.name == "weights":
        return _weights_alone(route.missing, module, inputs)
    if route.name == "mixing":
        forward(module, inputs)
        return (), route.skipped
    collector = Collector(names, route.by, edits)
    with collecting(collector):
        forward(module, inputs)
    if collector.edits:
        raise MhaError("Not every edit acted: with edits the model calls its attention in another way.")
    return layers_of(route, module, names, inputs, collector.calls)


def sites(
    route: Route,
    module: nn.Module,
    names: Mapping[int, str],
    inputs: Mapping[str, Tensor],
    texts: Mapping[str, Tokens | None],
) -> dict[int, Site]:
    """Where edits can act in a forward pass: the attention of each layer, by the number of its call.

    `texts` are the "text" and the "target". Raises `MhaError` for a route on which an edit would change the
    picture alone.
    """
    if route.name != "attend":
        raise MhaError(
            "{model} computes its attention by code of its own, which is watched and not "
            "replaced; an edit would change the picture and not the model. Models that take an attention "
            "function can be edited, as can source='mini' and source='random'.",
            model=type(module).__name__,
        )
    module, names = _to_run(route, module, names, inputs)
    collector, attentions = Collector(names, route.by), {}
    with collecting(collector):
        forward(module, inputs)
    for number, call in enumerate(collector.calls):
        layer_kind = kind(call, module, names, inputs)
        if layer_kind is not None:
            queries, keys = (texts[side] for side in KINDS[layer_kind])
            attentions[number] = Site(layer_kind, call.q.shape[1], call.v.shape[3], queries, keys)
    return attentions


def _to_run(
    route: Route, module: nn.Module, names: Mapping[int, str], inputs: Mapping[str, Tensor]
) -> tuple[nn.Module, Mapping[int, str]]:
    """The model that runs, and the names of its modules: a twin of one that changes itself when it reads."""
    if not route.changes:
        return module, names
    module = twin(module)
    forward(module, inputs)
    return module, watch(module)


def layers_of(
    route: Route, module: nn.Module, names: Mapping[int, str], inputs: Mapping[str, Tensor], calls: list[Call]
) -> PassLayers:
    """The layers that calls become, and what was left out. The list is emptied."""
    layers, skipped, shared = [], [*route.skipped], {}
    calls.reverse()
    while calls:  # each is let go when it has been copied
        call = calls.pop()
        layer_kind = kind(call, module, names, inputs)
        if layer_kind is None:
            skipped.append(left_out(call.name, ELSEWHERE))
        else:
            layers.append(call.layer(layer_kind, shared))
    absent = Counter(route.layers) - Counter(layer.name for layer in layers)
    absent -= Counter(entry.partition(":")[0] for entry in skipped)
    return tuple(layers), (*skipped, *(left_out(name, ABSENT) for name in absent.elements()))


def _close(module: nn.Module) -> float:
    return CLOSE[next(module.parameters()).dtype]


def attempt(trial: Callable[[], Result | None]) -> Result | None:
    """The result of a trial; None if it raised an error, as where a model uses an interface differently.

    The next route decides then. Where the error is in our own code, a warning says so: nobody would notice.
    """
    try:
        return trial()
    except Unproven:
        raise
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
    reference: object,
    by: Attend,
) -> float | None:
    """The largest difference of weights or outputs between our function and the model itself.

    None if it does not see all that the model returns weights of: a part would look like the whole. Raises
    `Unproven` if it is handed what it does not understand.
    """
    collector = Collector(names, by)
    with collecting(collector):
        try:
            ours = forward(module, inputs)
        except UnknownKeyword as error:
            raise Unproven(error.phrase) from error
    if not collector.calls:
        return None
    weights = [
        (layer_kind, matrix) for layer_kind, matrix in returned(module, reference) if matrix.dim() == 4
    ]
    difference = gap(output(ours), output(reference))
    kinds = [kind(call, module, names, inputs) for call in collector.calls]
    for of in RETURNED.values():
        n_returned = sum(k == of and w.shape[2:] == sizes(inputs)[of] for k, w in weights)
        if n_returned > kinds.count(of) + kinds.count(None):  # BigBird-Pegasus: an encoder of its own
            return None
    model_weights = [matrix for _, matrix in weights]
    if len(kinds) == len(model_weights):
        order = [*RETURNED.values(), None]
        by_kind = sorted(zip(kinds, collector.calls, strict=True), key=lambda pair: order.index(pair[0]))
        gaps = (_weights_gap(call, w) for (_, call), w in zip(by_kind, model_weights, strict=True))
        difference = max([difference, *gaps])
    return difference


def _weights_gap(call: Call, model_weights: Tensor) -> float:
    """How far a call's weights are from those that the model returned.

    Some models return weights as they are before the sink takes its share (Granite with windows): that
    is the same if the model's output, which is compared besides, has the share taken.
    """
    shown = call.weights()
    difference = gap(shown, model_weights)
    if call.rule.sinks is not None:
        difference = min(difference, gap(shown / shown.sum(-1, keepdim=True), model_weights))
    return difference


def _set(module: nn.Module, implementation: str) -> bool:
    """Set the attention implementation; False for a model that has its own and nothing else."""
    able = [part for part in module.modules() if hasattr(type(part), "_can_set_attn_implementation")]
    able = [part for part in able if part._can_set_attn_implementation()]
    if module in able:
        able = [module]  # it sets all that it holds
    for part in able:  # else one inside it may do what the whole does not: a reader of pictures with a Llama
        part.set_attn_implementation(implementation)
    return bool(able) or implementation == "eager"


def _weights_alone(missing: str, module: nn.Module, inputs: Mapping[str, Tensor]) -> PassLayers:
    reference = forward(module, inputs, output_attentions=True)
    layers, skipped = [], []
    for layer_kind, matrix in returned(module, reference):
        weights = _without_filling(matrix, *sizes(inputs)[layer_kind])
        if weights.shape[0] != 1 or weights.shape[2:] != sizes(inputs)[layer_kind]:
            skipped.append(left_out(Phrase("{kind} layer", kind=layer_kind), IN_PARTS))
        elif not are_weights(weights):
            skipped.append(left_out(Phrase("{kind} layer", kind=layer_kind), NO_WEIGHTS))
        else:
            tensors = MappingProxyType({"weights": weights[0].detach().to("cpu").clone()})
            layers.append(LayerTrace(tensors, kind=layer_kind, about=Facts(missing=missing)))
    return tuple(layers), tuple(skipped)


def _without_filling(weights: Tensor, n_query: int, n_key: int) -> Tensor:
    """Weights without tokens behind the text that nothing looks at: BigBird fills its blocks up with them."""
    fits = weights.dim() == 4 and weights.shape[2] > n_query and weights.shape[3] > n_key
    return weights[..., :n_query, :n_key] if fits and not weights[..., :n_query, n_key:].any() else weights
