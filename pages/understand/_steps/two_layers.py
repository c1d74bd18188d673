"""The path of a token through two layers, in words, and the weights of two heads, multiplied."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import MAX_ALL_PAIRS, Crop, around, picture
from mha_core.analysis.rollout import best_hops, two_hops
from mha_core.focus import token_names
from mha_core.scene.places import indices
from mha_core.scene.scene import Scene
from mha_core.traces.answers import NOTHING
from mha_core.training.lexicon import normalized
from pages._kit import charts, choice, chooser, compute, heatmaps, model_info, state
from pages._kit.scene import in_fragment, scene_and_trace, second_trace
from pages._kit.text import literal, raised, short, t

OWN_SIZES: dict[str, Any] = {"h": 4, "d_model": 64}  # of the small model that this view shows


class Hops(NamedTuple):
    """A token and the two heads on its path, from 0: `second` in `layer`, `first` in the layer before."""

    query: int
    layer: int
    first: int
    second: int


def page() -> None:
    st.title(t("two_layers.heading"), anchor=False)
    scene, trace = scene_and_trace(_own(state.current()))
    second_trace(scene)
    if not trace.sides.same:
        st.info(t("two_layers.two_texts"), icon=":material/translate:")
    elif len(trace.layers) < 2:
        st.info(t("two_layers.one_layer"), icon=":material/layers:")
        st.button(t("real.use_mini"), key="take_mini", on_click=state.go, kwargs={"source": "mini"})
    else:
        if scene.source == "mini":
            architecture = choice.word("architecture", scene.architecture)
            st.caption(t("two_layers.own", architecture=architecture, **OWN_SIZES))
        _hops()
        if getattr(trace.source.origin, "architecture", "") == "standard":
            st.markdown(t("two_layers.standard"))
        model_info.about(trace)


def _own(scene: Scene) -> Scene:
    """The scene with this view's small model: the standard one, in which an answer takes two hops."""
    return replace(scene, architecture="standard", **OWN_SIZES) if scene.source == "mini" else scene


@st.fragment
def _hops() -> None:
    """The two heads, the sentence, the path and the matrices of both sentences."""
    scene, trace = in_fragment(_own(state.current()))
    chosen, _, query = indices(trace, scene.focus)
    layer = max(1, chosen)  # layer 1 where the first is chosen, before which there is none
    st.caption(t("two_layers.intro", one=layer, two=layer + 1))
    best = Hops(query, layer, *compute.once(trace, _best, query=query, layer=layer))
    asked = token_names.as_number(scene.focus.hop1), token_names.as_number(scene.focus.hop2)
    first, second = (
        min(number, trace.layers[at].n_heads) - 1 if number else default
        for default, number, at in zip(best[2:], asked, (layer - 1, layer), strict=True)
    )
    hops = Hops(query, layer, first, second)
    _choose(trace, hops, best)
    twin = second_trace(scene, explains=False)
    for name, sentence_trace in (("first", trace), ("twin", twin)):
        if sentence_trace:
            if twin:
                st.header(literal(sentence_trace.title), anchor=False)
            of_sentence = hops._replace(query=min(query, len(sentence_trace.tokens) - 1))
            st.markdown(compute.once(sentence_trace, path, hops=of_sentence))
            _show_matrices(sentence_trace, of_sentence, key=name)


def _best(trace: AttentionTrace, *, query: int, layer: int) -> tuple[int, int]:
    """The two heads that most lead to the model's answer for the token, or back to the token without one."""
    answer = trace.answers[query] if trace.answers else None
    word = answer[0][0] if answer else NOTHING
    found = (
        at
        for at, piece in enumerate(trace.tokens.pieces)
        if word != NOTHING and word in (piece, normalized(piece)) and at != query
    )
    return best_hops(trace, query, next(found, query), layer=layer)


def _row(trace: AttentionTrace, *, hops: Hops) -> np.ndarray:
    """The weights with which the token reaches each key in two hops. (key,)"""
    query, layer, first, second = hops
    return two_hops(trace, first=first, second=second, layer=layer, rows=[query]).to_numpy()[0]


def _choose(trace: AttentionTrace, hops: Hops, best: Hops) -> None:
    """The layer of the second hop, both heads, and the sentence, shaded by where the token gets to."""
    query, layer, first, second = hops
    row = compute.once(trace, _row, hops=hops)
    chooser.show(
        [
            chooser.NumberRow("layer", t("control.layer"), len(trace.layers) - 1, layer - 1, first=2),
            *(
                chooser.NumberRow(
                    field, t("control.hop", layer=at + 1), trace.layers[at].n_heads, head, heads=True
                )
                for field, at, head in (("hop1", layer - 1, first), ("hop2", layer, second))
            ),
        ],
        [
            chooser.Strip(
                "token",
                t("two_layers.strip"),
                trace.tokens,
                query,
                query=trace.tokens.labels[query],
                row=(row, np.ones(len(row), bool)),
                limit=heatmaps.scale_end(state.focus().scale, float(row.max())),
            )
        ],
    )
    st.button(
        t("two_layers.best"),
        key="best_hops",
        on_click=state.go,
        kwargs={"hop1": None, "hop2": None},
        help=t("two_layers.best_help"),
        disabled=hops == best,
    )


def path(trace: AttentionTrace, *, hops: Hops) -> str:
    """The strongest path of the token in words, with the direct weight of the second layer."""
    query, layer, first, second = hops
    names = [literal(label) for label in trace.tokens.labels]
    product = compute.once(trace, _row, hops=hops)
    end = int(product.argmax())
    two, one = (
        trace.layers[layer].weights(second, rows=[query])[0],
        trace.layers[layer - 1].column(end)[first],
    )
    through = int((two * one).argmax())
    return t(
        "two_layers.path",
        query=names[query],
        through=names[through],
        end=names[end],
        second=short(two[through]),
        first=short(one[through]),
        product=short(product[end]),
        direct=short(two[end]),
        one=layer,
        two=layer + 1,
    )


def _show_matrices(trace: AttentionTrace, hops: Hops, *, key: str) -> None:
    """The weights of both heads and their product, on one colour scale; of a long text the part around."""
    part = around(trace, hops.query, layer=hops.layer, head=hops.second, size=MAX_ALL_PAIRS)
    charts.show_part(part, trace.sides)
    drawn = compute.once(trace, _matrices, hops=hops, part=part, scale=state.focus().scale)
    traces, heads = dict.fromkeys(("first", "second"), trace), {"hop1": hops.first, "hop2": hops.second}
    heatmaps.draw(drawn, key=f"hops-{key}", traces=traces, with_cell=heads)


def _matrices(trace: AttentionTrace, *, hops: Hops, part: Crop, scale: str) -> list[heatmaps.Heatmap]:
    query, layer, first, second = hops
    one, two = (
        picture(trace, "weights", layer=at, head=head, part=part)
        for at, head in ((layer - 1, first), (layer, second))
    )
    product = two_hops(trace, first=first, second=second, layer=layer, rows=part.queries, keys=part.keys)
    symbols = [
        t("two_layers.symbol", layer=raised(layer), head=first + 1),
        t("two_layers.symbol", layer=raised(layer + 1), head=second + 1),
    ]
    pictures = (
        replace(one, symbol=symbols[0]),
        replace(two, symbol=symbols[1]),
        replace(
            two,
            name="hops",
            symbol=t("two_layers.product", one=raised(layer), two=raised(layer + 1)),
            frame=product,
            hidden=None,
            origin=replace(two.origin, layer=None, head=None, note=" · ".join(symbols)),
        ),
    )
    limit = heatmaps.scale_end(scale, float(np.max([matrix.frame.to_numpy().max() for matrix in pictures])))
    return [
        heatmaps.to_heatmap(matrix, name, limit=limit, query=query, result=name == "product")
        for name, matrix in zip(("first", "second", "product"), pictures, strict=True)
    ]
