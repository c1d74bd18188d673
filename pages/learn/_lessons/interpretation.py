"""The outcome of an answer in two sentences: about the run in which it holds, and about the model's own.

A sentence is sent in pieces of which every other is a word of the text; the browser draws these as emphasis
(components/lesson/reveal.js).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from mha_core import AttentionTrace, MhaError
from mha_core.lessons.item import Item, Run
from mha_core.lessons.question import (
    DRAWN,
    MARGIN,
    Choose,
    Draw,
    Estimate,
    Find,
    Order,
    Point,
    distance,
    read_row,
)
from mha_core.scene import changes
from mha_core.traces.answers import NOTHING, is_known
from pages._kit import answers
from pages._kit.text import hundredths, isolated, joined, number, paragraph, said, short, t

MARKS = "\x02", "\x03"  # around a word of the text, until the sentence is taken to pieces
PIECES = re.compile("\x02(.*?)\x03", re.DOTALL)
MAX_NAMED = 3  # words of a row
MIN_WEIGHT = 0.05  # of a word that is named beside the first
UNCHANGED = 1e-6  # of the output's length: less is rounding


def sentences(item: Item, answer: str, run: Run) -> list[list[str]]:
    """A sentence about the answer and one about the model; only the latter if the answer is not scored."""
    yours, own = _TOLD[item.question.kind](item, answer, run)
    if run.refusal is not None:
        yours = t("lessons.refused", given=yours, reason=_unseen(item, answer) or said(run.refusal))
    return [PIECES.split(one) for one in (yours, own) if one]


def like_case(like: Item) -> list[str]:
    """The third hint, a like case with its answer, as a sentence in pieces."""
    text, query = _word(like.scene.text), _word(like.queries[like.place[2]])
    told = t("lessons.like_told", text=text, query=query, head=like.place[1] + 1, **_largest(like))
    return PIECES.split(told)


def _unseen(item: Item, answer: str) -> str:
    """The first word with weight in an answer that the looking word cannot see, as a reason; "" for none."""
    layer, head, query = item.place
    allowed = item.trace.layers[layer].allowed(head, rows=[query])[0]
    if isinstance(item.question, Point):
        given = [int(answer) - 1]
    elif isinstance(item.question, Draw):
        given = np.flatnonzero(read_row(answer, len(item.words))).tolist()
    elif isinstance(item.question, Estimate) and item.question.quantity == "weight":
        given = [item.looked_at]
    else:
        given = []
    hidden = next((key for key in given if not allowed[key]), None)
    if hidden is None:
        return ""
    names = {"query": _word(item.queries[query]), "key": _word(item.words[hidden])}
    return t("lessons.unseen_later", **names) if hidden > query else t("lessons.unseen", **names)


def _word(text: str) -> str:
    """A word of a sentence, between marks."""
    return f"{MARKS[0]}{isolated(text)}{MARKS[1]}"


def _point(item: Item, answer: str, run: Run) -> tuple[str, str]:
    given = t("lessons.gave_point", word=_word(item.words[int(answer) - 1]))
    return _yours(given, item, run, t("lessons.if_point")), _own_row(item)


def _cell(item: Item, answer: str, run: Run) -> tuple[str, str]:
    row, column = (int(one) - 1 for one in answer.split(","))
    given = t("lessons.gave_cell", query=_word(item.queries[row]), key=_word(item.words[column]))
    fact = t("lessons.fact_cell", query=_word(item.queries[item.place[2]]), **_largest(item))
    focus = replace(item.scene.focus, token=str(row + 1))
    at_row = replace(item, scene=replace(item.scene, focus=focus))
    return _yours(given, at_row, run, t("lessons.if_point")), _own(fact, item)


def _draw(item: Item, answer: str, run: Run) -> tuple[str, str]:
    row = read_row(answer, len(item.words))
    given = t("lessons.gave_draw", list=_row(item.words, row, lambda weight: f"{weight:.0%}"))
    share = f"{distance(row, item.row):.0%}"
    own = paragraph([_own_row(item), t("lessons.fact_draw", share=share, most=f"{DRAWN:.0%}")])
    return _yours(given, item, run, t("lessons.if_draw")), own


def _order(item: Item, answer: str, run: Run) -> tuple[str, str]:
    question = item.question
    assert isinstance(question, Order)
    order = answer.split(",")
    first, named = order[0], joined(t("lessons.js_head", head=head) for head in order)
    heads = [int(head) for head in item.key.answers[0].split(",")]
    measured = joined(
        t("lessons.head_is", head=head, value=f"{question.measure(item, head - 1):.3g}") for head in heads
    )
    given, condition = t("lessons.gave_order", list=named), t("lessons.if_off", head=first)
    fact = t(f"lessons.fact_order_{question.by}", list=measured)
    return _yours(given, item, run, condition), _own(fact, item)


def _choose(item: Item, answer: str, run: Run) -> tuple[str, str]:
    question = item.question
    assert isinstance(question, Choose)
    pair = question.pictures(item)
    chosen, other = pair[int(answer) - 1], pair[2 - int(answer)]
    if chosen.scene.text != other.scene.text:
        given = t("lessons.gave_choose", number=answer, text=_word(chosen.scene.text))
    elif answer == (right := item.key.answers[0]):
        given = t("lessons.gave_asked", number=answer)
    else:
        given = t("lessons.gave_not_asked", number=answer, right=right)
    one, two = (side.trace.layers[side.place[0]].weights(side.place[1]) for side in (chosen, other))
    if one.shape != two.shape:
        return given, ""
    row, column = _most_different(chosen, other, np.abs(one - two))
    fact = t(
        "lessons.fact_choose",
        query=_word(chosen.queries[row]),
        key=_word(chosen.words[column]),
        one=short(float(one[row, column])),
        two=short(float(two[row, column])),
    )
    return given, fact


def _most_different(chosen: Item, other: Item, difference: np.ndarray) -> tuple[int, int]:
    """The cell in which two pictures differ most: in the row that is asked about, if they differ there.

    If possible it lies between words that both sentences have at the same places.
    """
    same = np.equal(chosen.queries, other.queries)[:, None] & np.equal(chosen.words, other.words)[None]
    shared = np.where(same, difference, 0.0)
    if shared.max() < MARGIN:
        shared = difference
    row = chosen.place[2]
    if shared[row].max() < MARGIN:
        row = int(shared.max(1).argmax())
    return row, int(shared[row].argmax())


def _estimate(item: Item, answer: str, run: Run) -> tuple[str, str]:
    question = item.question
    assert isinstance(question, Estimate)
    given = t("lessons.gave_estimate", number=number(float(answer)))
    within = t("lessons.within", within=number(question.tolerance(item)))
    value, fact = question.number(item), ""
    if question.quantity in question.COUNTS:
        return given, t(f"lessons.fact_{question.quantity}", number=number(value))
    if question.quantity == "row_sum":
        given = _yours(given, item, run, t("lessons.if_row_sum"))
        fact = _own(t("lessons.fact_row_sum", sum=short(value)), item)
    elif question.quantity == "weight":
        key = _word(item.words[item.looked_at])
        given = _yours(given, item, run, t("lessons.if_weight", key=key))
        fact = _own(t("lessons.fact_weight", key=key, weight=short(value)), item)
    elif question.quantity == "score":
        query, key = _word(item.queries[item.place[2]]), _word(item.words[item.looked_at])
        fact = t("lessons.fact_score", query=query, key=key, number=number(value))
    return given, paragraph([fact, _computed(item, question), within])


def _computed(item: Item, question: Estimate) -> str:
    """How the number follows from what was shown; "" where nothing was."""
    shown = question.shown(item)
    if shown is None:
        return ""
    if question.quantity == "weight":
        parts = np.exp(shown.rows["scores"].astype(float))
        told = {"part": number(float(parts[item.looked_at]))}
    else:
        parts = shown.products
        told = {"root": number(1 / item.trace.layers[item.place[0]].scale)}
    terms = " + ".join(hundredths(part) if part >= 0 else f"({hundredths(part)})" for part in parts.tolist())
    total, result = number(float(parts.sum())), hundredths(question.number(item))
    return t(f"lessons.computed_{question.quantity}", terms=terms, sum=total, number=result, **told)


def _flip(item: Item, answer: str, run: Run) -> tuple[str, str]:
    own = t("lessons.own_flip", told=_says(item, item.trace))  # the question asks where it answers
    values = changes.values_of(changes.read(answer)[0][0])
    if "from" in values:
        query, key = item.queries[values["from"] - 1], item.words[values["to"] - 1]
        given = t("lessons.gave_cut", query=_word(query), key=_word(key))
    else:
        given = t("lessons.gave_off", **values)
    return _yours(given, item, run, t("lessons.then")), own


def _find(item: Item, answer: str, run: Run) -> tuple[str, str]:
    own = t("lessons.find_own", told=_looks(item, item.trace))
    if run.executed is None:
        return t("lessons.gave_find"), own
    question = item.question
    assert isinstance(question, Find)
    found = question.posed(item, answer)
    try:
        _ = found.place
    except MhaError:
        return t("lessons.find_no_word", query=_word(item.queries[item.place[2]])), own
    told = t("lessons.find_yours", told=_looks(found, run.executed))
    changed = question.changed(item, answer)
    if question.condition == "other_answer" and changed > 1:
        told = paragraph([told, t("lessons.find_changed", count=changed)])
    elif question.condition == "other_answer" and question.renames(item, found) and changed:
        told = paragraph([told, t("lessons.find_unmoved")])
    return told, own


def _looks(item: Item, trace: AttentionTrace) -> str:
    """A sentence on what the model says at the token, and where its head looks most."""
    looks = t("lessons.looks", head=item.place[1] + 1, **_largest(item))
    says = _says(item, trace)
    return t("lessons.both", first=says, second=looks) if says else looks


def _why(item: Item, answer: str, run: Run) -> tuple[str, str]:
    return t("lessons.gave_why", reason=isolated(answer)), _own_row(item)


_TOLD = {
    "point": _point,
    "cell": _cell,
    "draw": _draw,
    "order": _order,
    "choose": _choose,
    "estimate": _estimate,
    "flip": _flip,
    "find": _find,
    "why": _why,
}


def _yours(given: str, item: Item, run: Run, condition: str) -> str:
    """A sentence on the answer and what the model then says; if it says nothing, how far its output moves."""
    if run.executed is None:
        return given
    query, was, now = item.place[2], item.answer, item.answer_in(run.executed)
    if was is None or now is None or was[0][0] == now[0][0] == NOTHING:
        moved = _moved(run.own, run.executed, query)
        name = _word(item.queries[query])
        if moved < UNCHANGED:
            told = t("lessons.output_same", query=name)
        else:
            told = t("lessons.output_moved", query=name, share=f"{moved:.0%}")
    else:
        told = _says(item, run.executed, still=was[0][0] == now[0][0])
        if item.asked:
            question = answers.question(item.trace, item.asked, query)
            told = t("lessons.asked", question=question, told=told)
    return t("lessons.yours", given=given, condition=condition, told=told)


def _moved(one: AttentionTrace, other: AttentionTrace, token: int) -> float:
    """How far the last layer's output at a token is from the first trace's own, as a share of its length."""
    own, executed = (
        (layer.result(rows=[token]) if layer.knows("w_o") else layer.output(rows=[token])).ravel()
        for layer in (one.layers[-1], other.layers[-1])
    )
    return float(np.linalg.norm(executed - own) / max(float(np.linalg.norm(own)), 1e-12))


def _own_row(item: Item) -> str:
    return _own(t("lessons.fact_row", list=_row(item.words, item.row, short)), item)


def _own(fact: str, item: Item) -> str:
    """A fact of the model, and what it says where that is something."""
    if item.answer is None or item.answer[0][0] == NOTHING:
        return t("lessons.own_alone", fact=fact)
    return t("lessons.own", fact=fact, told=_says(item, item.trace))


def _says(item: Item, trace: AttentionTrace, *, still: bool = False) -> str:
    """The model's answer at the token in a run, in words; "" if it answers nothing."""
    answer = item.answer_in(trace)
    if answer is None:
        return ""
    (best, share), known = answer[0], is_known(answer)
    told = {"word": t("answer.none") if best == NOTHING else _word(best), "share": f"{share:.0%}"}
    if not known:
        return t("lessons.says_unsure", **told)
    if best == NOTHING:
        return t("lessons.says_nothing", **told)
    return t("lessons.says_still", **told) if still else t("lessons.says", **told)


def _largest(item: Item) -> dict[str, str]:
    """The word that is looked at most, and its weight."""
    at = int(item.row.argmax())
    return {"key": _word(item.words[at]), "weight": short(float(item.row[at]))}


def _row(words: Sequence[str], row: np.ndarray, written: Callable[[float], str]) -> str:
    """The words with the largest weights of a row."""
    order = np.argsort(-row, kind="stable")[:MAX_NAMED]
    named = [at for nth, at in enumerate(order) if not nth or row[at] >= MIN_WEIGHT]
    return joined(
        t("lessons.word_gets", word=_word(words[at]), weight=written(float(row[at]))) for at in named
    )
