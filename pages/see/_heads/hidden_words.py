"""Hides words of a sentence for the model to guess: one click hides a word, another shows it again."""

import streamlit as st

from mha_core import AttentionTrace, Tokens
from mha_core.traces.source import FileSource
from mha_core.training.lexicon import HIDDEN
from pages._kit import state
from pages._kit.text import t

Span = tuple[int, int]


def hints(trace: AttentionTrace) -> list[str | None]:
    """The label of the button that hides each token; None where nothing can be hidden.

    Empty for a model that guesses no words.
    """
    tokens = trace.tokens
    if isinstance(trace.source, FileSource) or not trace.answers:
        return []
    return [
        t("hide.hint", word=piece) if piece != HIDDEN and start < end else None
        for piece, (start, end) in zip(tokens.pieces, tokens.spans, strict=True)
    ]


def hints_back(trace: AttentionTrace, field: str) -> list[str | None]:
    """As `hints`, with the label that gives a hidden word back where this session hid it.

    `field` is where the sentence is typed: "text" or "twin".
    """
    tokens, found = trace.tokens, hints(trace)
    text, spans = _unhidden(tokens, field)
    for at, piece in enumerate(tokens.pieces if found else ()):
        if piece == HIDDEN and (span := _original_span(tokens.spans[at], spans)) in spans:
            found[at] = t("hide.back", word=text[slice(*span)])
    return found


def toggle(tokens: Tokens, at: int, field: str) -> None:
    """Hide the token in the sentence of that field, or show it again."""
    text, spans = _unhidden(tokens, field)
    span = _original_span(tokens.spans[at], spans)
    if span in spans:
        spans = spans - {span}
    elif tokens.pieces[at] != HIDDEN and span[0] < span[1]:
        spans = spans | {span}
    st.session_state[f"hidden_{field}"] = text, spans
    state.go(**{field: _text(text, spans), "token": at + 1})


def _unhidden(tokens: Tokens, field: str) -> tuple[str, frozenset[Span]]:
    """The sentence with all its words, and the spans of the hidden ones; none after a new text is typed."""
    text, spans = st.session_state.get(f"hidden_{field}", ("", frozenset()))
    return (text, spans) if _text(text, spans) == tokens.text else (tokens.text, frozenset())


def _text(text: str, spans: frozenset[Span]) -> str:
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + HIDDEN + text[end:]
    return text


def _original_span(span: Span, spans: frozenset[Span]) -> Span:
    """The span in the sentence with all words that a span of the sentence with masks stands for."""
    start, end = span
    for first, last in sorted(spans):
        if start < first:
            break
        if start == first:
            return first, last
        start, end = (at + last - first - len(HIDDEN) for at in (start, end))
    return start, end
