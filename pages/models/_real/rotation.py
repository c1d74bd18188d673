"""A rotary position code: pairs of numbers of one query or key as arrows, before and after rotation."""

import math

import numpy as np
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import origin
from mha_core.analysis.rotary import rotated_pairs
from mha_core.figures.arrows import arrows
from pages._kit import charts
from pages._kit.text import isolated, literal, t

MAX_PAIRS = 8  # in the figure, from the fastest rotation to the slowest
VECTORS = ("q", "k")  # values of a URL parameter


def show(trace: AttentionTrace, *, layer: int, head: int, token: int) -> None:
    """A few pairs of the token's query or key in the plane; nothing for a layer without rotary positions."""
    layer_trace = trace.layers[layer]
    if layer_trace.about.rotary is None:
        return
    st.header(t("rotation.title", layer=layer + 1, head=head + 1), help=t("rotation.help"))
    name = st.segmented_control(
        t("rotation.vector"),
        VECTORS,
        default=VECTORS[0],
        required=True,
        key="rotated_vector",
        bind="query-params",
    )
    name = name or VECTORS[0]  # a link can say that it is empty
    table = rotated_pairs(layer_trace, token, head=head, name=name)
    word = trace.tokens.labels[token]
    st.markdown(
        t(
            "rotation.intro",
            token=literal(isolated(word)),
            position=token,
            pairs=len(table),
            width=2 * len(table),
            d_k=layer_trace.d_k,
        )
    )
    if name == "k" and layer_trace.about.latent is not None:
        st.caption(t("rotation.shared"))
    chosen = table.iloc[np.unique(np.linspace(0, len(table) - 1, min(MAX_PAIRS, len(table))).astype(int))]
    titles = [_title(pair, row, token) for pair, row in chosen.iterrows()]
    alt = t("rotation.alt", token=word, count=len(chosen), list="; ".join(titles))
    charts.draw(
        arrows(chosen, titles=titles, words=(t("rotation.before"), t("rotation.after"))),
        key="rotation",
        alt=alt,
        title=t("rotation.title", layer=layer + 1, head=head + 1),
        origin=origin(trace, layer=layer, head=head),
    )
    with st.popover(t("rotation.table")):
        degrees = table.assign(theta=np.degrees(table["theta"]), angle=np.degrees(table["angle"]))
        degrees[["first", "second"]] += 1
        columns = {column: t(f"rotation.column_{column}") for column in degrees}
        st.dataframe(degrees.rename(columns=columns).rename_axis(t("rotation.pair")), key="rotation_table")


def _title(pair: int, row, position: int) -> str:
    """The title of a pair: its number and its angle, the position times the angle of one position."""
    degrees = math.degrees(row["theta"])
    if not math.isfinite(row["angle"]):
        return t("rotation.pair_of", pair=pair)
    return t("rotation.angle", pair=pair, position=position, theta=f"{degrees:.3g}")
