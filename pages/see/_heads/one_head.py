"""One head in full: the controls over its matrices, one cell in numbers, and the six figures."""

import numpy as np
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import Picture, around, longest, ordered, picture
from pages._kit import matrices, refusals, sentence, state
from pages._kit.text import literal, t

# Values of URL parameters: the order of the dimensions, and where the colours of Q, K and V end.
AS_THEY_ARE, BY_TOKEN, BY_VARIANCE = ORDERS = ("as they are", "by the token", "by variance")
EACH, SHARED = ENDS = ("per matrix", "shared")
VECTORS, PAIRS = ("q", "k", "v"), ("scores", "weights", "output")
DIGITS = 6  # significant, of the numbers of one cell


def show(trace: AttentionTrace, *, layer: int, head: int, query: int, limit: float) -> None:
    """The six matrices of one head; for a long text the part around the chosen token."""
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
        matrix = picture(trace, "weights", layer=layer, head=head, part=part)
        matrices.matrix(matrix, key="matrix-weights", limit=limit, query=query)
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        order, scale = _controls()
    whole = {name: trace.frame(name, layer=layer, head=head).to_numpy() for name in VECTORS}
    end = float(np.max([np.abs(values).max() for values in whole.values()])) if scale == SHARED else None
    st.caption(t("detail.scale_each") if end is None else t("detail.scale_now", limit=f"{end:.4g}"))
    key = sentence.looked_at(trace, layer=layer, head=head, query=query)
    cells = st.grid(3, min_column_width=300)
    for name, values in whole.items():
        matrix = picture(trace, name, layer=layer, head=head, part=part)
        with cells.container():
            matrices.matrix(
                _sorted(matrix, values, order, query if name == "q" else key),
                key=f"matrix-{name}",
                limit=limit,
                query=query,
                end=end,
            )
    key_token = _cell(trace, layer=layer, head=head, query=query)
    cells = st.grid(3 if longest(trace) <= 24 else 2, min_column_width=300)
    for name in PAIRS:
        matrix = picture(trace, name, layer=layer, head=head, part=part)
        with cells.container():
            matrices.matrix(matrix, key=f"matrix-{name}", limit=limit, query=query, key_token=key_token)


def _controls() -> list[str]:
    """The order of the dimensions, and where the colours of Q, K and V end."""
    choices = {"order": ORDERS, "vector_scale": ENDS}
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
        for key, options in choices.items()
    ]


def _sorted(matrix: Picture, values: np.ndarray, order: str, token: int) -> Picture:
    """The matrix with its dimensions in that order; `values` are those of all tokens, (token, dimension)."""
    if order == AS_THEY_ARE:
        return matrix
    sizes = values[token] if order == BY_TOKEN else values.var(axis=0)
    return ordered(matrix, np.argsort(-sizes, kind="stable"))


def _cell(trace: AttentionTrace, *, layer: int, head: int, query: int) -> int | None:
    """The chosen key, from 0, after a sentence with the numbers of its cell; None where none is chosen."""
    chosen = state.current().key_token
    if chosen is None:
        st.caption(t("detail.cell_none"))
        return None
    st.markdown(_numbers(trace, layer=layer, head=head, query=query, key=chosen - 1))
    return chosen - 1


def _numbers(trace: AttentionTrace, *, layer: int, head: int, query: int, key: int) -> str:
    layer_trace = trace.layers[layer]
    queries, keys = layer_trace.sides.queries.labels, layer_trace.sides.keys.labels
    at = {"rows": [query], "keys": [key]}
    numbers = {
        name: f"{getattr(layer_trace, matrix)(head, **at).item():.{DIGITS}g}"
        for name, matrix in {"score": "scores", "scaled": "scaled", "weight": "weights"}.items()
    }
    # Direction isolates, since two Arabic words would reverse the arrow between them.
    words = {"query": f"\u2068{literal(queries[query])}\u2069", "key": f"\u2068{literal(keys[key])}\u2069"}
    if not layer_trace.allowed(head, **at).item():
        return t("detail.cell_hidden", score=numbers["score"], scaled=numbers["scaled"], **words)
    return t("detail.cell", **numbers, **words)
