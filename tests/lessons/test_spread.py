"""The spread of a class: each answer is counted once, and nothing of the truth is in it before the reveal."""

import json

import numpy as np
import pytest

from mha_core.lessons.question import Cell, Choose, Draw, Estimate, Find, Flip, Order, Point, Why
from mha_core.lessons.spread import spread
from tests.lessons.test_question import IT, TIRED, WIDE, item


def none_but(length: int, **counts: int) -> list[int]:
    row = [0] * length
    for at, count in counts.items():
        row[int(at[1:]) - 1] = count
    return row


# Of each kind answers of a class, what is counted, and the truth.
SPREADS = [
    (Point(), ["3", "3", "7", "x", "99"], {"count": 3, "counts": none_but(13, _3=2, _7=1)}, "3"),
    (Choose(f"text={WIDE}&layer=2&head=1&token=it"), ["1", "2", "2"], {"count": 3, "counts": [1, 2]}, None),
    (Order("weight"), ["1,4", "1,4", "4,1"], {"count": 3, "counts": [[2, 1], [1, 2]]}, "1,4"),
    (
        Estimate("weight"),
        ["0.5", "0.50", "0.97", "2"],
        {"count": 3, "numbers": [(0.5, 2), (0.97, 1)]},
        pytest.approx(0.994, abs=1e-3),
    ),
    (
        Flip(),
        ["cut,from=9,to=5", "cut,from=9,to=3", "cut,from=9,to=3"],
        {"count": 3, "answers": [("cut,from=9,to=3", 2), ("cut,from=9,to=5", 1)]},
        ["cut,from=9,to=3"],
    ),
    (Find(), [WIDE, TIRED], {"count": 2, "answers": [(TIRED, 1), (WIDE, 1)]}, [WIDE]),
    (Why(), ["=1+1", ""], {"count": 1, "answers": [("=1+1", 1)]}, []),
]


@pytest.mark.parametrize(("question", "answers", "counted", "truth"), SPREADS, ids=lambda one: str(one)[:20])
def test_answers_are_counted_and_the_truth_comes_with_the_reveal(question, answers, counted, truth):
    asked = item(question, f"{IT}&heads=1,4")
    assert spread(asked, answers, None) == counted
    assert json.loads(json.dumps(spread(asked, answers, None)))
    revealed = spread(asked, answers, asked.is_right)
    truth = asked.key.answers[0] if truth is None else truth
    assert (
        sorted(revealed.pop("truth")) == truth if isinstance(truth, list) else revealed.pop("truth") == truth
    )
    assert revealed == counted


def test_cells_are_counted_by_row_and_column():
    counts = np.array(spread(item(Cell()), ["9,3", "3,9", "9,3"], None)["counts"])
    assert (counts[8, 2], counts[2, 8], counts.sum()) == (2, 1, 3)
    assert spread(item(Cell()), [], item(Cell()).is_right)["truth"] == "9,3"


def test_drawn_rows_are_kept_and_their_mean_is_that_of_the_class():
    told = spread(item(Draw()), ["3:100", "3:100", "3:40,7:60", "7:101"], None)
    assert told["rows"] == [("3:100", 2), ("3:40,7:60", 1)]
    assert told["mean"] == [0, 0, 0.8, 0, 0, 0, 0.2, 0, 0, 0, 0, 0, 0]
    truth = spread(item(Draw()), [], item(Draw()).is_right)["truth"]
    np.testing.assert_allclose(truth, item(Draw()).row, atol=1e-4)
