"""Where the app looks first in a new text: a token, and a head with an answer there."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mha_core.focus.focus import Focus
from mha_core.sources.mini import language
from mha_core.traces.answers import NOTHING, SURE
from mha_core.traces.source import TrainedSource
from mha_core.traces.tokens import MARKS, Tokens
from mha_core.traces.trace import AttentionTrace
from mha_core.training.lexicon import HIDDEN, lexicon, normalized
from mha_core.training.links import BE

EVERYWHERE = frozenset({"before", "after"})  # questions that have an answer at every word
LONG = 256  # tokens
ADJECTIVES = frozenset({"adjective", "cue", "feeling"})  # kinds of words in a lexicon


def first_token(tokens: Tokens) -> int:
    """The position from 0 of the token to look at first: a pronoun, rather one after a noun that fits it.

    Without a pronoun it is a hidden word, a verb, an adjective, a form of "be", a noun or a word outside the
    vocabulary, or else the first word. A long text opens at its end, where a causal row has all its keys.
    """
    words = lexicon(language(tokens.text))
    spans = tokens.spans or [(0, 1)] * len(tokens)
    pieces = [normalized(piece.lstrip(MARKS)) for piece in tokens.pieces]
    typed = [at for at, (start, end) in enumerate(spans) if start < end and at not in tokens.special]
    if len(tokens) > LONG:
        return typed[-1] if typed else len(tokens) - 1

    def is_content(piece: str) -> bool:
        return piece in words.noun_forms or (any(map(str.isalpha, piece)) and piece not in words.number)

    def has_noun(at: int) -> bool:
        return any(pieces[at] in words.fitting.get(piece, ()) for piece in pieces[:at])

    if pronouns := [at for at in typed if pieces[at] in words.pronouns]:
        return next(filter(has_noun, pronouns), pronouns[0])
    tests = (
        HIDDEN.__eq__,
        lambda piece: words.kinds.get(piece) == "verb",
        lambda piece: words.kinds.get(piece) in ADJECTIVES,
        BE.__contains__,
        is_content,
        lambda piece: any(map(str.isalpha, piece)),
    )
    return next((at for test in tests for at in typed if test(pieces[at])), typed[0] if typed else 0)


def has_answer(trace: AttentionTrace, question: str, token: int) -> bool:
    """Whether the model answers a question about a token with another word of the text."""
    answer = trace.questions[question][token] if question in trace.questions else None
    asked = normalized(trace.answered.pieces[token])
    return answer is not None and answer[0][0] != NOTHING and normalized(answer[0][0]) != asked


def is_pronoun(trace: AttentionTrace, token: int) -> bool:
    """Whether a token is a pronoun to the small model that was traced."""
    origin = trace.source.origin
    return (
        isinstance(origin, TrainedSource)
        and normalized(trace.answered.pieces[token]) in lexicon(origin.language).pronouns
    )


def asked_about(questions: Sequence[str], *, of_pronoun: bool) -> list[str]:
    """Those of a head's questions that are asked about a word.

    What decides is a question about pronouns. Of those a head that is asked it finds no verb.
    """
    unasked = ("doer" if of_pronoun else "decider") if "decider" in questions else ""
    return [one for one in questions if one != unasked]


def focus_on_answer(focus: Focus, trace: AttentionTrace, token: int) -> Focus:
    """The focus on a head whose question has an answer at this token, from 0.

    For a pronoun it is the question for its noun, for other words the one with the most certain answer; the
    word before or after counts only if there is no other answer. Of several heads it is the one that looks
    most at the word of the answer, and it is drawn together with those that are drawn already. The focus is
    unchanged if no head has a question.
    """
    origin = trace.source.origin
    if not trace.questions or not isinstance(origin, TrainedSource):
        return focus
    last, pieces = trace.layers[-1], [normalized(piece) for piece in trace.answered.pieces]
    of_pronoun = is_pronoun(trace, token)

    def rank(question: str) -> tuple[bool, bool, float]:
        probability = min(round(answered[question][1], 1), SURE)
        return question not in EVERYWHERE, of_pronoun and question == "noun", probability

    answered = {
        question: answer[0]
        for question, answers in trace.questions.items()
        if (answer := answers[token]) and has_answer(trace, question, token)
    }
    for question in sorted(answered, key=rank, reverse=True):
        heads = [head for head, asked in enumerate(origin.questions) if question in asked.split()]
        word = normalized(answered[question][0])
        keys = [at for at, piece in enumerate(pieces) if piece == word]
        weights = [last.weights(head, rows=[token], keys=keys).sum() for head in heads]
        if heads:
            head = heads[int(np.argmax(weights))] + 1
            is_drawn = focus.heads in ("", "0") or str(head) in focus.heads.split(",")
            drawn = focus.heads if is_drawn else f"{focus.heads},{head}"
            return replace(focus, layer=len(trace.layers), head=head, heads=drawn)
    return focus
