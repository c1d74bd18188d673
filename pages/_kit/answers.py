"""A model's answers in words: below the row of a token, at every token, and on request."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.attention.edits import Edit
from mha_core.scene.first_look import EVERYWHERE, asked_about, has_answer, is_pronoun
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface.loaded import TracesByKind
from mha_core.traces.answers import NOTHING, SURE, Answer, is_known
from mha_core.traces.source import TrainedSource
from mha_core.training.lexicon import HIDDEN, LANGUAGES, Lexicon, lexicon, normalized
from mha_core.training.questions import QUESTIONS
from pages._kit import compute, model_source
from pages._kit.text import bold, isolated, joined, literal, paragraph, percent, said, short, t

MAX_NAMED = 4
MAX_GUESSES = 3  # that are named if the model does not know the answer
MIN_SHARE = 0.01  # of a word, for it to be named
MIN_BESIDES = 0.1  # of a second answer of a small model, for it to be named


def reading(trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """The row of a token in words, and the model's answers for it."""
    layer_trace = trace.layers[layer]
    row, keys = layer_trace.weights(head, rows=[query])[0], layer_trace.sides.keys.labels
    name = bold(layer_trace.sides.queries.labels[query])
    if not row.any():
        st.markdown(t("token.looks_nowhere", head=head + 1, query=name))
        return
    order = np.argsort(-row, kind="stable")[:MAX_NAMED]
    named = _worth([(keys[i], row[i]) for i in order], MIN_SHARE)
    shares = joined(t("token.looks_item", key=bold(key), weight=short(weight)) for key, weight in named)
    with st.container(gap="xsmall"):
        st.markdown(t("token.looks", head=head + 1, query=name, list=shares))
        for said in _answers_at(trace, query, bold) if trace.answers else ():
            note = f" :small[{said.note}]" if said.note else ""
            st.markdown(f"{said.asked} {said.words}{note}")


class AnswerText(NamedTuple):
    """A question about a word, the model's answer in words, and a note on how far to trust it.

    A `sure` answer of a small model has at least the probability `SURE`, and no word in it is new to it.
    `heads` are those of the last layer that are asked, from 0.
    """

    asked: str
    words: str
    note: str = ""
    sure: bool = True
    heads: tuple[int, ...] = ()


def in_words(trace: AttentionTrace, name: str | None = None, query: int = 0) -> list[list[AnswerText]]:
    """The questions at each token with the model's answers, without markup; empty where nothing is asked.

    With a `name` from `QUESTIONS`, the token `query` has only that question, if it is asked there.
    """
    every = compute.once(trace, _answers)
    answer = trace.questions[name][query] if name else None
    if name is None or answer is None:
        return every
    only = _about(trace, query, [name], answer, isolated, set())
    return [*every[:query], [only], *every[query + 1 :]]


def _answers(trace: AttentionTrace) -> list[list[AnswerText]]:
    return [_answers_at(trace, query, isolated) for query in range(len(trace.answers or ()))]


def _answers_at(trace: AttentionTrace, query: int, written: Callable[[str], str]) -> list[AnswerText]:
    answer, piece = trace.answers[query], trace.answered.pieces[query]
    if answer is None:
        return []
    name = written(trace.answered.labels[query])
    origin = trace.source.origin
    if isinstance(origin, TrainedSource) and origin.is_decoder:
        shares, known = with_shares(answer[:MAX_GUESSES], written), is_known(answer)
        words = shares if known else t("answer.perhaps", words=shares)
        return [AnswerText(t("answer.next", query=name), words, sure=known)]
    if _language(trace) not in LANGUAGES:
        kind = "next" if _is_next(trace) else "any"
        return [_said(t(f"answer.{kind}", query=name), answer, written)]
    if piece == HIDDEN:
        # Its best guess fitted in 13 of 80 everyday sentences, and it was as sure of others.
        return [_unsure(t("answer.hidden"), answer, written)]
    of_pronoun, told = is_pronoun(trace, query), set[str]()
    said = [_about(trace, query, ["noun"], answer, written, told)] if of_pronoun else []

    def rank(questions: list[str]) -> tuple[bool, float]:
        return EVERYWHERE.issuperset(questions), -min(
            round(_answer(trace, questions[0], query)[0][1], 1), SURE
        )

    for questions in sorted(_grouped_questions(trace, query, of_pronoun=of_pronoun), key=rank):
        if said and ("noun" in questions or set(questions) <= EVERYWHERE):
            continue
        answer = _answer(trace, questions[0], query)
        if not is_known(answer) and any(one.words == t("answer.unsure") for one in said):
            continue  # one "does not know" is enough
        said.append(_about(trace, query, questions, answer, written, told))
    return said or [AnswerText(t("answer.word", query=name), t("answer.nothing"))]


def _about(
    trace: AttentionTrace,
    query: int,
    questions: Sequence[str],
    answer: Answer,
    written: Callable[[str], str],
    told: set[str],
) -> AnswerText:
    """The answer of a small model to questions about a word, with notes on how far to trust it.

    A note that was `told` with another answer about the word is not repeated.
    """
    heads, best = _heads_asked(trace, questions), normalized(answer[0][0])
    by_place = EVERYWHERE.issuperset(questions)  # a word that the model has never seen has a place, too
    new = _unknown_word(trace, query, questions, best) if is_known(answer) and not by_place else None
    said = _said(
        _asked(trace, questions, query, written),
        answer,
        lambda word: t("answer.none") if word == NOTHING else written(word),
        MIN_BESIDES,
        sure=new is None and answer[0][1] >= SURE,
    )
    if not is_known(answer):
        return said._replace(heads=heads)
    notes = [] if new is None else [t("answer.guess", word=written(new))]
    tokens = trace.answered
    # A head that is off passes nothing on, wherever it looks.
    acting = [head for head in heads if trace.layers[-1].output(head, rows=[query]).any()]
    keys = [compute.once(trace, _largest)[head][query] for head in acting]
    if keys and best not in [normalized(tokens.pieces[key]) for key in keys]:
        notes.append(t("answer.differs", head=acting[0] + 1, key=written(tokens.labels[keys[0]])))
    notes = [note for note in notes if note not in told]
    told.update(notes)
    return said._replace(note=paragraph(notes), heads=heads)


def _unknown_word(trace: AttentionTrace, query: int, questions: Sequence[str], best: str) -> str | None:
    """A word that the model has never seen and that the answer is about, gives, or was decided by."""
    used = [normalized(trace.answered.pieces[query]), best]
    why = trace.questions["decider"][query] if "decider" in trace.questions else None
    if why and "noun" in questions and is_pronoun(trace, query):
        used.append(normalized(why[0][0]))
    unknown = {normalized(piece): piece for at in trace.tokens.unknown for piece in [trace.tokens.pieces[at]]}
    return next((unknown[word] for word in used if word in unknown), None)


def _largest(trace: AttentionTrace) -> list[list[int]]:
    """The key with the largest weight of each query in each head of the last layer."""
    largest: list[list[int]] = trace.layers[-1].weights().argmax(-1).tolist()
    return largest


def _heads_asked(trace: AttentionTrace, questions: Sequence[str]) -> tuple[int, ...]:
    """The heads of the last layer that are asked one of these questions."""
    origin = trace.source.origin
    asked = origin.questions if isinstance(origin, TrainedSource) else ()
    return tuple(head for head, of_head in enumerate(asked) if {*questions} & {*of_head.split()})


def question(trace: AttentionTrace, name: str, query: int) -> str:
    """A question of `QUESTIONS` about a word, in words."""
    return _asked(trace, [name], query, isolated)


def _answer(trace: AttentionTrace, question: str, query: int) -> Answer:
    """The answer to a question that has one at this word."""
    answer = trace.questions[question][query]
    assert answer is not None
    return answer


def _language(trace: AttentionTrace) -> str:
    return getattr(trace.source.origin, "language", "")


def _grouped_questions(trace: AttentionTrace, query: int, *, of_pronoun: bool) -> list[list[str]]:
    """The questions about a word that another word answers, grouped by the heads that answer them."""
    by_heads: dict[tuple[int, ...], list[str]] = {}
    for question in QUESTIONS:
        if has_answer(trace, question, query):
            by_heads.setdefault(_heads_asked(trace, [question]), []).append(question)
    every = (asked_about(questions, of_pronoun=of_pronoun) for questions in by_heads.values())
    return [questions for questions in every if questions]


def _asked(trace: AttentionTrace, questions: Sequence[str], query: int, written: Callable[[str], str]) -> str:
    """Questions about a word as text, which differs between pronouns, verbs and nouns."""
    name, asked = written(trace.answered.labels[query]), []
    for question in questions:
        kind = question
        if question == "noun" and is_pronoun(trace, query):
            kind = "pronoun"
        elif question in ("doer", "object") and _is_noun(trace, query, _answer(trace, question, query)[0][0]):
            kind = f"{question}_of"
        asked.append(t(f"answer.{kind}", query=name))
    return paragraph(asked)


def _said(
    asked: str, answer: Answer, written: Callable[[str], str], least: float = MIN_SHARE, *, sure: bool = True
) -> AnswerText:
    if not is_known(answer):
        return _unsure(asked, answer, written)
    words = with_shares(answer, written, least)
    return AnswerText(asked, words if sure else t("answer.perhaps", words=words), sure=sure)


def _unsure(asked: str, answer: Answer, written: Callable[[str], str]) -> AnswerText:
    return AnswerText(asked, t("answer.unsure"), with_shares(answer[:MAX_GUESSES], written), sure=False)


def _is_noun(trace: AttentionTrace, query: int, other: str) -> bool:
    """Whether a word is a noun and not a verb; if its form leaves that open, the `other` word decides."""
    words, other = lexicon(_language(trace)), normalized(other)
    word, nouns = normalized(trace.answered.pieces[query]), words.noun_forms | words.pronouns
    is_verb = _is_verb(words, word)
    if is_verb != (word in nouns):
        return word in nouns
    return other not in nouns and (_is_verb(words, other) or other not in words.number)


def _is_verb(words: Lexicon, word: str) -> bool:
    return any("." in name for name in words.classes.get(word, ()))


def _is_next(trace: AttentionTrace) -> bool:
    """Whether no token sees later ones, so that the model's answer is the next token.

    An edit can also hide them from a model that guesses hidden words; that one answers only at those words.
    """
    layer = next(layer for layer in trace.layers if layer.sides.queries == trace.answered)
    guesses = trace.edits and None in trace.answers
    return layer.kind == "cross" or not (guesses or layer.allowed(0, rows=[0])[0, 1:].any())


def with_shares(
    answer: Sequence[tuple[str, float]], written: Callable[[str], str] = bold, least: float = MIN_SHARE
) -> str:
    """The words of an answer with the model's probabilities in per cent.

    A punctuation mark is quoted, so that it is not read as part of the list.
    """

    def named(word: str) -> str:
        is_word = word == NOTHING or any(map(str.isalnum, word))
        return written(word) if is_word else f"“{written(word)}”"

    return joined(f"{named(word)} {percent(share)}" for word, share in _worth(answer, least))


def _worth(shares: Sequence[tuple[str, float]], least: float) -> list[tuple[str, float]]:
    """The words to name with their shares: always the first, the others from `least` on."""
    first, *others = shares
    return [first, *(share for share in others if share[1] >= least)]


def traces_with_answers(scene: Scene, texts: Sequence[tuple[str, Sequence[Edit]]]) -> list[TracesByKind]:
    """The traces of texts under their edits, with the model's answers, if the scene asks for them.

    The list is empty if it does not, or if the model has no answers; then the page says why.
    """
    if not scene.ask_model:
        return []
    try:
        with st.spinner(t("answer.ask_wait")):
            return [_answered(scene, text, edits) for text, edits in texts]
    except MhaError as error:
        st.info(t("answer.refused", reason=literal(said(error))), icon=":material/forum:")
        return []


def _answered(scene: Scene, text: str, edits: Sequence[Edit]) -> TracesByKind:
    """The traces of a text, or of its beginning if the model cannot read more of it."""
    try:
        return model_source.read(scene, text, edits, answers=True)
    except MhaError as error:
        return model_source.read(scene, compute.beginning(error), edits, answers=True)
