"""The steps behind one number, for the panel below a matrix (pictures/explanation_panel.js)."""

from typing import Any

import numpy as np

from mha_core import AttentionTrace, MhaError, explain
from mha_core.analysis.explanation import EXPLAINED, Equation, Explanation
from mha_core.traces.matrices import MATRICES
from pages._kit.text import said


def describe_cell(
    trace: AttentionTrace, name: str, *, layer: int, head: int | None, row: int, column: int, symbol: str
) -> dict:
    """The steps behind the number in a row and a column of a matrix, both from 0, or why there are none.

    `symbol` is the name of the matrix on screen.
    """
    axes, _ = EXPLAINED[name]
    row_axis, column_axis = MATRICES[name].axes
    indices: dict[str, Any] = {"query" if row_axis == "token" else row_axis: row}
    indices["key" if column_axis == "key" else "dimension"] = column
    if "head" in axes:
        indices["head"] = head
    described: dict[str, object] = {"symbol": symbol}
    sides = trace.layers[layer].sides
    try:
        described["from"] = (sides.keys if row_axis == "key" else sides.queries).labels[row]
        described["to"] = sides.keys.labels[column] if column_axis == "key" else column + 1
        return described | _as_json(explain(trace, name, layer=layer, **indices))
    except (MhaError, IndexError) as refusal:  # the text has changed meanwhile
        return described | {"refusal": said(refusal)}


def _as_json(explanation: Explanation) -> dict:
    return {
        "value": explanation.value,
        "steps": [_step(step, explanation.key) for step in explanation.steps],
        "code": explanation.pytorch(),
        "latex": explanation.latex,
        "edits": list(map(said, explanation.edits)),
    }


def _step(step: Equation, key: int | None) -> dict:
    """A step for JSON, which has no infinity; that of a softmax names the key whose weight it gives."""
    return {
        "chosen": key if step.name == "softmax" else None,
        "name": step.name,
        "value": _finite(step.value),
        "labels": list(map(said, step.labels)),
        "factors": [[_finite(one) for one in factor.tolist()] for factor in step.factors],
        "terms": [_finite(term) for term in step.terms.tolist()],
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
