"""The answers of a class to a question, counted on its scene.

=========  ======================================================================
kind       what is counted
=========  ======================================================================
point      ``counts``: of each word
cell       ``counts``: of each row its columns
draw       ``rows``: each drawn row with its count, and their ``mean`` (key,)
order      ``counts``: of each head, as `Order.heads` has them, its places
choose     ``counts``: of both pictures
estimate   ``numbers``: each with its count
flip       ``answers``: each with its count, the most frequent first
find, why  ``answers``, as they were typed
=========  ======================================================================

What is right is in ``truth`` once the answers are revealed, and nowhere before.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

import numpy as np

from mha_core.errors import MhaError
from mha_core.lessons.item import Item
from mha_core.lessons.question import Draw, Estimate, Order, read_row

DIGITS = 4  # of a weight


def spread(
    item: Item, answers: Iterable[str], is_right: Callable[[str], bool | None] | None
) -> dict[str, object]:
    """The answers of a class to one question, as JSON; texts that are no answer to it are left out.

    `is_right` says it of a typed sentence, which takes a run; None before the answers are revealed.
    """
    given: Counter[str] = Counter()
    for answer in answers:
        with suppress(MhaError):
            item.check(answer)
            given[answer] += 1
    told = {"count": given.total()} | _counted(item, given)
    return told if is_right is None else told | {"truth": _truth(item, given, is_right)}


def _counted(item: Item, given: Counter[str]) -> dict[str, object]:
    match item.question.kind:
        case "point":
            return {"counts": [given[str(at)] for at in range(1, len(item.words) + 1)]}
        case "cell":
            counts = np.zeros((len(item.queries), len(item.words)), int)
            for answer, count in given.items():
                row, column = (int(one) - 1 for one in answer.split(","))
                counts[row, column] += count
            return {"counts": counts.tolist()}
        case "draw":
            mean = np.zeros(len(item.words))
            for answer, count in given.items():
                mean += read_row(answer, len(item.words)) * count / given.total()
            return {"rows": _listed(given), "mean": _rounded(mean)}
        case "order":
            assert isinstance(item.question, Order)
            heads = item.question.heads(item)
            places = np.zeros((len(heads), len(heads)), int)
            for answer, count in given.items():
                for place, head in enumerate(answer.split(",")):
                    places[heads.index(int(head)), place] += count
            return {"counts": places.tolist()}
        case "choose":
            return {"counts": [given["1"], given["2"]]}
        case "estimate":
            numbers: Counter[float] = Counter()
            for answer, count in given.items():
                numbers[float(answer)] += count
            return {"numbers": sorted(numbers.items())}
        case _:
            return {"answers": _listed(given)}


def _truth(item: Item, given: Counter[str], is_right: Callable[[str], bool | None]) -> object:
    """The key; of a drawn row its numbers, of a sentence or a change those given answers that are right."""
    match item.question:
        case Draw():
            return _rounded(item.row)
        case Estimate() as question:
            return question.number(item)
        case _ if "answers" in _counted(item, Counter()):
            return [answer for answer in given if is_right(answer)]
        case _:
            return item.key.answers[0]


def _listed(given: Counter[str]) -> list[tuple[str, int]]:
    return sorted(given.items(), key=lambda one: (-one[1], one[0]))


def _rounded(row: np.ndarray) -> list[float]:
    return np.round(np.asarray(row, float), DIGITS).tolist()
