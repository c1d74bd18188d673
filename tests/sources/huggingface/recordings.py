"""Every family as `mha.record` sees it, with torch's fused attention and with its own eager code.

    python -m tests.sources.huggingface.recordings         # all families, about four minutes
    python -m tests.sources.huggingface.recordings bart qwen3_next

A tiny model runs as its owner runs it, at two lengths, while it is recorded. Each recorded layer is compared
with the same layer of a trace; what of that trace is not recorded, layer or mixer, must be named.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import torch
import transformers
from torch import Tensor, nn

import mha_core as mha
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.layer import LayerTrace
from mha_core.traces.trace import AttentionTrace
from tests.parity import tiny
from tests.parity.compare import output_gap, traced
from tests.parity.table import EXACT

IMPLEMENTATIONS = ("sdpa", "eager")
ROUNDING = 16 * torch.finfo(torch.float32).eps  # of scores, in units of the largest
SAME = 1e-3  # of outputs: a larger difference is another computation


def outcomes(family: str, lengths=tiny.LENGTHS) -> Iterator[str]:
    """A sentence for each implementation and length; one that begins with WRONG is a bug of ours."""
    built = tiny.model(family)
    try:
        model = huggingface.adopt(built, tiny.tokenizer(built))
    except mha.MhaError as error:
        yield f"no trace: {error}"
        return
    for length in lengths:
        try:
            reference, output = traced(model, length)
        except mha.MhaError as error:
            yield f"no trace: {error}"
            continue
        inputs = tiny.inputs(model, reference, length)
        for name in IMPLEMENTATIONS:
            own = tiny.model(family)
            try:
                own.set_attn_implementation(name)
            except (ValueError, ImportError):
                continue
            output = output if type(own) is type(model.module) else None
            yield f"{_outcome(own, inputs, reference, output)} ({name}, {length[0]} tokens)"


def _outcome(own: nn.Module, inputs: Mapping[str, Tensor], reference: AttentionTrace, output: object) -> str:
    text, target = reference.tokens.labels, inputs.get("decoder_input_ids")
    sides = {"tokens": text}
    if target is not None:
        sides = {"tokens": [f"t{n}" for n in range(target.shape[1])], "keys": text}
    try:
        ran, recorder = _recorded(own, inputs, sides)
    except Exception as error:  # some models do not run with the cache that they ask for
        try:
            ran, recorder = _recorded(own, {**inputs, "use_cache": False}, sides)
        except Exception:
            return f"does not run: {type(error).__name__}: {error}"
    try:
        traces = recorder.traces
    except mha.MhaError as error:
        missing = [part.name for part in reference.mixers if part.name not in str(error)]
        return f"WRONG: not named: {missing}: {error}" if missing else f"refused: {error}"
    if output is not None and (gap := output_gap(ran, output)) > SAME:
        return f"another output: by {gap:.1e}, so its own code computes otherwise here"
    remaining, more = list(reference.layers), []
    for layer in (layer for trace in traces for layer in trace.layers):
        same = [other for other in remaining if _may_be_one(layer, other)]
        gaps = [_gap(layer, other) for other in same]
        if not same:
            more.append(layer.name)
        elif min(gaps) > _limit(layer):
            return f"WRONG: {layer.name} is off by {min(gaps):.1e}"
        else:
            remaining.remove(same[gaps.index(min(gaps))])
    skipped = " ".join(reason for trace in traces for reason in trace.source.skipped)
    missing = [part.name for part in (*remaining, *reference.mixers) if part.name not in skipped]
    if missing:
        return f"WRONG: not named: {', '.join(missing)}; named: {skipped}"
    if more:
        return f"more than traced: {', '.join(more)}; not traced: {reference.source.skipped}"
    return f"part: {skipped}" if skipped else "exact"


def _recorded(own: nn.Module, inputs: Mapping, sides: Mapping) -> tuple[object, object]:
    with torch.no_grad(), mha.record(own, **sides) as recorder:
        return own(**inputs), recorder


def _may_be_one(ours: LayerTrace, theirs: LayerTrace) -> bool:
    """Whether their names can match: a trace may have only a part, and some layers have no names."""
    return not (ours.name and theirs.name) or f".{ours.name}".endswith(f".{theirs.name}")


def _gap(ours: LayerTrace, theirs: LayerTrace) -> float:
    """The largest difference of their weights.

    A sink that multiplies outputs after the softmax (Granite) is a gate to the recorder, so its weights are
    compared without it.
    """
    one, other = ours.weights(), theirs.weights()
    if theirs.rule.sinks is not None and ours.rule.sinks is None:
        other = other / other.sum(-1, keepdims=True)
    return np.abs(one - other).max() if one.shape == other.shape else np.inf


def _limit(layer: LayerTrace) -> float:
    """How far weights may be apart: large scores are rounded more."""
    if not layer.knows("q"):
        return EXACT
    return max(EXACT, ROUNDING * np.abs(layer.scaled()).max())


def main(families: list[str]) -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    counts: Counter[str] = Counter()
    for family in families:
        try:
            tiny.model(family)
        except Exception as error:
            counts["not built"] += 1
            print(f"{family}: not built ({type(error).__name__})", flush=True)
            continue
        for outcome in outcomes(family):
            counts[outcome.partition(":")[0].partition(" (")[0]] += 1
            if not outcome.startswith("exact"):
                print(f"{family}: {outcome}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main(tiny.named(__doc__))
