"""`python -m tests.lessons.items`: items of every kind of question, with keys computed a second time.

An item is a question posed about a generated sentence, a word of it, and a head of a small model. Ambiguous
ones are refused and counted by reason. The key of each of the others is compared with one from a softmax by
hand, in float64, or from runs with edits written here.
"""

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np
import torch

import mha_core as mha
from mha_core.focus.focus import Focus
from mha_core.focus.token_names import names, position
from mha_core.lessons.item import Item, Question
from mha_core.lessons.question import (
    MARGIN,
    Cell,
    Choose,
    Draw,
    Estimate,
    Find,
    Flip,
    Order,
    Point,
    Why,
    written_row,
)
from mha_core.lessons.sentences import generated
from mha_core.scene.scene import Scene
from mha_core.training.lexicon import lexicon

MODELS = {
    "en": [("glass-box", 2), ("glass-box", 4), ("glass-box", 8), ("standard", 4), ("grouped-query", 4)],
    "zh": [("glass-box", 2), ("glass-box", 4), ("glass-box", 8)],
}
QUESTIONS: dict[str, list[Question]] = {
    "point": [Point()],
    "cell": [Cell()],
    "draw": [Draw()],
    "order": [Order("weight"), Order("entropy"), Order("effect")],
    "choose": [Choose()],
    "estimate": [Estimate(one) for one in Estimate.QUANTITIES],
    "flip": [Flip(("cut",)), Flip(("off",)), Flip()],
    "find": [Find(one) for one in Find.CONDITIONS],
    "why": [Why()],
}


class Counts(NamedTuple):
    """Of one kind in one language: how many items were posed, and what came of them."""

    posed: int
    refused: Counter  # by reason
    kept: int
    wrong: list[str]  # links of items whose key differs
    ambiguous: list[str]  # links of items that were kept though two answers are as good


@lru_cache(maxsize=256)
def traced(link: str, edits: tuple = ()) -> mha.AttentionTrace:
    return Scene.of_link(link).scene.trace(edits)


def tracer(scene: Scene, edits=()) -> mha.AttentionTrace:
    """A scene's trace; where it looks makes no other one."""
    return traced(replace(scene, focus=Focus()).link(), tuple(edits))


def posed(kind: str, language: str, seed: int) -> Iterator[Item]:
    """Items without end, always the same ones."""
    rng = Random(f"{kind} {language} {seed}")
    while True:
        text = generated(language, rng)
        architecture, h = rng.choice(MODELS[language])
        scene = Scene(text=text, twin="", architecture=architecture, h=h)
        tokens = tracer(scene).tokens
        layer, head = rng.choice((1, 2, 2, 2)), rng.randint(1, h)
        token, key = (names(tokens)[rng.randrange(1, len(tokens))] for _ in range(2))
        heads = ",".join(str(one) for one in sorted(rng.sample(range(1, h + 1), min(h, 3))))
        focus = Focus(layer=layer, head=head, token=token, key_token=key, heads=heads)
        question = rng.choice(QUESTIONS[kind])
        if kind == "choose":
            other = replace(scene, focus=replace(focus, head=rng.randint(1, h)))
            question = replace(question, other=other.link())
        yield Item(question, replace(scene, focus=focus), tracer)


def count(kind: str, language: str, kept: int, seed: int = 0) -> Counts:
    """Pose items of a kind until so many are not refused."""
    counts = Counts(0, Counter(), 0, [], [])
    items = posed(kind, language, seed)
    while counts.kept < kept:
        item = next(items)
        counts = counts._replace(posed=counts.posed + 1)
        try:
            key = item.key
        except mha.MhaError as error:
            counts.refused[error.phrase.template] += 1
            continue
        counts = counts._replace(kept=counts.kept + 1)
        if not agrees(item):
            counts.wrong.append(item.scene.link())
        if key.margin <= 0:
            counts.ambiguous.append(item.scene.link())
    return counts


def weights_by_hand(trace: mha.AttentionTrace, layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Scaled scores and weights of a head, (query, key) each, from q and k in float64."""
    one = trace.layers[layer]
    q, k = one.q[head].astype(float), one.k[head // (one.n_heads // one.n_kv_heads)].astype(float)
    scores = np.array([[sum(a * b for a, b in zip(row, column, strict=True)) for column in k] for row in q])
    scores = scores / math.sqrt(one.d_k)
    exps = np.exp(scores - scores.max(-1, keepdims=True))
    return scores, exps / exps.sum(-1, keepdims=True)


def agrees(item: Item) -> bool:
    """Whether the key of an item is the one that follows from its trace without the library's questions."""
    question, (layer, head, token), key = item.question, item.place, item.key
    scores, weights = weights_by_hand(item.trace, layer, head)
    row = weights[token]
    match question:
        case Point() | Cell():
            first, second = np.argsort(-row)[:2]
            cell = str(first + 1) if question.kind == "point" else f"{token + 1},{first + 1}"
            return key.answers == (cell,) and row[first] - row[second] > MARGIN - 1e-3
        case Draw():
            even = np.full(len(row), 1 / len(row))
            return key.answers == (written_row(item.row),) and np.abs(row - even).sum() / 2 > 0.25 - 1e-3
        case Order():
            values = [_measure(item, int(one) - 1) for one in key.answers[0].split(",")]
            least = {"weight": 0.1, "entropy": 0.2, "effect": 0.1}[question.by]
            return all(one - other > least - 1e-3 for one, other in pairwise(values))
        case Choose():
            other = Scene.of_link(question.other).scene
            _, drawn = weights_by_hand(tracer(other), other.focus.layer - 1, other.focus.head - 1)
            chosen = question.pictures(item)[int(key.answers[0]) - 1]
            return chosen is item and np.abs(weights - drawn).max() > MARGIN - 1e-3
        case Estimate():
            number = {
                "weight": row[item.looked_at],
                "score": scores[token, item.looked_at],
                "row_sum": (np.exp(scores) / np.exp(scores).sum())[token].sum(),
                "d_k": item.scene.d_model / item.scene.h,
                "cache": {"latent": 32, "grouped-query": 64, "multi-query": 32}.get(
                    item.scene.architecture, 128
                ),
                "concat": item.scene.h * item.trace.layers[layer].d_v,
                "output": (
                    row * item.trace.layers[layer].v[head % len(item.trace.layers[layer].v), :, 0]
                ).sum(),
                "result": item.trace.layers[layer].result(rows=[token])[0, 0],
            }[question.quantity]
            return math.isclose(float(key.answers[0]), number, rel_tol=2e-3, abs_tol=1e-3)
        case Flip():
            singles = _single_changes(item)
            flips = {one for one, edit in singles.items() if _word(item, edit) != item.answer[0][0]}
            return set(key.answers) == flips and key.margin == 1 - len(flips) / len(singles)
        case Find():
            return key.answers == () and _is_found(item)
        case _:
            return key.answers == ()


def _is_found(item: Item) -> bool:
    """Whether the first sentence that is taken for an answer is one."""
    text = next(one for one in item.question.sentences(item) if item.is_right(one))
    found = replace(item.scene, text=text)
    trace, (layer, head, _) = tracer(found), item.place
    token = position(trace.tokens, item.scene.focus.token)
    word, share = answers_of(trace, layer, head, token)[0]
    if item.question.condition == "unsure":
        return share < 0.3
    if item.question.condition == "disagrees":
        row = weights_by_hand(trace, layer, head)[1][token]
        return trace.tokens.pieces[int(row.argmax())].casefold() != word.casefold()
    before, after = item.trace.tokens.pieces, trace.tokens.pieces
    changed = [one for one, other in zip(before, after, strict=True) if one.casefold() != other.casefold()]
    return len(changed) == 1 and word != item.answer[0][0]


def _measure(item: Item, head: int) -> float:
    layer, _, token = item.place
    row = weights_by_hand(item.trace, layer, head)[1][token]
    if item.question.by == "weight":
        return row[item.looked_at]
    if item.question.by == "entropy":
        return -sum(weight * math.log(weight) for weight in row if weight > 0)
    without = tracer(item.scene, (mha.edits.Output(values=0.0, heads=head, layer=layer),))
    question, (word, share) = question_of(item.trace, *item.place), answers_of(item.trace, *item.place)[0]
    return share - dict((without.questions[question] if question else without.answers)[token]).get(word, 0.0)


def question_of(trace: mha.AttentionTrace, layer: int, head: int, token: int) -> str | None:
    """The first question asked of a head of the last layer that has another word than this for an answer."""
    own = trace.tokens.pieces[token].casefold()
    asked = trace.source.origin.questions[head].split() if layer == len(trace.layers) - 1 else []
    if "decider" in asked:  # a question about pronouns, of which such a head finds no verb
        other = "doer" if own in lexicon(trace.source.origin.language).pronouns else "decider"
        asked = [one for one in asked if one != other]
    for question in asked:
        answer = trace.questions.get(question, {token: None})[token]
        if answer and answer[0][0] != "[CLS]" and answer[0][0].casefold() != own:
            return question
    return None


def answers_of(trace: mha.AttentionTrace, layer: int, head: int, token: int) -> tuple:
    question = question_of(trace, layer, head, token)
    return (trace.questions[question] if question else trace.answers)[token]


def _single_changes(item: Item) -> dict[str, mha.edits.Edit]:
    token, found = item.place[2], {}
    if "cut" in item.question.changes:
        for key in range(len(item.words)):
            found[f"cut,from={token + 1},to={key + 1}"] = mha.edits.Hide(rows=[token], keys=[key])
    if "off" in item.question.changes:
        for layer in range(len(item.trace.layers)):
            for head in range(item.scene.h):
                edit = mha.edits.Output(values=0.0, heads=[head], layer=layer)
                found[f"off,layer={layer + 1},head={head + 1}"] = edit
    return found


def _word(item: Item, edit: mha.edits.Edit) -> str:
    trace, question = tracer(item.scene, (edit,)), question_of(item.trace, *item.place)
    return (trace.questions[question] if question else trace.answers)[item.place[2]][0][0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="items of each kind and language")
    parser.add_argument("--kinds", nargs="*", default=list(QUESTIONS), choices=list(QUESTIONS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for kind in options.kinds:
        for language in MODELS:
            counts = count(kind, language, options.count)
            row = counts._asdict() | {"refused": dict(counts.refused)}
            print(json.dumps({"kind": kind, "language": language} | row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
