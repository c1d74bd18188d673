"""A question posed about one scene: what may be answered, the key, and the answer run in the model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from random import Random
from typing import ClassVar, NamedTuple

import numpy as np

from mha_core.attention.edits import Edit
from mha_core.errors import MhaError
from mha_core.focus.token_names import names, position
from mha_core.scene.first_look import asked_about, has_answer, is_pronoun
from mha_core.scene.places import indices
from mha_core.scene.scene import Scene
from mha_core.sources.mini import language
from mha_core.traces.answers import Answer
from mha_core.traces.source import TrainedSource
from mha_core.traces.trace import AttentionTrace
from mha_core.training.lexicon import lexicon, normalized
from mha_core.training.questions import NOTHING as WITHOUT
from mha_core.training.questions import Asked, written

Tracer = Callable[[Scene, Sequence[Edit]], AttentionTrace]


class Key(NamedTuple):
    """The right answers as a person would write them, the first one the model's own, and their margin.

    The margin says how far the nearest wrong answer is, in the unit of the question. `answers` is empty
    where only running an answer tells whether it is right.
    """

    answers: tuple[str, ...]
    margin: float


class Locked(NamedTuple):
    """An answer that stands, and the language in which its question was asked; "" where that is not known."""

    answer: str
    language: str


@dataclass(frozen=True)
class Run:
    """An answer run in the model: the scene's own trace, and the one in which the answer holds.

    `executed` is None where an answer changes nothing in the model, as an estimate of d_k, and where the
    model cannot run it: then `refusal` says why.
    """

    own: AttentionTrace
    executed: AttentionTrace | None
    refusal: MhaError | None = None


@dataclass(frozen=True)
class Question(ABC):
    """A kind of question with its settings; an `Item` poses it about a scene."""

    kind: ClassVar[str]

    @abstractmethod
    def key(self, item: "Item") -> Key:
        """The right answers. Raises `MhaError` where the question is ambiguous about the item's scene."""

    @abstractmethod
    def check(self, item: "Item", answer: str) -> None:
        """Raise `MhaError` for a text that is no answer to this question."""

    @abstractmethod
    def executed(self, item: "Item", answer: str) -> tuple[Scene | None, Sequence[Edit]]:
        """The scene and the further edits in which a checked answer holds; None for one that runs nothing."""

    def is_right(self, item: "Item", answer: str) -> bool | None:
        """Whether an answer that was checked is right; None where it is not scored."""
        return answer in item.key.answers

    def misreads(self, item: "Item", answer: str) -> bool:
        """Whether a checked answer is wrong, and right to the question that is asked by mistake for this."""
        return False


@dataclass(frozen=True, eq=False)
class Item:
    """A question about one scene. `tracer` computes a scene's trace with edits added to its own changes.

    >>> from mha_core.lessons.item import Item
    >>> from mha_core.lessons.question import Point
    >>> scene = mha.Scene.of_link("layer=2&head=1&token=it").scene
    >>> item = Item(Point(), scene)
    >>> item.words[int(item.key.answers[0]) - 1]
    'animal'
    """

    question: Question
    scene: Scene
    tracer: Tracer = field(default=Scene.trace, repr=False)

    @cached_property
    def trace(self) -> AttentionTrace:
        return self.tracer(self.scene, ())

    @cached_property
    def place(self) -> tuple[int, int, int]:
        """Layer, head and looking token, from 0. Raises `MhaError` for those that there are not."""
        trace, focus = self.trace, self.scene.focus
        if position(trace.sides.queries, focus.token) is None:
            raise MhaError(
                "The scene looks at the word {token!r}, which its text does not have.", token=focus.token
            )
        n_layers = len(trace.layers)
        if focus.layer > n_layers or focus.head > trace.layers[focus.layer - 1].n_heads:
            raise MhaError(
                "The scene looks at layer {layer}, head {head}; the model has {n_layers} layers of {n_heads} "
                "heads.",
                layer=focus.layer,
                head=focus.head,
                n_layers=n_layers,
                n_heads=trace.layers[min(focus.layer, n_layers) - 1].n_heads,
            )
        return indices(trace, self.scene.focus)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that can be looked at."""
        return self.trace.layers[self.place[0]].sides.keys.labels

    @property
    def queries(self) -> tuple[str, ...]:
        """The words that look."""
        return self.trace.layers[self.place[0]].sides.queries.labels

    @cached_property
    def row(self) -> np.ndarray:
        """The weights with which the looking token looks at each word. (key,)"""
        layer, head, token = self.place
        return self.trace.layers[layer].weights(head, rows=[token])[0]

    @cached_property
    def looked_at(self) -> int:
        """The position of the scene's looked-at word. Raises `MhaError` where it names none."""
        name = self.scene.focus.key_token
        at = position(self.trace.layers[self.place[0]].sides.keys, name) if name else None
        if at is None:
            raise MhaError(
                "The question is about one weight: name the looked-at word in the scene, as key_token=animal."
            )
        return at

    @cached_property
    def key(self) -> Key:
        """The right answers, computed from the trace. Raises `MhaError` where the question is ambiguous."""
        _ = self.place  # a question without a key has one, too
        return self.question.key(self)

    @cached_property
    def asked(self) -> str | None:
        """The question about the token that this head answers in a small model, a name in `QUESTIONS`.

        None of another model, and of a head that answers nothing there: then it is the model's own answer.
        """
        trace, (layer, head, token) = self.trace, self.place
        origin = trace.source.origin
        if layer != len(trace.layers) - 1 or not isinstance(origin, TrainedSource) or origin.is_decoder:
            return None
        of_head = [one for one in origin.questions[head].split() if one in trace.questions]
        questions = asked_about(of_head, of_pronoun=is_pronoun(trace, token))
        return next((one for one in questions if has_answer(trace, one, token)), None)

    @property
    def answer(self) -> Answer | None:
        """The model's answer at the looking token, the best word first; None where it has none."""
        return self.answer_in(self.trace)

    def answer_in(self, trace: AttentionTrace) -> Answer | None:
        """The answer to the same question in another run."""
        answers = trace.questions[self.asked] if self.asked else trace.answers
        return answers[self.place[2]] if answers and self.place[2] < len(answers) else None

    def check(self, answer: str) -> None:
        """Raise `MhaError` for a text that is no answer to the question."""
        self.question.check(self, answer)

    def is_right(self, answer: str) -> bool | None:
        """Whether an answer is right; None for one that is not scored. Raises `MhaError` for no answer."""
        self.check(answer)
        return self.question.is_right(self, answer)

    def misreads(self, answer: str) -> bool:
        """Whether a wrong answer is right to the question as it is often misread. Raises as `is_right`."""
        self.check(answer)
        return self.question.misreads(self, answer)

    def run(self, answer: str) -> Run:
        """The answer run in the model. Raises `MhaError` for what is no answer to this question."""
        self.check(answer)
        scene, edits = self.question.executed(self, answer)
        if scene is None:
            return Run(self.trace, None)
        try:
            return Run(self.trace, self.tracer(scene, edits))
        except MhaError as refusal:
            return Run(self.trace, None, refusal)


def like(item: Item, number: int) -> Item | None:
    """The `number`-th like case: the same question about a word of another sentence, None without one.

    The sentences were written by people, and the word is of the same kind (a pronoun, a verb, …). Where the
    head answers a question about it, the right answer is known, and the head looks at it.
    """
    cases = (other for one in _alike(item) if (other := _posed(item, one)) is not None)
    return next(islice(cases, number - 1, None), None)


def _alike(item: Item) -> list[Asked]:
    """Words of sentences written by people that may be asked about instead, always in the same order."""
    code = language(item.scene.text)
    every = [one for half in written(code).values() for one in half if one.text != item.scene.text]
    same = [one for one in every if one.question == item.asked and one.answer != WITHOUT] or every
    kinds = lexicon(code).kinds
    own = kinds.get(normalized(item.trace.tokens.pieces[item.place[2]]))
    alike = [one for one in same if kinds.get(normalized(one.word)) == own] if own else same
    alike = alike or same
    Random(item.scene.link()).shuffle(alike)
    return alike


def _posed(item: Item, asked: Asked) -> Item | None:
    """The item about a word of another sentence; None where it is ambiguous or the head is wrong."""
    focus = replace(item.scene.focus, token=asked.word)
    other = replace(item, scene=replace(item.scene, text=asked.text, twin="", focus=focus))
    try:
        keys = other.trace.layers[other.place[0]].sides.keys
        if focus.key_token:  # it is about the weight on the word that is looked at most
            focus = replace(focus, key_token=names(keys)[int(other.row.argmax())])
            other = replace(other, scene=replace(other.scene, focus=focus))
        _ = other.key
    except MhaError:
        return None
    is_right = asked.question != item.asked or position(keys, asked.answer) == int(other.row.argmax())
    return other if is_right else None
