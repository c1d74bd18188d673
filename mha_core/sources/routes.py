"""How a model's attention can be seen: by our own function inside it, or by the weights it returns.

A route is believed only after a trial: a few tokens through the model with its own eager attention and
through the route. Weights and output must be the same, else the next route is tried. So an architecture
whose attention does something of its own is never shown wrongly; it is shown with less.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from mha_core.errors import MhaError
from mha_core.layer import LayerTrace
from mha_core.sources import capture

# How far weights and outputs of two ways to compute the same may lie apart, in units of the largest one.
CLOSE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
PROBE = 7  # tokens of the trial
# In which order a model returns the weights of its attention, and whose they are.
RETURNED = {
    "encoder_attentions": "encoder",
    "attentions": "self",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
NO_ATTENTION = re.compile(
    r"mamba|ssm|rwkv|recurrent|deltanet|linearattention|lightningattention|shortconv|fnetfourier|xlstm|hyena",
    re.IGNORECASE,
)
AROUND = re.compile(r"model|block|layer$|norm|cache|conv1d", re.IGNORECASE)  # what only holds or serves them
MISSING = (
    "This architecture computes attention in a way of its own, outside the common interface. It returns "
    "its weights; queries, keys and values are not known."
)
DIFFERENT = (
    "What this architecture computes differs from the common attention function. It returns its weights; "
    "queries, keys and values are not known."
)


@dataclass(frozen=True)
class Route:
    """A way to a trace: "attend" has all numbers, "weights" the weights alone, and why.

    `difference` is the largest one of weights between it and the model's own attention, in the trial.
    """

    name: str
    difference: float
    missing: str | None = None


def choose(module: nn.Module, names: Mapping[int, str], ours: str) -> Route:
    """The best route that gives what the model itself computes; the model is then set to it, for good.

    Raises `MhaError` for a model that cannot run on tokens alone and for one without attention.
    """
    inputs = _probe(module)
    own = _set(module, "eager")
    try:
        asked = _forward(module, inputs, output_attentions=True)
    except Exception as error:  # any library's any error: it is somebody else's model
        raise MhaError(
            f"{type(module).__name__} does not run on a text alone ({type(error).__name__}: {error}), "
            f"so it is no model of texts that can be traced."
        ) from error
    weights = _returned(asked)
    close = CLOSE[next(module.parameters()).dtype]
    gap = None
    if own and _set(module, ours):
        with suppress(Exception):  # an interface that is used in a way of its own; the next route decides
            gap = _trial(module, names, inputs, asked, weights)
        if gap is not None and gap <= close:
            return Route("attend", gap)
    _set(module, "eager")
    if not weights:
        raise MhaError(
            f"Nothing of {type(module).__name__} can be shown: "
            f"{'; '.join(without_attention(module)) or 'it has no attention that could be seen'}."
        )
    return Route("weights", 0.0, MISSING if gap is None else DIFFERENT)


def run(
    route: Route, module: nn.Module, names: Mapping[int, str], inputs: Mapping[str, Tensor]
) -> tuple[tuple[LayerTrace, ...], tuple[str, ...]]:
    """The layers of a forward pass by a route, and what was left out, each with its reason."""
    if route.name == "weights":
        return _weights_alone(route, module, inputs)
    with capture.collecting(names) as collector:
        _forward(module, inputs)
    layers, skipped, shared = [], [], {}
    calls = collector.calls[::-1]
    collector.calls.clear()
    while calls:  # each is let go when it has been copied
        call = calls.pop()
        kind = _kind(call, module, names, inputs)
        if kind is None:
            skipped.append(f"{call.name}: it does not look from token to token, or at two texts at once")
        else:
            layers.append(capture.layer(call, kind, shared))
    return tuple(layers), tuple(skipped)


def without_attention(module: nn.Module) -> tuple[str, ...]:
    """The layers that mix tokens by a state that is carried along, or by a sum: they have no weights."""
    found = {}
    for name, part in module.named_modules():
        kind = type(part).__name__
        mixes = NO_ATTENTION.search(kind) and not AROUND.search(kind)
        if mixes and not any(name.startswith(f"{other}.") for other in found):
            found[name] = f"{name}: {kind} mixes tokens by other means than attention"
    return tuple(found.values())


def _trial(
    module: nn.Module, names: Mapping[int, str], inputs: dict, asked: object, weights: list
) -> float | None:
    """The largest difference of weights or outputs between a route and the model itself."""
    with capture.collecting(names) as collector:
        given = _forward(module, inputs)
    if not collector.calls or not all(call.is_as_it_was for call in collector.calls):
        return None
    gap = _gap(_output(given), _output(asked))
    by_kind = sorted(collector.calls, key=lambda call: _ORDER.index(_kind(call, module, names, inputs)))
    shown = [capture.weights(call) for call in by_kind]
    theirs = [matrix for _, matrix in weights]
    if len(shown) == len(theirs):
        gap = max([gap, *(_gap(a, b) for a, b in zip(shown, theirs, strict=True))])
    return gap


_ORDER = [*RETURNED.values(), None]


def _gap(given: Tensor, asked: Tensor) -> float:
    """The largest difference, in units of the largest number if that is above 1; NaN counts as infinite."""
    if given.shape != asked.shape:
        return float("inf")
    given, asked = given.float(), asked.float()
    same = (given == asked) | (given.isnan() & asked.isnan())
    gap = (given - asked).abs().masked_fill(same, 0.0)
    return gap.nan_to_num(nan=float("inf")).max().item() / max(1.0, asked.abs().nan_to_num().max().item())


def _output(output: object) -> Tensor:
    """The first tensor of floating numbers of an output: hidden states or logits."""
    values = output.values() if hasattr(output, "values") else output
    return next(v for v in values if isinstance(v, Tensor) and v.is_floating_point())


def _returned(output: object) -> list[tuple[str, Tensor]]:
    """Kind and weights (1, head, query, key) of each layer, as the model itself returns them."""
    found = []
    for name, kind in RETURNED.items():
        for weights in getattr(output, name, None) or ():
            if isinstance(weights, Tensor) and weights.dim() == 4:
                found.append((kind, weights))
    return found


def _forward(module: nn.Module, inputs: Mapping[str, Tensor], **more: object) -> object:
    # No inference mode, not even the caller's: its tensors do not tell when they are changed in place.
    with torch.inference_mode(False), torch.no_grad():
        return module(**inputs, **more, return_dict=True)


def _weights_alone(
    route: Route, module: nn.Module, inputs: Mapping[str, Tensor]
) -> tuple[tuple[LayerTrace, ...], tuple[str, ...]]:
    output = _forward(module, inputs, output_attentions=True)
    n_text = inputs["input_ids"].shape[1]
    n_target = inputs["decoder_input_ids"].shape[1] if "decoder_input_ids" in inputs else None
    sizes = {"cross": (n_target, n_text), "decoder": (n_target, n_target)}
    layers, skipped = [], []
    for kind, weights in _returned(output):
        if weights.shape[0] != 1 or weights.shape[2:] != sizes.get(kind, (n_text, n_text)):
            skipped.append(f"{kind} layer: its weights are not those of token to token")
            continue
        kept = weights[0].detach().to("cpu").clone()
        about = MappingProxyType({"missing": route.missing})
        layers.append(LayerTrace(MappingProxyType({"weights": kept}), kind=kind, about=about))
    return tuple(layers), tuple(skipped)


def _kind(call: capture.Call, module: nn.Module, names: Mapping[int, str], inputs: Mapping) -> str | None:
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


def _set(module: nn.Module, implementation: str) -> bool:
    """Set the attention implementation; False for a model that has its own and nothing else."""
    if not getattr(type(module), "_can_set_attn_implementation", lambda: False)():
        return implementation == "eager"
    module.set_attn_implementation(implementation)
    return True


def _probe(module: nn.Module) -> dict[str, Tensor]:
    """A few tokens, other ones on each side, and no two alike if the vocabulary allows."""
    config, device = module.config.get_text_config(), next(module.parameters()).device
    most = getattr(config, "vocab_size", None) or 8
    special = set()
    for name in ("pad", "bos", "eos"):
        number = getattr(config, f"{name}_token_id", None)  # one, or a list of them
        special |= set(number) if isinstance(number, list | tuple) else {number}
    # From the middle of the vocabulary: at its ends stand tokens for pictures and the like.
    around = [*range(most // 2, most), *range(most // 2 - 1, -1, -1)]
    ids = [number for number in around[: PROBE + 9] if number not in special] or [0]
    inputs = {"input_ids": torch.tensor([ids[:PROBE]], device=device)}
    if module.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([ids[:-PROBE:-1] or ids[:1]], device=device)
    return inputs
