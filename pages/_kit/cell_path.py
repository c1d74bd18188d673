"""The path of one cell as a drawing that is lit by hand: from a query and a key to the output of the head."""

from collections.abc import Mapping
from functools import cache

from mha_core import AttentionTrace
from mha_core.export import head_view
from mha_core.export.payload import pack
from mha_core.traces.matrices import MATRICES
from pages._kit import components, compute
from pages._kit.language import language
from pages._kit.text import said, template

HEIGHT = 430  # pixels until it is drawn
STAGES = ("vectors", "products", "scale", "cap", "bias", "mask", "temperature", "powers", "shares", "patch")
STAGES += ("mixture",)
WORDS = tuple(f"stage_{stage}" for stage in STAGES)
WORDS += (
    "start",
    "vectors",
    "vectors_shared",
    "products",
    "products_some",
    "scale",
    "scale_own",
    "cap",
    "bias",
)
WORDS += (
    "mask_hides",
    "mask_shows",
    "temperature",
    "powers",
    "powers_some",
    "shares",
    "patch",
    "patch_other",
    "mixture",
)
WORDS += ("mixture_some", "mixture_patched", "column_score", "column_power", "column_weight", "column_part")
WORDS += ("cell_product", "cell_part", "others", "sink", "choose", "slider", "play", "pause")

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
    """Draw the path of a cell; positions count from 0. Without a `key` that with the largest weight.

    With `steps` the path belongs to the steps of a page and follows the focus: each name has the stage up to
    which the path is lit, a step without a stage hides it. `opens` says whether it is shown at first, and
    `name` is its element key. Raises `MhaError` for a score rule that a browser cannot compute.
    """
    of_layer = trace.layers[layer]
    blob = compute.of(trace, _packed, layer=layer, head=head)
    data = {
        "name": name,
        "digest": components.digest(blob),
        "head": head,
        "query": query,
        "key": key,
        "steps": steps,
        "symbols": {matrix: MATRICES[matrix].written(of_layer, head) for matrix in ("q", "k", "output")},
        "shared": of_layer.n_heads // of_layer.n_kv_heads,
        "edits": [said(edit.describe()) for edit in trace.source.edits],
        "texts": _texts(language()),
    }
    _path(key=name, data=data, height=HEIGHT if opens else 1)
    components.send(name, blob, key=f"{name}_blob")


def _packed(trace: AttentionTrace, *, layer: int, head: int) -> bytes:
    """The numbers of one head."""
    return pack([head_view.panel(trace, [layer])], heads=[head], values=True)


@cache
def _texts(_language: str) -> dict[str, str]:
    return {name: template(f"cell_path.{name}") for name in WORDS} | {
        "cell_number": template("heatmap.cell_number"),
        "edited": template("head_view.explain_edited"),
    }
