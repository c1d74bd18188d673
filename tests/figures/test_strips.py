"""Strips: the distribution of each measure, its mean with its interval, and what it is compared with."""

import numpy as np
import pandas as pd

from mha_core.figures.strips import strips

NAMES = {"first token": "first <i>", "induction": "induction"}
WORDS = {name: name for name in ("mean", "shuffled", "chance", "fixed", "own")}
TABLE = pd.DataFrame(
    {f"q{at}": [at / 200, at / 100] for at in range(0, 101, 10)}
    | {"mean": [0.25, 0.5], "low": [0.2, 0.45], "high": [0.35, 0.6]}
    | {"shuffled": [0.1, 0.2], "chance": [0.05, 0.06], "fixed": [np.nan, 0.4], "own": [np.nan, np.nan]},
    index=[*NAMES],
)


def draw(**options):
    return strips(TABLE, names=NAMES, words=WORDS, **options)


def marks(figure) -> dict:
    return {trace.name: trace for trace in figure.data if trace.type == "scatter"}


def test_a_strip_spans_all_texts_and_its_darker_parts_the_middle_ones():
    whole, most, middle = (trace for trace in draw().data if trace.type == "bar")
    np.testing.assert_allclose([*whole.base], [0, 0])
    np.testing.assert_allclose(whole.x, [0.5, 1])
    np.testing.assert_allclose([*most.base], [0.05, 0.1])
    np.testing.assert_allclose(most.x, [0.4, 0.8])
    np.testing.assert_allclose(middle.x, [0.2, 0.4])
    assert whole.width < most.width < middle.width


def test_each_value_is_a_mark_and_a_missing_one_is_none():
    found = marks(draw(hue=3))
    assert {*found} == {"mean", "shuffled", "chance", "fixed"}
    np.testing.assert_allclose(found["mean"].x, TABLE["mean"])
    np.testing.assert_allclose(found["mean"].error_x.array, [0.1, 0.1])
    np.testing.assert_allclose(found["mean"].error_x.arrayminus, [0.05, 0.05])
    assert list(found["fixed"].y) == ["induction"]
    assert found["mean"].marker.color == "#000004"
    assert found["shuffled"].marker.symbol == "circle-open"
    rows = draw(bold=["first token"]).layout.yaxis.categoryarray  # from below
    assert list(rows) == ["induction", "<b>first &lt;i&gt;</b>"]
