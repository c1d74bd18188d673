"""The small models in the browser's engine, against torch (`tests/static/referee.py` compares everything)."""

import json
import math
import sys
import unicodedata

import pytest

from mha_core.static import parts
from mha_core.training import checkpoints
from mha_core.training.lexicon import LANGUAGES, normalized
from tests.static import referee
from tests.training.test_lexicon import TEXTS

WEIGHTS, EDITED, PROBABILITIES = 1e-5, 3e-6, 1e-4
SMALL = [plan for plan in checkpoints.PLANS if plan.d_model <= 64 and plan.h == 4]
WIDE = [plan for plan in checkpoints.PLANS if plan not in SMALL]


@pytest.mark.parametrize("plan", SMALL, ids=checkpoints.name)
def test_each_architecture_gives_torchs_weights_and_answers(javascript, plan):
    plain = referee.cases(plan, generated=5, by_hand=3, odd=5)
    for given, limit in ((plain, WEIGHTS), (referee.edited(plan, 8), EDITED)):
        found = referee.compare(javascript, plan, given)
        assert max(found.weights, found.outputs) <= limit
        assert found.probabilities <= PROBABILITIES


@pytest.mark.slow
@pytest.mark.parametrize("plan", WIDE, ids=checkpoints.name)
def test_each_size_gives_torchs_weights_and_answers(javascript, plan):
    found = referee.compare(javascript, plan, referee.cases(plan, generated=3, by_hand=2, odd=3))
    assert found.weights <= WEIGHTS
    assert found.probabilities <= PROBABILITIES


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_is_cut_as_in_the_app(javascript, language):
    code = """
    const lexicon = new Lexicon(JSON.parse(new TextDecoder().decode(file("words"))));
    const form = (id) => [...lexicon.standIns].find(([, ids]) => ids.includes(id))[0];
    return JSON.parse(new TextDecoder().decode(file("texts"))).map(({ text }) => {
      const { ids, unknown } = lexicon.cut(text);
      return ids.map((id, at) => unknown.includes(at) ? form(id) : lexicon.vocabulary[id]).slice(1).join(" ");
    });
    """
    cases = [case for case in TEXTS if case["language"] == language]
    files = {"words": parts.words(language), "texts": json.dumps(cases).encode()}
    assert javascript(["engine/lexicon.js"], code, **files) == [case["words"] for case in cases]


def test_the_error_function_of_its_gelu_is_exact(javascript):
    places = [place / 16 for place in range(-96, 97)]
    found = javascript(["engine/model.js"], f"return {places}.map(errorFunction);")
    assert found == pytest.approx([math.erf(place) for place in places], abs=1e-9)


@pytest.mark.slow
def test_every_character_is_compared_as_python_compares_it(javascript):
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))))
    code = 'return [...JSON.parse(new TextDecoder().decode(file("every")))].map(normalized);'
    found = javascript(["engine/lexicon.js"], code, every=json.dumps(every).encode())
    differ = [one for one, folded in zip(every, found, strict=True) if normalized(one) != folded]
    assert [one for one in differ if unicodedata.category(one) != "Cn"] == []  # which only node's Unicode has


@pytest.mark.parametrize(
    ("link", "refused"),
    [
        ("cut,layer=2,from=9,to=3;off,head=1-2", []),
        ("swap,from=3,to=7;off,head=1", ["swap,from=3,to=7"]),
        ("position,code=alibi", ["position,code=alibi"]),
        ("cut", ["cut"]),
        ("cut,from=0", ["cut,from=0"]),
        ("off,head=3-2", ["off,head=3-2"]),
        ("off,head=1,rows=3", ["off,head=1,rows=3"]),
        ("temperature,layer=1", ["temperature,layer=1"]),
        ("row,from=1,weights=0.9 0.9", ["row,from=1,weights=0.9 0.9"]),
        ("row,from=1,weights=0.9 x", ["row,from=1,weights=0.9 x"]),
        ("mask,mask=diagonal", ["mask,mask=diagonal"]),
        ("off,head=1,head=2;constructor", ["constructor"]),
    ],
)
def test_a_change_that_the_page_cannot_compute_is_named(javascript, link, refused):
    found = javascript(["engine/edits.js"], f"return readEdits({json.dumps(link)}).refused;")
    assert found == refused
