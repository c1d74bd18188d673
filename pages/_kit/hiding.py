"""A click on a word hides it, so that the model has to guess it and its row means something.

What a hidden word was is remembered with the typed sentence: a second click gives it back.
"""

import streamlit as st

from mha_core import AttentionTrace
from pages._kit import state
from pages._kit.text import t

MASK = "[MASK]"
SWITCH = "hide"
CONTROL = {"token_strip": "text", "twin_strip": "twin"}  # where the sentence of a strip is typed
Span = tuple[int, int]


def switch(trace: AttentionTrace) -> None:
    """What a click does; only a model that was trained to guess words offers the choice."""
    if trace.answers and "file" not in trace.source:
        st.toggle(t("hide.switch"), key=SWITCH, help=t("hide.help"))


def on(trace: AttentionTrace) -> bool:
    """Does a click hide? Asked also before the switch is drawn."""
    return bool(trace.answers and "file" not in trace.source and st.session_state.get(SWITCH))


def hint(trace: AttentionTrace, token: int, strip: str) -> str | None:
    """What a click on the token would do, None where it can only be chosen."""
    shown = trace.tokens.pieces[token]
    if shown != MASK:
        start, end = trace.tokens.spans[token]
        return t("hide.hint", word=shown) if start < end else None
    was = _covered(trace, strip)
    span = _first(trace.tokens.spans[token], was[1])
    return t("hide.back", word=was[0][slice(*span)]) if span in was[1] else None


def toggle(trace: AttentionTrace, token: int, strip: str) -> None:
    """Hide the token in the sentence of that strip, or give it back, and choose it."""
    text, spans = _covered(trace, strip)
    span = _first(trace.tokens.spans[token], spans)
    if span in spans:
        spans = spans - {span}
    elif trace.tokens.pieces[token] != MASK and span[0] < span[1]:
        spans = spans | {span}
    now = _text(text, spans)
    st.session_state[f"hidden_{strip}"] = text, spans
    state.go(**{CONTROL[strip]: now, "token": token + 1})


def same(text: str, sentence: str) -> bool:
    """Is a text that sentence, whichever of its words are hidden?"""
    words, others = text.split(), sentence.split()
    return len(words) == len(others) and all(
        MASK in word or word == other for word, other in zip(words, others, strict=True)
    )


def _covered(trace: AttentionTrace, strip: str) -> tuple[str, frozenset[Span]]:
    """The sentence with all its words, and which of them are hidden; anew once something else was typed."""
    text, spans = st.session_state.get(f"hidden_{strip}", ("", frozenset()))
    return (text, spans) if _text(text, spans) == trace.tokens.text else (trace.tokens.text, frozenset())


def _text(text: str, spans: frozenset[Span]) -> str:
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + MASK + text[end:]
    return text


def _first(span: Span, spans: frozenset[Span]) -> Span:
    """Where a span of the sentence with masks lies in the one with all words."""
    start, end = span
    for first, last in sorted(spans):
        if start < first:
            break
        if start == first:
            return first, last
        start, end = (place + last - first - len(MASK) for place in (start, end))
    return start, end
