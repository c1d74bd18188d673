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


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "ALiBi"])
def test_each_encoding_has_its_formula_source_and_torch_code(open_word_order, english, name):
    code = getattr(position_codes, name.lower())(9, *((8, 0) if name == "ALiBi" else (64,)))
    app = open_word_order(code=name, positions_length=9)
    [formula], [lines] = app.latex, app.code
    assert code.formula in formula.value
    assert lines.value == code.code
    assert english(f"word_order.{name}_source") in [caption.value for caption in app.caption]


def test_each_encoding_has_its_two_pictures(open_word_order, english):
    table, meeting = pictures(open_word_order())  # the sinusoidal one comes first
    assert (table["symbol"], table["meaning"]) == ("PE", english("word_order.sinusoidal_table"))
    assert (len(table["rows"]), table["columns"], len(meeting["rows"])) == (32, 64, 32)
    assert meeting["end"] == pytest.approx(32)  # every position with itself: d / 2

    vectors = mini.model(mini.find("en", "glass-box", 4, 64)).model.position  # of the small model
    table, _ = pictures(open_word_order(code="learned"))
    assert (len(table["rows"]), table["columns"]) == tuple(vectors.shape)
    assert table["end"] == pytest.approx(float(vectors.abs().max()))

    app = open_word_order(code="ALiBi", positions_length=5, positions_h=4, positions_head=2)
    table, meeting = pictures(app)
    assert (len(table["rows"]), len(meeting["rows"])) == (4, 5)
    assert meeting["end"] == pytest.approx(np.abs(position_codes.alibi(5, 4, 1).effect.to_numpy()).max())

    app = open_word_order(code="rotary", positions_width=9)
    assert "must be even" in app.error[0].value.replace("\\", "")
