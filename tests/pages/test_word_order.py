"""The view Word order of Steps: two pictures of each encoding, and sizes from the link."""

import numpy as np
import pytest

from mha_core.analysis import position_codes
from mha_core.sources import mini
from tests.pages.conftest import codes, sent

PAGE = "understand/steps.py?steps_view=order"


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "ALiBi"])
def test_each_encoding_has_its_formula_source_and_torch_code(on_page, english, name):
    code = getattr(position_codes, name.lower())(9, *((8, 0) if name == "ALiBi" else (64,)))
    app = on_page(code=name, positions_length=9)
    [formula], [lines] = app.latex, codes(app)
    assert code.formula in formula.value
    assert lines == code.code
    assert english(f"word_order.{name}_source") in [caption.value for caption in app.caption]


def test_each_encoding_has_its_two_pictures(on_page, english):
    table, meeting = sent(on_page(), "positions")["matrices"]  # the sinusoidal one comes first
    assert (table["symbol"], table["meaning"]) == ("PE", english("word_order.sinusoidal_table"))
    assert (len(table["rows"]), table["columns"], len(meeting["rows"])) == (32, 64, 32)
    assert meeting["end"] == pytest.approx(32)  # every position with itself: d / 2

    vectors = mini.model(mini.find("en", "glass-box", 4, 64)).model.position  # of the small model
    table, _ = sent(on_page(code="learned"), "positions")["matrices"]
    assert (len(table["rows"]), table["columns"]) == tuple(vectors.shape)
    assert table["end"] == pytest.approx(float(vectors.abs().max()))

    app = on_page(code="ALiBi", positions_length=5, positions_h=4, positions_head=2)
    table, meeting = sent(app, "positions")["matrices"]
    assert (len(table["rows"]), len(meeting["rows"])) == (4, 5)
    assert meeting["end"] == pytest.approx(np.abs(position_codes.alibi(5, 4, 1).effect.to_numpy()).max())

    app = on_page(code="rotary", positions_width=9)
    assert "must be even" in app.error[0].value.replace("\\", "")
