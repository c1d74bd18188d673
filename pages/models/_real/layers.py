"""The layers of a model: a pill for each of them, and what else there is to see in the chosen one."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import origin
from mha_core.scene.places import indices
from mha_core.scene.scene import Scene
from pages._kit import charts, chooser, heatmaps
from pages._kit.heatmaps import Heatmap
from pages._kit.text import literal, t


def show(trace: AttentionTrace, scene: Scene) -> None:
    """The pills of the layers, and below them the pictures of the chosen layer, if it has some of its own."""
    chosen = chooser.layer_pills(trace, scene)
    if chosen.mixer is not None:
        from pages.models._real import mixer  # for models that have such layers

        mixer.show(trace, chosen.mixer, scene)
        return
    assert chosen.layer is not None  # a layer with attention is one of the trace
    number, name = chosen.layer + 1, literal(chosen.name or "–")
    st.caption(t("layers.attention", number=number, name=name, what=chooser.kind_of_layer(chosen)))
    _index(trace, scene, layer=chosen.layer)
    _gate(trace, scene, layer=chosen.layer)


def _index(trace: AttentionTrace, scene: Scene, *, layer: int) -> None:
    """Three pictures of a learned index: its scores, what it let through, what attention then took."""
    layer_trace = trace.layers[layer]
    if (index := layer_trace.index) is None:
        return
    _, head, query = indices(trace, scene.focus)
    own = head * index.n_heads // layer_trace.n_heads
    count, share = index.budget * index.block_size, index.share(head)[query]
    st.markdown(t("layers.index", count=count, share=f"{share:.1%}", head=head + 1))
    labels = layer_trace.sides.queries.labels
    part, first, spans = charts.window_of(layer_trace.sides, query, keys=True)
    where = replace(origin(trace, layer=layer, head=head), spans=spans)
    rows, keys = pd.Index(labels[part], name="query"), pd.Index(labels[part], name="key")

    def drawn(
        name: str, values: np.ndarray, kind: Literal["weights", "signed"], hidden: np.ndarray | None
    ) -> Heatmap:
        return Heatmap(
            name,
            t(f"layers.index_{name}"),
            "",
            pd.DataFrame(values, rows, keys),
            kind,
            hidden=hidden,
            hidden_text=t("layers.not_chosen"),
            row=query - first,
            origin=where,
            start=(first, None),
        )

    chosen, weights = index.chosen[own][part, part], layer_trace.weights(head)[part, part]
    pictures = [drawn("chosen", chosen, "weights", None), drawn("taken", weights, "weights", ~chosen)]
    if index.scores is not None:
        scores = index.scores[own].repeat(index.block_size, axis=1)[:, : len(labels)][part, part]
        pictures.insert(0, drawn("scores", scores, "signed", ~np.isfinite(scores)))
    heatmaps.draw(pictures, key="index")


def _gate(trace: AttentionTrace, scene: Scene, *, layer: int) -> None:
    """The gate on the outputs of the layer's heads."""
    layer_trace = trace.layers[layer]
    if (about := layer_trace.about.gate) is None:
        return
    _, head, query = indices(trace, scene.focus)
    gate = layer_trace.tensor("gate")
    labels = layer_trace.sides.queries.labels
    part, first, spans = charts.window_of(layer_trace.sides, query, keys=False)
    values, name = (gate[head], "dimension") if about.over == "number" else (gate[..., 0].T, "head")
    frame = pd.DataFrame(
        values[part],
        pd.Index(labels[part], name="token"),
        pd.RangeIndex(1, values.shape[1] + 1, name=name),
    )
    drawn = Heatmap(
        "gate",
        t("layers.gate"),
        t(f"layers.gate_{about.over}", activation=about.activation, head=head + 1),
        frame,
        "weights" if about.activation == "sigmoid" else "signed",
        row=query - first,
        origin=replace(origin(trace, layer=layer, head=head), spans=spans),
        start=(first, None),
    )
    heatmaps.draw([drawn], key="gate")
