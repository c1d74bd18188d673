"""The weights that come with Headscope are those of their plans, and as good as the manifest says."""

import dataclasses
import json
from functools import cache

import pytest

import mha_core as mha
from mha_core import resources
from mha_core.training import checkpoints
from mha_core.training.checkpoints import Trained
from mha_core.training.evaluation import Scores, scores
from mha_core.training.fit import Plan
from mha_core.training.lexicon import lexicon

MOST_BYTES = 25_000_000
NAMES = {checkpoints.name(plan): plan for plan in checkpoints.PLANS}
READABLE = [
    name
    for name, plan in NAMES.items()
    if (plan.architecture, plan.language) == ("glass-box", "en") and plan.h >= 2
]


@cache
def model(name: str) -> Trained:
    return checkpoints.load_model(checkpoints.path(NAMES[name]))


@cache
def measured(name: str) -> Scores:
    """All models together take half a minute; nobody measures one twice."""
    return scores(model(name).model, NAMES[name].language)


def entry(name: str) -> dict:
    assert name in checkpoints.manifest(), f"{name} is not in the manifest"
    return checkpoints.manifest()[name]


def test_no_two_plans_have_one_name():
    assert len(NAMES) == len(checkpoints.PLANS)


def test_the_folder_holds_the_models_and_the_manifest_and_nothing_else():
    folder = resources.path(*checkpoints.FOLDER)
    expected = {checkpoints.MANIFEST, *(f"{name}.safetensors" for name in NAMES)}
    assert {file.name for file in folder.iterdir()} == expected
    assert set(checkpoints.manifest()) == set(NAMES)
    assert sum(file.stat().st_size for file in folder.iterdir()) <= MOST_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_there_and_was_trained_to_the_end_of_its_plan(name):
    assert checkpoints.path(NAMES[name]).is_file()
    found = model(name)
    assert found.plan == NAMES[name]
    assert found.step == NAMES[name].steps
    assert all(bool(p.isfinite().all()) for p in found.model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_the_manifest_tells_what_the_file_tells(name):
    told = entry(name)
    assert Plan(**told["plan"]) == NAMES[name]
    assert told["vocabulary"] == lexicon(NAMES[name].language).digest
    assert told["parameters"] == sum(p.numel() for p in model(name).model.parameters())
    assert told["made_by"] == f"python -m mha_core.training {name}"
    assert json.loads(json.dumps(model(name).report)) == told


@pytest.mark.parametrize("name", NAMES)
def test_the_scores_of_the_manifest_can_be_measured_again(name):
    told, found = entry(name)["scores"], dataclasses.asdict(measured(name))
    assert (told["layer"], told["head"]) == (found["layer"], found["head"])
    assert told["famous_right"] == list(found["famous_right"])
    for key in ("answer", "accuracy", "both", "right", "wrong", "agreement"):
        assert found[key] == pytest.approx(told[key], abs=0.02), key
    assert found["famous"] == pytest.approx(tuple(told["famous"]), abs=0.02)


# What can be read off a glass-box with two heads or more


@pytest.mark.parametrize("name", READABLE)
def test_a_head_of_the_glass_box_points_at_the_right_noun(name):
    found = measured(name)
    assert found.accuracy >= 0.98
    assert found.right >= 0.75
    assert found.famous_right == (True, True)


@pytest.mark.parametrize("name", READABLE)
def test_the_famous_pair_is_resolved_in_the_trace_that_is_shown(name):
    """As on the screen: the chosen head, and the answer in words."""
    plan, told = NAMES[name], entry(name)["scores"]
    for cue, right, wrong in (("tired", "animal", "street"), ("wide", "street", "animal")):
        text = f"The animal didn't cross the street because it was too {cue}."
        trace = mha.trace(text, source="mini", h=plan.h, d_model=plan.d_model)
        weights = trace.frame("weights", layer=told["layer"], head=told["head"]).loc["it"]
        assert weights.idxmax() == right
        assert weights[right] > weights[wrong]
        assert trace.answers[list(trace.tokens.pieces).index("it")][0][0] == right
