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
from mha_core.traces.answers import NOTHING, Answer, is_known
from mha_core.traces.source import TrainedSource
from mha_core.training.lexicon import HIDDEN, LANGUAGES, lexicon, normalized
from mha_core.training.questions import QUESTIONS
from pages._kit import compute, model_source
from pages._kit.text import isolated, joined, literal, paragraph, said, short, t

MAX_NAMED = 4
MAX_GUESSES = 3  # that are named if the model does not know the answer
MIN_SHARE = 0.01  # of a word, for it to be named
MIN_BESIDES = 0.1  # of a second answer, for it to be named where several questions are asked


def reading(trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """The row of a token in words, and the model's answers for it."""
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
        for said in _answers_at(trace, query, _bold) if trace.answers else ():
            guesses = f" :small[{said.guesses}]" if isinstance(said, Unsure) else ""
            st.markdown(f"{said.asked} {said.words}{guesses}")


class AnswerText(NamedTuple):
    """A question about a word and the model's answer, in words."""

    asked: str
    words: str


class Unsure(NamedTuple):
    """A question about a word that the model cannot answer, and its best guesses."""

    asked: str
    words: str
    guesses: str


def in_words(
    trace: AttentionTrace, name: str | None = None, query: int = 0
) -> list[list[AnswerText | Unsure]]:
    """The questions at each token with the model's answers, without markup; empty where nothing is asked.

    With a `name` from `QUESTIONS`, the token `query` has only that question, if it is asked there.
    """
    every = compute.once(trace, _answers)
    answer = trace.questions[name][query] if name else None
    if name is None or answer is None:
        return every
    only = _said(question(trace, name, query), answer, _or_nothing(isolated))
    return [*every[:query], [only], *every[query + 1 :]]


def _answers(trace: AttentionTrace) -> list[list[AnswerText | Unsure]]:
    return [_answers_at(trace, query, isolated) for query in range(len(trace.answers or ()))]


def _answers_at(
    trace: AttentionTrace, query: int, written: Callable[[str], str]
) -> list[AnswerText | Unsure]:
    answer, piece = trace.answers[query], trace.answered.pieces[query]
    if answer is None:
        return []
    name = written(trace.answered.labels[query])
    language = _language(trace)
    if language not in LANGUAGES:
        kind = "next" if _is_next(trace) else "any"
        return [_said(t(f"answer.{kind}", query=name), answer, written)]
    if piece == HIDDEN:
        return [_said(t("answer.hidden"), answer, written)]
    of_pronoun, said = is_pronoun(trace, query), []
    if of_pronoun:
        said.append(_said(t("answer.pronoun", query=name), answer, _or_nothing(written)))

    def rank(questions: list[str]) -> tuple[bool, float]:
        return EVERYWHERE.issuperset(questions), -round(_answer(trace, questions[0], query)[0][1], 1)

    for questions in sorted(_grouped_questions(trace, query, of_pronoun=of_pronoun), key=rank):
        if said and ("noun" in questions or set(questions) <= EVERYWHERE):
            continue
        answer = _answer(trace, questions[0], query)
        if not is_known(answer) and any(isinstance(one, Unsure) for one in said):
            continue  # one "does not know" is enough
        said.append(_said(_asked(trace, questions, query), answer, _or_nothing(written), MIN_BESIDES))
    return said or [AnswerText(t("answer.word", query=name), t("answer.nothing"))]


def question(trace: AttentionTrace, name: str, query: int) -> str:
    """A question of `QUESTIONS` about a word, in words."""
    if name == "noun" and is_pronoun(trace, query):
        return t("answer.pronoun", query=isolated(trace.answered.labels[query]))
    return _asked(trace, [name], query)


def _answer(trace: AttentionTrace, question: str, query: int) -> Answer:
    """The answer to a question that has one at this word."""
    answer = trace.questions[question][query]
    assert answer is not None
    return answer


def _language(trace: AttentionTrace) -> str:
    return getattr(trace.source.origin, "language", "")


def _grouped_questions(trace: AttentionTrace, query: int, *, of_pronoun: bool) -> list[list[str]]:
    """The questions about a word that another word answers, grouped by the heads that answer them."""
    origin = trace.source.origin
    asked = origin.questions if isinstance(origin, TrainedSource) else ()
    by_heads: dict[tuple[int, ...], list[str]] = {}
    for question in QUESTIONS:
        if has_answer(trace, question, query):
            heads = tuple(head for head, questions in enumerate(asked) if question in questions.split())
            by_heads.setdefault(heads, []).append(question)
    every = (asked_about(questions, of_pronoun=of_pronoun) for questions in by_heads.values())
    return [questions for questions in every if questions]


def _asked(trace: AttentionTrace, questions: Sequence[str], query: int) -> str:
    """Questions about a word as text, which differs between verbs and nouns."""
    asked = []
    for question in questions:
        answer = _answer(trace, question, query)[0][0]
        of_noun = question in ("doer", "object") and _is_noun(trace, query, answer)
        asked.append(t(f"answer.{question}_of") if of_noun else t(f"answer.{question}"))
    return paragraph(asked)


def _said(
    asked: str, answer: Answer, written: Callable[[str], str], least: float = MIN_SHARE
) -> AnswerText | Unsure:
    if is_known(answer):
        return AnswerText(asked, _shares(answer, written, least))
    return Unsure(asked, t("answer.unsure"), _shares(answer[:MAX_GUESSES], written))


def _or_nothing(written: Callable[[str], str]) -> Callable[[str], str]:
    return lambda word: t("answer.none") if word == NOTHING else written(word)


def _is_noun(trace: AttentionTrace, query: int, other: str) -> bool:
    """Whether a word is a noun and not a verb; if its form leaves that open, the `other` word decides."""
    words = lexicon(_language(trace))
    word, nouns = normalized(trace.answered.pieces[query]), words.noun_forms | words.pronouns
    is_verb = any("." in name for name in words.classes.get(word, ()))
    return word in nouns if is_verb != (word in nouns) else other not in nouns


def _is_next(trace: AttentionTrace) -> bool:
    """Whether no token sees later ones, so that the model's answer is the next token.

    An edit can also hide them from a model that guesses hidden words; that one answers only at those words.
    """
    layer = next(layer for layer in trace.layers if layer.sides.queries == trace.answered)
    guesses = trace.edits and None in trace.answers
    return layer.kind == "cross" or not (guesses or layer.allowed(0, rows=[0])[0, 1:].any())


def _bold(word: str) -> str:
    return f"**{literal(isolated(word))}**"


def _listed(shares: Sequence[tuple[str, float]], written: Callable[[str], str]) -> str:
    """Words with their weights, always the largest and the others from `MIN_SHARE` on."""
    return joined(
        t("token.looks_item", key=written(word), weight=short(share))
        for word, share in _worth(shares, MIN_SHARE)
    )


def _shares(
    answer: Sequence[tuple[str, float]], written: Callable[[str], str], least: float = MIN_SHARE
) -> str:
    """The words of an answer with the model's probabilities in per cent.

    A punctuation mark is quoted, so that it is not read as part of the list.
    """

    def named(word: str) -> str:
        is_word = word == NOTHING or any(map(str.isalnum, word))
        return written(word) if is_word else f"“{written(word)}”"

    return joined(f"{named(word)} {share:.0%}" for word, share in _worth(answer, least))


def _worth(shares: Sequence[tuple[str, float]], least: float) -> list[tuple[str, float]]:
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
