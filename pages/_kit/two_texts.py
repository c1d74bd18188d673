"""Where one text looks at another, as in a translation: whose tokens are asked about, and both sentences."""

import streamlit as st

from mha_core import AttentionTrace
from pages._kit import components, state
from pages._kit.text import t


def there(trace: AttentionTrace) -> bool:
    """Are the tokens that look not those that are looked at?"""
    queries, keys = trace.sides()
    return queries is not keys


def looked_at(trace: AttentionTrace, *, layer: int, head: int, query: int) -> int:
    """The token that is looked at, from 0: the chosen one, or else the one that the query looks at most.

    Where a text looks at itself it is the token that looks.
    """
    if not there(trace):
        return query
    chosen = state.current().key_token
    if chosen and chosen <= trace.layers[layer].n_key:
        return chosen - 1
    return int(trace.layers[layer].weights(head, rows=[query])[0].argmax())


def strips(trace: AttentionTrace, *, layer: int, head: int, query: int, limit: float, key: str) -> None:
    """Both texts as tokens: the chosen one among those that look, and the others shaded by its row."""
    queries, keys = trace.sides(trace.layers[layer])
    shown = trace.layers[layer]
    row, allowed = (see(head, rows=[query])[0] for see in (shown.weights, shown.allowed))
    chosen = looked_at(trace, layer=layer, head=head, query=query)
    with st.container(gap="xsmall"):
        st.caption(t("two.looks"))
        components.token_strip(
            None,
            None,
            queries.labels,
            chosen=query,
            limit=1.0,
            on_pick=lambda token: state.go(token=token + 1),
            key=key,
        )
        st.caption(t("two.looked_at"))
        components.token_strip(
            row,
            allowed,
            keys.labels,
            chosen=chosen,
            limit=limit,
            on_pick=lambda token: state.go(key_token=token + 1),
            key=f"{key}_keys",
            query=queries.labels[query],
        )
