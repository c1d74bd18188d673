"""The queue: one training for each plan, a place for each user who waits, and nothing lost by stopping."""

import os
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from mha_core import MhaError
from mha_core.training import checkpoints, runs
from mha_core.training import queue as queues
from mha_core.training.checkpoints import untrained
from mha_core.training.evaluation import STAGES, scores, stages
from mha_core.training.fit import Plan, Training
from mha_core.training.queue import Trainings, famous_tokens, record
from mha_core.training.runs import Runs, title

TINY = {"h": 2, "d_model": 8}


@pytest.fixture(autouse=True)
def quick(monkeypatch, little):
    monkeypatch.setattr(queues, "PAIRS", 1)


def queue_of(folder) -> Trainings:
    """The queue of a server whose models are in that folder."""
    return Trainings(Runs(folder / "runs"), Runs(folder / "opened"), max_waiting=40, max_waiting_of_user=2)


@pytest.fixture
def trainings(tmp_path):
    queue = queue_of(tmp_path / "own")
    yield queue
    queue.close()


def plan(steps=20, **settings) -> Plan:
    return Plan(**TINY | {"steps": steps} | settings)


def until(condition, seconds=60):
    """Wait for a condition set by another thread."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


@pytest.fixture
def hold_steps(monkeypatch):
    """Trainings pause before each step until `hold_steps.set()`, for tests of what happens between steps."""
    gate, advance = threading.Event(), Training.advance

    def wait(run, steps):
        gate.wait(60)
        return advance(run, steps)

    monkeypatch.setattr(Training, "advance", wait)
    yield gate
    gate.set()


@pytest.mark.slow
def test_a_training_ends_in_the_model_that_training_alone_gives(trainings):
    job = trainings.start(plan(), "anna")
    until(lambda: job.state == "finished")
    alone = Training(plan())
    for step in (0, 7, 20):
        alone.advance(step - alone.step)
        model = trainings.model(job.name, step).model
        for name, parameter in alone.model.named_parameters():
            assert torch.equal(parameter, model.get_parameter(name)), (step, name)
    assert trainings.model(job.name) is job.trained
    assert [record.step for record in job.records] == list(range(21))
    assert job.records[0].loss is None
    assert all(np.isfinite(record.loss) for record in job.records[1:])
    assert trainings.steps(job.name) == list(range(21))
    with pytest.raises(MhaError, match=r"has no step 70 .* 19 or 20 can") as refused:
        trainings.model(job.name, 70)
    assert refused.value.fixes == ({"step": 19}, {"step": 20})
    with pytest.raises(MhaError, match="is called 'another'"):
        trainings.model("another")
    with pytest.raises(MhaError, match=r"^None of the models"):
        trainings.model(None)


def test_the_steps_of_the_oldest_trainings_are_forgotten_first_and_then_their_ends(trainings, monkeypatch):
    first = trainings.start(plan(steps=2), "anna")
    until(lambda: first.state == "finished")
    assert trainings.steps(first.name) == [0, 1, 2]
    monkeypatch.setattr(queues, "MAX_BYTES", 3 * first.bytes // 2)
    second = trainings.start(plan(steps=2, seed=1), "bert")
    until(lambda: second.state == "finished" and trainings.steps(second.name))
    assert (trainings.steps(first.name), trainings.steps(second.name)) == ([2], [0, 1, 2])
    assert trainings.model(first.name) is trainings.model(first.name, 2) is first.trained
    with pytest.raises(MhaError, match="no step 1 "):
        trainings.model(first.name, 1)
    monkeypatch.setattr(queues, "MAX_BYTES", second.bytes)
    third = trainings.start(plan(steps=2, seed=2), "cleo")
    until(lambda: third.state == "finished" and not trainings.find(first.plan))
    assert trainings.find(third.plan) is third


def test_models_from_files_have_names_of_their_own(trainings):
    models = [untrained(plan(seed=seed)) for seed in range(2)]
    models[1] = replace(models[1], plan=models[0].plan)
    names = [trainings.add(trained) for trained in models]
    assert [trainings.model(name) for name in names] == models
    assert len({trainings.add(models[0]) for _ in range(20)} | {*names}) == 22  # the same file, other names
    prefix = f"{checkpoints.name(plan())}-s0-"
    assert all(name.startswith(prefix) and len(name.removeprefix(prefix)) >= 20 for name in names)


def test_a_finished_model_is_found_by_another_server_and_after_a_restart(trainings, tmp_path):
    job = trainings.start(plan(steps=2), "anna")
    until(lambda: job.state == "finished")
    name = trainings.add(untrained(plan(seed=1)))
    other = queue_of(tmp_path / "own")
    assert (other.steps(job.name), other.steps(name)) == ([2], [0])
    model = other.model(job.name)
    assert model is other.model(job.name, 2)
    assert (model.plan, model.step) == (job.plan, 2)
    for key, tensor in model.model.state_dict().items():
        torch.testing.assert_close(tensor, job.trained.model.state_dict()[key].half().float())
    with pytest.raises(MhaError, match="no step 1 "):
        other.model(job.name, 1)
    assert other.find(plan(steps=2)) is None
    with pytest.raises(MhaError, match="is called"):
        queue_of(tmp_path / "another").model(job.name)


def test_models_from_files_push_no_finished_one_out_nor_one_that_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "MAX_RUNS", 3)
    trainings = queue_of(tmp_path)
    of_class = [untrained(plan(seed=seed)) for seed in range(2)]
    for trained in of_class:
        trainings.runs.save(title(trained.plan), trained)
    of_teacher = trainings.add(untrained(plan(seed=7)))
    for number in range(9):  # of a stranger
        name = trainings.add(untrained(plan(seed=8)))
        os.utime(tmp_path / "opened" / f"{name}.safetensors", (number + 2, number + 2))
        os.utime(tmp_path / "opened" / f"{of_teacher}.safetensors", (1, 1))
        assert trainings.model(of_teacher).plan.seed == 7  # which is in memory, and its file stays
    again = queue_of(tmp_path)
    assert [again.steps(title(trained.plan)) for trained in of_class] == [[0], [0]]
    assert again.model(of_teacher).plan.seed == 7
    assert len(list((tmp_path / "opened").iterdir())) == 3


def test_an_unwritable_folder_is_reported_and_loses_no_training(trainings, tmp_path):
    (tmp_path / "file").write_text("")
    trainings.runs = trainings.opened = Runs(tmp_path / "file" / "runs")
    job = trainings.start(plan(steps=2), "anna")
    until(lambda: job.state == "finished")
    assert job.unsaved == f"{job.name} cannot be saved: Not a directory."  # no folder of the server
    assert trainings.model(job.name) is job.trained
    with pytest.raises(MhaError, match="cannot be saved: Not a directory") as refusal:
        trainings.add(job.trained)
    assert str(tmp_path) not in str(refusal.value)


def test_a_plan_is_trained_once_and_waiting_ones_have_a_place(trainings, hold_steps):
    jobs = [trainings.start(plan(steps=3, seed=seed), f"visitor {seed}") for seed in range(4)]
    assert trainings.start(plan(steps=3), "anna") is jobs[0]
    until(lambda: jobs[0].state == "running")
    assert [job.state for job in jobs[1:]] == ["waiting"] * 3
    assert [trainings.place(job) for job in jobs] == [0, 0, 1, 2]
    hold_steps.set()
    until(lambda: all(job.state == "finished" for job in jobs))


def test_a_training_runs_while_any_user_wants_it_and_resumes_where_it_was(trainings, hold_steps):
    job = trainings.start(plan(), "anna")
    trainings.start(plan(), "bert")
    until(lambda: job.state == "running" and job.records)
    trainings.stop(plan(), "anna")
    assert job.users == {"bert"}
    trainings.stop(plan(), "bert")
    hold_steps.set()
    until(lambda: job.state == "stopped")
    assert job.step < 20
    assert trainings.start(plan(), "anna") is job
    until(lambda: job.state == "finished")
    alone = Training(plan())
    alone.advance(20)
    assert torch.equal(alone.model.embedding, job.trained.model.embedding)
    assert job.records[-1].step == 20


@pytest.mark.slow
def test_a_waiting_training_that_nobody_wants_never_starts_and_leaves_nothing(trainings, hold_steps):
    first = trainings.start(plan(steps=2), "anna")
    until(lambda: first.state == "running")
    jobs = []
    for seed in range(1, 9):
        jobs.append(trainings.start(plan(steps=2, seed=seed), "eve"))
        (trainings.stop(jobs[-1].plan, "eve") if seed % 2 else trainings.leave("eve"))
    assert [trainings.find(job.plan) for job in jobs] == [None] * 8
    again = trainings.start(jobs[0].plan, "eve")
    hold_steps.set()
    until(lambda: again.state == "finished")
    assert {(job.state, job.step) for job in jobs} == {("stopped", 0)}


def test_a_failed_training_reports_its_error_and_the_queue_continues(trainings, monkeypatch):
    def broken(run, steps):
        if run.plan.seed == 1:
            raise ArithmeticError("no more numbers")
        run.step += steps
        return 1.0

    monkeypatch.setattr(Training, "advance", broken)
    bad, good = (trainings.start(plan(seed=seed), "anna") for seed in (1, 2))
    until(lambda: good.state == "finished")
    assert bad.state == "failed"
    assert "no more numbers" in bad.error
    assert trainings.start(plan(seed=1), "anna") is not bad


@pytest.mark.slow
def test_the_queue_and_a_users_places_in_it_are_limited_and_freed_on_leaving(trainings, hold_steps):
    running = trainings.start(plan(seed=0), "anna")
    until(lambda: running.state == "running")
    waiting = [trainings.start(plan(seed=seed), "anna") for seed in (1, 2)]
    with pytest.raises(MhaError, match=r"-s1 and .*-s2 wait for you already; .* at most 2 may") as error:
        trainings.start(plan(seed=3), "anna")
    assert [fix["seed"] for fix in error.value.fixes] == [1, 2]  # where they can be stopped
    trainings.max_waiting = 2
    with pytest.raises(MhaError, match="2 trainings are waiting"):
        trainings.start(plan(seed=3), "bert")
    assert trainings.find(plan(seed=3)) is None
    trainings.max_waiting = 3
    assert trainings.start(waiting[0].plan, "anna") is waiting[0]  # it has its place
    trainings.start(waiting[0].plan, "bert")
    last = trainings.start(plan(seed=3), "bert")
    assert trainings.place(last) == 2
    trainings.leave("anna")
    assert [job.state for job in waiting] == ["waiting", "stopped"]
    assert trainings.place(last) == 1
    hold_steps.set()
    until(lambda: last.state == "finished")
    assert running.state == "stopped"


def test_trainings_that_wait_push_no_finished_one_out(trainings, hold_steps, monkeypatch):
    hold_steps.set()
    finished = [trainings.start(plan(steps=2, seed=seed), "anna") for seed in range(2)]
    until(lambda: all(job.state == "finished" for job in finished))
    # Python's tables of attributes change their sizes when other objects of a class are made.
    monkeypatch.setattr(queues, "MAX_BYTES", 1.1 * sum(job.bytes for job in finished))
    hold_steps.clear()
    for seed in range(2, 6):
        trainings.start(plan(seed=seed), f"visitor {seed}")
    assert [trainings.steps(job.name) for job in finished] == [[0, 1, 2]] * 2


def test_stopped_trainings_have_a_limit_of_their_own(trainings, hold_steps, monkeypatch):
    hold_steps.set()
    finished = trainings.start(plan(steps=2), "anna")
    until(lambda: finished.state == "finished")
    hold_steps.clear()
    stopped = []

    def kept() -> list:
        return [job for job in stopped if trainings.find(job.plan)]

    def start_and_stop(seed: int) -> None:
        stopped.append(trainings.start(plan(seed=seed), "anna"))
        until(lambda: stopped[-1].state == "running" and stopped[-1].records)
        trainings.stop(plan(seed=seed), "anna")
        hold_steps.set()
        until(lambda: stopped[-1].state == "stopped")
        hold_steps.clear()

    for seed in range(1, 6):
        start_and_stop(seed)
        if seed == 1:
            monkeypatch.setattr(queues, "MAX_UNFINISHED_BYTES", 2 * max(stopped[0].bytes, finished.bytes))
        until(lambda: sum(job.bytes for job in kept()) <= queues.MAX_UNFINISHED_BYTES)
        assert kept()[-1] is stopped[-1]
        # It keeps what it goes on with, the optimizer's numbers, and no gradients.
        assert all(parameter.grad is None for parameter in stopped[-1].run.model.parameters())
    assert 1 < len(kept()) < len(stopped)
    again = kept()[0]
    monkeypatch.setattr(queues, "MAX_UNFINISHED_BYTES", 3 * again.bytes // 2)
    start_and_stop(again.plan.seed)
    until(lambda: set(kept()) == {again})  # the latest now
    assert trainings.steps(finished.name) == [0, 1, 2]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_record_has_the_scores_the_weights_and_the_model_of_its_step(language):
    run = Training(plan(language=language))
    run.advance(3)
    kept = record(run, 1.5)
    assert (kept.step, kept.loss) == (3, 1.5)
    assert {*kept.stages} == {*STAGES}
    assert kept.stages == stages(run.model, language)
    measured = scores(run.model, language, count=1)
    assert (kept.answer, kept.accuracy, kept.right) == (measured.answer, measured.accuracy, measured.right)
    before, weights = run.model.embedding.detach().clone(), [part.copy() for part in kept.weights]
    run.advance(2)  # the record has copies
    assert torch.equal(kept.parameters["embedding"], before)
    assert not torch.equal(run.model.embedding, before)
    for now, then, words in zip(kept.weights, weights, famous_tokens(language), strict=True):
        assert now.shape == (2, 2, len(words), len(words))
        np.testing.assert_array_equal(now, then)
        np.testing.assert_allclose(now.sum(-1), 1, atol=1e-6)


class Returning(set):
    """No users when the training thread looks, and one right after it."""

    def __bool__(self) -> bool:
        was_there = len(self) > 0
        self.add("anna")
        return was_there


def test_a_training_continues_for_a_user_who_comes_while_it_stops(trainings, hold_steps):
    job = trainings.start(plan(steps=2), "anna")
    until(lambda: job.state == "running" and job.records)
    job.users = Returning()
    hold_steps.set()
    until(lambda: job.state in ("stopped", "finished"))
    assert job.state == "finished"
