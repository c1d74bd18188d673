"""One head in full: the controls over its matrices, one cell in numbers, and the six figures."""

import numpy as np
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import Picture, around, longest, ordered, picture
from pages._kit import matrices, refusals, sentence, state
from pages._kit.text import literal, t

AS_THEY_ARE, BY_TOKEN, BY_VARIANCE = ORDERS = (
    "as they are",
    "by the token",
    "by variance",
)  # they stand in the link
EACH, SHARED = ENDS = ("per matrix", "shared")
VECTORS, PAIRS = ("q", "k", "v"), ("scores", "weights", "output")
DIGITS = 6


def show(trace: AttentionTrace, *, layer: int, head: int, query: int, limit: float) -> None:
    """The six matrices of one head; of a long text the part around the chosen token."""
    sides = trace.layers[layer].sides
    part = around(trace, query, layer=layer, head=head)
    if part.queries:
        first, last = part.queries.start + 1, part.queries.stop
        st.info(t("detail.part", count=len(sides.queries), first=first, last=last))
    if part.keys and not sides.same:
        first, last = part.keys.start + 1, part.keys.stop
        st.info(t("detail.part_keys", count=len(sides.keys), first=first, last=last))
    if not trace.layers[layer].knows("q"):
        refusals.only_weights(trace.layers[layer])
        drawn = picture(trace, "weights", layer=layer, head=head, part=part)
        matrices.matrix(drawn, key="matrix-weights", limit=limit, query=query)
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        order, scale = _choices()
    whole = {name: trace.frame(name, layer=layer, head=head).to_numpy() for name in VECTORS}
    end = float(np.max([np.abs(values).max() for values in whole.values()])) if scale == SHARED else None
    st.caption(t("detail.scale_each") if end is None else t("detail.scale_now", limit=f"{end:.4g}"))
    key = sentence.looked_at(trace, layer=layer, head=head, query=query)
    cells = st.grid(3, min_column_width=300)
    for name, values in whole.items():
        drawn = picture(trace, name, layer=layer, head=head, part=part)
        with cells.container():
            matrices.matrix(
                _sorted(drawn, values, order, query if name == "q" else key),
                key=f"matrix-{name}",
                limit=limit,
                query=query,
                end=end,
            )
    seen = _cell(trace, layer=layer, head=head, query=query)
    cells = st.grid(3 if longest(trace) <= 24 else 2, min_column_width=300)
    for name in PAIRS:
        drawn = picture(trace, name, layer=layer, head=head, part=part)
        with cells.container():
            matrices.matrix(drawn, key=f"matrix-{name}", limit=limit, query=query, seen=seen)


def _choices() -> list[str]:
    """How the dimensions are ordered, and where the colours of Q, K and V end."""
    offered = {"order": ORDERS, "vector_scale": ENDS}
    words = {
        "order": (t("detail.order"), t("detail.order_help")),
        "vector_scale": (t("detail.scale"), t("detail.scale_help")),
    }
    return [
        st.segmented_control(
            words[key][0],
            options,
            default=options[0],
            required=True,
            key=key,
            help=words[key][1],
            bind="query-params",
        )
        for key, options in offered.items()
    ]


def _sorted(drawn: Picture, values: np.ndarray, order: str, token: int) -> Picture:
    """The picture with its dimensions in that order; `values` are those of all tokens. (token, dimension)"""
    if order == AS_THEY_ARE:
        return drawn
    by = values[token] if order == BY_TOKEN else values.var(axis=0)
    return ordered(drawn, np.argsort(-by, kind="stable"))


def _cell(trace: AttentionTrace, *, layer: int, head: int, query: int) -> int | None:
    """The token that is looked at, from 0, with its numbers in words; None for none."""
    chosen = state.current().key_token
    if chosen is None:
        st.caption(t("detail.cell_none"))
        return None
    st.markdown(_numbers(trace, layer=layer, head=head, query=query, key=chosen - 1))
    return chosen - 1


def _numbers(trace: AttentionTrace, *, layer: int, head: int, query: int, key: int) -> str:
    recorded = trace.layers[layer]
    queries, keys = recorded.sides.queries.labels, recorded.sides.keys.labels
    at = {"rows": [query], "keys": [key]}
    found = {
        name: f"{getattr(recorded, matrix)(head, **at).item():.{DIGITS}g}"
        for name, matrix in {"score": "scores", "scaled": "scaled", "weight": "weights"}.items()
    }
    # Each word in its own direction of writing: two Arabic words would turn the arrow between them round.
    words = {"query": f"\u2068{literal(queries[query])}\u2069", "key": f"\u2068{literal(keys[key])}\u2069"}
    if not recorded.allowed(head, **at).item():
        return t("detail.cell_hidden", score=found["score"], scaled=found["scaled"], **words)
    return t("detail.cell", **found, **words)
