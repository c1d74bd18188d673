"""The measurements of the heads of a layer: roles, patterns, and the similarity of their weights."""

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis import patterns, roles
from mha_core.analysis.frames import MAX_ALL_PAIRS, origin
from mha_core.scene.scene import Scene
from pages._kit import compute, head_labels, heatmaps
from pages._kit.text import number, t

# In a long text: weights compared over all pairs of heads at most, in half a second, and rows at least.
MAX_CELLS, MIN_ROWS = 30_000_000, 32


def show(trace: AttentionTrace, scene: Scene, *, layer: int, head: int) -> None:
    """Draw the roles of the chosen head, the patterns of all heads of the layer, and their similarity."""
    measured = head_labels.table(trace)
    if measured is not None:
        st.markdown(t("roles.how", share=roles.MIN_SHARE, weight=roles.MIN_WEIGHT, margin=roles.MARGIN))
        of_head = measured[(measured["layer"] == layer) & (measured["head"] == head)]
        table = of_head.drop(columns=["layer", "head"]).sort_values("score", ascending=False)
        table["role"] = table["role"].map(head_labels.role_name)
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
