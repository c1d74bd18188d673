"""The questions that this server asks, within its limits, with results computed once for all students."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.attention.edits import Edit
from mha_core.lessons.item import Item
from mha_core.lessons.item import like as like_case
from mha_core.lessons.lesson import Screen
from mha_core.scene.changes import edits_of, read
from mha_core.scene.scene import Scene
from pages._kit import compute, model_source
from pages.learn._lessons.place import Place

Result = TypeVar("Result")


def trace(scene: Scene, edits: Sequence[Edit] = ()) -> AttentionTrace:
    """The trace of a scene with its own changes, then `edits`; with a model's answers if the scene asks.

    Raises `MhaError` if this server has none.
    """
    every = [*edits_of(read(scene.edits)[0]), *edits]
    if scene.source != "model":
        return compute.trace(scene, edits=every)
    if not model_source.ready(scene):
        raise model_source.refusal(scene) or MhaError(
            "{name} is not on this machine. Open it once on the page Real model.", name=scene.model
        )
    model_source.load(scene, st.empty())
    if scene.ask_model:
        return model_source.read(scene, scene.text, every, answers=True).with_kind(scene.kind)
    return compute.trace(scene, edits=every)


def item(place: Place) -> Item:
    """The question of a screen in its language. Raises `MhaError` for an invalid link."""
    return place.screen.item(place.language, trace)


def asked(screen: Screen, language: str) -> Item:
    """The question of a screen in a language.

    Raises `MhaError` if it cannot be asked: its scene cannot be computed, or it is ambiguous.
    """
    item = screen.item(language, trace)

    def find() -> MhaError | None:
        try:
            if item.question.kind == "flip" and len(item.words) > compute.MAX_SMALL_TEXT:
                raise MhaError(
                    "A question about every possible change has a text of at most {limit} tokens; this one "
                    "has {count}.",
                    limit=compute.MAX_SMALL_TEXT,
                    count=len(item.words),
                )
            _ = item.key
        except MhaError as error:
            return error
        return None

    if (refusal := _once(item, find, "refusal")) is not None:
        raise refusal.with_traceback(None)  # the same error is raised for everybody
    return item


def is_right(item: Item, answer: str) -> bool | None:
    """Whether a locked answer is right; None where it is not scored."""
    return _once(item, lambda: item.is_right(answer), "is_right", answer)


def may_have_like(item: Item) -> bool:
    """Whether there may be a like case: not of a reason, two pictures, or a size of the model."""
    quantity = getattr(item.question, "quantity", "")
    return item.question.kind not in ("choose", "why") and quantity not in ("d_k", "cache")


def like(item: Item, number: int) -> Item | None:
    """The like case of that number; None without one."""
    if not may_have_like(item):
        return None

    def find() -> Scene | None:
        found = like_case(item, number)
        return found.scene if found else None

    scene = _once(item, find, "like", str(number))
    return replace(item, scene=scene) if scene else None


def problem(item: Item, answer: str) -> MhaError | None:
    """Why a text is no answer to the question; None for an answer."""
    try:
        item.check(answer)
    except MhaError as error:
        return error
    return None


def _once(item: Item, compute_: Callable[[], Result], *what: str) -> Result:
    """A result of the question about its scene, computed once for all who look at a short text."""
    if item.scene.source == "model":  # its weights may be others when it is loaded again
        return compute_()
    key = ("lesson", item.question, item.scene.link(), *what)
    return compute.kept("results", key, compute_)
