"""The scripts get the link grammar from one generated file, and read numbers as Python does."""

import json
from dataclasses import replace
from random import Random
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings

from mha_core.focus.focus import FIELDS, Focus
from mha_core.scene.changes import change_of, write
from mha_core.scene.link import WEIGHTS
from mha_core.scene.page import parts
from mha_core.training import checkpoints
from tests.scene import schema
from tests.scene.test_link import scenes

DIGITS = ("0", "1", "7", "00", "٣", "²", "-", "+", ".", "e", " ", "_", "9" * 8, "9" * 18)


def test_the_scripts_have_the_current_fields_of_the_focus():
    written = schema.PATH.read_text(encoding="utf-8")
    assert written == schema.module(), "write it again: python -m tests.scene.schema"


def test_an_edge_blocked_in_the_browser_is_the_change_that_python_reads(javascript):
    places = [{"layer": 2, "head": 11, "from": 9, "to": 3}, {"layer": 1, "head": 1, "from": 1, "to": 4096}]
    code = "return %s.map((place) => fill(CUT, place));"
    cuts = javascript(["scene/schema.js", "page/wording.js"], code % places)
    assert cuts == [write([change_of("cut", place)]) for place in places]


@pytest.mark.parametrize("seed", range(2))
def test_the_browser_accepts_the_same_numbers_of_a_link_as_python(javascript, seed):
    random = Random(seed)
    numbers = ["", "1", "99999999", "100000000"]
    numbers += ["".join(random.choices(DIGITS, k=random.randint(1, 4))) for _ in range(3000)]
    found = javascript(["scene/focus_link.js"], f"return {numbers!r}.map(numberOf);")
    python = [int(text) if text and FIELDS["lines"].rule("lines", text) is None else None for text in numbers]
    assert found == python
    assert 100 < sum(number is not None for number in python) < 2900


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scenes | scenes.map(lambda scene: replace(scene, source="mini", focus=Focus())))
def test_the_browser_writes_the_link_of_the_scene_that_it_shows(javascript, scene):
    """Streamlit writes the controls into the address, the scripts write the focus and the edition."""
    link = parts(scene.link()).values
    of_before = urlencode(dict.fromkeys((*Focus().link(), WEIGHTS), "7"))
    others = {name: value for name, value in link.items() if name not in (*Focus().link(), WEIGHTS)}
    said = [f"{of_before}&{urlencode(others)}", scene.focus.link(), str(checkpoints.edition())]
    query = javascript(["scene/focus_link.js"], f"return queryOf(...{json.dumps(said)});")
    assert parts(f"?{query}").values == link
