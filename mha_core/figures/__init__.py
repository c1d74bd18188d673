"""Functions from a data frame to a plotly Figure, without torch and without a web framework."""

from mha_core.figures import (
    bars,
    curves,
    grouped_query,
    head_map,
    heatmap,
    lines,
    packed,
    scatter,
    strips,
    theme,
)

__all__ = [
    "bars",
    "curves",
    "grouped_query",
    "head_map",
    "heatmap",
    "lines",
    "packed",
    "scatter",
    "strips",
    "theme",
]
