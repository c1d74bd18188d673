"""One sentence on a page in words: where the chosen token looks, what the model makes of it.

A hidden word is one that the model has to guess, so that its row means something.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import streamlit as st

from mha_core import AttentionTrace, MhaError, Tokens
from mha_core.sources.mini import UnknownWords
from mha_core.traces.source import FileSource
from mha_core.training.lexicon import HIDDEN, LANGUAGES, lexicon
from pages._kit import compute, state
from pages._kit.text import isolated, literal, short, t

MAX_NAMED = 4
MIN_SHARE = 0.01  # of a word that is named
Span = tuple[int, int]


def reading(trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """The row of a token in words, and the model's answer for it."""
    layer_trace = trace.layers[layer]
    row, keys = layer_trace.weights(head, rows=[query])[0], layer_trace.sides.keys.labels
    name = _bold(layer_trace.sides.queries.labels[query])
    if not row.any():
        st.markdown(t("token.looks_nowhere", head=head + 1, query=name))
        return
    order = np.argsort(-row, kind="stable")[:MAX_NAMED]
    shares = _listed([(keys[i], row[i]) for i in order], _bold)
    with st.container(gap="xsmall"):
        st.markdown(t("token.looks", head=head + 1, query=name, list=shares))
        if trace.answers and (answer := _answer(trace, query, _bold)):
            st.markdown(answer)


def answers(trace: AttentionTrace) -> list[str]:
    """What the model answers at each token, in words without markup; none where it was not asked."""
    return compute.of(trace, _answers)


def _answers(trace: AttentionTrace) -> list[str]:
    return [_answer(trace, query, isolated) for query in range(len(trace.answers or ()))]


def _answer(trace: AttentionTrace, query: int, written: Callable[[str], str]) -> str:
    answer, piece = trace.answers[query], trace.answered.pieces[query]
    name = written(trace.answered.labels[query])
    language = getattr(trace.source.origin, "language", None)
    if language not in LANGUAGES:
        kind = "next" if _is_next(trace) else "any"
        return "" if answer is None else t(f"answer.{kind}", query=name, list=_listed(answer, written))
    if answer is None:
        return t("answer.none", query=name)
    nouns = lexicon(language).noun_forms
    kind = "hidden" if piece == HIDDEN else "pronoun" if answer[0][0] in nouns else "itself"
    return t(f"answer.{kind}", query=name, list=_listed(answer, written))


def _is_next(trace: AttentionTrace) -> bool:
    """Whether no token sees those behind it, so that the model can but answer with the next one.

    An edit may have hidden them from a model that guesses hidden words, and answers at these alone.
    """
    layer = next(layer for layer in trace.layers if layer.sides.queries == trace.answered)
    guesses = trace.edits and None in trace.answers
    return layer.kind == "cross" or not (guesses or layer.allowed(0, rows=[0])[0, 1:].any())


def _bold(word: str) -> str:
    return f"**{literal(isolated(word))}**"


def _listed(shares: Sequence[tuple[str, float]], written: Callable[[str], str]) -> str:
    """Words with their shares, the largest always and the others where they are worth a word."""
    first, *others = shares
    worth = [first, *(share for share in others if share[1] >= MIN_SHARE)]
    return ", ".join(t("token.looks_item", key=written(word), weight=short(share)) for word, share in worth)


def hide_hints(trace: AttentionTrace, field: str) -> list[str | None]:
    """What hiding each token, or giving it back, is called, None where neither can be.

    Empty for a model that guesses no words. `field` is where the sentence is typed: "text" or "twin".
    """
    if isinstance(trace.source, FileSource) or not (trace.answers or compute.is_stand_in(trace)):
        return []
    return [_hide_hint(trace.tokens, at, field) for at in range(len(trace.tokens))]


def _hide_hint(tokens: Tokens, at: int, field: str) -> str | None:
    piece = tokens.pieces[at]
    if piece != HIDDEN:
        start, end = tokens.spans[at]
        return t("hide.hint", word=piece) if start < end else None
    text, spans = _unhidden(tokens, field)
    span = _first(tokens.spans[at], spans)
    return t("hide.back", word=text[slice(*span)]) if span in spans else None


def hide_or_show(tokens: Tokens, at: int, field: str) -> None:
    """Hide the token in the sentence that is typed in that field, or give it back."""
    text, spans = _unhidden(tokens, field)
    span = _first(tokens.spans[at], spans)
    if span in spans:
        spans = spans - {span}
        st.session_state.hides_unknown = False
    elif tokens.pieces[at] != HIDDEN and span[0] < span[1]:
        spans = spans | {span}
    st.session_state[f"hidden_{field}"] = text, spans
    state.go(**{field: _text(text, spans)})


def hide_unknown(tokens: Tokens, hidden: Iterable[int], field: str) -> None:
    """Hide the tokens at these positions in the sentence of that field, and unknown words from now on."""
    st.session_state.hides_unknown = True
    text, spans = _unhidden(tokens, field)
    spans |= {_first(tokens.spans[at], spans) for at in hidden}
    st.session_state[f"hidden_{field}"] = text, spans
    state.go(**{field: _text(text, spans)})


def hide_as_before(field: str) -> None:
    """Hide the unknown words of the sentence of that field where the reader has hidden such words before."""
    if not st.session_state.get("hides_unknown") or state.setting("source") not in state.STARTED:
        return
    try:
        _, reason = compute.trace_or_stand_in(state.current(), text=state.setting(field))
    except MhaError:  # the page says it
        return
    if isinstance(reason, UnknownWords):
        spans = frozenset((entry.start, entry.start + len(entry.word)) for entry in reason.unknown)
        st.session_state[f"hidden_{field}"] = reason.text, spans
        st.session_state[field] = _text(reason.text, spans)


def same_words(text: str, sentence: str) -> bool:
    """Is a text that sentence, whichever of its words are hidden?"""
    words, others = text.split(), sentence.split()
    return len(words) == len(others) and all(
        HIDDEN in word or word == other for word, other in zip(words, others, strict=True)
    )


def _unhidden(tokens: Tokens, field: str) -> tuple[str, frozenset[Span]]:
    """The sentence with all its words, and which of them are hidden; anew once something else was typed."""
    text, spans = st.session_state.get(f"hidden_{field}", ("", frozenset()))
    return (text, spans) if _text(text, spans) == tokens.text else (tokens.text, frozenset())


def _text(text: str, spans: frozenset[Span]) -> str:
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + HIDDEN + text[end:]
    return text


def _first(span: Span, spans: frozenset[Span]) -> Span:
    """Where a span of the sentence with masks lies in the one with all words."""
    start, end = span
    for first, last in sorted(spans):
        if start < first:
            break
        if start == first:
            return first, last
        start, end = (place + last - first - len(HIDDEN) for place in (start, end))
    return start, end
