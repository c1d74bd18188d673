"""Finished models in a folder: complete files, a bounded number, and refusals of wrong ones."""

import os

import pytest

from mha_core import MhaError
from mha_core.training import checkpoints
from mha_core.training.checkpoints import untrained
from mha_core.training.runs import Runs, title


@pytest.fixture
def model(tiny, little):
    """`model(seed=…)`: a tiny model before its first step."""
    return lambda **settings: untrained(tiny(**settings))


def names(runs: Runs) -> set[str]:
    return {path.stem for path in runs.folder.iterdir()}


def test_a_model_is_read_as_it_was_saved_and_nothing_else_is_left(model, tmp_path):
    runs, trained = Runs(tmp_path / "a" / "b"), model()
    runs.save(title(trained.plan), trained)
    assert names(runs) == {title(trained.plan)}
    read = runs.load(title(trained.plan))
    assert (read.plan, read.step) == (trained.plan, trained.step)
    for name, tensor in read.model.state_dict().items():
        assert tensor.equal(trained.model.state_dict()[name].half().float())
    assert runs.load("glass-box-en-h2-d8-s9") is None


def test_the_least_recently_used_models_are_deleted(model, tmp_path, monkeypatch):
    monkeypatch.setattr("mha_core.training.runs.MAX_RUNS", 3)
    runs = Runs(tmp_path)
    for seed in range(3):
        trained = model(seed=seed)
        runs.save(title(trained.plan), trained)
        os.utime(tmp_path / f"{title(trained.plan)}.safetensors", (seed + 1, seed + 1))
    first, _, third = (title(model(seed=seed).plan) for seed in range(3))
    runs.touch(first)
    runs.touch("glass-box-en-h2-d8-s9")  # none
    runs.save(title(model(seed=3).plan), model(seed=3))
    assert names(runs) == {first, third, title(model(seed=3).plan)}
    size = (tmp_path / f"{first}.safetensors").stat().st_size
    monkeypatch.setattr("mha_core.training.runs.MAX_BYTES", 2 * size + 1)
    runs.save(title(model(seed=4).plan), model(seed=4))
    assert len(names(runs)) == 2
    monkeypatch.setattr("mha_core.training.runs.MAX_BYTES", 1)
    runs.save(title(model(seed=5).plan), model(seed=5))
    assert names(runs) == {title(model(seed=5).plan)}  # what was just saved stays


@pytest.mark.parametrize("name", ["../secret", "a/b", "..", "", "a.b", "x" * 121, "a\0b", "ä", "%2e%2e"])
def test_a_name_with_a_path_is_not_a_name(model, tmp_path, name):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    for place in ("secret", "runs/a/b", "runs/a.b"):
        checkpoints.save_model(tmp_path / f"{place}.safetensors", model())
    assert Runs(tmp_path / "runs").load(name) is None


def test_a_wrong_file_is_refused_by_name(model, tmp_path):
    runs, trained = Runs(tmp_path), model()
    own = title(trained.plan)
    path = tmp_path / f"{own}.safetensors"
    for content in (b"", b"half a file", b"\xff" * 64, (1 << 60).to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        with pytest.raises(MhaError, match=own) as refused:
            runs.load(own)
        assert str(tmp_path) not in str(refused.value)
    runs.save(own, trained)
    path.rename(tmp_path / "glass-box-en-h4-d64-s0.safetensors")
    with pytest.raises(MhaError, match="has another model in it"):
        runs.load("glass-box-en-h4-d64-s0")
