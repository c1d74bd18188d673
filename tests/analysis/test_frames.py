"""Tables of a trace: the layer's own numbers, under the right labels, counted from 1."""

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core.analysis.frames import WINDOW, Crop, around, long_table, origin, picture, window
from mha_core.traces.matrices import MATRICES

TEXT = "the cat saw the dog"
LABELS = ["the\u2009₁", "cat", "saw", "the\u2009₂", "dog"]


@pytest.fixture(scope="module", params=["random", "own values"])
def trace(request, own_values):
    """6 query heads on 3 key/value heads, causal, all sizes different; or V with an input of its own."""
    if request.param == "own values":
        return own_values
    sizes = {"h": 6, "n_kv_heads": 3, "d_model": 11, "d_k": 3, "d_v": 7, "layers": 2}
    return mha.trace(TEXT, **sizes, mask="causal")


def array(trace: mha.AttentionTrace, name: str, layer: int, head: int) -> np.ndarray:
    """The same matrix straight from the layer."""
    recorded = trace.layers[layer]
    if name in ("x", "x_v"):
        return getattr(recorded, name)
    if name in ("q", "k", "v"):
        own = getattr(recorded, name)
        return own[head * len(own) // recorded.n_heads]
    return getattr(recorded, name)() if MATRICES[name].of_layer else getattr(recorded, name)(head)


@pytest.mark.parametrize("name", MATRICES)
def test_a_picture_and_a_long_table_are_the_layers_own_matrix(trace, name):
    for layer, head in ((0, 0), (0, 2), (1, 3)):
        if name == "x_v" and trace.layers[layer].x_v is None:
            with pytest.raises(mha.MhaError, match="no inputs of its own for V: they are X"):
                picture(trace, name, layer=layer, head=head)
            continue
        shown, rows, columns = picture(trace, name, layer=layer, head=head), *MATRICES[name].axes
        expected = array(trace, name, layer, head)
        np.testing.assert_array_equal(shown.frame.to_numpy(), expected)
        assert (shown.name, shown.framed, shown.start) == (name, None, (0, 0))
        assert (shown.frame.index.name, shown.frame.columns.name) == (rows, columns)
        assert [*shown.frame.index] == LABELS
        dimensions = [*range(1, expected.shape[1] + 1)]
        assert [*shown.frame.columns] == (LABELS if columns == "key" else dimensions)
        if name in ("masked", "weights") and not trace.layers[layer].allowed(head).all():
            np.testing.assert_array_equal(shown.hidden, ~trace.layers[layer].allowed(head))
        else:
            assert shown.hidden is None
        table = long_table(trace, name, layer=layer, heads=[head])
        places = [axis if axis.startswith(("d_", "h·")) else f"{axis}_position" for axis in (rows, columns)]
        wide = table.pivot(index=places[0], columns=places[1], values=name)
        np.testing.assert_array_equal(wide.to_numpy(), expected)
        assert (table["head"] == head + 1).all()


@pytest.mark.parametrize(("head", "own", "kv"), [(0, "₁", "₁"), (3, "₄", "₂"), (11, "₁₂", "₆")])
def test_a_matrix_is_written_as_in_the_papers_with_the_number_of_its_head(head, own, kv):
    trace = mha.trace(TEXT, h=12, n_kv_heads=6, d_model=12)
    written = {"x": "X", "q": f"Q{own}", "k": f"K{kv}", "v": f"V{kv}", "concat": "concat", "result": "Z"}
    written |= {"scores": f"S{own}", "scaled": f"S{own} / √d_k", "masked": f"S{own} masked"}
    written |= {"weights": f"A{own}", "output": f"head{own}", "contribution": f"head{own} · Wᴼ{own}"}
    assert {name: picture(trace, name, layer=0, head=head).symbol for name in written} == written


# Long tables


def test_a_long_table_has_a_line_for_each_number_also_in_blocks_of_rows(own_values):
    table = long_table(own_values, "q", layer=1, heads=[0, 3])
    assert [*table.columns] == ["layer", "head", "query_position", "query", "d_k", "q"]
    np.testing.assert_array_equal(table["q"].to_numpy(), own_values.layers[1].q[[0, 3]].ravel())
    assert ([*table["layer"].unique()], [*table["head"].unique()]) == ([2], [1, 4])
    assert [*table["query"][:6]] == ["the\u2009₁"] * 3 + ["cat"] * 3
    assert [*table["query_position"][:6]] == [1, 1, 1, 2, 2, 2]
    assert [*table["d_k"][:6]] == [1, 2, 3, 1, 2, 3]
    table = long_table(own_values, "weights", layer=0, heads=range(2))
    assert [*table.columns] == ["layer", "head", "query_position", "query", "key_position", "key", "weights"]
    assert [*table["key"][:5]] == LABELS
    pd.testing.assert_index_equal(table.index, pd.RangeIndex(2 * 5 * 5))
    blocks = [
        long_table(own_values, "weights", layer=0, heads=[head], part=Crop(rows))
        for head in range(2)
        for rows in (slice(0, 2), slice(2, 4), slice(4, 5))
    ]
    pd.testing.assert_frame_equal(pd.concat(blocks, ignore_index=True), table)


# A part of a long text is the same numbers, computed for it alone

LONG_TEXT = "the cat saw the dog and the dog saw a bird"


@pytest.fixture(scope="module")
def long_trace():
    return mha.trace(LONG_TEXT, h=5, d_model=15, n_kv_heads=1, mask="causal")


@pytest.mark.parametrize(
    ("length", "around", "expected"),
    [
        (128, 127, None),
        (1000, 500, slice(436, 564)),
        (1000, 0, slice(0, 128)),
        (1000, 999, slice(872, 1000)),
        (129, 64, slice(0, 128)),
        (129, 128, slice(1, 129)),
    ],
)
def test_the_window_holds_the_chosen_token_and_is_never_smaller_than_it_may_be(length, around, expected):
    assert window(length, around) == expected
    if expected:
        assert expected.start <= around < expected.stop
        assert expected.stop - expected.start == WINDOW


# Two texts: 7 tokens look at 11 others


@pytest.mark.parametrize(
    "part",
    [Crop(slice(2, 5), slice(2, 5)), Crop(slice(2, 5), slice(6, 9)), Crop(None, slice(3, 9))],
    ids=str,
)
@pytest.mark.parametrize("name", ["q", "k", "v", "scores", "scaled", "masked", "weights", "output"])
@pytest.mark.parametrize("fixture", ["long_trace", "cross_trace"])
def test_a_part_is_cut_out_of_the_whole(fixture, name, part, request):
    trace = request.getfixturevalue(fixture)
    whole, cut = (picture(trace, name, layer=0, head=4, part=shown) for shown in (Crop(), part))
    sides = {"query": part.queries, "key": part.keys}
    rows, columns = (sides.get(axis) or slice(None) for axis in MATRICES[name].axes)
    expected = whole.frame.iloc[rows, columns]
    np.testing.assert_allclose(cut.frame, expected, rtol=1e-5, atol=1e-6)
    assert [*cut.frame.index] == [*expected.index]
    assert [*cut.frame.columns] == [*expected.columns]
    assert (cut.frame.index.name, cut.frame.columns.name) == MATRICES[name].axes
    assert cut.start == (rows.start or 0, columns.start or 0)
    hidden = None if whole.hidden is None else whole.hidden[rows, columns]
    np.testing.assert_array_equal(cut.hidden, None if hidden is None or not hidden.any() else hidden)
    found = whole.origin
    assert (found.text, found.layer, found.head) == (trace.title, 0, 4)
    layer = trace.layers[0]
    assert (found.source, found.h, found.d_model) == (trace.source, layer.n_heads, layer.d_model)
    assert origin(trace).head is None


def test_the_part_around_a_token_holds_what_it_mostly_looks_at(cross_trace):
    for query in range(7):
        strongest = cross_trace.layers[1].weights(3)[query].argmax()
        rows, keys = around(cross_trace, query, layer=1, head=3, size=3)
        assert query in range(rows.start, rows.stop)
        assert strongest in range(keys.start, keys.stop)
        assert (rows.stop - rows.start, keys.stop - keys.start) == (3, 3)
    assert around(cross_trace, 0, layer=0, head=0) == (None, None)
    rows, keys = around(cross_trace, 0, layer=0, head=0, size=7)  # as many as there are queries
    assert rows is None
    assert keys is not None
    assert cross_trace.sides.length == 11
    table = long_table(cross_trace, "weights", layer=1, heads=[2])
    assert (len(table), set(table["query"])) == (77, set(cross_trace.sides.queries.labels))
    assert set(table["key"]) == set(cross_trace.sides.keys.labels)
