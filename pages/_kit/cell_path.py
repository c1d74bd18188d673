"""Where a number comes from, for the one drawing of it: its path, the terms below it, and its code."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from mha_core import AttentionTrace, MhaError, explain
from mha_core.analysis.explanation import EXPLAINED, Equation, Explanation
from mha_core.errors import Phrase
from mha_core.export import head_view as views
from mha_core.traces.matrices import MATRICES
from pages._kit import components, head_view
from pages._kit.text import language, said

HEIGHT = 430  # pixels until it is drawn
_path = components.component("cell_path", "pictures/page_path.js", "pictures/cell_path.css", box="page-path")


def draw(
    trace: AttentionTrace,
    *,
    layer: int,
    head: int,
    query: int,
    key: int | None = None,
    name: str = "cell_path",
    steps: Mapping[str, str] | None = None,
    opens: bool = True,
) -> None:
    """Draw the path of a cell. Positions count from 0; without a `key` it is the one with the largest weight.

    `steps` gives for each step of the page the last stage that is coloured; other steps hide the path. With
    `steps` the path follows the focus of the page. `opens` says whether it is shown at first; `name` is its
    element key. Raises `MhaError` for a score rule that a browser cannot compute.
    """
    layer_trace = trace.layers[layer]
    blob = head_view.packed([trace], [trace.title], [layer], [head], values=True)
    data = {
        "name": name,
        "digest": components.digest(blob),
        "head": head,
        "query": query,
        "key": key,
        "steps": steps,
        "symbols": {matrix: MATRICES[matrix].written(layer_trace, head) for matrix in ("q", "k", "output")},
        "shared": layer_trace.n_heads // layer_trace.n_kv_heads,
        "edits": [said(edit.describe()) for edit in trace.source.edits],
        "texts": texts(language()),
    }
    _path(key=name, data=data, height=HEIGHT if opens else 1)
    components.send(name, blob)


@cache
def texts(language: str) -> dict[str, str]:
    """The texts of the drawing, under the same names as in the head view."""
    every = views.texts(language)
    return {name: text for name, text in every.items() if name.startswith("path_")} | {
        "matrices_number": every["matrices_number"]
    }


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
        "value": _finite(explanation.value),
        "steps": [_step(step, explanation.key) for step in explanation.steps],
        "code": explanation.pytorch(),
        "latex": explanation.latex,
        "edits": list(map(said, explanation.edits)),
    }


def _step(step: Equation, key: int | None) -> dict:
    """A step for JSON, which has no infinity; that of a softmax names the key whose weight it gives."""
    return {
        "chosen": key if step.name == "softmax" else None,
        "sinks": sum(isinstance(label, Phrase) for label in step.labels) if step.name == "softmax" else 0,
        "name": step.name,
        "value": _finite(step.value),
        "labels": list(map(said, step.labels)),
        "factors": [[_finite(one) for one in factor.tolist()] for factor in step.factors],
        "terms": [_finite(term) for term in step.terms.tolist()],
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
