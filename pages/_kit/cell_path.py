"""Draws with a slider how one cell is computed: from a query and a key to the output of the head."""

from collections.abc import Mapping

from mha_core import AttentionTrace
from mha_core.traces.matrices import MATRICES
from pages._kit import components, head_view
from pages._kit.text import said, template, templates

HEIGHT = 430  # pixels until it is drawn

_path = components.component(
    "cell_path",
    "pictures/cell_path.js",
    html='<div class="cell-path"></div>',
    styles=("pictures/cell_path.css",),
)


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
        "texts": {
            **templates("cell_path."),
            "cell_number": template("heatmap.cell_number"),
            "edited": template("head_view.explain_edited"),
        },
    }
    _path(key=name, data=data, height=HEIGHT if opens else 1)
    components.send(name, blob, key=f"{name}_blob")
