"""The routes to a model's attention, and the trial that proves one.

There are four routes: our attention function inside the model, the model's own code followed, the weights
that the model returns, and mixing matrices for a model without attention. A route is used only after a trial.
The model reads a few tokens with its own eager attention and by the route. Weights and output must be equal,
else the next route is tried. So an architecture with an unusual attention is never shown wrongly; less of it
is shown.
"""

import inspect
import os
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn

from mha_core.attention.edits import Edit, Site
from mha_core.attention.functional import attend, fused
from mha_core.capture.call import Call
from mha_core.capture.collector import ATTENTION, Attend, Collector, UnknownKeyword, watch
from mha_core.capture.gap import gap
from mha_core.capture.special_layers import bands, chunks, watcher, without_attention
from mha_core.capture.token_mixing import UNCHECKED, mixing
from mha_core.errors import MhaError, Phrase, listed
from mha_core.sources.huggingface import PreTrainedModel, forward_pass
from mha_core.sources.huggingface.forward_pass import ModelPass, close
from mha_core.sources.huggingface.tokenizer import max_tokens
from mha_core.sources.huggingface.twin import halves, in_float32, twin
from mha_core.traces.facts import Facts
from mha_core.traces.layer import KINDS, LayerTrace
from mha_core.traces.tokens import Tokens

if TYPE_CHECKING:  # loaded only if a trial follows a model's own code
    from mha_core.sources.huggingface.own_code import OwnCode

NAME = "headscope"  # of our attention function in transformers
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
BESIDE = Phrase("it mixes tokens beside what is shown")
NOT_CHECKED = Phrase("Whether anything beside its attention mixes tokens could not be checked.")
# Hooks of layers that lay attention out in another way, and do nothing else.
REARRANGED = (bands.on_leaving, chunks.on_leaving)
LIBRARY = re.compile(r"(torch|builtins|abc|transformers\.(?!models\.))")  # its files are no model's own
NAME_ASKED = re.compile(r"_attn_implementation\s*(?:[=!]=|(?:not\s+)?in\b)")
# Names of limits on keys.
BUDGET = re.compile(r"^(?!.*(?:expert|moe|group)).*(?:top_?k|window|chunk|block|budget)")
LONG_PROBE = 64  # tokens
EAGER = "eager_attention_forward"  # the name of the eager function in each file of transformers
SMALL_BUDGETS = (16, 2)  # 16 blocks of 16 keys cover all 64 keys, 2 blocks of 2 do not
ABSENT = Phrase("for this text it does not attend as it does for short ones")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Route:
    """A route to a trace: "attend" and "watch" have all numbers, "weights" has only weights, with the reason.

    "mixing" is the route of a model without any attention, whose layers all mix tokens by other means.

    `difference` is the largest difference of weights and output to the model's own attention in the trial,
    which runs in fp32 if memory allows. `by` computes the attention of our function: torch's fused kernel,
    unless it failed in the trial. `notes` are remarks about the layers that are shown. A model that `changes`
    itself when it reads a text, as BigBird does after a short one, runs as a new twin each time.
    """

    name: str
    difference: float
    missing: str | None = None
    own_code: "OwnCode | None" = None
    # Sentences about layers of parts of a text, and about other parts that mix tokens.
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    by: Attend = attend
    changes: bool = False
    layers: tuple[str, ...] = ()  # the names of the layers in the trace of a short text


def foreign_functions(module: PreTrainedModel) -> tuple[str, ...]:
    """The user's own attention functions that a model may call now, by name.

    They are registered with transformers, or replace a function of transformers or torch. The libraries' own
    functions compute what is traced; a user's function may compute anything.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

    registered = [name for name in implementations(module) if name is not None and name in functions]
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
    """Whether it is a function of transformers or torch, perhaps with some arguments set."""
    function = getattr(function, "func", function)
    code = getattr(function, "__code__", None)
    files = (sys.modules[name].__file__ for name in ("transformers", "torch"))
    folders = [os.path.dirname(file) for file in files if file is not None]
    return code is None or code.co_filename.startswith(tuple(folders))


def same_result(as_run: PreTrainedModel, module: PreTrainedModel, inputs: Mapping[str, Tensor]) -> bool:
    """Whether the user's model gives the same result for a text as `module`.

    Both run in fp32 if memory allows, and without a head, which may read only one row of the result. Rows of
    padding are left out.
    """
    models = (in_float32(model) or twin(model) for model in (as_run, module))
    one, other = (model.base_model for model in models)
    inputs = {name: tensor for name, tensor in inputs.items() if name != "logits_to_keep"}
    theirs = attempt(lambda: forward_pass.output(forward_pass.forward(one, inputs)))
    own = attempt(lambda: forward_pass.output(forward_pass.forward(other, inputs)))
    if theirs is None or own is None:
        return False
    mask = None if "decoder_input_ids" in inputs else inputs.get("attention_mask")
    if mask is not None and theirs.shape[:2] == own.shape[:2] == mask.shape:
        theirs, own = theirs[mask != 0], own[mask != 0]
    return gap(theirs, own) <= close(other)


def implementations(module: PreTrainedModel) -> list[str | None]:
    """The names of the attention functions set in a model and its parts."""
    configs = (vars(part).get("config") for part in module.modules())
    return list(dict.fromkeys(getattr(config, "_attn_implementation", None) for config in configs))


def choose(module: PreTrainedModel) -> tuple[Route, dict[int, str]]:
    """The best route with the same numbers as the model itself; the model is then set to it.

    The trial runs in a twin of the model, in fp32 if memory allows: in half precision, rounding can exceed
    the effect of an error. Returns also the names of the model's parts by their ids. Raises `MhaError` for a
    model that cannot run on tokens alone and for a model without attention.
    """
    half = halves(module)
    route = attempt(lambda: _route_of_copy(module)) if half else None
    if route is None:
        route = _tried(twin(module))
        if half:
            note = Phrase(
                "There was no room for a copy of the model in float32, or it does not run in it, so the "
                "trial ran in {dtype}: small differences from the model's own attention would not have been "
                "noticed.",
                dtype=str(half[0].dtype).removeprefix("torch."),
            )
            route = replace(route, notes=(*route.notes, note))
    names, layers = _adjusted(module, route)
    return replace(route, layers=layers), names


def _route_of_copy(module: PreTrainedModel) -> Route | None:
    """The route chosen by a trial in fp32. None if there is no memory for a copy.

    Raises the errors of the model in its own precision.
    """
    precise = in_float32(module)
    if precise is None:
        return None
    route = _tried(precise)
    _adjusted(twin(module), route)
    return route


def _adjusted(module: PreTrainedModel, route: Route) -> tuple[dict[int, str], tuple[str, ...]]:
    """Set a model to a route, and return the names of its parts by their ids, and of its shown layers.

    The names of parts are empty if twins of the model run instead of it.
    """
    _set(module, NAME if route.name == "attend" else "eager")
    names = {} if route.changes else watch(module)
    # This pass also proves the matrices; later passes rely on it.
    layers, _ = run(route, ModelPass(module, names, forward_pass.probe(module)))
    return names, tuple(layer.name for layer in layers)


def _tried(module: PreTrainedModel) -> Route:
    """The best route of a model of our own. Raises `MhaError` if there is none."""
    inputs = forward_pass.probe(module)
    _set(module, "eager")
    before = _classes(module)
    try:
        reference = forward_pass.forward(module, inputs, output_attentions=not keeps_sdpa(module))
    except Exception as error:  # the model's own code can raise any error
        raise MhaError(
            "{model} does not run on a text alone: {type}: {reason}. So nothing of it can be traced.",
            model=type(module).__name__,
            type=type(error).__name__,
            reason=str(error),
        ) from error
    # Watched after the pass, which may have changed the model.
    route = _route(ModelPass(module, watch(module), inputs), reference)
    in_chunks = any(watcher(place, part) == chunks.on_leaving for place, part in module.named_modules())
    # Reformer chooses its number of buckets by the first long text that it reads.
    keeps_buckets = in_chunks and module.config.num_buckets is None
    return replace(route, changes=keeps_buckets or _classes(module) != before)


def checked(route: Route, module: PreTrainedModel, known: Iterable[str]) -> Route:
    """The route, with the parts that mix tokens beside the shown attention, by a trial of a few tokens.

    `known` are the names of the parts that are already shown or named.
    """
    found = attempt(lambda: mixing_beside(route, module, known, forward_pass.probe(module)))
    if found is None or UNCHECKED in found.values():
        return replace(route, notes=(*route.notes, NOT_CHECKED))
    return replace(route, skipped=(*route.skipped, *(forward_pass.left_out(name, BESIDE) for name in found)))


def mixing_beside(
    route: Route, module: PreTrainedModel, known: Iterable[str], inputs: Mapping[str, Tensor]
) -> dict[str, str]:
    """The parts of a model that mix tokens beside the shown attention, each with the reason.

    The model is tried as a whole, and its parts only if other tokens change then.
    """
    if route.name == "weights":  # weights alone make no claim about the rest
        return {}
    # A text and a target of equal length, so that each token can look at the same position of the other.
    length = min(ids.shape[1] for ids in inputs.values())
    inputs = {name: ids[:, :length] for name, ids in inputs.items()}
    if route.changes:
        module = twin(module)
        forward_pass.forward(module, inputs)
    names, known = {part: name for name, part in module.named_modules()}, set(known)
    given = [part for part, name in names.items() if name in known or watcher(name, part) in REARRANGED]
    wholes = [module, *([module.get_decoder()] if forward_pass.has_target(module) else ()), *given]

    def found(names: dict[nn.Module, str]) -> dict[str, str]:
        own = route.name == "watch"

        def run() -> object:
            with forward_pass.Spelled() if own else nullcontext():
                return forward_pass.forward(module, inputs)

        return mixing(names, given, run, length, has_own_softmax=own)

    return found({part: names[part] for part in wholes}) and found(names)


def _classes(module: PreTrainedModel) -> dict[str, type]:
    return {name: type(part) for name, part in module.named_modules()}


def _route(of: ModelPass, reference: object) -> Route:
    module, difference, reason = of.module, None, ""
    returned_weights = forward_pass.returned(module, reference)
    weights = [(layer_kind, matrix) for layer_kind, matrix in returned_weights if matrix.dim() == 4]
    skipped = tuple(
        forward_pass.left_out(Phrase("{kind} layer", kind=layer_kind), forward_pass.IN_PARTS)
        for layer_kind, matrix in returned_weights
        if matrix.dim() > 4
    )
    if _set(module, NAME):
        try:
            for by in (fused, attend):
                difference = attempt(partial(_trial, of, reference, by))
                if difference is not None and difference <= close(module):
                    if depends_on_name(module):
                        _prove_long_text(of, by)
                    return Route("attend", difference, skipped=skipped, by=by)
        except Unproven as error:
            difference, reason = None, error.phrase
    _set(module, "eager")
    notes = (reason,) if reason else ()
    from mha_core.sources.huggingface.own_code import try_own_code

    own_code = attempt(lambda: try_own_code(of, weights))
    if own_code is not None:
        return Route("watch", own_code.difference, own_code=own_code, skipped=skipped, notes=notes)
    if not returned_weights:
        if not reason and _has_mixers_alone(of):
            return Route("mixing", 0.0)
        nothing = Phrase("it has no attention that could be seen")
        reasons = (*without_attention(module).values(), *notes) or (nothing,)
        raise forward_pass.nothing_shown(type(module).__name__, reasons)
    if reason:
        return Route("weights", 0.0, listed((reason, WEIGHTS_ALONE), "space"), notes=notes)
    return Route("weights", 0.0, MISSING if difference is None else DIFFERENT)


class Unproven(MhaError):
    """A model calls our attention function with arguments that are not known to be supported."""


def depends_on_name(module: PreTrainedModel) -> bool:
    """Whether the code of a model compares the name of its attention function with certain names.

    It may then pass other arguments to our function, perhaps only for longer texts.
    """
    files = {kind.__module__ for part in module.modules() for kind in type(part).__mro__}
    return any(_file_depends_on_name(file) for file in files if not LIBRARY.match(file))


@cache
def _file_depends_on_name(file: str) -> bool:
    try:
        return NAME_ASKED.search(inspect.getsource(sys.modules[file])) is not None
    except (OSError, TypeError, KeyError):  # for example a class in a notebook
        return True


def _prove_long_text(of: ModelPass, by: Attend) -> None:
    """A trial with a text longer than a token may look at. Raises `Unproven` unless it succeeds.

    For the trial the limits on keys, blocks or windows are made small: real ones are thousands of tokens.
    """
    module = of.module
    inputs = forward_pass.probe(module, min(LONG_PROBE, max_tokens(module, None)))
    of = of._replace(inputs=inputs)
    for budget in SMALL_BUDGETS:
        with small_budgets(module, budget) as smaller:
            _set(module, "eager")
            reference = attempt(lambda: of.run(output_attentions=True))
            _set(module, NAME)
            difference = None if reference is None else attempt(partial(_trial, of, reference, by))
        if difference is None or difference > close(module):
            continue
        # If even the smallest budget changes nothing, every layer looks at all keys: no layer is sparse.
        if not smaller or budget == SMALL_BUDGETS[-1]:
            return
        _set(module, "eager")
        if gap(forward_pass.output(reference), forward_pass.output(of.run())) > 0:
            return
    raise Unproven(
        "{model} treats attention functions differently by their names, and ours was not "
        "proven for texts longer than what a token may look at.",
        model=type(module).__name__,
    )


@contextmanager
def small_budgets(module: PreTrainedModel, budget: int) -> Iterator[bool]:
    """In this block modules and configs allow at most `budget` keys; yields whether any allowed more."""
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


def _has_mixers_alone(of: ModelPass) -> bool:
    """Whether the model has layers that mix tokens by other means, and nothing that could be attention."""
    if not without_attention(of.module):
        return False
    from mha_core.sources.huggingface.own_code import collect

    calls, watcher = collect(of, every_row=True)
    return not calls and not any(watcher.softmaxes[size] for size in of.sizes.values())


Edits = Mapping[int, tuple[Site, tuple[Edit, ...]]]  # by the number of the call in a pass


def run(route: Route, of: ModelPass, edits: Edits = MappingProxyType({})) -> forward_pass.PassLayers:
    """The layers of a forward pass by a route, and sentences about what is left out.

    Only the route "attend" accepts `edits`. Raises `MhaError` if the calls are not those that `sites` found.
    """
    of = _to_run(route, of)
    if route.own_code is not None:
        layers, skipped = route.own_code.layers(of) or ((), ())
        if layers:
            return layers, (*route.skipped, *skipped)
        if keeps_sdpa(of.module):
            raise forward_pass.nothing_shown(type(of.module).__name__, [ABSENT])
        return _weights_alone(ANOTHER_WAY, of)
    if route.name == "weights":
        return _weights_alone(route.missing or WEIGHTS_ALONE, of)
    if route.name == "mixing":
        of.run()
        return (), route.skipped
    with Collector(of.names, route.by, edits) as collector:
        of.run()
    if collector.edits:
        raise MhaError("Not every edit acted: with edits the model calls its attention in another way.")
    return layers_of(route, of, collector.calls)


def sites(route: Route, of: ModelPass, texts: Mapping[str, Tokens | None]) -> dict[int, Site]:
    """The sites of edits in a forward pass: the attention of each layer, by the number of its call.

    `texts` are the "text" and the "target". Raises `MhaError` for a route on which an edit would change the
    picture but not the model's computation.
    """
    if route.name != "attend":
        raise MhaError(
            "{model} computes its attention by code of its own, which is watched and not "
            "replaced; an edit would change the picture and not the model. Models that take an attention "
            "function can be edited, as can source='mini' and source='random'.",
            model=type(of.module).__name__,
        )
    of = _to_run(route, of)
    with Collector(of.names, route.by) as collector:
        of.run()
    attentions = {}
    for number, call in enumerate(collector.calls):
        layer_kind = of.kind(call)
        if layer_kind is not None:
            queries, keys = (texts[side] for side in KINDS[layer_kind])
            assert queries is not None  # a model with such a layer has read both
            assert keys is not None
            attentions[number] = Site(layer_kind, call.q.shape[1], call.v.shape[3], queries, keys)
    return attentions


def _to_run(route: Route, of: ModelPass) -> ModelPass:
    """The pass to run: of a model that changes itself, that of a new twin."""
    if not route.changes:
        return of
    of = of._replace(module=twin(of.module))
    of.run()
    return of._replace(names=watch(of.module))


def layers_of(route: Route, of: ModelPass, calls: list[Call]) -> forward_pass.PassLayers:
    """The calls as layers, and sentences about what is left out. The list of calls is emptied."""
    layers, skipped = [], [*route.skipped]
    for name, layer in of.layers(calls):
        if layer is None:
            skipped.append(forward_pass.left_out(name, forward_pass.ELSEWHERE))
        else:
            layers.append(layer)
    absent = Counter(route.layers) - Counter(layer.name for layer in layers)
    absent -= Counter(entry.partition(":")[0] for entry in skipped)
    return tuple(layers), (*skipped, *(forward_pass.left_out(name, ABSENT) for name in absent.elements()))


def attempt(trial: Callable[[], Result | None]) -> Result | None:
    """The result of a trial; None if it raised an error, as where a model uses an interface differently.

    The next route is tried then. If the error is in our own code, a warning says so.
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


def _trial(of: ModelPass, reference: object, by: Attend) -> float | None:
    """The largest difference of weights or outputs between our function and the model itself.

    None if the model returns weights of more layers than our function sees: a part would look like the whole.
    Raises `Unproven` for arguments that are not supported.
    """
    with Collector(of.names, by) as collector:
        try:
            ours = of.run()
        except UnknownKeyword as error:
            raise Unproven(error.phrase) from error
    if not collector.calls:
        return None
    weights = [
        (layer_kind, matrix)
        for layer_kind, matrix in forward_pass.returned(of.module, reference)
        if matrix.dim() == 4
    ]
    difference = gap(forward_pass.output(ours), forward_pass.output(reference))
    kinds = [of.kind(call) for call in collector.calls]
    for kind in forward_pass.RETURNED.values():
        n_returned = sum(k == kind and w.shape[2:] == of.sizes[kind] for k, w in weights)
        if n_returned > kinds.count(kind) + kinds.count(None):  # BigBird-Pegasus: an encoder of its own
            return None
    model_weights = [matrix for _, matrix in weights]
    if len(kinds) == len(model_weights):
        order = [*forward_pass.RETURNED.values(), None]
        by_kind = sorted(zip(kinds, collector.calls, strict=True), key=lambda pair: order.index(pair[0]))
        gaps = (_weights_gap(call, w) for (_, call), w in zip(by_kind, model_weights, strict=True))
        difference = max([difference, *gaps])
    return difference


def _weights_gap(call: Call, model_weights: Tensor) -> float:
    """The gap of a call's weights to those that the model returned.

    Some models return weights without the sink, so that rows sum to 1 (Granite with windows). These are
    compared without the sink; the model's output, which has it, is compared as well.
    """
    shown = call.weights()
    difference = gap(shown, model_weights)
    if call.rule.sinks is not None:
        difference = min(difference, gap(shown / shown.sum(-1, keepdim=True), model_weights))
    return difference


def _set(module: PreTrainedModel, implementation: str) -> bool:
    """Set the attention implementation; False for a model that only has its own."""
    able = _able(module)
    if module in able:
        able = [module]  # it also sets its parts
    for part in able:  # otherwise a part may support it, as the Llama in a vision model
        part.set_attn_implementation(implementation)
    return bool(able)


def _able(module: PreTrainedModel) -> list[Any]:
    """The parts of a model whose attention implementation can be set."""
    parts: list[Any] = [part for part in module.modules() if hasattr(part, "_can_set_attn_implementation")]
    return [part for part in parts if part._can_set_attn_implementation()]


def keeps_sdpa(module: PreTrainedModel) -> bool:
    """Whether a model (Falcon) calls torch's fused attention unless its weights are asked for.

    What its own eager code computes can differ: with ALiBi it adds the bias twice.
    """
    return module.config._attn_implementation == "sdpa" and not _able(module)


def _weights_alone(missing: str, of: ModelPass) -> forward_pass.PassLayers:
    layers, skipped = [], []
    for layer_kind, matrix in forward_pass.returned(of.module, of.run(output_attentions=True)):
        weights = _without_filling(matrix, *of.sizes[layer_kind])
        fits = weights.shape[0] == 1 and weights.shape[2:] == of.sizes[layer_kind]
        if not fits or not forward_pass.are_weights(weights):
            name = Phrase("{kind} layer", kind=layer_kind)
            skipped.append(
                forward_pass.left_out(name, forward_pass.NO_WEIGHTS if fits else forward_pass.IN_PARTS)
            )
        else:
            tensors = MappingProxyType({"weights": weights[0].detach().to("cpu").clone()})
            layers.append(LayerTrace(tensors, kind=layer_kind, about=Facts(missing=missing)))
    return tuple(layers), tuple(skipped)


def _without_filling(weights: Tensor, n_query: int, n_key: int) -> Tensor:
    """Weights without the padding behind the text, to which no token looks: BigBird pads its blocks."""
    fits = weights.dim() == 4 and weights.shape[2] > n_query and weights.shape[3] > n_key
    return weights[..., :n_query, :n_key] if fits and not weights[..., :n_query, n_key:].any() else weights
