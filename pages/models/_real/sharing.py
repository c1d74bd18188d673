"""A diagram of the keys and values that heads share, and the latent vectors of MLA."""

from dataclasses import replace

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.cost import short_vectors
from mha_core.analysis.frames import origin
from mha_core.figures.grouped_query import grouped_query, latent
from pages._kit import charts, heatmaps
from pages._kit.heatmaps import Heatmap
from pages._kit.model_info import counted
from pages._kit.text import t


def diagram(trace: AttentionTrace, *, layer: int) -> None:
    """Each query head with a line to its keys and values; nothing where they are unknown."""
    layer_trace = trace.layers[layer]
    if not layer_trace.knows("k"):
        return
    heads = layer_trace.n_heads
    queries = t("sharing.queries", count=heads)
    if (latent_about := layer_trace.about.latent) is not None:
        parts = [
            (latent_about.kv_rank, t("sharing.short")),
            (latent_about.rotary_width or 0, t("sharing.position")),
        ]
        parts = [part for part in parts if part[0]]
        alt = t("sharing.alt_latent", heads=heads, widths=" + ".join(str(width) for width, _ in parts))
        hover = [t("sharing.head_latent", head=head + 1) for head in range(heads)]
        names = " + ".join(name for _, name in parts)
        figure = latent(heads, parts, queries=queries, keys=t("sharing.kept", names=names), hover=hover)
    else:
        kv_heads = [layer_trace.kv_head(head) for head in range(heads)]
        hover = [t("sharing.head", head=head + 1, kv=kv + 1) for head, kv in enumerate(kv_heads)]
        size = counted({kv_heads.count(kv) for kv in kv_heads})
        alt = t("sharing.alt", heads=heads, kv=layer_trace.n_kv_heads, size=size)
        figure = grouped_query(
            kv_heads, queries=queries, keys=t("sharing.keys", count=layer_trace.n_kv_heads), hover=hover
        )
    charts.draw(
        figure,
        key="sharing",
        alt=alt,
        title=t("sharing.title", layer=layer + 1),
        origin=origin(trace, layer=layer),
    )


def vectors(trace: AttentionTrace, *, layer: int, token: int) -> None:
    """The short vectors of latent attention, one row for each token; nothing for any other layer."""
    named_vectors = short_vectors(trace.layers[layer])
    if not named_vectors:
        return
    st.markdown(f"### {t('sharing.vectors', layer=layer + 1)}")
    sides = trace.layers[layer].sides
    rows, first, spans = charts.window_of(sides, token, keys=False)
    for name, values in named_vectors.items():
        title = t(f"sharing.vector_{name}", count=values.shape[1])
        dimensions = pd.RangeIndex(1, values.shape[1] + 1, name="dimension")
        matrix = Heatmap(
            name,
            t(f"sharing.name_{name}"),
            title,
            pd.DataFrame(values[rows], pd.Index(sides.queries.labels[rows], name="token"), dimensions),
            "signed",
            row=token - first,
            origin=replace(origin(trace, layer=layer), spans=spans),
            start=(first, None),
        )
        heatmaps.draw([matrix], key=f"short-{name}")
