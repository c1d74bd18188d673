"""The line about words that a small model does not know, with the offer of a model that reads them."""

import streamlit as st

from mha_core import AttentionTrace
from mha_core.sources import mini
from mha_core.training.lexicon import HIDDEN
from pages._kit import refusals
from pages._kit.text import isolated, joined, literal, paragraph, t


def show(trace: AttentionTrace, *, vectors: bool = False, again: bool = False) -> None:
    """The line, also on pronouns that such a word decides.

    `vectors` are of known words alone; `again` says that the line has been said of another sentence.
    """
    if not trace.tokens.unknown:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="xxsmall"):
        if said := _said(trace, vectors=vectors, again=again):
            st.caption(said)
        if not (vectors or again):
            refusals.offer_package(trace)


def _said(trace: AttentionTrace, *, vectors: bool, again: bool) -> str:
    pieces = [trace.tokens.pieces[at] for at in trace.tokens.unknown]
    if vectors:
        return t("unknown.off_map", words=joined(_bold(piece) for piece in dict.fromkeys(pieces)))
    said = [] if again else [t("unknown.line")]
    for at in mini.main_tokens(trace) if "decider" in trace.questions else ():
        answer = trace.questions["decider"][at]
        if trace.answered.pieces[at] != HIDDEN and answer and answer[0][0] in pieces:
            words = {"query": _bold(trace.answered.labels[at]), "word": _bold(answer[0][0])}
            said.append(t("unknown.guesses", **words))
    return paragraph(said)


def _bold(word: str) -> str:
    return f"**{literal(isolated(word))}**"
