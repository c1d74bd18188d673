"""The matrix by which a layer without softmax mixes tokens."""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import Origin
from mha_core.scene.places import token_in
from mha_core.scene.scene import Scene
from mha_core.traces.tokens import Sides
from pages._kit import charts, compute, heatmaps
from pages._kit.heatmaps import Heatmap
from pages._kit.text import literal, said, signed, t

MIXER_HEAD = "mixer_head"  # key of a control, and its name in the link
ACROSS = 4  # widths of the sums of rows in one row of pictures: the rest of it has the matrix


def show(trace: AttentionTrace, number: int, scene: Scene) -> None:
    """The matrix of one head or channel of a layer without softmax, with the sum of each row."""
    mixer = trace.mixers[number]
    st.markdown(t(f"layers.mixer_{mixer.unit}", name=literal(mixer.name), rule=literal(said(mixer.rule))))
    if mixer.convolution:
        st.caption(t("layers.convolution", width=mixer.convolution))
    st.session_state[MIXER_HEAD] = min(st.session_state.get(MIXER_HEAD) or 1, mixer.n_heads)
    head = st.number_input(
        t(f"layers.{mixer.unit}"),
        min_value=1,
        max_value=mixer.n_heads,
        key=MIXER_HEAD,
        bind="query-params",
        width=160,
    )
    key = f"{number} {head} {compute.cache_key(scene)}"
    matrix = compute.kept("mixers", key, lambda: mixer.mixing(head - 1))
    labels, token = trace.tokens.labels, token_in(trace.tokens, scene.focus)
    part, first, spans = charts.window_of(Sides(trace.tokens, trace.tokens), token, keys=True)
    later = ~np.tri(len(labels), dtype=bool)
    hidden = later[part, part] if not matrix[later].any() else None
    takers, givers = (pd.Index(labels[part], name=name) for name in ("to", "from"))
    sums = matrix.sum(1)
    where = Origin(trace.source, trace.title, spans=spans)
    common: dict[str, Any] = {"row": token - first, "origin": where, "start": (first, None)}
    matrix_drawn = Heatmap(
        "mixing",
        t("layers.mixing"),
        t(f"layers.of_{mixer.unit}", name=mixer.name, head=head),
        pd.DataFrame(matrix[part, part], takers, givers),
        "signed",
        hidden=hidden,
        hidden_text=t("layers.later"),
        span=ACROSS - 1,
        **common,
    )
    column = pd.DataFrame({"Σ": sums[part]}, takers).rename_axis("sum", axis=1)
    sums_drawn = Heatmap("sums", t("layers.sum"), "", column, "signed", **common)
    heatmaps.draw([matrix_drawn, sums_drawn], key="mixing", across=ACROSS)
    st.caption(
        t(
            "layers.numbers",
            low=signed(matrix.min(), "z.3g"),
            high=signed(matrix.max(), "z.3g"),
            negative=f"{(matrix < 0).mean():.0%}",
            minimum=signed(sums.min(), "z.3g"),
            maximum=signed(sums.max(), "z.3g"),
        )
    )
