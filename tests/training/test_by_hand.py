"""Sentences written by people, not from templates: how often the shipped models are right, and how sure."""

import pytest

from mha_core.sources import mini
from mha_core.training.checkpoints import PLANS, manifest, name
from mha_core.training.lexicon import lexicon
from mha_core.training.questions import HALVES, NOTHING, written
from mha_core.training.workshop.report import reliability

# The least share of right answers on the held-out half; a little under what is measured.
FLOORS = {("en", 8): 0.82, ("zh", 4): 0.8}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_sentences_written_by_people_have_the_words_that_are_asked_about(language):
    texts = {half: {asked.text for asked in written(language)[half]} for half in HALVES}
    assert [len(texts[half]) for half in HALVES] == [100, 100]
    assert texts["fit"].isdisjoint(texts["held out"])
    for asked in (*written(language)["fit"], *written(language)["held out"]):
        tokens, _ = lexicon(language).cut(asked.text, limit=64)
        assert asked.answer == NOTHING or tokens.index(asked.answer) != tokens.index(asked.word)


@pytest.mark.parametrize(("language", "h"), FLOORS)
def test_answers_to_people_are_mostly_right_and_nearly_always_where_they_are_sure(language, h):
    found = reliability(mini.model(mini.find(language, "glass-box", h, 64)).model, language)
    assert found["right"] >= FLOORS[language, h]
    assert found["sure_right"] >= 0.88  # 0.9 at least, less one answer that rounding may move
    assert found["sure"] >= 0.2  # a model that is never sure would pass, too


@pytest.mark.parametrize("plan", [plan for plan in PLANS if not plan.is_decoder], ids=name)
def test_every_shipped_model_is_right_where_it_is_sure(plan):
    scores = manifest()[name(plan)]["scores"]["written"]
    assert scores["asked"] > 150
    assert scores["sure_right"] >= (0.88 if plan.h >= 4 else 0.8), scores
