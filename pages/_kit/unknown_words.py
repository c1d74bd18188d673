"""The line about words that a small model does not know, with the offer of a model that reads them."""

import streamlit as st

from mha_core import AttentionTrace
from mha_core.scene.scene import Scene
from mha_core.sources import mini
from mha_core.training.lexicon import HIDDEN
from pages._kit import compute, refusals
from pages._kit.compute import Nearest
from pages._kit.text import isolated, joined, literal, paragraph, t


def show(found: Nearest, asked: Scene, field: str, vectors: bool) -> None:
    """Draw the line, which also names the pronouns whose noun such a word decides.

    With `vectors` it names the words without a vector instead. Below a second sentence it does not repeat
    what the line below the first one says.
    """
    first = compute.peek(asked) if field == "twin" else None
    again = first is not None and bool(first.tokens.unknown)
    with st.container(horizontal=True, vertical_alignment="center", gap="xxsmall"):
        if said := _said(found.trace, vectors=vectors, again=again):
            st.caption(said)
        if not (vectors or again):
            refusals.offer_package(found.trace)


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
