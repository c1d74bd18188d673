"""The words of the sentence as two heads see them: what a projection to a few numbers keeps and loses."""

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, LayerTrace
from mha_core.analysis.embeddings import kept, project, table
from mha_core.analysis.frames import origin
from mha_core.figures.packed import Packed
from mha_core.figures.scatter import scatter
from mha_core.scene.places import indices
from pages._kit import charts, compute, state
from pages._kit.scene import in_fragment
from pages._kit.text import t
from pages.understand._embeddings.words import axes_of

MAX_WORDS = 64
WIDTHS, HEIGHT = (280, 480), 340  # pixels
NARROW = {"source": "random", "h": 32, "d_model": 64}  # heads of two numbers, of which a map shows all


def possible(trace: AttentionTrace) -> bool:
    """Whether the keys of the words come from an X that is known, in several heads."""
    layer = trace.layers[-1]
    return layer.knows("x") and layer.knows("w_k") and layer.n_kv_heads > 1 and layer.n_key <= MAX_WORDS


@st.fragment
def two_heads() -> None:
    """The keys of two heads on a map each, and the share of the words' differences that each head keeps."""
    scene, trace = in_fragment()
    at, head, _ = indices(trace, scene.focus)
    layer = trace.layers[at]
    one = layer.kv_head(head)
    heads = (one, (one + 1) % layer.n_kv_heads)
    shares = [f"{100 * compute.once(layer, _kept, head=number):.0f}" for number in heads]
    st.markdown(
        t(
            "words.two_heads_how",
            d_model=layer.d_model,
            d_k=layer.d_k,
            layer=at + 1,
            one=heads[0] + 1,
            other=heads[1] + 1,
            of_one=shares[0],
            of_other=shares[1],
        )
    )
    for column, number in zip(st.columns(2), heads, strict=True):
        figure, shown = compute.once(trace, _map, layer=at, head=number)
        title = t("words.two_heads_title", head=number + 1, share=f"{shown:.1f}")
        with column:
            charts.draw(
                figure,
                key=f"head_map_{number + 1}",
                alt=t("words.two_heads_alt", count=layer.n_key, head=number + 1),
                title=title,
                origin=origin(trace, layer=at, head=number),
            )
            st.caption(title)
    if layer.d_k > 3:
        st.button(t("words.two_numbers"), key="two_numbers", on_click=state.go, kwargs=NARROW)


def _kept(layer: LayerTrace, *, head: int) -> float:
    w_k, x = layer.projections.w_k, layer.x
    assert w_k is not None  # the page asks for it (`possible`)
    assert x is not None
    return kept(x, w_k[:, head * layer.d_k : (head + 1) * layer.d_k].float().numpy())


def _map(trace: AttentionTrace, *, layer: int, head: int) -> tuple[Packed, float]:
    """The keys on their main axes, all of them where there are three or fewer, and their per cent of all."""
    of = trace.layers[layer]
    axes = 3 if of.d_k == 3 else 2
    keys = project(table(of.sides.keys.labels, of.k[head]), axes=axes)
    figure = scatter(
        keys.points,
        axes=axes_of(keys),
        groups=pd.Series(t("words.two_heads_keys", head=head + 1), index=keys.points.index),
        labelled=set(keys.points.index),
        widths=WIDTHS,
        height=HEIGHT,
    )
    return Packed(figure), float(keys.percents.sum())
