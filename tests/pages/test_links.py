"""Random links of random pages: none fails, and each invalid value is named with its replacement."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mha_core.attention.positions import POSITIONS
from mha_core.focus.focus import CHOICES, Focus
from mha_core.scene.page import PAGES as FIELDS
from mha_core.training.model import ARCHITECTURES
from pages._kit.state import CONTROLS
from pages._kit.text import catalogue
from tests.pages.conftest import FRAME, OF_TRACE, PAGES, refused_by_link, run

# Values that every page and every trace can have.
CAN_BE = {
    "text": ["The cat saw the dog.", "a", "x y z", "小猫", "<b>$x$</b> \u202e ~~a~~"],
    "source": ["mini", "random"],
    "architecture": list(ARCHITECTURES),
    "position": [name for name in POSITIONS if name != "rotary"],  # which wants an even width
    "mask": ["full", "causal"],
    "h": ["1", "2", "4"],
    "layers": ["1", "3"],
}
# Values that no field has but those that take any text.
JUNK = ["zzz", "nan", "inf", "-inf", "1e999", "-1", "1.5", "\u0664", "<b>x</b>", "1,two", "\u202e\u200bx"]
JUNK += ["{x}", *(n * "9" for n in (9, 30, 400, 5000)), "-" + "9" * 400, "zzz" * 4000]
TEXTS = {"text", "twin", "target", "edits", "against", "run", "file", "model"}
TEXTS |= {"revision", "step", "dtype"}
# Fields whose junk is refused whatever the page draws, and those refused only where there is a trace.
ALWAYS = {*CONTROLS, *CHOICES, "lines"} - TEXTS
WITH_TRACE = {*["layer", "head", "sentence", "token", "key_token", "pins", "heads", "hop1", "hop2"]}
# Junk that is a number which the field can have.
NUMBER_OF = {"threshold": {"1.5", "\u0664", "9" * 9, "9" * 30}, "seed": {"9" * 9}}

NAMES = sorted({*CONTROLS, *TEXTS, *Focus().link(), *(name for fields in FIELDS.values() for name in fields)})
values = st.one_of(
    st.tuples(st.just("can be"), st.none()),
    st.tuples(st.just("junk"), st.sampled_from(JUNK)),
    st.tuples(st.just("any"), st.text(max_size=9) | st.lists(st.text(max_size=3), min_size=2, max_size=3)),
)
links = st.dictionaries(st.sampled_from(NAMES), values, min_size=2, max_size=9)


def said(app) -> str:
    """The line on values of the link that cannot be."""
    lines = refused_by_link(app)
    assert len(lines) <= 1
    return "".join(lines)


@pytest.mark.parametrize(
    ("page", "field", "value"), [("see/heads.py", "h", ["8", "-inf"]), ("learn/train.py", "train_h", "nan")]
)
def test_a_number_field_has_its_default_when_the_link_has_no_finite_number(page, field, value):
    app = run(FRAME, {field: value}, page)
    assert app.number_input(key=field).value == 4
    assert f"The link says {field} = " in said(app)


@pytest.mark.parametrize(
    ("link", "is_said"),
    [({"number": "9,9"}, True), ({"number": "9,9", "matrix": "weights"}, False), ({"kind": "zzz"}, True)],
)
def test_a_value_that_means_nothing_here_is_named(link, is_said):
    field, value = next(iter(link.items()))
    assert (f"The link says {field} = {value}, which" in said(run(FRAME, link, "see/heads.py"))) == is_said


def test_what_a_mail_has_garbled_is_named():
    app = run(FRAME, {"text": "a b", "amp;h": "8"}, "see/heads.py")
    [line] = [caption.value for caption in app.caption if "garbled" in caption.value]
    assert "so amp;h = 8 was left out" in line.replace("\\", "")


@pytest.mark.slow
@settings(max_examples=40, phases=[Phase.generate])  # a page takes too long to be shrunk
@given(page=st.sampled_from(PAGES), drawn=links, data=st.data())
def test_any_link_opens_and_names_its_invalid_values(page, drawn, data):
    link = {"lang": "en"}
    for name, (kind, value) in drawn.items():
        link[name] = data.draw(st.sampled_from(CAN_BE.get(name, [""]))) if kind == "can be" else value
    app = run(FRAME, link, page)
    failed = catalogue("en")["error.failed"].partition("{")[0]
    assert not any(words in error.value for error in app.error for words in (failed, "Traceback"))
    line = said(app)
    ended = any(caption.value == catalogue("en")["next.title"] for caption in app.caption)
    wrong = ALWAYS | (WITH_TRACE if ended and page in OF_TRACE and page != "see/compare.py" else set())
    if link.get("sentence") != "1" and "sentence" in link:
        wrong -= {"token", "key_token", "pins"}  # another sentence has those words
    for name, (kind, _) in drawn.items():
        if kind == "junk" and name in wrong and link[name] not in NUMBER_OF.get(name, ()):
            assert f"The link says {name} = " in line, (name, link[name], line)
