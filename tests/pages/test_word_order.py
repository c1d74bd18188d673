"""The view Word order of Steps: two pictures of each encoding, and sizes from the link."""

import json
from functools import partial

import numpy as np
import pytest

from mha_core.analysis import position_codes
from mha_core.sources import mini


def pictures(app) -> list[dict]:
    [drawn] = json.loads(app.get_by_key("positions").proto.json)
    return drawn["matrices"]


@pytest.fixture
def open_word_order(opened_on):
    return partial(opened_on, "understand/steps.py?steps_view=order")


def test_the_sinusoidal_encoding_comes_first(open_word_order, english):
    table, meeting = pictures(open_word_order())
    assert (table["symbol"], table["meaning"]) == ("PE", english("word_order.sinusoidal_table"))
    assert (len(table["rows"]), table["columns"]) == (32, 64)
    assert len(meeting["rows"]) == 32
    assert meeting["end"] == pytest.approx(32)  # every position with itself: d / 2


def test_the_learned_encoding_is_that_of_the_small_model(open_word_order):
    vectors = mini.model(mini.find("en", "glass-box", 4, 64)).model.position
    table, _ = pictures(open_word_order(code="learned"))
    assert (len(table["rows"]), table["columns"]) == tuple(vectors.shape)
    assert table["end"] == pytest.approx(float(vectors.abs().max()))


def test_alibi_shows_the_chosen_head(open_word_order):
    app = open_word_order(code="ALiBi", positions_length=5, positions_h=4, positions_head=2)
    table, meeting = pictures(app)
    assert (len(table["rows"]), len(meeting["rows"])) == (4, 5)
    expected = position_codes.alibi(5, 4, 1).effect.to_numpy()
    assert meeting["end"] == pytest.approx(np.abs(expected).max())


def test_an_odd_rotary_width_is_refused(open_word_order):
    app = open_word_order(code="rotary", positions_width=9)
    assert "must be even" in app.error[0].value.replace("\\", "")


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "ALiBi"])
def test_each_encoding_has_its_formula_source_and_torch_code(open_word_order, english, name):
    code = getattr(position_codes, name.lower())(9, *((8, 0) if name == "ALiBi" else (64,)))
    app = open_word_order(code=name, positions_length=9)
    [formula], [lines] = app.latex, app.code
    assert code.formula in formula.value
    assert lines.value == code.code
    assert english(f"word_order.{name}_source") in [caption.value for caption in app.caption]
