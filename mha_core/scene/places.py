"""Where a scene looks in a trace: its layer, its head and its token."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_core.scene.focus import Focus
from mha_core.scene.scene import Scene
from mha_core.scene.token_names import as_number, names, numbered, position
from mha_core.traces.answers import NOTHING
from mha_core.traces.source import TrainedSource
from mha_core.traces.tokens import MARKS, Sides, Tokens
from mha_core.traces.trace import AttentionTrace

EVERYWHERE = frozenset({"before", "after"})  # questions that have an answer at every word
ADJECTIVES = frozenset({"adjective", "cue", "feeling"})  # kinds of words in a lexicon

if TYPE_CHECKING:
    from mha_core.export.head_view import HeadView


def indices(trace: AttentionTrace, scene: Scene) -> tuple[int, int, int]:
    """Layer, head and token of the scene as positions from 0 that the trace has."""
    token = token_in(trace.sides.queries, scene)
    focus = scene.focus
    if names_no_place(focus, trace.sides.queries):
        focus = at_answer(focus, trace, token)
    layer = min(focus.layer, len(trace.layers)) - 1
    of_layer = trace.layers[layer]
    return layer, min(focus.head, of_layer.n_heads) - 1, min(token, of_layer.n_query - 1)


def view(trace: AttentionTrace, scene: Scene) -> "HeadView":
    """The trace's head view, which begins where the scene looks. Raises `MhaError` without a layer."""
    if not trace.layers:
        return trace.view()  # it says so
    layer, head, token = indices(trace, scene)
    named = {as_number(one) for one in scene.focus.heads.split(",")}
    heads = [at for at in range(trace.layers[layer].n_heads) if at + 1 in named]
    token = token if scene.focus.token else None
    shown = trace.view(layer=layer, head=head, token=token, heads=heads or None)
    return replace(shown, scene=lambda: scene)


def token_in(tokens: Tokens, scene: Scene) -> int:
    """The position from 0 of the scene's token in these."""
    at = position(tokens, scene.focus.token)
    return first_token(tokens) if at is None else at


def first_token(tokens: Tokens) -> int:
    """The position from 0 of the word that is looked at first: a pronoun.

    Where there is none it is a hidden word, a verb, an adjective, a form of "be", a noun or a word that no
    lexicon has, or any word.
    """
    from mha_core.sources.mini import language
    from mha_core.training.lexicon import HIDDEN, lexicon, normalized
    from mha_core.training.links import BE

    words = lexicon(language(tokens.text))
    spans = tokens.spans or [(0, 1)] * len(tokens)
    pieces = [normalized(piece.lstrip(MARKS)) for piece in tokens.pieces]
    typed = [at for at, (start, end) in enumerate(spans) if start < end and at not in tokens.special]

    def is_content(piece: str) -> bool:
        return piece in words.noun_forms or (any(map(str.isalpha, piece)) and piece not in words.number)

    tests = (
        words.pronouns.__contains__,
        HIDDEN.__eq__,
        lambda piece: words.kinds.get(piece) == "verb",
        lambda piece: words.kinds.get(piece) in ADJECTIVES,
        BE.__contains__,
        is_content,
        lambda piece: any(map(str.isalpha, piece)),
    )
    return next((at for test in tests for at in typed if test(pieces[at])), typed[0] if typed else 0)


def names_no_place(focus: Focus, tokens: Tokens) -> bool:
    """Whether a focus is where a bare link leaves it: on the first head, and on a word that is not there."""
    at_first = (focus.layer, focus.head, focus.sentence) == (Focus.layer, Focus.head, Focus.sentence)
    return at_first and bool(focus.token) and position(tokens, focus.token) is None


def has_answer(trace: AttentionTrace, question: str, token: int) -> bool:
    """Whether the model answers a question about a token with another word of the text."""
    from mha_core.training.lexicon import normalized

    answer = trace.questions[question][token] if question in trace.questions else None
    asked = normalized(trace.answered.pieces[token])
    return answer is not None and answer[0][0] != NOTHING and normalized(answer[0][0]) != asked


def at_answer(focus: Focus, trace: AttentionTrace, token: int) -> Focus:
    """The focus on the head that is asked a question which has an answer at the token, from 0.

    For a pronoun that is the question for its noun, for other words the one with the most certain answer; the
    word before or after counts only where there is no other. Of several heads it is the one that looks most
    at the word of the answer. It is drawn beside those that are drawn. Unchanged where no head is asked.
    """
    from mha_core.training.lexicon import lexicon, normalized

    origin = trace.source.origin
    if not trace.questions or not isinstance(origin, TrainedSource):
        return focus
    last, pieces = trace.layers[-1], [normalized(piece) for piece in trace.answered.pieces]
    of_pronoun = pieces[token] in lexicon(origin.language).pronouns

    def sure(question: str) -> tuple[bool, bool, float]:
        probability = round(trace.questions[question][token][0][1], 1)
        return question not in EVERYWHERE, of_pronoun and question == "noun", probability

    answered = [question for question in trace.questions if has_answer(trace, question, token)]
    for question in sorted(answered, key=sure, reverse=True):
        heads = [head for head, asked in enumerate(origin.questions) if question in asked.split()]
        word = normalized(trace.questions[question][token][0][0])
        keys = [at for at, piece in enumerate(pieces) if piece == word]
        weights = [last.weights(head, rows=[token], keys=keys).sum() for head in heads]
        if heads:
            head = heads[int(np.argmax(weights))] + 1
            is_drawn = focus.heads in ("", "0") or str(head) in focus.heads.split(",")
            drawn = focus.heads if is_drawn else f"{focus.heads},{head}"
            return replace(focus, layer=len(trace.layers), head=head, heads=drawn)
    return focus


def named(focus: Focus, sides: Sides, *, anew: bool) -> Focus:
    """The focus with names of words in place of numbers: words are in another text, too.

    `anew` is another text, which is looked at from its `first_token` alone. So is a text without the focus's
    token. The tokens of a second sentence are not in these `sides`.
    """
    queries, keys = sides.queries, sides.keys
    if anew:
        focus = replace(focus, sentence=1, key_token="", pins="", number="")
    if focus.sentence != 1:
        return focus
    token, key = numbered(queries, focus.token), position(keys, focus.key_token)
    if focus.token and (anew or position(queries, focus.token) is None):
        token = first_token(queries)
    of_pins = keys if focus.side == "key" else queries
    pins = [position(of_pins, pin) for pin in focus.pins.split()]
    return replace(
        focus,
        token=focus.token if token is None else names(queries)[token],
        key_token="" if key is None else names(keys)[key],
        pins=" ".join(names(of_pins)[pin] for pin in pins if pin is not None),
    )


def shape_of(trace: AttentionTrace) -> list[int]:
    """The number of heads of each layer."""
    return [layer.n_heads for layer in trace.layers]


def within(focus: Focus, shapes: Sequence[Sequence[int]]) -> Focus:
    """The focus with the last layer or head of these traces in place of one beyond it, in no layer at all."""
    n_layers, n_heads = max(map(len, shapes)), max(max(shape) for shape in shapes)
    drawn = focus.heads.split(",")
    kept = [one for one in drawn if as_number(one) is None or as_number(one) <= n_heads]
    hops = {name: as_number(getattr(focus, name)) or 0 for name in ("hop1", "hop2")}
    return replace(
        focus,
        layer=min(focus.layer, n_layers),
        head=min(focus.head, n_heads),
        heads=focus.heads if len(kept) == len(drawn) else ",".join(kept),
        **{name: str(n_heads) for name, hop in hops.items() if hop > n_heads},
    )
