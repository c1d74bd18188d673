"""The layers of a model: a strip with all, and the pictures of the chosen one: mixing matrix, index, gate."""

from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import WINDOW, Origin, Part, origin, window
from mha_core.cache import Cache
from mha_core.scene.places import indices, token_in
from mha_core.scene.scene import Scene
from mha_core.traces.tokens import Sides
from pages._kit import charts, compute, heatmaps, layer_strip
from pages._kit.heatmaps import Heatmap
from pages._kit.text import literal, signed, t

MIXER_HEAD = "mixer_head"  # key of a control, and its name in the link
ACROSS = 4  # widths of the sums of rows in one row of pictures: the rest of it has the matrix
SUM = "Σ"
MAX_BYTES = 140_000_000  # of the matrices of all mixers together; of 4,096 tokens one has 67 MB
_matrices: Cache[np.ndarray] = Cache(MAX_BYTES)


def show(trace: AttentionTrace, scene: Scene) -> None:
    """The strip of layers, and below it the pictures of the chosen layer, where it has some of its own."""
    chosen = layer_strip.show(trace, scene)
    if chosen.mixer is not None:
        _mixer(trace, chosen.mixer, scene)
        return
    number, name = chosen.layer + 1, literal(chosen.name or "–")
    st.caption(t("layers.attention", number=number, name=name, what=layer_strip.words(chosen)))
    _index(trace, scene, layer=chosen.layer)
    _gate(trace, scene, layer=chosen.layer)


def _mixer(trace: AttentionTrace, number: int, scene: Scene) -> None:
    """The matrix of one head or channel of a layer without softmax, with the sum of each row."""
    mixer = trace.mixers[number]
    st.markdown(t(f"layers.mixer_{mixer.unit}", name=literal(mixer.name), rule=literal(mixer.rule)))
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
    matrix = _matrices.get(key, lambda _key: mixer.mixing(head - 1))
    sides = Sides(trace.tokens, trace.tokens)
    labels, token = trace.tokens.labels, token_in(trace.tokens, scene)
    cut = window(len(labels), token, WINDOW)
    shown, part = Part(cut, cut), cut or slice(None)
    later = ~np.tri(len(labels), dtype=bool)
    hidden = later[part, part] if not matrix[later].any() else None
    charts.say_part(shown, sides)
    takers, givers = (pd.Index(labels[part], name=name) for name in ("to", "from"))
    sums = matrix.sum(1)
    first = part.start or 0
    where = Origin(trace.source, trace.title, spans=shown.spans(sides))
    common = {"row": token - first, "origin": where, "start": (first, None)}
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
    column = pd.DataFrame({SUM: sums[part]}, takers).rename_axis("sum", axis=1)
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


def _index(trace: AttentionTrace, scene: Scene, *, layer: int) -> None:
    """Three pictures of a learned index: its scores, what it let through, what attention then took."""
    layer_trace = trace.layers[layer]
    if (index := layer_trace.index) is None:
        return
    _, head, query = indices(trace, scene)
    own = head * index.n_heads // layer_trace.n_heads
    share = index.share(head)
    st.markdown(
        t(
            "layers.index",
            count=index.budget * index.block_size,
            share=f"{share[query]:.1%}",
            head=head + 1,
        )
    )
    labels = layer_trace.sides.queries.labels
    cut = window(len(labels), query, WINDOW)
    shown, part = Part(cut, cut), cut or slice(None)
    charts.say_part(shown, layer_trace.sides)
    where = replace(origin(trace, layer=layer, head=head), spans=shown.spans(layer_trace.sides))
    rows, keys = pd.Index(labels[part], name="query"), pd.Index(labels[part], name="key")
    chosen = index.chosen[own]
    weights = layer_trace.weights(head)[part, part]
    pictures = {
        "chosen": (chosen[part, part], "weights", None),
        "taken": (weights, "weights", ~chosen[part, part]),
    }
    if index.scores is not None:
        scores = index.scores[own].repeat(index.block_size, axis=1)[:, : len(labels)][part, part]
        pictures = {"scores": (scores, "signed", ~np.isfinite(scores))} | pictures
    drawn = [
        Heatmap(
            name,
            t(f"layers.index_{name}"),
            "",
            pd.DataFrame(values, rows, keys),
            kind,
            hidden=hidden,
            hidden_text=t("layers.not_chosen"),
            row=query - (part.start or 0),
            origin=where,
            start=(part.start or 0, None),
        )
        for name, (values, kind, hidden) in pictures.items()
    ]
    heatmaps.draw(drawn, key="index")


def _gate(trace: AttentionTrace, scene: Scene, *, layer: int) -> None:
    """The gate on the outputs of the layer's heads."""
    layer_trace = trace.layers[layer]
    if (about := layer_trace.about.gate) is None:
        return
    _, head, query = indices(trace, scene)
    gate = layer_trace.tensor("gate")
    labels = layer_trace.sides.queries.labels
    cut = window(len(labels), query, WINDOW)
    shown, part = Part(cut), cut or slice(None)
    values = gate[head] if about.over == "number" else gate[..., 0].T
    name = "dimension" if about.over == "number" else "head"
    frame = pd.DataFrame(
        values[part],
        pd.Index(labels[part], name="token"),
        pd.RangeIndex(1, values.shape[1] + 1, name=name),
    )
    charts.say_part(shown, layer_trace.sides)
    drawn = Heatmap(
        "gate",
        t("layers.gate"),
        t(f"layers.gate_{about.over}", activation=about.activation, head=head + 1),
        frame,
        "weights" if about.activation == "sigmoid" else "signed",
        row=query - (part.start or 0),
        origin=replace(origin(trace, layer=layer, head=head), spans=shown.spans(layer_trace.sides)),
        start=(part.start or 0, None),
    )
    heatmaps.draw([drawn], key="gate")
