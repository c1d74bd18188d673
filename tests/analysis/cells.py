"""Explains random numbers of traces: the terms and the code give the number in its matrix."""

import contextlib
import io
import random
from collections.abc import Iterator

import numpy as np
import torch

import mha_core as mha
from mha_core.analysis.explanation import EXPLAINED, Explanation
from mha_core.attention.functional import HALF
from mha_core.export import head_view
from mha_core.traces.matrices import MATRICES

TEXTS = head_view.texts("en")
ROUNDING = 1e-6  # of the sum of the sizes of all products
UNITS = 4  # in the last place of a number in half precision


def places(trace: mha.AttentionTrace, count: int, seed: int = 0) -> Iterator[tuple[str, dict]]:
    """This many random numbers of a trace: the name of a matrix, and a place in it."""
    draw = random.Random(seed)
    while count:
        name, at = draw.choice(list(EXPLAINED)), draw.randrange(len(trace.layers))
        layer = trace.layers[at]
        width = {"q": "d_k", "k": "d_k", "v": "d_v", "output": "d_v"}
        if name in width and not layer.knows(name[0] if name != "output" else "v"):
            continue
        sizes = {"head": layer.n_heads, "query": layer.n_query, "key": layer.n_key}
        if name in width:
            sizes["dimension"] = getattr(layer, width[name])
        elif name == "concat":
            sizes["dimension"] = layer.n_heads * (layer.d_v if layer.knows("v") else 1)
        else:
            sizes["dimension"] = layer.projections.w_o.shape[1] if layer.knows("w_o") else 1
        axes, _ = EXPLAINED[name]
        yield name, {"layer": at} | {axis: draw.randrange(sizes[axis]) for axis in axes}
        count -= 1


def fault(trace: mha.AttentionTrace, name: str, place: dict) -> str:
    """The fault of the explanation of a number, "" for none. Raises `MhaError` as `explain` does."""
    explanation = mha.explain(trace, name, **place)
    layer, recorded = trace.layers[place["layer"]], _number_in_trace(trace, name, place)
    dtypes = [tensor.dtype for tensor in layer.tensors.values()]
    dtype = next((dtype for dtype in dtypes if dtype in HALF), dtypes[0])
    if not is_close(explanation, explanation.value, recorded, dtype):
        return f"{explanation.value} is explained, the matrix has {recorded}"
    for step in explanation.steps:
        if not {f"path_columns_{step.name}", f"path_stage_{step.name}"} & TEXTS.keys():
            return f"there is no text for {step.name}"
        if step.name == "softmax":
            if not np.isclose(step.terms.sum(), 1.0) and step.terms.any():
                return f"the shares of the softmax sum to {step.terms.sum()}"
        elif np.isfinite(step.value) and abs(step.terms.sum() - step.value) > ROUNDING * max(
            step.size, abs(step.value)
        ):
            return f"the terms of {step.name} sum to {step.terms.sum()}, not to {step.value}"
        if len(step.labels) not in (0, len(step.terms)):
            return f"{len(step.labels)} labels of {step.name} for {len(step.terms)} terms"
        for factor in step.factors:
            if len(step.terms) > 1 and step.name != "bias" and len(factor) != len(step.terms):
                return f"{len(factor)} factors of {step.name} for {len(step.terms)} terms"
    printed = output(explanation.pytorch())
    if not is_close(explanation, printed, recorded, dtype):
        return f"its code prints {printed}, the trace has {recorded}"
    return ""


def is_close(explanation: Explanation, one: float, other: float, dtype: torch.dtype) -> bool:
    """Whether two numbers are equal up to rounding."""
    limit = ROUNDING * max(explanation.size, abs(other))
    if dtype in HALF and np.isfinite(other):
        steps = [step for step in explanation.steps if step.name in ("rotary", "projection")]
        parts = max((np.abs(step.terms).max() for step in steps), default=0.0)
        limit += UNITS * torch.finfo(dtype).eps * max(abs(other), parts, torch.finfo(dtype).tiny)
    return one == other or abs(one - other) <= limit


def output(code: str) -> float:
    """The number that a snippet prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    return float(printed.getvalue())


def _number_in_trace(trace: mha.AttentionTrace, name: str, place: dict) -> float:
    """The number in its matrix, computed with one row only: other rows would round differently."""
    row, column = (place[axis] for axis in ("query", "key", "dimension") if axis in place)
    side = {"keys": [row]} if MATRICES[name].axes[0] == "key" else {"rows": [row]}
    return float(MATRICES[name].values(trace.layers[place["layer"]], place.get("head"), **side)[0, column])
