"""How traces show themselves and run their models: the one door to the rooms above, which import the traces.

Each import stands inside the function that needs it. No other file below those rooms imports them.
"""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from mha_core.export.head_view import HeadView
    from mha_core.focus.focus import Focus
    from mha_core.scene.scene import Scene
    from mha_core.traces.layer import LayerTrace
    from mha_core.traces.trace import AttentionTrace


def view(trace: "AttentionTrace", **options: Any) -> "HeadView":
    """The head view of a trace, with the options of `AttentionTrace.view`."""
    from mha_core.export import head_view

    return head_view.view(trace, **options)


def logits(trace: "AttentionTrace", *asked: Any, **options: Any) -> "pd.DataFrame":
    """The logits of words at a token, with the arguments of `AttentionTrace.logits`."""
    from mha_core.interventions import ledger

    return ledger.logits(trace, *asked, **options)


def scene_of(traces: "Sequence[AttentionTrace]", focus: "Focus") -> "Scene":
    """The scene that a view of these traces shows, for its link."""
    from mha_core.scene import provenance

    return provenance.scene_of(traces, focus)


def save_model_page(path: "str | PathLike", link: str) -> None:
    """A page with a small model inside that opens at a link."""
    from mha_core.static import site

    site.save_page(path, link)


def trace_html(trace: "AttentionTrace") -> str:
    """A trace in a notebook."""
    from mha_core.export import notebook

    return notebook.trace_html(trace)


def layer_html(layer: "LayerTrace") -> str:
    """A layer in a notebook."""
    from mha_core.export import notebook

    return notebook.layer_html(layer)


def heatmap(frame: "pd.DataFrame", **options: Any) -> "go.Figure":
    """A matrix as a plotly figure, with the options of `figures.heatmap`."""
    from mha_core.figures.heatmap import heatmap

    return heatmap(frame, **options)
