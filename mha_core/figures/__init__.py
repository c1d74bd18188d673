"""Functions from a data frame to a plotly Figure, without torch and without a web framework."""

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
