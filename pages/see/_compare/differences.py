"""How the weights of two heads differ: cell by cell, and for each word."""

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import MhaError, difference
from mha_core.analysis.comparison import compare, divergence, is_same_text
from pages._kit import heatmaps, pair, state
from pages._kit.text import literal, said, short, t

ROW = 96  # pixels of the picture with one row
HIDDEN_SHARE = 0.005  # of the weight: less that goes to tokens without a partner is not worth a sentence


def first(sides: pair.Pair) -> None:
    """The first matrix in which two models, or two files, differ, and the reason."""
    try:
        found = difference(*(side.trace for side in sides))
    except MhaError:  # other texts or other numbers of heads: nothing to compare number by number
        return
    st.caption(literal(" ".join(map(said, found.sentences()))))


def of_weights(sides: pair.Pair) -> None:
    """The weights of both heads, their difference, and their divergence for each word."""
    first, second = (side.trace.layers[side.layer] for side in sides)
    if is_same_text(first, second):
        pair.show_matrices(sides, ("weights",), key="compare", difference=True)
        rows = pair.part(sides[0]).queries
        tables = [side.trace.frame("weights", layer=side.layer, head=side.head, rows=rows) for side in sides]
        _divergence(divergence(*tables), sides[0].query - (rows.start if rows else 0))
        return
    pair.show_matrices(sides, ("weights",), key="compare")
    try:
        compared = compare(first, second, heads=(sides[0].head, sides[1].head))
    except MhaError as error:
        st.caption(literal(said(error)))
        return
    st.subheader(t("compare.by_words"))
    st.caption(t("compare.by_words_how"))
    for side, share in zip(sides, compared.others, strict=True):
        if share > HIDDEN_SHARE:
            st.caption(t("compare.others", side=literal(side.heading), share=short(share)))
    named = {"first": compared.first, "second": compared.second}
    end = heatmaps.scale_end(
        state.focus().scale, max(float(table.to_numpy().max()) for table in named.values())
    )
    drawn = [
        heatmaps.Heatmap(name, side.heading, t("matrix.weights"), table, "weights", limit=end)
        for (name, table), side in zip(named.items(), sides, strict=True)
    ]
    drawn.append(pair.subtract(*drawn))
    heatmaps.draw(drawn, key="compare-words", stacked=True)
    _divergence(divergence(compared.first, compared.second), compared.row_of(sides[0].query))


def _divergence(bits: pd.Series, here: int | None) -> None:
    """One row of colours, and in words that of the row `here` and the largest."""
    if np.isnan(bits).all():
        return
    st.subheader(t("compare.divergence"))
    st.caption(t("compare.divergence_how"))
    most = int(np.nanargmax(bits))
    at = most if here is None else here
    words = {"word": literal(bits.index[at]), "most": literal(bits.index[most])}
    numbers = {"bits": short(bits.iloc[at]), "most_bits": short(bits.iloc[most])}
    st.markdown(t(f"compare.divergence_{'most' if at == most else 'here'}", **words, **numbers))
    hidden = np.isnan(bits.to_numpy())[None]
    row = pd.DataFrame([bits.fillna(0.0)], pd.Index(["JSD"], name="bits"), bits.index.rename("token"))
    matrix = heatmaps.Heatmap(
        "divergence",
        "JSD",
        t("compare.divergence"),
        row,
        "weights",
        hidden=hidden if hidden.any() else None,
        hidden_text=t("compare.no_row"),
    )
    heatmaps.draw([matrix], key="compare-divergence", tall=ROW)
