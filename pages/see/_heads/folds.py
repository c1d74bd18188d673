"""The folds of the page Heads: roles, patterns and similarity of a layer's heads, and a matrix as a table."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis import patterns, roles
from mha_core.analysis.frames import MAX_ALL_PAIRS, around, csv, long_table, origin, picture
from mha_core.scene.scene import Scene
from mha_core.traces.matrices import MATRICES
from pages._kit import charts, compute, head_labels, heatmaps
from pages._kit.heatmaps import axis, symbol
from pages._kit.text import number, t

# In a long text: weights compared over all pairs of heads at most, in half a second, and rows at least.
MAX_CELLS, MIN_ROWS = 30_000_000, 32
HEAD_MATRICES = [name for name, matrix in MATRICES.items() if not matrix.of_layer]


def measurements(trace: AttentionTrace, scene: Scene, *, layer: int, head: int) -> None:
    """Draw the roles of the chosen head, the patterns of all heads of the layer, and their similarity."""
    measured = head_labels.table(trace.source)
    if measured is not None:
        st.markdown(t("roles.how", share=roles.MIN_SHARE, weight=roles.MIN_WEIGHT, margin=roles.MARGIN))
        of_head = measured[(measured["layer"] == layer) & (measured["head"] == head)]
        table = of_head.drop(columns=["layer", "head"]).sort_values("score", ascending=False)
        table["role"] = table["role"].map(lambda role: t(f"role.{role}"))
        st.dataframe(
            table,
            hide_index=True,
            column_config={name: st.column_config.Column(t(f"roles.column.{name}")) for name in table}
            | {
                name: st.column_config.NumberColumn(t(f"roles.column.{name}"), format="%.2f")
                for name in ("score", "weight", "baseline", "control")
            },
            key="roles_table",
        )
    st.markdown(t("roles.patterns") if trace.sides.same else t("roles.two_texts"))
    table = patterns.metrics(trace.layers[layer])
    table.index = pd.Index([t("roles.head", head=h + 1) for h in table.index], name=t("axis.head"))
    table.columns = [t(f"roles.pattern.{name}") for name in table]
    st.dataframe(table.round(3), key="patterns_table")
    if trace.layers[layer].n_heads > 1:
        likeness(trace, scene, layer=layer)


def likeness(trace: AttentionTrace, scene: Scene, *, layer: int) -> None:
    """Draw the similarity of each pair of heads as a heatmap, and their mean."""
    layer_trace = trace.layers[layer]
    rows = layer_trace.n_query
    if trace.sides.length > MAX_ALL_PAIRS:
        pairs = layer_trace.n_heads * (layer_trace.n_heads - 1) // 2
        rows = min(rows, max(MIN_ROWS, MAX_CELLS // (pairs * layer_trace.n_key)))
    similarities = compute.kept(
        "similarities",
        f"{layer} {rows} {compute.cache_key(scene)}",
        lambda: patterns.similarity(layer_trace, max_rows=rows).to_numpy(),
    )
    heads = range(1, len(similarities) + 1)
    names = pd.Index([t("roles.head", head=head) for head in heads], name="head")
    frame = pd.DataFrame(similarities, names, names)
    off_diagonal = similarities.sum() - len(similarities)
    mean = off_diagonal / (len(similarities) * (len(similarities) - 1))
    st.markdown(t("roles.alike", mean=number(mean)))
    if rows < layer_trace.n_query:
        st.caption(t("roles.alike_some", rows=rows, tokens=layer_trace.n_query))
    source = origin(trace, layer=layer)
    drawn = heatmaps.Heatmap(
        "alike", t("roles.alike_name"), t("roles.alike_meaning"), frame, "weights", origin=source
    )
    heatmaps.draw([drawn], key="alike")


def numbers(trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """Draw a matrix of the chosen head as a table, and offer a CSV file with the matrix for every head.

    For a long text, both hold the part around the chosen token and this head alone.
    """
    layer_trace = trace.layers[layer]
    options = HEAD_MATRICES if layer_trace.knows("q") else ["weights"]
    if not layer_trace.knows("w_o"):
        options = [matrix for matrix in options if matrix != "contribution"]
    name = st.selectbox(
        t("heads.matrix"),
        options,
        index=options.index("weights"),
        key="table",
        format_func=lambda matrix: (
            f"{symbol(MATRICES[matrix].written(layer_trace, head))}  {t(f'matrix.{matrix}')}"
        ),
    )
    part = around(trace, query, layer=layer, head=head, size=MAX_ALL_PAIRS)
    drawn = picture(trace, name, layer=layer, head=head, part=part)
    frame = drawn.frame
    st.dataframe(frame.rename_axis(index=axis(frame.index)))
    if drawn.origin.spans:
        st.caption(charts.part(drawn.origin.spans))

    heads: Sequence[int] = [head]
    origin, hint = drawn.origin, None
    if not any(part):  # the file of a whole text has all heads
        heads, origin = range(layer_trace.n_heads), replace(origin, head=None)
        hint = t("heads.download_help")
    st.download_button(
        t("heads.download"),
        lambda: csv(long_table(trace, name, layer=layer, heads=heads, part=part)),
        file_name=f"{charts.described(name, '', origin)['file']}.csv",
        mime="text/csv",
        help=hint,
        on_click="ignore",
    )
