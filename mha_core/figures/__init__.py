"""Pictures as values: a data frame goes in, a plotly Figure comes out. No torch, no web framework."""

from mha_core.figures import (
    annotated,
    arrows,
    bars,
    curves,
    grouped_query,
    heatmap,
    lines,
    mixing,
    scatter,
    theme,
)

__all__ = [
    "annotated",
    "arrows",
    "bars",
    "curves",
    "grouped_query",
    "heatmap",
    "lines",
    "mixing",
    "scatter",
    "theme",
]
