"""A part of a long text is the same numbers, computed for it alone; sorted columns keep their names."""

import numpy as np
import pytest

import mha_core as mha
from mha_core.analysis.frames import WINDOW, ordered, origin, picture, window
from mha_core.traces.layer import LayerTrace
from mha_core.traces.matrices import MATRICES, TOKEN_AXES

TEXT = "the cat saw the dog and the dog saw a bird"
PART = slice(4, 9)
OF_A_HEAD = [name for name, matrix in MATRICES.items() if not matrix.of_layer]


@pytest.fixture(scope="module")
def trace():
    return mha.trace(TEXT, h=4, d_model=12, d_k=3, d_v=5, n_kv_heads=2, mask="causal")


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
def test_a_part_is_cut_out_of_the_whole(trace, name):
    whole, part = (picture(trace, name, layer=0, head=3, part=cut) for cut in (None, PART))
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


def test_the_veil_of_a_part_lies_on_its_own_rows():
    trace = mha.trace("the cat saw the dog because it was tired", source="mini", h=4, d_model=64)
    whole, part = (picture(trace, "weights", layer=1, head=0, part=cut) for cut in (None, PART))
    np.testing.assert_array_equal(part.faint, whole.faint[PART])
    assert not part.faint.all()  # "it" is among them


@pytest.mark.parametrize("name", ["scores", "weights", "output"])
def test_a_part_never_computes_all_queries(trace, name, monkeypatch):
    asked = []
    queries = LayerTrace._queries
    monkeypatch.setattr(
        LayerTrace, "_queries", lambda self, head, rows: asked.append(rows) or queries(self, head, rows)
    )
    picture(trace, name, layer=0, head=1, part=PART)
    assert asked
    assert set(map(str, asked)) == {str(PART)}


def test_sorted_columns_keep_their_numbers_and_their_values(trace):
    plain = picture(trace, "q", layer=0, head=1)
    turned = ordered(plain, np.array([2, 0, 1]))
    assert [*turned.frame.columns] == [3, 1, 2]
    assert turned.frame.columns.name == "d_k"
    for number in (1, 2, 3):
        np.testing.assert_array_equal(turned.frame[number], plain.frame[number])
    assert [*plain.frame.columns] == [1, 2, 3]


def test_hidden_cells_move_with_their_columns(trace):
    plain = picture(trace, "weights", layer=0, head=1)
    order = np.arange(len(trace.tokens))[::-1]
    np.testing.assert_array_equal(ordered(plain, order).hidden, plain.hidden[:, ::-1])


def test_a_picture_says_where_its_numbers_come_from(trace):
    found = picture(trace, "weights", layer=0, head=3).origin
    assert (found.text, found.layer, found.head) == (TEXT, 0, 3)
    assert (found.source["name"], found.source["h"], found.source["d_model"]) == ("random", 4, 12)
    assert origin(trace).head is None
