"""The measurements of the heads of a layer: their roles and patterns, and how alike they look."""

import json

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, LayerTrace
from mha_core.analysis import patterns, roles
from mha_core.analysis.frames import WHOLE, longest, origin
from mha_core.figures.heatmap import heatmap
from pages._kit import charts, role_labels, state
from pages._kit.text import number, t

KEPT = 32
MOST_CELLS, LEAST_ROWS = 30_000_000, 32  # that are compared, over all pairs of heads: half a second


def show(trace: AttentionTrace, scene: state.Scene, *, layer: int, head: int) -> None:
    """Roles of this head, patterns of all heads here, and how alike they are."""
    if longest(trace) > WHOLE:  # the overview has measured the rest
        if trace.layers[layer].n_heads > 1:
            with st.expander(t("roles.alike_title")):
                likeness(trace, scene, layer=layer)
        return
    with st.expander(t("roles.title")):
        measured = role_labels.of_scene(trace, scene)
        if measured is not None:
            st.markdown(t("roles.how", share=roles.MIN_SHARE, weight=roles.MIN_WEIGHT, margin=roles.MARGIN))
            own = measured[(measured["layer"] == layer) & (measured["head"] == head)]
            table = own.drop(columns=["layer", "head"]).sort_values("score", ascending=False)
            table["role"] = table["role"].map(role_labels.name)
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
        table.index = pd.Index([t("heads.grid_name", head=h + 1) for h in table.index], name="head")
        table.columns = [t(f"roles.pattern.{name}") for name in table]
        st.dataframe(table.round(3), key="patterns_table")
        likeness(trace, scene, layer=layer)


def likeness(trace: AttentionTrace, scene: state.Scene, *, layer: int) -> None:
    """Each two heads of the layer compared, as a heatmap and on average; nothing for one head."""
    recorded = trace.layers[layer]
    if recorded.n_heads < 2:
        return
    rows = recorded.n_query if longest(trace) <= WHOLE else rows_of(recorded)
    alike = _alike(json.dumps(scene.settings(), sort_keys=True), layer, rows, recorded)
    names = pd.Index([str(head + 1) for head in range(len(alike))], name="head")
    frame = pd.DataFrame(alike, names, names)
    off = alike.sum() - len(alike)
    mean = off / (len(alike) * (len(alike) - 1))
    st.markdown(t("roles.alike", mean=number(mean)))
    if rows < recorded.n_query:
        st.caption(t("roles.alike_some", rows=rows, tokens=recorded.n_query))
    figure = heatmap(frame, kind="weights", rows=t("control.head"), columns=t("control.head"), limit=1.0)
    alt = t("roles.alike_alt", heads=len(alike), mean=number(mean))
    title, where = t("roles.alike_title"), origin(trace, layer=layer)
    charts.draw(figure, key="alike", alt=alt, title=title, origin=where, table=frame, width=420)


def rows_of(layer: LayerTrace) -> int:
    """How many rows of a long text are compared, so that nobody waits."""
    pairs = layer.n_heads * (layer.n_heads - 1) // 2
    return min(layer.n_query, max(LEAST_ROWS, MOST_CELLS // (pairs * layer.n_key)))


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _alike(settings: str, layer: int, rows: int, _layer: LayerTrace) -> np.ndarray:
    return patterns.similarity(_layer, max_rows=rows).to_numpy()
