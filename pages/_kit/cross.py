"""Attention of one text to another, which has no diagonal and no sentence of its own to be drawn over."""

import streamlit as st

from mha_core import AttentionTrace
from mha_core.views import WINDOW, picture
from pages._kit import model, opened, show, state
from pages._kit.text import t


def page(trace: AttentionTrace, scene: state.Scene) -> None:
    """What can be said of a head wherever its queries and keys come from: its matrices, and their check."""
    layer_index, head, query = state.indices(trace, scene)
    layer = trace.layers[layer_index]
    st.header(t("heads.one_layer", head=head + 1, layer=layer_index + 1))
    st.info(t("file.cross"), icon=":material/compare_arrows:")
    model.about(trace)
    show.check_badge(layer, query)
    if max(layer.n_query, layer.n_key) > WINDOW:
        st.info(t("long.elsewhere", count=f"{max(layer.n_query, layer.n_key):,}", longest=WINDOW))
        return
    names = ("q", "k", "v", "scores", "weights", "output") if opened.known(layer) else ("weights",)
    cells = st.grid(3 if len(names) > 1 else 1, min_column_width=300)
    limit = float(layer.weights(head).max()) or 1.0
    for name in names:
        with cells.container():
            drawn = picture(trace, name, layer=layer_index, head=head)
            show.matrix(drawn, key=f"matrix-{name}", limit=limit, query=query)
