"""One sentence on a page: its tokens, where the chosen one looks, and what the model makes of it."""

from collections.abc import Iterable

import numpy as np
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import WHOLE, longest
from mha_core.training.lexicon import lexicon
from pages._kit import components, hiding, state, two_texts
from pages._kit.text import isolated, literal, t

MOST_NAMED = 4
LEAST_SAID = 0.01  # share that is worth a word


def sentence(
    trace: AttentionTrace,
    *,
    layer: int,
    head: int,
    query: int,
    limit: float,
    key: str = "token_strip",
    hides: bool = False,
) -> None:
    """The sentence as tokens, shaded by the chosen token's row, that row in words, and the answer.

    A click chooses a token or, where it `hides` and the switch for that is on, hides it.
    """
    recorded = trace.layers[layer]
    labels, keys = (side.labels for side in trace.sides(recorded))
    query = min(query, len(labels) - 1)
    row, allowed = (see(head, rows=[query])[0] for see in (recorded.weights, recorded.allowed))
    hides = hides and hiding.on(trace)
    if two_texts.there(trace) and longest(trace) <= WHOLE:
        two_texts.strips(trace, layer=layer, head=head, query=query, limit=limit, key=key)
    elif longest(trace) <= WHOLE:
        components.token_strip(
            row,
            allowed,
            labels,
            chosen=query,
            limit=limit,
            on_pick=lambda token: hiding.toggle(trace, token, key) if hides else state.go(token=token + 1),
            hides=[hiding.hint(trace, token, key) for token in range(len(labels))] if hides else None,
            key=key,
        )
    name = literal(isolated(labels[query]))
    if not row.any():
        st.markdown(t("token.looks_nowhere", head=head + 1, query=name))
        return
    order = np.argsort(-row, kind="stable")[:MOST_NAMED]
    said = _listed((keys[i], row[i]) for i in order)
    with st.container(gap="xsmall"):
        st.markdown(t("token.looks", head=head + 1, query=name, list=said))
        if trace.answers:
            answer(trace, query)


def answer(trace: AttentionTrace, query: int) -> None:
    """What the model takes the chosen token to be, if it was ever trained to say."""
    answer, piece = trace.answers[query], trace.tokens.pieces[query]
    name = literal(isolated(trace.tokens.labels[query]))
    if answer is None:
        st.caption(t("answer.none", query=name))
        return
    nouns = lexicon(trace.source["language"]).noun_forms
    kind = "hidden" if piece == hiding.MASK else "pronoun" if answer[0][0] in nouns else "itself"
    st.markdown(t(f"answer.{kind}", query=name, list=_listed(answer)))


def _listed(shares: Iterable[tuple[str, float]]) -> str:
    """Words with their shares, the largest always and the others where they are worth a word."""
    first, *others = shares
    worth = [first, *(share for share in others if share[1] >= LEAST_SAID)]
    return ", ".join(
        t("token.looks_item", key=literal(isolated(word)), weight=f"{share:.2f}") for word, share in worth
    )
