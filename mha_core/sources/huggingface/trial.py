"""How a model's attention can be seen, and the trial that proves it.

There are three routes: our function inside the model, its own code followed, or the weights that it returns.
A route is believed only after a trial: a few tokens through the model with its own eager attention and
through the route. Weights and output must be the same, else the next route is tried. So an architecture
whose attention does something of its own is never shown wrongly; it is shown with less.
"""

import inspect
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from types import MappingProxyType
from typing import TypeVar

import torch
from torch import Tensor, nn

from mha_core.attention.functional import attend, fused
from mha_core.capture.batch import collecting_batch
from mha_core.capture.call import Call
from mha_core.capture.collector import ATTENTION, Attend, UnknownKeyword, collecting, watch
from mha_core.capture.eager_code import CollectingMode
from mha_core.capture.eager_scores import CLOSE, gap
from mha_core.errors import MhaError
from mha_core.sources.huggingface import tokenizer as reading
from mha_core.sources.huggingface.twin import halves, in_float32, twin
from mha_core.traces.facts import Facts
from mha_core.traces.layer import LayerTrace

WEIGHTS_ALONE = "It returns its weights; queries, keys and values are not known."
MISSING = (
    f"This architecture computes attention in a way of its own, outside the common interface. {WEIGHTS_ALONE}"
)
DIFFERENT = f"What this architecture computes differs from the common attention function. {WEIGHTS_ALONE}"
ANOTHER_WAY = (
    f"For this text the model computes attention in another way than for short ones. {WEIGHTS_ALONE}"
)
LIBRARY = re.compile(r"(torch|builtins|abc|transformers\.(?!models\.))")  # no model's own code
NAME_ASKED = re.compile(r"_attn_implementation\s*(?:[=!]=|(?:not\s+)?in\b)")
BUDGET = re.compile(r"^(?!.*(?:expert|moe|group)).*(?:top_?k|window|chunk|block|budget)")  # of keys
LONG_PROBE = 64  # tokens
SMALL_BUDGETS = (16, 2)  # 16 blocks of 16 keys are no choice of 64 keys, 2 of 2 are
IMPRECISE = (
    "There was no room for a copy of the model in float32, or it does not run in it, so the trial ran in "
    "{dtype}: small differences from the model's own attention would not have been noticed."
)

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
    skipped: tuple[str, ...] = ()  # layers that the model returns weights of, of parts of a text
    notes: tuple[str, ...] = ()
    by: Attend = attend
    changes: bool = False
    layers: tuple[str, ...] = ()  # the names of those that a short text shows


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
            note = IMPRECISE.format(dtype=str(half[0].dtype).removeprefix("torch."))
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
            f"{type(module).__name__} does not run on a text alone: "
            f"{type(error).__name__}: {error}. So nothing of it can be traced."
        ) from error
    names = watch(module)  # now, since the pass may have changed the model
    route = _route(module, names, ours if has_interface else "", inputs, reference)
    return replace(route, changes=_classes(module) != before)


def _classes(module: nn.Module) -> dict[str, type]:
    return {name: type(part) for name, part in module.named_modules()}


def _route(module: nn.Module, names: Mapping[int, str], ours: str, inputs: dict, reference: object) -> Route:
    returned_weights, difference, reason = returned(reference), None, ""
    weights = [(layer_kind, matrix) for layer_kind, matrix in returned_weights if matrix.dim() == 4]
    skipped = tuple(
        f"{layer_kind} layer: {IN_PARTS}" for layer_kind, matrix in returned_weights if matrix.dim() > 4
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
            difference, reason = None, str(error)
    _set(module, "eager")
    notes = (reason,) if reason else ()
    own_code = attempt(lambda: try_own_code(module, names, inputs, weights, close))
    if own_code is not None:
        return Route("watch", own_code.difference, own_code=own_code, skipped=skipped, notes=notes)
    if not returned_weights:
        if not reason and _has_mixers_alone(module, names, inputs, close):
            return Route("mixing", 0.0)
        reasons = (*without_attention(module), *notes) or ("it has no attention that could be seen",)
        raise MhaError(f"Nothing of {type(module).__name__} can be shown: {'; '.join(reasons)}.")
    if reason:
        return Route("weights", 0.0, f"{reason} {WEIGHTS_ALONE}", notes=notes)
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
    inputs = probe(module, min(LONG_PROBE, reading.limit(module, None)))
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
        f"{type(module).__name__} treats attention functions differently by their names, and ours was not "
        f"proven for texts longer than what a token may look at."
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
    calls, watcher = _watch(module, names, inputs, close, every_row=True)
    return not calls and not any(watcher.softmaxes[size] for size in sizes(inputs).values())


def run(
    route: Route, module: nn.Module, names: Mapping[int, str], inputs: Mapping[str, Tensor]
) -> tuple[tuple[LayerTrace, ...], tuple[str, ...]]:
    """The layers of a forward pass by a route, and what was left out, each with its reason."""
    if route.changes:
        module = twin(module)
        forward(module, inputs)
        names = watch(module)
    if route.name == "watch":
        followed = own_code_layers(route.own_code, module, names, inputs, _close(module))
        if followed is None:
            return _weights_alone(ANOTHER_WAY, module, inputs)
        layers, skipped = followed
        return layers, (*route.skipped, *skipped)
    if route.name == "weights":
        return _weights_alone(route.missing, module, inputs)
    if route.name == "mixing":
        forward(module, inputs)
        return (), ()
    with collecting(names, route.by) as collector:
        forward(module, inputs)
    return _layers(route, module, names, inputs, collector.calls)


def run_batch(
    route: Route,
    module: nn.Module,
    names: Mapping[int, str],
    inputs: Mapping[str, Tensor],
    lengths: Sequence[int],
) -> list[tuple[tuple[LayerTrace, ...], tuple[str, ...]]]:
    """`run` for texts that were filled up on the right, by the route "attend". Raises `Unbatched`."""
    width = inputs["input_ids"].shape[1]
    with collecting_batch(names, lengths, width, route.by) as batch:
        forward(module, inputs)
    ids = inputs["input_ids"]
    return [
        _layers(route, module, names, {"input_ids": ids[i : i + 1, :n]}, calls)
        for i, (n, calls) in enumerate(zip(lengths, batch.texts(), strict=True))
    ]


def _layers(
    route: Route, module: nn.Module, names: Mapping[int, str], inputs: Mapping[str, Tensor], calls: list[Call]
) -> tuple[tuple[LayerTrace, ...], tuple[str, ...]]:
    """The layers that calls become, and what was left out. The list is emptied."""
    layers, skipped, shared = [], [*route.skipped], {}
    calls.reverse()
    while calls:  # each is let go when it has been copied
        call = calls.pop()
        layer_kind = kind(call, module, names, inputs)
        if layer_kind is None:
            skipped.append(f"{call.name}: {ELSEWHERE}")
        else:
            layers.append(call.layer(layer_kind, shared))
    absent = Counter(route.layers) - Counter(layer.name for layer in layers)
    absent -= Counter(entry.partition(":")[0] for entry in skipped)
    return tuple(layers), (*skipped, *(f"{name}: {ABSENT}" for name in absent.elements()))


Flowed = tuple[tuple[LayerTrace, ...], tuple[str, ...]]


def agree(one: Flowed, other: Flowed) -> bool:
    """Are two traces of a text the same but for rounding: every tensor, and what is known of each layer?"""
    return len(one[0]) == len(other[0]) and one[1] == other[1] and all(map(_same_layer, one[0], other[0]))


def _same_layer(one: LayerTrace, other: LayerTrace) -> bool:
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
    with collecting(names, by) as collector:
        try:
            ours = forward(module, inputs)
        except UnknownKeyword as error:
            raise Unproven(str(error)) from error
    if not collector.calls:
        return None
    weights = [(layer_kind, matrix) for layer_kind, matrix in returned(reference) if matrix.dim() == 4]
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


def _weights_alone(
    missing: str, module: nn.Module, inputs: Mapping[str, Tensor]
) -> tuple[tuple[LayerTrace, ...], tuple[str, ...]]:
    reference = forward(module, inputs, output_attentions=True)
    layers, skipped = [], []
    for layer_kind, matrix in returned(reference):
        weights = _without_filling(matrix, *sizes(inputs)[layer_kind])
        if weights.shape[0] != 1 or weights.shape[2:] != sizes(inputs)[layer_kind]:
            skipped.append(f"{layer_kind} layer: {IN_PARTS}")
        elif not are_weights(weights):
            skipped.append(f"{layer_kind} layer: what the model returns by the name of weights are none")
        else:
            tensors = MappingProxyType({"weights": weights[0].detach().to("cpu").clone()})
            layers.append(LayerTrace(tensors, kind=layer_kind, about=Facts(missing=missing)))
    return tuple(layers), tuple(skipped)


def _without_filling(weights: Tensor, n_query: int, n_key: int) -> Tensor:
    """Weights without tokens behind the text that nothing looks at: BigBird fills its blocks up with them."""
    fits = weights.dim() == 4 and weights.shape[2] > n_query and weights.shape[3] > n_key
    return weights[..., :n_query, :n_key] if fits and not weights[..., :n_query, n_key:].any() else weights


PROBE = 7  # tokens of a trial
# How far a number may lie from the one that the same text gives without others beside it.
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
# In which order a model returns the weights of its attention, and whose they are.
RETURNED = {
    "encoder_attentions": "encoder",
    "attentions": "self",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}


def forward(module: nn.Module, inputs: Mapping[str, Tensor], **more: object) -> object:
    # No inference mode, not even the caller's: its tensors do not tell when they are changed in place.
    with torch.inference_mode(False), torch.no_grad():
        return module(**inputs, **more, return_dict=True)


def probe(module: nn.Module, n: int = PROBE) -> dict[str, Tensor]:
    """A few tokens, other ones on each side, and no two alike if the vocabulary allows."""
    config, device = module.config.get_text_config(), next(module.parameters()).device
    most = getattr(config, "vocab_size", None) or 8
    special = set()
    for name in ("pad", "bos", "eos"):
        number = getattr(config, f"{name}_token_id", None)  # one, or a list of them
        special |= set(number) if isinstance(number, list | tuple) else {number}
    # From the middle of the vocabulary: at its ends stand tokens for pictures and the like.
    around = [*range(most // 2, most), *range(most // 2 - 1, -1, -1)]
    ids = [number for number in around[: n + 9] if number not in special] or [0]
    inputs = {"input_ids": torch.tensor([ids[:n]], device=device)}
    if module.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([ids[:-n:-1] or ids[:1]], device=device)
    return inputs


def sizes(inputs: Mapping[str, Tensor]) -> dict[str, tuple[int, int]]:
    """How many tokens look at how many in layers of each kind; none at none where there is no such kind."""
    n_text = inputs["input_ids"].shape[1]
    n_target = inputs["decoder_input_ids"].shape[1] if "decoder_input_ids" in inputs else 0
    of_text = {"encoder": (n_text, n_text), "self": (n_text, n_text)}
    return {**of_text, "decoder": (n_target, n_target), "cross": (n_target, n_text)}


def kind(call: Call, module: nn.Module, names: Mapping[int, str], inputs: Mapping) -> str | None:
    """Whose tokens look at whose, or None if the sizes say that it is neither."""
    n_text = inputs["input_ids"].shape[1]
    if call.q.shape[0] != 1:
        return None
    sizes = (call.q.shape[2], call.k.shape[2])
    if "decoder_input_ids" not in inputs:
        return "self" if sizes == (n_text, n_text) else None
    n_target = inputs["decoder_input_ids"].shape[1]
    encoder = names.get(id(module.get_encoder()))
    if encoder and call.name.startswith(f"{encoder}."):
        return "encoder" if sizes == (n_text, n_text) else None
    if call.looks_outside:
        return "cross" if sizes == (n_target, n_text) else None
    return "decoder" if sizes == (n_target, n_target) else None


def output(output: object) -> Tensor:
    """The first tensor of floating numbers of an output: hidden states or logits."""
    values = output.values() if hasattr(output, "values") else output
    return next(v for v in values if isinstance(v, Tensor) and v.is_floating_point())


def returned(output: object) -> list[tuple[str, Tensor]]:
    """Kind and weights of each layer, as the model itself returns them.

    (1, head, query, key), or more axes where a text is looked at in parts.
    """
    weights_by_layer = []
    for name, kind in RETURNED.items():
        for weights in getattr(output, name, None) or ():
            if isinstance(weights, Mapping):  # of parts of a text, by their names: Pegasus-X
                weights = max(weights.values(), key=Tensor.dim)
            if isinstance(weights, Tensor) and weights.dim() >= 4:
                weights_by_layer.append((kind, weights))
    return weights_by_layer


def are_weights(matrix: Tensor) -> bool:
    """Could each row be weights? ProphetNet returns its scores by that name."""
    return bool(matrix.min() >= 0) and bool(matrix.float().sum(-1).max() <= 1.1)


NO_ATTENTION = re.compile(  # SSM in capitals alone: "ssm" is also in GptOssMLP
    r"SSM|(?i:mamba|rwkv|rglru|delta(?:net|attention)|linearattention|lightningattention|shortconv$|fnetfourier|xlstm|hyena)"
)
# What only holds or serves them.
AROUND = re.compile(r"model|block|layer$|norm|cache|conv1d|mlp$|feedforward$", re.IGNORECASE)
STATE = "A_log"  # the decay of a state-space layer, whatever its class is called


def without_attention(module: nn.Module) -> tuple[str, ...]:
    """The layers that mix tokens by a state that is carried along, or by a sum: they have no weights."""
    mixers = {}
    for name, part in module.named_modules():
        kind = type(part).__name__
        mixes = NO_ATTENTION.search(kind) and not AROUND.search(kind)
        inside = any(name.startswith(f"{other}.") for other in mixers)
        if (mixes or hasattr(part, STATE)) and name and not inside:
            mixers[name] = f"{name}: {kind} mixes tokens by other means than attention"
    return tuple(mixers.values())


BY_WORDS = (
    "What is added to the scores of this layer depends on the words, too: it is made for this text, "
    "and is not what stands between the same two places of another one."
)
BESIDE = "it mixes other values by weights that the model does not return"
IN_PARTS = "its weights are not those of token to token"
MORE = "softmaxes that short texts do not have: {n}, which could not be followed"
ABSENT = "for this text it does not attend as it does for short ones"
ELSEWHERE = "it does not look from token to token, or at two texts at once"


@dataclass(frozen=True)
class OwnCode:
    """What a trial found of a model's own attention: its calls in order, and which of them are shown."""

    calls: tuple[str, ...]  # the name of each
    shown: tuple[bool, ...]  # False for one that the model returns no weights of, beside others
    by_words: frozenset[int]  # those whose bias is another one with other words
    skipped: tuple[str, ...]  # what the model returns weights of and no call is
    difference: float
    softmaxes: int  # of all sizes, followed or not


def try_own_code(
    module: nn.Module,
    names: Mapping[int, str],
    inputs: Mapping[str, Tensor],
    weights: list[tuple[str, Tensor]],
    close: float,
) -> OwnCode | None:
    """What can be seen of a model's own attention, in a pass that returned `weights` when it was asked to.

    None if any attention in it was not followed from end to end, or is not what the model returns.
    """
    calls, watcher = _watch(module, names, inputs, close, every_row=True)
    kinds = [kind(call, module, names, inputs) for call in calls]
    call_counts = Counter((call.q.shape[2], call.k.shape[2]) for call in calls)
    if not any(kinds) or any(watcher.softmaxes[size] > call_counts[size] for size in sizes(inputs).values()):
        return None
    shown, difference = [True] * len(calls), watcher.gap
    for name in RETURNED.values():
        at = [n for n, of in enumerate(kinds) if of == name]
        model_weights = [w for of, w in weights if of == name and w.shape[2:] == sizes(inputs)[name]]
        if len(model_weights) > len(at):
            return None
        model_weights = [w for w in model_weights if are_weights(w)]
        gaps = _paired([calls[n] for n in at], model_weights, close)
        if gaps is None:
            return None
        for n, gap_there in zip(at, gaps, strict=True):
            shown[n] = gap_there is not None or not model_weights
            difference = max(difference, gap_there or 0.0)
    backwards = {name: ids.flip(1) for name, ids in inputs.items()}
    others, _ = _watch(module, names, backwards, close, every_row=True)
    if [call.name for call in others] != [call.name for call in calls]:
        return None
    by_words = {n for n, pair in enumerate(zip(calls, others, strict=True)) if _bias_differs(*pair)}
    called = tuple(call.name for call in calls)
    return OwnCode(
        called,
        tuple(shown),
        frozenset(by_words),
        _unseen(weights, call_counts),
        difference,
        watcher.softmaxes.total(),
    )


def own_code_layers(
    own_code: OwnCode,
    module: nn.Module,
    names: Mapping[int, str],
    inputs: Mapping[str, Tensor],
    close: float,
) -> tuple[tuple[LayerTrace, ...], tuple[str, ...]] | None:
    """The layers of a pass, and what is not shown of it; None if it was not the same code that ran."""
    calls, watcher = _watch(module, names, inputs, close, every_row=False)
    if tuple(call.name for call in calls) != own_code.calls:
        return None
    layers, skipped, shared = [], [*own_code.skipped], {}
    if watcher.softmaxes.total() > own_code.softmaxes:
        skipped.append(MORE.format(n=watcher.softmaxes.total() - own_code.softmaxes))
    calls = calls[::-1]
    for n, is_shown in enumerate(own_code.shown):
        call = calls.pop()  # each is let go when it has been copied
        layer_kind = kind(call, module, names, inputs)
        if layer_kind is None or not is_shown:
            skipped.append(f"{call.name}: {ELSEWHERE if layer_kind is None else BESIDE}")
            continue
        layer = call.layer(layer_kind, shared)
        if n in own_code.by_words:
            layer = replace(layer, about=replace(layer.about, bias=BY_WORDS))
        layers.append(layer)
    return tuple(layers), tuple(skipped)


def _watch(
    module: nn.Module,
    names: Mapping[int, str],
    inputs: Mapping[str, Tensor],
    close: float,
    *,
    every_row: bool,
) -> tuple[list[Call], "CollectingMode"]:
    """The calls of a pass."""
    with collecting(names) as collector, CollectingMode(collector, close, every_row=every_row) as watcher:
        forward(module, inputs)
    watcher.warn()
    return collector.calls, watcher


def _paired(calls: list[Call], model_weights: list[Tensor], close: float) -> list[float | None] | None:
    """For each call how far it is from the weights that were returned of it; None of a call without.

    The last ones first: what is made of other weights beside comes before them (LiLT's layout). None in
    all if some weights belong to no call.
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
    """Layers that the model returns weights of, of other sizes than any call that was seen."""
    left, unseen = call_counts.copy(), []
    for name, matrix in weights:
        size = tuple(matrix.shape[2:])
        left[size] -= 1
        if left[size] < 0:
            unseen.append(f"{name} layer: {IN_PARTS}")
    return tuple(unseen)


def _bias_differs(one: Call, other: Call) -> bool:
    first, second = ({k: v for k, v in call.rule.tensors().items() if "bias" in k} for call in (one, other))
    return first.keys() != second.keys() or any(not torch.equal(first[k], second[k]) for k in first)
