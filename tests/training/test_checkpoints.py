"""Models on disk: loading, refusals of damaged files, and the documented scores of the shipped ones."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import mha_core as mha
from mha_core import resources
from mha_core.analysis import roles
from mha_core.traces import storage
from mha_core.training import checkpoints, data
from mha_core.training.checkpoints import Trained
from mha_core.training.evaluation import by_link, everyday, scores
from mha_core.training.fit import Plan, Training
from mha_core.training.lexicon import lexicon
from mha_core.training.model import SmallModel
from mha_core.training.questions import HIDDEN_WORD, heads_of
from mha_core.training.workshop import __main__ as command
from mha_core.training.workshop.report import question_scores, two_hops

ROOT = Path(__file__).resolve().parents[2]
LOADERS = {"model": checkpoints.load_model, "run": command.load_run}


@pytest.fixture
def model(tiny) -> Trained:
    """A model whose weights and learning rate need more than half precision."""
    plan = tiny(rate=0.1 + 0.2)
    small = SmallModel(plan, len(lexicon().vocabulary), seed=5)
    return Trained(small, plan, 17, {"scores": {"answer": 0.123}, "names": ["a", "b"]})


@pytest.fixture(scope="module")
def run_bytes(tmp_path_factory) -> bytes:
    """A training after three steps, as it is saved."""
    path = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "SENTENCES", 3 * data.BATCH)
        data.training_sentences.cache_clear()
        run = Training(Plan(h=2, d_model=8, steps=23, seed=3))
        run.advance(3)
    data.training_sentences.cache_clear()
    command.save_run(path, run)
    return path.read_bytes()


@pytest.fixture
def saved_run(run_bytes, tmp_path) -> Path:
    (tmp_path / "run").write_bytes(run_bytes)
    return tmp_path / "run"


@pytest.fixture(params=LOADERS)
def saved(request, model, saved_run, tmp_path):
    """A file and its loader: for a model, and for a training."""
    checkpoints.save_model(tmp_path / "model", model)
    return tmp_path / request.param, LOADERS[request.param]


# Round trips


def test_a_model_comes_back_in_half_precision_with_its_plan(model, tmp_path):
    model.model.temperatures = {"noun": 2.5}
    checkpoints.save_model(tmp_path / "m", model)
    loaded = checkpoints.load_model(tmp_path / "m")
    assert (loaded.plan, loaded.step, loaded.report) == (model.plan, 17, model.report)
    before, after = model.model.state_dict(), loaded.model.state_dict()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert after[name].dtype == torch.float32
        assert torch.equal(after[name], tensor.half().float()), name
    assert not torch.equal(after["embedding"], before["embedding"])
    assert not any(p.requires_grad for p in loaded.model.parameters())
    assert not loaded.model.training
    checkpoints.save_model(tmp_path / "again", loaded)
    assert (tmp_path / "m").read_bytes() == (tmp_path / "again").read_bytes()
    with safe_open(tmp_path / "m", framework="pt") as file:
        assert json.loads(file.metadata()[checkpoints.HEADER]) == {
            "version": 2, "plan": asdict(model.plan), "vocabulary": lexicon().digest, "step": 17,
            "questions": {question: [*heads] for question, heads in heads_of(2).items()},
            "report": model.report, "temperatures": {"noun": 2.5},
        }  # fmt: skip
    edited_file(tmp_path / "m", without("temperatures"))  # as in files of an earlier edition
    assert checkpoints.load_model(tmp_path / "m").model.temperatures == {}


# Refusals


def test_a_foreign_safetensors_file_is_refused(tmp_path, refused):
    save_file({"weight": torch.zeros(2, 3)}, tmp_path / "foreign")
    mha.trace("a b", h=1, d_model=2).save(tmp_path / "trace")
    for path in (tmp_path / "foreign", tmp_path / "trace"):
        for load in LOADERS.values():
            said = str(refused(load, path))
            assert said == f"{path} is a safetensors file but not a model of the small language."


def edited_file(path, change):
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()[checkpoints.HEADER])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    header = change(header, tensors) or header
    save_file(tensors, path, metadata={checkpoints.HEADER: json.dumps(header)})


def without(key):
    """A change that removes an entry of the header, or a tensor."""

    def change(header, tensors):
        del (tensors if key in tensors else header)[key]

    return change


def of_an_earlier_release(header, tensors):
    """Its plan and words differ, and it does not say which head answers which question."""
    del header["questions"]
    header["plan"]["share"] = 0.6
    header.update(version=1, vocabulary="feedbeefcafe0000")


DAMAGED = "does not fit its content"
Q = "layers.0.attention.q.weight"
# Changes of the header `h` and the tensors `t`, and words of the message.
BROKEN = {
    "another vocabulary": (lambda h, t: h.update(vocabulary="feedbeefcafe0000"), "feedbeefcafe0000"),
    "that of another language": (lambda h, t: h["plan"].update(language="zh"), lexicon("zh").digest),
    "another version": (
        lambda h, t: h.update(version=3),
        "cannot be opened: it has format version 3; this release reads 2.",
    ),
    "an earlier release": (
        of_an_earlier_release,
        "cannot be opened: it is of an earlier release, whose models knew other words and were asked about "
        "pronouns and hidden words alone; train it again on the page Train.",
    ),
    **{f"no {key}": (without(key), DAMAGED) for key in ("version", "report", "questions")},
    "other heads": (lambda h, t: h["questions"].update(noun=[1], doer=[0]), DAMAGED),
    "a question less": (lambda h, t: h["questions"].pop("object"), DAMAGED),
    "a question more": (lambda h, t: h["questions"].update(colour=[0]), DAMAGED),
    "a head less": (lambda h, t: h["questions"].update(hidden=[0]), DAMAGED),
    "questions that are a list": (lambda h, t: h.update(questions=["noun"]), DAMAGED),
    "a step of text": (lambda h, t: h.update(step="seven"), DAMAGED),
    "a step below zero": (lambda h, t: h.update(step=-1), DAMAGED),
    "a step beyond the plan": (lambda h, t: h.update(step=24), DAMAGED),
    "a step too large": (lambda h, t: h.update(step=10**400), "a whole number of 401 digits"),
    "an unknown setting": (lambda h, t: h["plan"].update(colour=1), DAMAGED),
    "a wrong setting": (lambda h, t: h["plan"].update(h=3), ""),
    "a language that is a list": (lambda h, t: h["plan"].update(language=["en"]), ""),
    "another architecture": (lambda h, t: h["plan"].update(architecture="standard"), ""),
    "a temperature below 1": (lambda h, t: h.update(temperatures={"noun": 0.5}), DAMAGED),
    "the temperature of no question": (lambda h, t: h.update(temperatures={"colour": 2}), DAMAGED),
    "a report that is a list": (lambda h, t: h.update(report=[1]), DAMAGED),
    "a score that is no number": (
        lambda h, t: h["report"].update(score=float("nan")),
        "NaN, which is no finite",
    ),
    "a header that is a list": (lambda h, t: [1], ""),
    "an empty header": (lambda h, t: {"version": checkpoints.VERSION}, DAMAGED),
    "a tensor gone": (without(Q), Q),
    "a tensor more": (lambda h, t: t.update(more=torch.zeros(3)), "more"),
    "a tensor of another shape": (lambda h, t: t.update(bias=torch.zeros(3)), "bias"),
    "an infinite number": (
        lambda h, t: t.update(bias=t["bias"] * torch.nan),
        "bias has numbers that are not finite",
    ),
    "a tensor of bits": (lambda h, t: t.update(bias=t["bias"].bool()), "bias is bool of shape"),
}


@pytest.mark.parametrize(("change", "said"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_does_not_fit_its_content_is_refused(change, said, saved, refused):
    path, load = saved
    edited_file(path, change)
    message = str(refused(load, path))
    assert said in message
    assert str(path) in message


def test_a_model_with_missing_numbers_is_refused_before_allocation(tmp_path, refused, monkeypatch):
    plan = asdict(Plan()) | {"h": 1, "d_model": 4096}
    header = {"version": checkpoints.VERSION, "plan": plan, "vocabulary": lexicon().digest}
    header |= {"questions": heads_of(1), "step": 0, "report": {}}
    save_file({}, tmp_path / "m", metadata={checkpoints.HEADER: json.dumps(header)})
    monkeypatch.delattr(SmallModel, "_draw")
    for load in LOADERS.values():
        assert "lacks bias, embedding" in str(refused(load, tmp_path / "m"))


# Without the moments of one parameter, of one kind, and of all; None: with one of another shape.
@pytest.mark.parametrize("start", ["exp_avg.norm", "exp_avg_sq", "exp_avg", None])
def test_a_training_without_its_moments_is_refused(start, saved_run, refused):
    def change(header, tensors):
        for name in [name for name in tensors if start and name.startswith(start)]:
            del tensors[name]
        tensors.update({} if start else {"exp_avg.bias": torch.zeros(3)})

    command.load_run(saved_run)
    edited_file(saved_run, change)
    refused(command.load_run, saved_run)


def test_a_model_is_no_training_and_a_training_no_model(saved_run, model, tmp_path, refused):
    checkpoints.save_model(tmp_path / "model", model)
    refused(command.load_run, tmp_path / "model")
    refused(checkpoints.load_model, saved_run)


# Saving


# The process dies in the middle of writing, for certain.
DIES = """
import os, signal, sys
from mha_core.traces import storage
from mha_core.training import checkpoints

def half(tensors, path, metadata):
    path.write_bytes(b"half of it")
    os.kill(os.getpid(), signal.SIGKILL)

storage.save_file = half
checkpoints.save_model(sys.argv[1], checkpoints.load_model(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_temporary_files_of_a_killed_process_are_deleted(model, tmp_path):
    path = tmp_path / "m"
    checkpoints.save_model(path, model)
    before = path.read_bytes()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", DIES, str(path)], cwd=ROOT, env=environment).returncode == -9
    assert path.read_bytes() == before
    [other] = [file for file in tmp_path.iterdir() if file != path]
    assert other.name.startswith(".")
    of_others = [tmp_path / ".tmp4hmZKf", tmp_path / ".headscope-another_machine-1-a", tmp_path / ".mine"]
    of_others.append(tmp_path / other.name.replace("-", "_"))
    running = tmp_path / f"{storage.HIDDEN}{os.getpid()}-of-a-thread"
    for folder in (*of_others, running):
        folder.mkdir()
    checkpoints.save_model(path, model)
    assert {*tmp_path.iterdir()} == {path, running, *of_others}


# The weights that come with Headscope

MAX_BYTES = 48_000_000
NAMES = {checkpoints.name(plan): plan for plan in checkpoints.PLANS}
ENCODERS = [name for name, plan in NAMES.items() if not plan.is_decoder]


# The scores of these are measured anew: of both languages, and of every kind of layer.
MEASURED = ("glass-box-zh-h8-d128", "standard-en-h4-d64", "one-layer-en-h4-d64", "latent-en-h4-d64")


@cache
def shipped(name: str) -> Trained:
    return checkpoints.load_model(checkpoints.path(NAMES[name]))


POINT = 0.001  # the tenth of a point that half precision may cost


def entry(name: str) -> dict:
    assert name in checkpoints.manifest(), f"{name} is not in the manifest"
    return checkpoints.manifest()[name]


def test_the_folder_holds_the_models_and_the_manifest_and_nothing_else():
    folder = resources.path(*checkpoints.FOLDER)
    models = {f"{name}.safetensors" for name in NAMES}
    assert len(models) == len(checkpoints.PLANS)
    assert {file.name for file in folder.iterdir()} == {
        checkpoints.MANIFEST, checkpoints.EDITION, "roles.csv", *models
    }  # fmt: skip
    assert {*checkpoints.manifest()} == {*NAMES}
    assert sum(file.stat().st_size for file in folder.iterdir()) <= MAX_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_model_is_that_of_its_plan_its_file_and_its_entry_in_the_manifest(name):
    trained, written, plan = shipped(name), entry(name), NAMES[name]
    assert (trained.plan, trained.step) == (plan, plan.steps)
    state = trained.model.state_dict()
    with safe_open(checkpoints.path(plan), framework="pt") as file:
        assert {*file.keys()} == {*state}
        for key, tensor in state.items():
            assert torch.equal(tensor, file.get_tensor(key).float()), key
            assert tensor.isfinite().all(), key
    assert Plan(**written["plan"]) == plan
    assert written["vocabulary"] == lexicon(plan.language).digest
    assert written["parameters"] == sum(p.numel() for p in trained.model.parameters())
    assert written["questions"] == {q: [*heads] for q, heads in plan.questions.items()}
    if not plan.is_decoder:
        assert {*written["scores"]["questions"]} == {*written["questions"]} - {HIDDEN_WORD}
    assert written["made_by"].endswith(f" {name}")
    assert json.loads(json.dumps(trained.report)) == written


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_the_scores_of_the_manifest_are_reproducible(name):
    """They were measured in single precision; the file has half of it."""
    written, again = entry(name)["scores"], asdict(scores(shipped(name).model, NAMES[name].language))
    assert (written["layer"], written["head"]) == (again["layer"], again["head"])
    if NAMES[name].architecture == "standard":
        assert two_hops(shipped(name).model) == pytest.approx(written["two_hops"], abs=3 * POINT)
    assert (written["famous_right"], written["resolving"]) == ([*again["famous_right"]], again["resolving"])
    one_layer = NAMES[name].architecture == "one-layer"  # half of its answers are a coin's
    for key in ("answer", "accuracy", "right", "wrong"):
        assert again[key] == pytest.approx(written[key], abs=2 * POINT if one_layer else POINT), key
    assert again["both"] == pytest.approx(written["both"], abs=3 * POINT)
    assert again["agreement"] == pytest.approx(written["agreement"], abs=0.015)  # one of 80 sentences
    assert again["famous"] == pytest.approx(tuple(written["famous"]), abs=5 * POINT)


@pytest.mark.slow
def test_the_question_scores_of_the_manifest_are_reproducible_from_the_public_sentences():
    name = "glass-box-en-h4-d32"
    written, again = entry(name)["scores"], question_scores(shipped(name).model)
    shares = by_link(shipped(name).model, everyday("en"))
    assert {*written["links"]} == {*again["links"]} == {*shares} - {"nothing"}
    for link, found in written["links"].items():
        assert (
            shares[link] == again["links"][link]["right"] == pytest.approx(found["right"], abs=3 * POINT)
        ), link
        assert again["links"][link]["weight"] == pytest.approx(found["weight"], abs=3 * POINT), link
    for question, found in again["questions"].items():
        assert found["head"] == written["questions"][question]["head"]
        for value in ("right", "weight"):
            assert found[value] == pytest.approx(written["questions"][question][value], abs=POINT), question
    for key in ("nothing", "shapes", "divergence", "hidden"):
        assert again[key] == pytest.approx(written[key], abs=POINT), key
    assert again["by_shape"] == pytest.approx(written["by_shape"], abs=0.006)  # one of 200 sentences
    for n, found in again["unknown"].items():
        assert found == pytest.approx(written["unknown"][n], abs=0.007), n  # two of 300 pronouns
    assert again["long"] == pytest.approx(written["long"], abs=0.007)


# The abilities of the models, with nouns that never met in training


def floors(plan: Plan) -> dict[str, float]:
    """The least value of each documented score; "*" stands for every one there is."""
    en, wide = plan.language == "en", plan.d_model > 32
    # Finding a hidden word among 3,700, or 2,500 Chinese ones; one head finds fewer.
    least = {"hidden": 0.15 if plan.h == 1 else 0.3 if wide else 0.25}
    if plan.architecture in ("grouped-query", "multi-query", "latent"):
        least |= {"answer": 0.98, "accuracy": 0.98, "right": 0.75}
    if plan.architecture != "glass-box" or plan.h < 4:
        return least
    least |= {"shapes": 0.92, "by_shape *": 0.8}
    if not wide:
        return least
    asked = ("doer", "object", "decider") + (("before", "after") if en and plan.h >= 8 else ())
    least |= {f"questions {question} right": 0.95 for question in asked}
    least |= {"links pronoun-to-noun right": 0.98 if en else 0.95, "divergence": 0.5}
    if en:
        least |= {"right": 0.89 if plan.h == 8 and plan.d_model < 512 else 0.8}
        least |= {"unknown 2 *": 0.94} if plan.h == 8 else {}
    return least


@pytest.mark.parametrize("name", ENCODERS)
def test_a_shipped_model_can_do_what_is_documented(name):
    scores, plan = entry(name)["scores"], NAMES[name]
    for path, least in floors(plan).items():
        *keys, last = path.split()
        found = scores
        for key in keys:
            found = found[key.replace("-", " ")]
        assert min(found.values() if last == "*" else [found[last]]) >= least, path
    assert scores["famous_right"] == [True, True]
    if plan.architecture == "glass-box" and plan.language == "en" and plan.h >= 4 and plan.d_model > 32:
        assert (scores["layer"], scores["head"] in heads_of(plan.h)["noun"]) == (1, True)


def test_one_head_cannot_answer_all_questions():
    """Why there are several: with one head the questions have one answer, with eight each its own."""
    for width in (64, 128):
        one, eight = (entry(f"glass-box-en-h{h}-d{width}")["scores"] for h in (1, 8))
        assert one["divergence"] == 0.0
        for question in ("before", "after", "decider"):
            assert one["questions"][question]["right"] < 0.6 < eight["questions"][question]["right"]


# The famous pair, as on the screen


@pytest.mark.parametrize("name", ["glass-box-en-h4-d64", "glass-box-zh-h8-d64"])
def test_the_famous_pair_is_resolved_in_the_trace_that_is_shown(name):
    """The chosen head, and the answer in words."""
    plan, best = NAMES[name], entry(name)["scores"]
    for sentence in lexicon(plan.language).grammar["famous"]:
        right, wrong = sentence["right"], sentence["wrong"]
        trace = mha.trace(sentence["text"], source="mini", h=plan.h, d_model=plan.d_model)
        weights = trace.frame("weights", layer=best["layer"], head=best["head"]).loc[sentence["pronoun"]]
        assert weights.idxmax() == right
        assert weights[right] > weights[wrong]
        at = trace.tokens.index(sentence["pronoun"])
        assert trace.answers[at][0][0] == right
        assert trace.questions["noun"][at] == trace.answers[at]


# The loss over the first steps of a plan that made shipped weights: seed, sentences, batches,
# first weights, optimizer and rates all show in them; whoever changes one of these trains anew.
@pytest.mark.slow
def test_the_first_steps_of_a_plan_are_those_of_the_shipped_weights():
    assert Training(NAMES["glass-box-zh-h4-d64"]).advance(10) == pytest.approx(5.12534, abs=1e-3)


# This has learned what a pronoun stands for after ten seconds.
SHORT = Plan(h=4, d_model=32, steps=700, bare=700)


@pytest.mark.slow
def test_the_documented_command_trains_a_model_whose_heads_point_at_the_right_noun(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(checkpoints, "PLANS", (SHORT,))
    monkeypatch.setattr(command, "question_scores", lambda *_: {})  # which would take as long as to train
    command.main([checkpoints.name(SHORT), "--out", str(tmp_path)])
    trained = checkpoints.load_model(tmp_path / f"{checkpoints.name(SHORT)}.safetensors")
    again = scores(trained.model, SHORT.language)
    assert min(again.answer, again.accuracy) > 0.8  # half of them by chance
    assert again.right > again.wrong + 0.2
    assert again.famous_right == (True, True)
    written = json.loads((tmp_path / checkpoints.MANIFEST).read_text(encoding="utf-8"))
    assert written == {checkpoints.name(SHORT): trained.report}
    assert written[checkpoints.name(SHORT)]["scores"]["right"] == pytest.approx(again.right, abs=0.01)
    measured_roles = pd.read_csv(tmp_path / roles.FILE)
    assert {*measured_roles["head"]} == {0, 1, 2, 3}
    pronouns = measured_roles.query("layer == 1 and head == @again.head and role == 'pronoun to noun'")
    assert pronouns["weight"].item() > pronouns["control"].item() + 0.2
    assert checkpoints.name(SHORT) in capsys.readouterr().out
