"""Pictures as values: a data frame goes in, a plotly Figure comes out. No torch, no web framework."""

from mha_core.figures import (
    bars,
    curves,
    grouped_query,
    heatmap,
    lines,
    packed,
    scatter,
    theme,
)

__all__ = [
    "bars",
    "curves",
    "grouped_query",
    "heatmap",
    "lines",
    "packed",
    "scatter",
    "theme",
]
