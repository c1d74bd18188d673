"""Tables of a trace: the layer's own numbers, under the right labels, counted from 1."""

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core.analysis.frames import WINDOW, Crop, around, long_table, origin, picture, window
from mha_core.traces.matrices import MATRICES, TOKEN_AXES

TEXT = "the cat saw the dog"
OF_RANDOM = [name for name in MATRICES if name != "x_v"]  # the random source makes V of X
LABELS = ["the\u2009₁", "cat", "saw", "the\u2009₂", "dog"]


def make_trace(**settings) -> mha.AttentionTrace:
    return mha.trace(TEXT, **{"h": 6, "d_model": 11, "d_k": 3, "d_v": 7, "layers": 2, **settings})


@pytest.fixture(scope="module")
def trace():
    """6 query heads on 3 key/value heads, causal, two layers, all sizes different."""
    return make_trace(n_kv_heads=3, mask="causal")


def array(trace: mha.AttentionTrace, name: str, layer: int, head: int) -> np.ndarray:
    """The same matrix straight from the layer."""
    recorded = trace.layers[layer]
    if name in ("x", "x_v"):
        return getattr(recorded, name)
    if name == "q":
        return recorded.q[head]
    if name in ("k", "v"):
        return getattr(recorded, name)[head * recorded.n_kv_heads // recorded.n_heads]
    return getattr(recorded, name)() if MATRICES[name].of_layer else getattr(recorded, name)(head)


@pytest.mark.parametrize("name", OF_RANDOM)
def test_a_picture_is_the_layers_own_matrix_with_words_on_axes_of_tokens(trace, name):
    for layer, head in ((0, 0), (0, 5), (1, 3)):
        shown = picture(trace, name, layer=layer, head=head)
        np.testing.assert_array_equal(shown.frame.to_numpy(), array(trace, name, layer, head))
        assert shown.name == name
        assert (shown.frame.index.name, shown.frame.columns.name) == MATRICES[name].axes
        assert shown.framed is None
    frame = shown.frame
    assert [*frame.index] == LABELS
    if MATRICES[name].axes[1] == "key":
        assert [*frame.columns] == LABELS
    else:
        assert [*frame.columns] == [*range(1, frame.shape[1] + 1)]


@pytest.mark.parametrize("name", MATRICES)
def test_every_matrix_of_a_layer_whose_v_has_an_input_of_its_own_can_be_shown(own_values, name):
    shown = picture(own_values, name, layer=1, head=3)
    np.testing.assert_array_equal(shown.frame.to_numpy(), array(own_values, name, 1, 3))
    assert [*shown.frame.index] == LABELS
    assert (shown.frame.index.name, shown.frame.columns.name) == MATRICES[name].axes
    assert shown.hidden is None


def test_the_input_of_v_is_refused_if_it_is_x(trace, own_values):
    for without in (trace, own_values):
        with pytest.raises(mha.MhaError, match="no inputs of its own for V: they are X"):
            picture(without, "x_v", layer=0, head=0)


def test_a_long_table_of_the_input_of_v_leads_back_to_its_cells(own_values):
    table = long_table(own_values, "x_v", layer=1, heads=[3])
    assert [*table.columns] == ["head", "key_position", "key", "d_model", "x_v"]
    wide = table.pivot(index="key_position", columns="d_model", values="x_v")
    np.testing.assert_array_equal(wide.to_numpy(), own_values.layers[1].x_v)


@pytest.mark.parametrize("mask", ["full", "window:1"])
def test_cells_are_hidden_only_after_the_mask_is_applied(mask):
    trace = make_trace(mask=mask)
    for name in OF_RANDOM:
        hidden = picture(trace, name, layer=1, head=2).hidden
        if name in ("masked", "weights") and mask != "full":
            np.testing.assert_array_equal(hidden, ~trace.layers[1].allowed(2))
            assert hidden.any()
        else:
            assert hidden is None


@pytest.mark.parametrize(("head", "kv"), [(0, "₁"), (3, "₂"), (5, "₃")])
def test_shared_keys_and_values_carry_the_number_of_their_own_head(trace, head, kv):
    own = str(head + 1).translate(str.maketrans("123456", "₁₂₃₄₅₆"))
    written = {name: picture(trace, name, layer=0, head=head).symbol for name in ("q", "k", "v", "weights")}
    assert written == {"q": f"Q{own}", "k": f"K{kv}", "v": f"V{kv}", "weights": f"A{own}"}


# Long tables


def test_a_long_table_of_queries_has_a_line_for_each_number(trace):
    table = long_table(trace, "q", layer=1, heads=[0, 4])
    assert [*table.columns] == ["head", "query_position", "query", "d_k", "q"]
    assert len(table) == 2 * 5 * 3
    expected = trace.layers[1].q[[0, 4]]
    np.testing.assert_array_equal(table["q"].to_numpy(), expected.ravel())
    assert [*table["head"].unique()] == [1, 5]
    assert [*table["query"][:6]] == ["the\u2009₁"] * 3 + ["cat"] * 3
    assert [*table["query_position"][:6]] == [1, 1, 1, 2, 2, 2]
    assert [*table["d_k"][:6]] == [1, 2, 3, 1, 2, 3]


def test_a_long_table_of_weights_names_both_tokens(trace):
    table = long_table(trace, "weights", layer=0, heads=range(6))
    assert [*table.columns] == ["head", "query_position", "query", "key_position", "key", "weights"]
    assert len(table) == 6 * 5 * 5
    np.testing.assert_array_equal(table["weights"].to_numpy(), trace.layers[0].weights().ravel())
    assert [*table["key"][:5]] == LABELS


@pytest.mark.parametrize("name", OF_RANDOM)
def test_every_line_of_a_long_table_leads_back_to_its_cell(trace, name):
    table = long_table(trace, name, layer=1, heads=[3])
    rows, columns = MATRICES[name].axes
    row_place, column_place = (
        axis if axis.startswith(("d_", "h·")) else f"{axis}_position" for axis in (rows, columns)
    )
    wide = table.pivot(index=row_place, columns=column_place, values=name)
    np.testing.assert_array_equal(wide.to_numpy(), array(trace, name, 1, 3))
    assert (table["head"] == 4).all()


def test_the_rows_of_a_long_table_have_consecutive_numbers(trace):
    table = long_table(trace, "weights", layer=0, heads=range(2))
    pd.testing.assert_index_equal(table.index, pd.RangeIndex(len(table)))


# A part of a long text is the same numbers, computed for it alone

LONG_TEXT = "the cat saw the dog and the dog saw a bird"
PART = slice(4, 9)
OF_A_HEAD = [name for name, matrix in MATRICES.items() if not matrix.of_layer]


@pytest.fixture(scope="module")
def long_trace():
    return mha.trace(LONG_TEXT, h=4, d_model=12, d_k=3, d_v=5, n_kv_heads=2, mask="causal")


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


@pytest.mark.parametrize("name", OF_A_HEAD)
def test_a_part_is_cut_out_of_the_whole(long_trace, name):
    whole, part = (picture(long_trace, name, layer=0, head=3, part=cut) for cut in (None, PART))
    of_tokens = MATRICES[name].axes[1] in TOKEN_AXES
    expected = whole.frame.iloc[PART, PART] if of_tokens else whole.frame.iloc[PART]
    np.testing.assert_allclose(part.frame.to_numpy(), expected.to_numpy(), rtol=1e-5, atol=1e-6)
    assert [*part.frame.index] == [*expected.index]
    assert [*part.frame.columns] == [*expected.columns]
    assert (part.frame.index.name, part.frame.columns.name) == MATRICES[name].axes
    assert part.start == (4, 4 if of_tokens else 0)
    assert whole.start == (0, 0)
    if whole.hidden is not None:
        np.testing.assert_array_equal(part.hidden, whole.hidden[PART, PART])


@pytest.mark.parametrize("name", ["scores", "weights", "output"])
def test_a_part_never_computes_all_queries(name, allocated):
    n = 400
    trace = mha.trace("a " * n, h=2, d_model=4, mask="causal")
    assert max(allocated(lambda: picture(trace, "weights", layer=0, head=1))) >= 4 * n * n
    assert max(allocated(lambda: picture(trace, name, layer=0, head=1, part=PART))) < n * n


def test_a_picture_says_where_its_numbers_come_from(long_trace):
    found = picture(long_trace, "weights", layer=0, head=3).origin
    assert (found.text, found.layer, found.head) == (LONG_TEXT, 0, 3)
    assert (found.source.name, found.h, found.d_model) == ("random", 4, 12)
    assert origin(long_trace).head is None


# Two texts: 7 tokens look at 11 others


@pytest.mark.parametrize("name", ["q", "k", "v", "scores", "scaled", "masked", "weights", "output"])
def test_a_part_is_cut_out_of_both_texts(cross_trace, name):
    part = Crop(slice(2, 5), slice(6, 11))
    whole, cut = (picture(cross_trace, name, layer=0, head=4, part=shown) for shown in (None, part))
    axes = cut.frame.index.name, cut.frame.columns.name
    rows, columns = (part.of(axis) if axis in ("query", "key") else slice(None) for axis in axes)
    np.testing.assert_allclose(cut.frame, whole.frame.iloc[rows, columns], rtol=1e-5, atol=1e-6)
    assert [*cut.frame.index] == [*whole.frame.index[rows]]
    assert [*cut.frame.columns] == [*whole.frame.columns[columns]]
    assert cut.start == (rows.start, columns.start if axes[1] == "key" else 0)


def test_each_text_may_be_whole_while_the_other_is_cut(cross_trace):
    weights = cross_trace.layers[0].weights(1)
    shown = picture(cross_trace, "weights", layer=0, head=1, part=Crop(None, slice(3, 9))).frame
    np.testing.assert_allclose(shown, weights[:, 3:9])
    assert [*shown.columns] == [*cross_trace.sides.keys.labels[3:9]]
    assert picture(cross_trace, "weights", layer=0, head=1, part=Crop(slice(0, 2), None)).frame.shape == (
        2,
        11,
    )


def test_the_part_around_a_token_holds_what_it_mostly_looks_at(cross_trace):
    for query in range(7):
        strongest = cross_trace.layers[1].weights(3)[query].argmax()
        rows, keys = around(cross_trace, query, layer=1, head=3, size=3)
        assert query in range(rows.start, rows.stop)
        assert strongest in range(keys.start, keys.stop)
        assert (rows.stop - rows.start, keys.stop - keys.start) == (3, 3)
    assert around(cross_trace, 0, layer=0, head=0) == (None, None)
    assert around(cross_trace, 0, layer=0, head=0, size=7)[0] is None
    assert around(cross_trace, 0, layer=0, head=0, size=8) == (
        None,
        around(cross_trace, 0, layer=0, head=0, size=8).keys,
    )
    assert cross_trace.sides.length == 11


def test_a_table_and_an_origin_name_both_texts(cross_trace):
    table = long_table(cross_trace, "weights", layer=1, heads=[2])
    assert len(table) == 77
    assert set(table["query"]) == set(cross_trace.sides.queries.labels)
    assert set(table["key"]) == set(cross_trace.sides.keys.labels)
    assert origin(cross_trace).text == cross_trace.title
    assert cross_trace.sides.queries.text in cross_trace.title
    assert cross_trace.sides.keys.text in cross_trace.title


def test_blocks_of_rows_of_one_head_are_together_the_long_table():
    trace = mha.trace("one two three four five", h=2, d_model=8)
    whole = long_table(trace, "weights", layer=0, heads=range(2))
    blocks = [
        long_table(trace, "weights", layer=0, heads=[head], rows=rows)
        for head in range(2)
        for rows in (slice(0, 2), slice(2, 4), slice(4, 5))
    ]
    pd.testing.assert_frame_equal(pd.concat(blocks, ignore_index=True), whole)
