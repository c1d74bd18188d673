"""One family: its own eager attention against what Headscope shows, every matrix and the output."""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mha_core.errors import MhaError
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface.trial import are_weights
from mha_core.traces.layer import LayerTrace
from tests.parity import tiny
from tests.parity.table import EXACT, Row

KINDS = {
    "encoder_attentions": "encoder",
    "attentions": "self",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}


def compare(family: str) -> Row:
    """Build a family's tiny model twice, run it in its own way and in ours, and compare."""
    kind = tiny.families()[family]
    try:
        model = tiny.model(family)
    except Exception as error:  # somebody else's model: whatever it is, it is the reason
        return Row(family, kind, "not built", note=_short(error))
    given = tiny.inputs(model)
    try:
        ours, layers, skipped, route = traced(tiny.model(family), given)
    except MhaError as error:
        return Row(family, kind, "refused", note=_short(error))
    with torch.no_grad(), watching(model) as seen:
        theirs = model(**given, output_attentions=True, use_cache=False, return_dict=True)
    pairs, how = matched(layers, by_kind(theirs), [w for w in seen if _whole(w)], len(skipped))
    row = {
        "layers": ", ".join(f"{n} {kind}" for kind, n in Counter(layer.kind for layer in layers).items()),
        "route": route,
        "weights": max((_gap(a, b) for a, b in pairs), default=None),
        "output": max(_gap(a, b) / max(1.0, b.abs().max().item()) for a, b in outputs(ours, theirs)),
        "note": "; ".join([*([how] if how else []), *_summary(skipped)]),
    }
    close = pairs and max(row["weights"], row["output"]) <= EXACT
    if not close:
        verdict = "WRONG"
    elif route == "weights":
        verdict = "weights only"
    else:
        verdict = "part" if skipped else "exact"
    return Row(family, kind, verdict, **row)


def traced(model: nn.Module, given: dict) -> tuple[object, tuple[LayerTrace, ...], tuple[str, ...], str]:
    """A model's output in our way, its layers, what was left out, and the route."""
    ours = huggingface.adopt(model)
    outputs = []
    hook = ours.module.register_forward_hook(lambda _, __, output: outputs.append(output))
    try:
        layers, skipped = huggingface.flow(ours, given)
    finally:
        hook.remove()
    return outputs[-1], layers, skipped, ours.route.name


@contextmanager
def watching(model: nn.Module) -> Iterator[list[Tensor]]:
    """The weights of each call of a model's own attention function, also of those it does not return."""
    seen, name = [], "eager_attention_forward"
    files = {sys.modules[type(part).__module__] for part in model.modules()}
    before = {file: getattr(file, name) for file in files if hasattr(file, name)}

    def watched(own):
        def call(*args, **more):
            output, weights = own(*args, **more)
            seen.append(weights)
            return output, weights

        return call

    for file, own in before.items():
        setattr(file, name, watched(own))
    try:
        yield seen
    finally:
        for file, own in before.items():
            setattr(file, name, own)


def by_kind(output) -> dict[str, list[Tensor]]:
    """The weights (1, head, query, key) from token to token that a model returned, by whose they are."""
    return {kind: [w for w in getattr(output, name, None) or () if _whole(w)] for name, kind in KINDS.items()}


def matched(
    layers: tuple[LayerTrace, ...], returned: dict[str, list[Tensor]], seen: list[Tensor], n_skipped: int
) -> tuple[list[tuple[Tensor, Tensor]], str]:
    """Which weights of ours belong to which of theirs, and how that is known if not by what it returns."""
    mine = {kind: [layer for layer in layers if layer.kind == kind] for kind in returned}
    n_returned = sum(map(len, returned.values()))
    if n_returned == len(layers) and all(len(mine[kind]) == len(returned[kind]) for kind in mine):
        pairs = [pair for kind in mine for pair in zip(mine[kind], returned[kind], strict=True)]
        return [_pair(*pair) for pair in pairs], ""
    named = all(len(returned[kind]) <= len(mine[kind]) + n_skipped for kind in mine)
    if named and len(seen) == len(layers):
        how = f"it returns the weights of {n_returned} layers, so its attention function was watched"
        return [_pair(*pair) for pair in zip(layers, seen, strict=True)], how
    return [], f"{len(layers)} layers are shown; its own weights were seen of {max(len(seen), n_returned)}"


def _whole(weights: object) -> bool:
    """Are these weights from every token to every token?"""
    sizes = [(q, k) for q in (tiny.N_TEXT, tiny.N_TARGET) for k in (tiny.N_TEXT, tiny.N_TARGET)]
    return isinstance(weights, Tensor) and weights.dim() == 4 and tuple(weights.shape[2:]) in sizes


def outputs(ours, theirs) -> list[tuple[Tensor, Tensor]]:
    """Logits and hidden states that both have."""
    names = ("logits", "last_hidden_state", "encoder_last_hidden_state", "prediction_logits", "start_logits")
    both = [(getattr(ours, name, None), getattr(theirs, name, None)) for name in names]
    found = [(a, b) for a, b in both if isinstance(a, Tensor) and isinstance(b, Tensor)]
    if not found:
        first = [next(v for v in o.values() if isinstance(v, Tensor)) for o in (ours, theirs)]
        found = [tuple(first)]
    return found


def _pair(layer: LayerTrace, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """Ours and theirs; some return weights as they are before a sink takes its share of each row.

    ProphetNet and SqueezeBERT return the scores by the name of weights: then their softmax is taken.
    """
    ours, theirs = torch.from_numpy(layer.weights().copy()), theirs[0]
    if not are_weights(theirs) and layer.knows("q"):
        theirs = theirs.softmax(-1)
    before = layer.rule.sinks is not None and (theirs.sum(-1) - 1).abs().max() < EXACT
    return (ours / ours.sum(-1, keepdim=True) if before else ours), theirs


def _gap(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference; infinite where shapes differ or only one of two is a number."""
    if ours.shape != theirs.shape:
        return float("inf")
    gap = (ours.float() - theirs.float()).abs()
    gap[ours.isnan() & theirs.isnan()] = 0.0
    return gap.nan_to_num(nan=float("inf")).max().item()


def _summary(skipped: tuple[str, ...]) -> list[str]:
    """What was left out: each reason once, and how often."""
    reasons = Counter(entry.split(": ", 1)[-1] for entry in skipped)
    return [f"{n} × {reason}" for reason, n in reasons.items()]


def _short(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    text = re.sub(r"'[^']*site-packages.", "'", text)  # where a library lies is nobody's business
    return text.removeprefix("MhaError: ")[:300].strip()
