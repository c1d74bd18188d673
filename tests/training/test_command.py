"""`python -m mha_core.training.workshop`: trains every missing model, and resumes after an interruption."""

import json
import pickle
import runpy
import sys
from dataclasses import asdict, dataclass, replace
from functools import cache

import pandas as pd
import pytest

from mha_core import executor
from mha_core.analysis import roles
from mha_core.training import checkpoints, evaluation, workshop
from mha_core.training.fit import Plan, Training
from mha_core.training.lexicon import lexicon
from mha_core.training.questions import heads_of
from mha_core.training.workshop import __main__ as command
from mha_core.training.workshop import report

STEPS = 7
TINY = (Plan(h=2, d_model=8, steps=STEPS), Plan("standard", h=1, d_model=8, steps=STEPS, language="zh"))
ENGLISH, CHINESE = map(checkpoints.name, TINY)


@dataclass
class Unmeasured:
    answer: float = 0.5


MEASURED = ("scores", "question_scores", "two_hops", "temperatures", "reliability")
REAL = {name: getattr(command, name) for name in MEASURED}


@pytest.fixture(autouse=True)
def tiny_plans(monkeypatch, little):
    """Two tiny models, of which nothing is measured: most tests are about their files."""
    for name in MEASURED:
        monkeypatch.setattr(command, name, lambda *_, n=name: Unmeasured() if n == "scores" else {})
    monkeypatch.setattr(checkpoints, "PLANS", TINY)
    monkeypatch.setattr(command, "EVERY", 3)
    monkeypatch.setattr(roles, "roles", lambda trained: pd.DataFrame({"head": range(trained.plan.h)}))


@pytest.fixture
def measured(monkeypatch, tiny_plans):
    """They are measured, on few sentences."""
    for name, real in REAL.items():
        monkeypatch.setattr(command, name, real)
    pairs, everyday = evaluation.pairs, evaluation.everyday
    of_few = {"count": 1, "statements": 12}
    monkeypatch.setattr(evaluation, "pairs", lambda *args, **named: pairs(*args, **{**named, "count": 2}))
    monkeypatch.setattr(evaluation, "everyday", lambda *args, **named: everyday(*args, **{**named, **of_few}))
    monkeypatch.setattr(evaluation, "material", cache(evaluation.material.__wrapped__))


def files(folder) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.slow
def test_every_missing_model_is_made_with_its_entry_and_its_temperatures_can_be_fitted_again(
    measured, tmp_path, capsys
):
    out = tmp_path / "new" / "folder"
    command.main(["--out", str(out)])
    assert files(out) == sorted(
        [f"{ENGLISH}.safetensors", f"{CHINESE}.safetensors", "edition.txt", "manifest.json", roles.FILE]
    )
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert list(manifest) == sorted([ENGLISH, CHINESE])
    for plan in TINY:
        name = checkpoints.name(plan)
        trained, entry = checkpoints.load_model(out / f"{name}.safetensors"), manifest[name]
        assert (trained.plan, trained.step, trained.report) == (plan, STEPS, entry)
        assert Plan(**entry["plan"]) == plan
        assert entry["vocabulary"] == lexicon(plan.language).digest
        assert entry["parameters"] == sum(p.numel() for p in trained.model.parameters())
        assert entry["made_by"] == f"python -m mha_core.training.workshop {name}"
        assert entry["questions"] == {question: [*heads] for question, heads in heads_of(plan.h).items()}
        again = evaluation.scores(trained.model, plan.language)
        assert entry["scores"]["answer"] == pytest.approx(again.answer, abs=0.1)
        asked = report.question_scores(trained.model, plan.language)
        also = {"two_hops"} if plan.architecture == "standard" else set()
        assert {*asdict(again), *asked, "written"} | also == {*entry["scores"]}
        assert entry["scores"]["hidden"] == pytest.approx(asked["hidden"], abs=0.1)
        assert entry["scores"]["by_shape"] == pytest.approx(asked["by_shape"], abs=0.3)
    output = capsys.readouterr()
    assert [line.split("  ")[1] for line in output.err.splitlines()] == [
        f"step {step} of {STEPS}" for step in (3, 6, 7)
    ] * 2
    assert ENGLISH in output.out

    file = out / f"{ENGLISH}.safetensors"
    made, weights = checkpoints.load_model(file), file.read_bytes()
    made.model.temperatures = {"noun": 7.0}
    checkpoints.save_model(file, made)
    command.main([ENGLISH, "--calibrate", "--out", str(out)])  # without training
    assert file.read_bytes() == weights


def test_its_tasks_can_be_sent_to_other_processes(tmp_path, monkeypatch):
    """What `python -m` runs is called __main__, and nothing of that name can be unpickled elsewhere."""
    sent = []

    def run(prepare, tasks, **how):
        sent.extend(pickle.dumps(one) for one in (prepare, *tasks))
        yield from ()

    monkeypatch.setattr(executor, "run", run)
    monkeypatch.delitem(sys.modules, command.__name__)  # as in a new process
    monkeypatch.delattr(workshop, "__main__")
    monkeypatch.setattr(sys, "argv", ["workshop", "--workers", "2", "--out", str(tmp_path)])
    runpy.run_module("mha_core.training.workshop", run_name="__main__")
    assert len(sent) == 1 + len(TINY)


def content(folder) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_several_workers_make_the_same_files(tmp_path, monkeypatch):
    """Whoever is first; what they return is pickled, and only the parent writes what all models share."""
    asked = {}

    def backwards(prepare, tasks, *, lost, **how):
        asked.update(how)
        do = pickle.loads(pickle.dumps(prepare))()
        for number in reversed(range(len(tasks))):
            made = do(pickle.loads(pickle.dumps(tasks[number])))
            assert not {"manifest.json", "edition.txt", roles.FILE} & {*files(tmp_path / "several")} - written
            yield number, pickle.loads(pickle.dumps(made))
            written.update(files(tmp_path / "several"))

    written = set()
    monkeypatch.setattr(command.time, "process_time", lambda: 0)
    command.main(["--out", str(tmp_path / "one")])
    monkeypatch.setattr(executor, "run", backwards)
    command.main(["--out", str(tmp_path / "several"), "--workers", "2", "--ray", "local"])
    assert asked == {"workers": 2, "ray": "local"}
    assert content(tmp_path / "several") == content(tmp_path / "one")


def test_a_training_whose_process_died_goes_on_from_its_checkpoint(tmp_path, monkeypatch, capsys):
    def mortal(prepare, tasks, *, lost, **how):
        do = prepare()
        for number, task in enumerate(tasks):
            with monkeypatch.context() as patch:
                stop_after(patch, 1)
                with pytest.raises(PowerCut):
                    do(task)
            lost(number)
            yield number, do(task)

    command.main([ENGLISH, "--out", str(tmp_path / "straight")])
    capsys.readouterr()
    monkeypatch.setattr(executor, "run", mortal)
    command.main([ENGLISH, "--out", str(tmp_path / "died"), "--workers", "2"])
    assert [line.split("  ")[1] for line in capsys.readouterr().err.splitlines()] == [
        "its process died; another one goes on",
        f"step 6 of {STEPS}",
        f"step 7 of {STEPS}",
    ]
    straight, died = (tmp_path / folder / f"{ENGLISH}.safetensors" for folder in ("straight", "died"))
    assert command.has_weights(straight, checkpoints.load_model(died).model)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--workers", "0"], 1, "workers"),
        (["--ray", "nowhere"], 1, "ray"),
        (["--out", "{folder}/file"], 1, "file"),
        (["--out", "{folder}/file/below"], 1, "file"),
        *((["--threads", threads], 2, "--threads") for threads in ("0", "-1", "99999999999999999999", "x")),
        (["glass-box-en-h3-d7"], 2, "no such model: glass-box-en-h3-d7"),
        (["--out", "{folder}/damaged"], 1, f": {{folder}}/damaged/{ENGLISH}.checkpoint cannot be read"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_made(options, code, said, tmp_path, capsys):
    if "--ray" in options:
        pytest.importorskip("ray")
    (tmp_path / "file").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / f"{ENGLISH}.checkpoint").write_bytes(b"half a file")
    with pytest.raises(SystemExit) as caught:
        command.main(["--out", str(tmp_path / "new"), *(one.format(folder=tmp_path) for one in options)])
    assert caught.value.code == code
    message = capsys.readouterr().err
    assert said.format(folder=tmp_path) in message
    assert code == 2 or message.count("\n") == 1
    assert files(tmp_path) == ["damaged", "file"]


def test_existing_models_are_kept_unless_named(tmp_path):
    command.main(["--out", str(tmp_path)])
    times = {name: (tmp_path / name).stat().st_mtime_ns for name in files(tmp_path)}
    command.main(["--out", str(tmp_path)])
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in files(tmp_path)} == times
    for file in (roles.FILE, f"{CHINESE}.safetensors"):
        (tmp_path / file).unlink()
    command.main(["--out", str(tmp_path)])
    assert (tmp_path / f"{ENGLISH}.safetensors").stat().st_mtime_ns == times[f"{ENGLISH}.safetensors"]
    assert pd.read_csv(tmp_path / roles.FILE).to_numpy().tolist() == [
        [ENGLISH, 0],
        [ENGLISH, 1],
        [CHINESE, 0],
    ]
    command.main([ENGLISH, "--out", str(tmp_path)])
    assert (tmp_path / f"{ENGLISH}.safetensors").stat().st_mtime_ns != times[f"{ENGLISH}.safetensors"]


def test_the_edition_increases_once_for_each_change_of_weights(tmp_path, monkeypatch):
    def edition() -> int:
        return int((tmp_path / checkpoints.EDITION).read_text(encoding="ascii"))

    monkeypatch.setattr(checkpoints, "edition", lambda: 4)
    command.main(["--out", str(tmp_path)])
    assert edition() == 5  # once for both models
    monkeypatch.setattr(checkpoints, "edition", lambda: 5)
    command.main([ENGLISH, "--out", str(tmp_path)])
    assert edition() == 5  # the same weights again
    (tmp_path / f"{ENGLISH}.safetensors").write_bytes(b"cut off")
    command.main([ENGLISH, "--out", str(tmp_path)])
    assert edition() == 6
    monkeypatch.setattr(checkpoints, "edition", lambda: 6)
    longer = replace(TINY[0], steps=STEPS + 1)
    monkeypatch.setattr(checkpoints, "PLANS", (longer,))
    command.main([ENGLISH, "--out", str(tmp_path)])
    assert edition() == 7


class PowerCut(BaseException):
    """As Ctrl-C or a power cut would: nothing catches it."""


def stop_after(monkeypatch, times, where=command, what="save_run"):
    """End the process once that function has been called so often."""
    original, count = getattr(where, what), iter(range(1, 1000))

    def call(*args, **named):
        result = original(*args, **named)
        if next(count) == times:
            raise PowerCut
        return result

    monkeypatch.setattr(where, what, call)


def test_a_training_that_is_stopped_at_its_end_resumes_to_the_same_weights(tmp_path, monkeypatch):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    command.main([ENGLISH, "--out", str(straight)])
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(PowerCut):
            command.main([ENGLISH, "--out", str(stopped)])
    assert files(stopped) == [f"{ENGLISH}.checkpoint"]
    assert command.load_run(stopped / f"{ENGLISH}.checkpoint").step == STEPS
    command.main([ENGLISH, "--out", str(stopped)])
    assert files(stopped) == files(straight)
    resumed = checkpoints.load_model(stopped / f"{ENGLISH}.safetensors").model
    assert command.has_weights(straight / f"{ENGLISH}.safetensors", resumed)


def test_a_checkpoint_of_another_plan_is_not_resumed(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        patch.setattr(checkpoints, "PLANS", (replace(TINY[0], seed=5),))
        with pytest.raises(PowerCut):
            command.main(["--out", str(tmp_path)])
    command.main([ENGLISH, "--out", str(tmp_path)])
    trained, straight = checkpoints.load_model(tmp_path / f"{ENGLISH}.safetensors"), Training(TINY[0])
    straight.advance(STEPS)
    assert trained.plan == TINY[0]
    assert trained.model.embedding.equal(straight.model.embedding.half().float())


def test_ctrl_c_ends_the_command_with_what_helps(tmp_path, monkeypatch, capsys):
    def interrupted(*args, **named):
        real(*args, **named)
        raise KeyboardInterrupt

    real = command.save_run
    monkeypatch.setattr(command, "save_run", interrupted)
    with pytest.raises(SystemExit) as caught:
        command.main([ENGLISH, "--out", str(tmp_path)])
    assert caught.value.code == 130
    assert capsys.readouterr().err.endswith("stopped; the same command goes on from the last checkpoint.\n")
    assert files(tmp_path) == [f"{ENGLISH}.checkpoint"]


def test_a_stop_between_weights_and_manifest_is_repaired(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 1, checkpoints, "save_model")
        with pytest.raises(PowerCut):
            command.main(["--out", str(tmp_path)])
    command.main(["--out", str(tmp_path)])
    assert set(json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))) == {ENGLISH, CHINESE}
    assert not list(tmp_path.glob("*.checkpoint"))


def test_numbers_of_the_manifest_have_four_decimals():
    measured = {"a": 0.123456, "b": (0.5, 1 / 3), "c": (True, False), "d": 3, "e": {"f": 2 / 3}}
    assert command.rounded(measured) == {
        "a": 0.1235, "b": [0.5, 0.3333], "c": [True, False], "d": 3, "e": {"f": 0.6667},
    }  # fmt: skip
