"""The map of heads: each at its two means, with intervals, its place with shuffled words, and chance."""

import numpy as np
import pandas as pd
import pytest

from mha_core.figures.head_map import head_map

PLACES = [(0, 0), (0, 1), (1, 0), (1, 1)]


def of_heads(largest: float = 1.0, *, places=PLACES) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    columns = {}
    for letter in "xy":
        mean = rng.uniform(0.2, 0.8, len(places)) * largest
        columns |= {
            letter: mean,
            f"{letter}_low": mean - 0.05,
            f"{letter}_high": mean + 0.1,
            f"{letter}_shuffled": mean / 2,
            f"{letter}_chance": np.full(len(places), 0.1),
        }
    names = {"name": [f"{layer + 1}·{head + 1}" for layer, head in places]}
    return pd.DataFrame(columns | names | {"label": names["name"]}, pd.MultiIndex.from_tuples(places))


def draw(points: pd.DataFrame | None = None, **options):
    points = of_heads() if points is None else points
    layers = ["layer 1", "layer 2"]
    return head_map(points, axes=("previous <b>", "first"), layers=layers, shuffled="shuffled", **options)


def marks(figure, name: str):
    return next(trace for trace in figure.data if trace.name == name)


def test_a_head_is_at_its_means_with_its_interval_in_the_mark_of_its_layer_and_its_own_colour():
    points, figure = of_heads(), draw()
    for number, name in enumerate(("layer 1", "layer 2")):
        rows, layer = points.loc[[number]], marks(figure, name)
        np.testing.assert_allclose(layer.x, rows["x"])
        np.testing.assert_allclose(layer.y, rows["y"])
        np.testing.assert_allclose(layer.error_y.array, 0.1)
        np.testing.assert_allclose(layer.error_y.arrayminus, 0.05)
        assert list(layer.marker.color) == ["#000001", "#000002"]
        assert [*map(list, layer.customdata)] == [[number, 0], [number, 1]]
    assert marks(figure, "layer 1").marker.symbol != marks(figure, "layer 2").marker.symbol


def test_a_line_leads_to_the_hollow_mark_of_the_same_head_with_shuffled_words():
    points, figure = of_heads(), draw()
    hollow = [trace for trace in figure.data if trace.mode == "markers" and trace.marker.opacity == 0.7]
    for number, trace in enumerate(hollow):
        assert trace.marker.symbol.endswith("-open")
        np.testing.assert_allclose(trace.x, points.loc[[number], "x_shuffled"])
        # a click there is one on the head
        assert [*map(list, trace.customdata)] == [[number, 0], [number, 1]]
    [threads] = [trace for trace in figure.data if trace.mode == "lines"]
    assert len(threads.x) == 3 * len(points)
    np.testing.assert_allclose(threads.x[:2], [points["x"].iloc[0], points["x_shuffled"].iloc[0]])
    assert np.isnan(threads.x[2])


def test_the_chosen_head_is_ringed_and_named_first():
    points, figure = of_heads(), draw(chosen=(1, 0))
    [ring] = [trace for trace in figure.data if trace.mode == "markers" and trace.marker.size == 20]
    assert (ring.x[0], ring.y[0]) == (points.loc[(1, 0), "x"], points.loc[(1, 0), "y"])
    [names] = [trace for trace in figure.data if trace.mode == "markers+text"]
    assert names.text[0] == "2·1"
    assert set(names.text) <= set(points["name"])


def test_names_are_left_out_where_heads_crowd():
    points = of_heads(places=[(layer, head) for layer in range(2) for head in range(40)])
    points[["x", "y"]] = 0.2 + points[["x", "y"]] / 100
    [names] = [trace for trace in draw(points, chosen=(1, 7)).data if trace.mode == "markers+text"]
    assert names.text[0] == "2·8"
    assert len(names.text) < 10
    [names] = [trace for trace in draw().data if trace.mode == "markers+text"]
    assert len(names.text) == 4
    points = of_heads()
    points["x_shuffled"], points["y_shuffled"] = points["x"], points["y"] + 0.067
    [names] = [trace for trace in draw(points).data if trace.mode == "markers+text"]
    assert {*names.textposition} == {"bottom center"}  # above each point is a mark


def test_shares_have_one_axis_and_other_measures_reach_their_largest_value():
    layout = draw().layout
    assert list(layout.xaxis.range) == [-0.1, 1.1]
    assert layout.xaxis.title.text == "previous &lt;b&gt;"
    across, up = layout.shapes  # dotted lines are at equal weights
    assert (across.x0, across.x1, across.line.dash) == pytest.approx((0.1, 0.1, "dot"))
    assert (up.y0, up.y1) == pytest.approx((0.1, 0.1))
    low, high = draw(of_heads(8.0)).layout.xaxis.range
    assert low < 0 < of_heads(8.0)["x_high"].max() < high


def test_a_head_without_one_of_the_measures_is_left_out_and_so_are_all():
    points = of_heads()
    points.loc[(0, 1), "y"] = np.nan
    assert [*map(list, marks(draw(points), "layer 1").customdata)] == [[0, 0]]
    points["y"] = np.nan
    assert not any(trace.name == "layer 1" for trace in draw(points, chosen=(0, 0)).data)
