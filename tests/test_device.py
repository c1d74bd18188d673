"""The fastest device is picked, with its reason, and all devices give the same numbers."""

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core import device


@pytest.fixture
def machine(monkeypatch):
    """Pretend to be a machine with these accelerators."""

    def has(*, cuda, mps):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Imaginary 7000")
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return has


@pytest.mark.parametrize(
    ("cuda", "mps", "found", "reason"),
    [
        (True, True, ["cuda", "mps", "cpu"], "GPU: Imaginary 7000"),
        (True, False, ["cuda", "cpu"], "GPU: Imaginary 7000"),
        (False, True, ["mps", "cpu"], "GPU: Apple Metal"),
        (False, False, ["cpu"], "CPU: no GPU found"),
    ],
)
def test_the_fastest_device_is_picked_and_named(cuda, mps, found, reason, machine):
    machine(cuda=cuda, mps=mps)
    assert device.available() == found
    assert device.pick() == found[0]
    assert device.fastest.__wrapped__() == reason


def test_a_requested_device_is_used(machine):
    machine(cuda=True, mps=False)
    assert [device.pick(name) for name in ("cpu", "cuda")] == ["cpu", "cuda"]


def test_a_missing_device_is_refused(machine, refused):
    machine(cuda=True, mps=False)
    error = refused(device.pick, "mps")
    assert str(error) == "Device 'mps' is not available here; cuda, cpu can be used."
    assert error.fixes == ({"device": "cuda"}, {"device": "cpu"})
    assert [device.pick(fix["device"]) for fix in error.fixes] == ["cuda", "cpu"]


def test_a_trace_runs_on_the_given_device(refused):
    assert mha.trace("How are you?", device="cpu").source.device == "cpu"
    message = str(refused(mha.trace, "How are you?", device="abacus"))
    assert message.startswith("Device 'abacus' is not available here; ")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here, CPU and GPU not compared")
def test_the_gpu_gives_what_the_cpu_gives(setting):
    on_gpu, on_cpu = mha.trace(**setting, device="cuda"), mha.trace(**setting, device="cpu")
    for ours, theirs in zip(on_gpu.layers, on_cpu.layers, strict=True):
        assert {t.device.type for t in ours.tensors.values()} == {"cpu"}
        for name in ("q", "k", "v", "x"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=0, atol=1e-4)
        np.testing.assert_allclose(ours.weights(), theirs.weights(), rtol=0, atol=1e-4)
        np.testing.assert_allclose(ours.result(), theirs.result(), rtol=0, atol=1e-4)


def test_seconds_per_operation_come_from_the_fastest_product(monkeypatch):
    clock = iter([0, 8, 8, 10, 10, 13, 13, 18])
    monkeypatch.setattr(device.time, "perf_counter", lambda: next(clock))
    assert device.seconds_per_operation.__wrapped__() == 2 / (2 * 512**3)
    monkeypatch.undo()
    assert 0 < device.seconds_per_operation() == device.seconds_per_operation()  # measured once


@pytest.mark.parametrize(("threads", "told", "left"), [(4, None, [3]), (1, None, [1]), (4, "4", [])])
def test_one_core_stays_free_for_small_requests(threads, told, left, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if told:
        monkeypatch.setenv("OMP_NUM_THREADS", told)
    taken = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    device.leave_a_core()
    assert taken == left
