"""The layers of a model: a strip with all, and the pictures of the chosen one: mixing matrix, index, gate."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MixerTrace
from mha_core.analysis.frames import WINDOW, Origin, Part, origin, window
from mha_core.figures.heatmap import heatmap
from mha_core.figures.mixing import mixing
from mha_core.traces.tokens import Sides
from pages._kit import charts, layer_strip, state
from pages._kit.text import literal, t

MIXER_HEAD = "mixer_head"  # key of a control, and its name in the link


def show(trace: AttentionTrace, scene: state.Scene) -> None:
    """The strip of layers, and below it the pictures of the chosen layer, where it has some of its own."""
    chosen = layer_strip.show(trace, scene)
    if chosen.mixer is not None:
        _mixer(trace, trace.mixers[chosen.mixer], scene)
        return
    number, name = chosen.layer + 1, literal(chosen.name or "–")
    st.caption(t("layers.attention", number=number, name=name, what=layer_strip.words(chosen)))
    _index(trace, scene, layer=chosen.layer)
    _gate(trace, scene, layer=chosen.layer)


@lru_cache(maxsize=4)
def _matrix(mixer: MixerTrace, head: int) -> np.ndarray:
    return mixer.mixing(head)


def _mixer(trace: AttentionTrace, mixer: MixerTrace, scene: state.Scene) -> None:
    """The matrix of one head or channel of a layer without softmax, with the sum of each row."""
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
    matrix = _matrix(mixer, head - 1)
    sides = Sides(trace.tokens, trace.tokens)
    labels, token = trace.tokens.labels, state.token_in(trace.tokens, scene)
    cut = window(len(labels), token, WINDOW)
    shown, part = Part(cut, cut), cut or slice(None)
    later = ~np.tri(len(labels), dtype=bool)
    hidden = later[part, part] if not matrix[later].any() else None
    frame = pd.DataFrame(
        matrix[part, part], pd.Index(labels[part], name="query"), pd.Index(labels[part], name="key")
    )
    charts.say_part(shown, sides)
    sums = matrix.sum(1)
    title = t(f"layers.title_{mixer.unit}", name=mixer.name, head=head)
    charts.draw(
        mixing(
            frame,
            sums[part],
            rows=t("layers.to"),
            columns=t("layers.from"),
            words=t("layers.sum"),
            hidden=hidden,
            hidden_text=t("layers.later"),
            row=token - (part.start or 0),
        ),
        key="mixing",
        alt=t("layers.alt", title=title, low=f"{matrix.min():.3g}", high=f"{matrix.max():.3g}"),
        title=title,
        origin=Origin(trace.source, trace.title, spans=shown.spans(sides)),
        table=frame,
        config=charts.HEATMAP_CONFIG,
    )
    st.caption(
        t(
            "layers.numbers",
            low=literal(f"{matrix.min():.3g}"),
            high=literal(f"{matrix.max():.3g}"),
            negative=f"{(matrix < 0).mean():.0%}",
            minimum=literal(f"{sums.min():.3g}"),
            maximum=literal(f"{sums.max():.3g}"),
        )
    )


def _index(trace: AttentionTrace, scene: state.Scene, *, layer: int) -> None:
    """Three pictures of a learned index: its scores, what it let through, what attention then took."""
    layer_trace = trace.layers[layer]
    if (index := layer_trace.index) is None:
        return
    _, head, query = state.indices(trace, scene)
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
        "chosen": (pd.DataFrame(chosen[part, part].astype(np.float32), rows, keys), "weights", None),
        "taken": (pd.DataFrame(weights, rows, keys), "weights", ~chosen[part, part]),
    }
    if index.scores is not None:
        scores = index.scores[own].repeat(index.block_size, axis=1)[:, : len(labels)][part, part]
        blank = ~np.isfinite(scores)
        pictures = {"scores": (pd.DataFrame(scores, rows, keys), "signed", blank)} | pictures
    for cell, (name, (frame, kind, hidden)) in zip(st.columns(len(pictures)), pictures.items(), strict=True):
        with cell:
            title = t(f"layers.index_{name}")
            st.caption(title)
            charts.draw(
                heatmap(
                    frame,
                    kind=kind,
                    rows=t("layers.to"),
                    columns=t("layers.from"),
                    hidden=hidden,
                    hidden_text=t("layers.not_chosen"),
                    row=query - (part.start or 0),
                ),
                key=f"index-{name}",
                alt=title,
                title=title,
                origin=where,
                table=frame,
                config=charts.HEATMAP_CONFIG,
            )


def _gate(trace: AttentionTrace, scene: state.Scene, *, layer: int) -> None:
    """The gate on the outputs of the layer's heads."""
    layer_trace = trace.layers[layer]
    if (about := layer_trace.about.gate) is None:
        return
    _, head, query = state.indices(trace, scene)
    gate = layer_trace.tensor("gate")
    labels = layer_trace.sides.queries.labels
    cut = window(len(labels), query, WINDOW)
    shown, part = Part(cut), cut or slice(None)
    values = gate[head] if about.over == "number" else gate[..., 0].T
    name = "dimension" if about.over == "number" else "head"
    frame = pd.DataFrame(
        values[part],
        pd.Index(labels[part], name="query"),
        pd.RangeIndex(1, values.shape[1] + 1, name=name),
    )
    title = t(f"layers.gate_{about.over}", activation=about.activation, head=head + 1)
    st.caption(title)
    charts.say_part(shown, layer_trace.sides)
    charts.draw(
        heatmap(
            frame,
            kind="weights" if about.activation == "sigmoid" else "signed",
            rows=t("layers.to"),
            columns=t(f"layers.gate_of_{about.over}"),
            row=query - (part.start or 0),
        ),
        key="gate",
        alt=title,
        title=title,
        origin=replace(origin(trace, layer=layer, head=head), spans=shown.spans(layer_trace.sides)),
        table=frame,
        config=charts.HEATMAP_CONFIG,
    )
