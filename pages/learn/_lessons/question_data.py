"""The data of a question for the browser before it is answered: everything but the key."""

import numpy as np

from mha_core.lessons.item import Item
from mha_core.lessons.question import Cell, Choose, Estimate, Find, Flip, Order
from pages._kit.text import hundredths, isolated, t

HIDDEN_WORD = "…"  # in place of a word that would say which picture is which


def data(item: Item) -> dict[str, object]:
    """The words of the sentence, the one that looks, and whatever else the kind of question needs."""
    told = {"kind": item.question.kind, "words": item.words, "queries": item.queries, "query": item.place[2]}
    match item.question:
        case Cell():
            return told | {"query": None}  # its row is a part of the answer
        case Order() as question:
            return told | {"heads": question.heads(item)}
        case Choose() as question:
            return told | {"pictures": _pictures(question.pictures(item))}
        case Estimate() as question:
            low, high = question.line(item)
            key = item.looked_at if item.scene.focus.key_token else None
            line = {"low": low, "high": high, "quantity": question.quantity, "key": key}
            return told | line | {"given": _given(item, question)}
        case Flip() as question:
            heads = [layer.n_heads for layer in item.trace.layers]
            return told | {"changes": question.changes, "heads_of_layers": heads}
        case Find():
            return told | {"text": item.scene.text}
        case _:
            return told


def _given(item: Item, question: Estimate) -> dict[str, object] | None:
    """The numbers to compute with, as a person writes them down; None where none are shown."""
    given = question.shown(item)
    if given is None:
        return None
    words = {"query": isolated(item.queries[item.place[2]]), "head": item.place[1] + 1}
    if item.scene.focus.key_token:
        words["key"] = isolated(item.words[item.looked_at])
    rows = [
        {
            "name": t(f"lessons.given_{name}", **words),
            "values": [hundredths(value) for value in values.tolist()],
        }
        for name, values in given.rows.items()
    ]
    return {"columns": given.columns, "rows": rows}


def _pictures(pair: tuple[Item, Item]) -> list[dict[str, object]]:
    """Both matrices of weights, under those words alone that both sentences have at the same places."""
    sides = [(one.queries, one.words) for one in pair]
    shared = [_shared(*axis) for axis in zip(*sides, strict=True)]
    told = []
    for one in pair:
        layer, head, _ = one.place
        of_layer = one.trace.layers[layer]
        weights = of_layer.weights(head).astype(float)
        weights[~of_layer.allowed(head)] = np.nan
        values = [None if np.isnan(value) else round(value, 3) for value in weights.ravel().tolist()]
        rows, columns = (
            names if len(names) == count else [HIDDEN_WORD] * count
            for names, count in zip(shared, weights.shape, strict=True)
        )
        told.append({"rows": list(rows), "columns": list(columns), "values": values})
    return told


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
    """The words that two sentences have at the same places; none of them where they have not as many."""
    if len(one) != len(other):
        return []
    return [mine if mine == yours else HIDDEN_WORD for mine, yours in zip(one, other, strict=True)]
