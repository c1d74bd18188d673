"""A strip with every layer of the model and what it is; a click moves to that layer."""

from functools import lru_cache

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MixerTrace
from mha_core.analysis.frames import WINDOW, Origin, origin, window
from mha_core.analysis.layer_kinds import LayerKind, layer_kinds
from mha_core.figures.heatmap import heatmap
from mha_core.figures.mixing import mixing
from pages._kit import charts, state
from pages._kit.text import literal, t

STRIP, MIXER_HEAD = "place", "mixer_head"  # keys of widgets, and names in the link


def show(trace: AttentionTrace, scene: state.Scene) -> None:
    """The strip, and below it the picture of the layer that was clicked, where it has one of its own."""
    kinds = layer_kinds(trace)
    _follow(kinds, scene)
    st.subheader(t("layers.title"), help=t("layers.help"))
    place = st.pills(
        t("layers.title"),
        range(1, len(kinds) + 1),
        key=STRIP,
        format_func=lambda place: f"{place} {_what(kinds[place - 1])}",
        required=True,
        label_visibility="collapsed",
        on_change=_picked,
        args=(kinds,),
    )
    chosen = kinds[place - 1]
    if chosen.mixer is not None:
        _mixer(trace, trace.mixers[chosen.mixer], scene)
        return
    number, name = chosen.layer + 1, literal(chosen.name or "–")
    st.caption(t("layers.attention", number=number, name=name, what=_what(chosen)))
    _index(trace, scene, layer=chosen.layer)
    _gate(trace, scene, layer=chosen.layer)


def _what(kind: LayerKind) -> str:
    """What a layer is, in a few words."""
    words = t(f"layers.kind_{kind.kind}", size=kind.size or 0)
    return ", ".join([words, *(t(f"layers.trait_{trait}") for trait in kind.traits)])


def _follow(kinds: tuple[LayerKind, ...], scene: state.Scene) -> None:
    """Set the strip to the layer that another control has chosen; a mixer stays until one is.

    The link has the place as a number: the strip itself would write its words there.
    """
    linked = st.query_params.get(STRIP, "")
    place = st.session_state.get(STRIP) or (int(linked) if linked.isdecimal() else 0)
    chosen = kinds[place - 1] if place in range(1, len(kinds) + 1) else None
    if chosen is None or chosen.mixer is None:
        layer = min(scene.layer, sum(kind.layer is not None for kind in kinds)) - 1
        place = next((at for at, kind in enumerate(kinds, 1) if layer >= 0 and kind.layer == layer), 1)
    st.session_state[STRIP] = place


def _picked(kinds: tuple[LayerKind, ...]) -> None:
    place = st.session_state[STRIP]
    st.query_params[STRIP] = str(place)
    if (layer := kinds[place - 1].layer) is not None:
        state.go(layer=layer + 1)


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
    labels, token = trace.tokens.labels, min(scene.token, len(trace.tokens)) - 1
    part = window(len(labels), token, WINDOW) or slice(None)
    later = ~np.tri(len(labels), dtype=bool)
    hidden = later[part, part] if not matrix[later].any() else None
    frame = pd.DataFrame(
        matrix[part, part], pd.Index(labels[part], name="query"), pd.Index(labels[part], name="key")
    )
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
        origin=Origin(trace.source, trace.title),
        table=frame,
        config=charts.HEATMAP_CONFIG,
    )
    st.caption(
        t(
            "layers.numbers",
            low=literal(f"{matrix.min():.3g}"),
            high=literal(f"{matrix.max():.3g}"),
            negative=f"{(matrix < 0).mean():.0%}",
            least=literal(f"{sums.min():.3g}"),
            most=literal(f"{sums.max():.3g}"),
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
    part = window(len(labels), query, WINDOW) or slice(None)
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
                origin=origin(trace, layer=layer, head=head),
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
    part = window(len(labels), query, WINDOW) or slice(None)
    values = gate[head] if about.over == "number" else gate[..., 0].T
    name = "dimension" if about.over == "number" else "head"
    frame = pd.DataFrame(
        values[part],
        pd.Index(labels[part], name="query"),
        pd.RangeIndex(1, values.shape[1] + 1, name=name),
    )
    title = t(f"layers.gate_{about.over}", activation=about.activation, head=head + 1)
    st.caption(title)
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
        origin=origin(trace, layer=layer, head=head),
        table=frame,
        config=charts.HEATMAP_CONFIG,
    )
