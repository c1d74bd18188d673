"""The key-value cache of a layer, with a diagram of what heads share, and the latent vectors of MLA."""

from dataclasses import replace

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.cost import cache_sizes, short_vectors
from mha_core.analysis.frames import origin
from mha_core.figures.grouped_query import grouped_query, latent
from pages._kit import charts, heatmaps
from pages._kit.heatmaps import Heatmap
from pages._kit.model_info import counted
from pages._kit.text import t


def cache(trace: AttentionTrace, *, layer: int) -> None:
    """The numbers per token in the key-value cache of a layer, beside those of other ways to share heads."""
    layer_trace = trace.layers[layer]
    sizes = cache_sizes(layer_trace)
    if sizes is None:
        return
    st.header(t("real.cache", layer=layer + 1), help=t("real.cache_help"))
    if (about := layer_trace.about.latent) is not None:
        st.markdown(t("real.latent", kv_rank=about.kv_rank, rotary_width=about.rotary_width or "–"))
        if about.q_rank is not None:
            st.caption(t("real.latent_q", q_rank=about.q_rank))
    elif layer_trace.n_kv_heads == 1 < layer_trace.n_heads:
        st.markdown(t("real.shared_one", heads=layer_trace.n_heads))
    elif layer_trace.n_kv_heads < layer_trace.n_heads:
        st.markdown(t("real.shared", heads=layer_trace.n_heads, kv=layer_trace.n_kv_heads))
    elif layer_trace.n_heads > 1:
        st.markdown(t("real.own", heads=layer_trace.n_heads))
    _diagram(trace, layer=layer)
    if sizes.get("shared") in (sizes["all"], sizes["one"]):  # the same as one of the other ways
        sizes.pop("shared")
    used = next(way for way in ("latent", "shared", "all", "one") if sizes.get(way) == sizes["own"])
    rows = [
        {
            t("real.cache_way"): t(f"real.cache_{way}"),
            t("real.cache_numbers"): sizes[way],
            t("real.cache_share"): f"{sizes[way] / sizes['all']:.1%}",
            t("real.cache_here"): "✓" if way == used else "",
        }
        for way in ("all", "shared", "latent", "one")
        if way in sizes
    ]
    st.table(rows, hide_index=True, width="content", border="horizontal")
    if about is not None:
        st.markdown(
            t(
                "real.cache_latent_sum",
                parts=" + ".join(str(n) for n in (about.kv_rank, about.rotary_width) if n is not None),
                kept=sizes["latent"],
                heads=layer_trace.n_heads,
                d_k=layer_trace.d_k,
                d_v=layer_trace.d_v,
                all=sizes["all"],
            )
        )


def _diagram(trace: AttentionTrace, *, layer: int) -> None:
    """Each query head with a line to its keys and values."""
    layer_trace = trace.layers[layer]
    heads = layer_trace.n_heads
    queries = t("sharing.queries", count=heads)
    if (about := layer_trace.about.latent) is not None:
        every = (about.kv_rank, t("sharing.short")), (about.rotary_width, t("sharing.position"))
        parts = [(width, name) for width, name in every if width]
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
