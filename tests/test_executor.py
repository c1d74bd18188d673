"""Many tasks in this process, in two others, and on a Ray cluster of two processors: the same results.

Workers load this module, so it imports torch in functions only.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from mha_core import resources
from mha_core.errors import at_least_1
from mha_core.executor import actors, processes, run, worker

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has one that nobody can catch
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="whether a process runs is read in /proc")
TASKS = [3, 1, 4, 1, 5, 9]


def square(n: int) -> int:
    return n * n


def squares():
    return square


def meeting(folder: Path):
    """A function that gives its process once two tasks have begun; each preparation is noted, too."""
    (folder / f"prepared {time.monotonic_ns()} {os.getpid()}").touch()

    def do(n: int) -> int:
        (folder / str(n)).touch()
        wait_for(lambda: len([*folder.glob("[0-9]*")]) >= 2)
        return os.getpid()

    return do


def dying(folder: Path, *, on: int, times: int):
    """A function whose worker is killed by the task `on`, so many times."""

    def do(n: int) -> int:
        if n == on and (tries := len([*folder.iterdir()])) < times:
            (folder / str(tries)).touch()
            os.kill(os.getpid(), KILL)
        return n * n

    return do


def stillborn():
    os.kill(os.getpid(), KILL)


def refusing():
    return lambda n: at_least_1("h", n, "heads")


class Strange(Exception):
    """An error that can be pickled, but not read again."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def strange():
    raise Strange("this", "that")


class Unreadable:
    """What can be pickled, but not read again."""

    def __reduce__(self):
        return int, ("no number",)


def threads():
    return lambda n: int(os.environ["OMP_NUM_THREADS"])


def endless(folder: Path):
    """A function that ends for task 0 only; its worker is noted."""
    (folder / str(os.getpid())).touch()

    def do(n: int) -> int:
        time.sleep(600 * bool(n))
        return n

    return do


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two processors on this machine, to which this process is connected."""
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield {"ray": "local"}
    ray.shutdown()


@pytest.fixture(params=["processes", pytest.param("ray", marks=pytest.mark.slow)])
def two(request):
    """How two workers are asked for."""
    if request.param == "processes":
        yield {"workers": 2}
    else:
        yield request.getfixturevalue("cluster")
        assert sys.modules["ray"].is_initialized()  # a connection that was there stays


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(") ")[2][0] != "Z"


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_one_worker_is_this_process_and_goes_in_order():
    assert list(run(squares, TASKS)) == list(enumerate(map(square, TASKS)))
    assert list(run(squares, TASKS, workers=1)) == list(enumerate(map(square, TASKS)))
    assert set(dict(run(lambda: lambda n: os.getpid(), TASKS)).values()) == {os.getpid()}


def test_without_tasks_nothing_is_prepared():
    assert [*run(stillborn, []), *run(stillborn, [], workers=2)] == []


def test_every_task_is_done_once_beside_others_and_each_worker_prepares_once(two, tmp_path):
    done = list(run(partial(meeting, tmp_path), range(12), **two))
    assert sorted(number for number, _ in done) == list(range(12))
    workers = {process for _, process in done}
    assert os.getpid() not in workers
    assert len(workers) == 2
    prepared = [file.name.split()[2] for file in tmp_path.glob("prepared *")]
    assert sorted(prepared) == sorted(map(str, workers))


def test_a_task_is_done_again_when_its_worker_dies(two, tmp_path):
    lost = []
    done = dict(run(partial(dying, tmp_path, on=4, times=1), TASKS, lost=lost.append, **two))
    assert done == dict(enumerate(map(square, TASKS)))
    assert lost == [2]


def test_a_task_over_which_three_workers_died_is_refused(tmp_path, refused):
    lost = []
    work = run(partial(dying, tmp_path, on=4, times=9), TASKS, lost=lost.append, workers=2)
    error = refused(list, work)
    assert "3 workers died over task 2" in str(error)
    assert error.fixes == ({"workers": 1},)
    assert lost == [2, 2]


def test_workers_that_die_before_their_first_task_are_refused(refused):
    assert "died before they could do a task" in str(refused(list, run(stillborn, TASKS, workers=2)))


def test_an_error_comes_through_as_it_was_raised(two, refused):
    error = refused(list, run(refusing, [1, 0], **two))
    assert type(error).__name__ == "MhaError"
    assert error.phrase.template == "{name} is a number of {unit}, at least 1; got {value}."
    assert error.phrase.fields == {"name": "h", "unit": "heads", "value": "0"}
    assert error.fixes == ()


def test_an_error_that_cannot_be_pickled_and_a_task_that_cannot_be_loaded_come_through():
    with pytest.raises(RuntimeError, match="Strange: this and that"):
        list(run(strange, TASKS, workers=2))
    with pytest.raises(ValueError, match="invalid literal"):
        list(run(squares, [Unreadable()], workers=2))


def test_the_workers_share_the_processors(two, monkeypatch):
    here = processes.processors() if "workers" in two else 2
    assert set(dict(run(threads, TASKS, **two)).values()) == {max(1, here // 2)}
    import torch  # as in a worker to which a tensor was sent

    monkeypatch.setenv("OMP_NUM_THREADS", "")
    before = torch.get_num_threads()
    try:
        worker.prepared(threads, 3)
        assert (torch.get_num_threads(), worker.do(0)) == (3, 3)
    finally:
        torch.set_num_threads(before)


@on_linux
def test_closing_stops_the_workers_at_once(two, tmp_path):
    work = run(partial(endless, tmp_path), range(9), **two)
    assert next(work) == (0, 0)
    began = time.monotonic()
    work.close()
    assert multiprocessing.active_children() == []
    processes = [int(file.name) for file in tmp_path.iterdir()]
    assert processes
    wait_for(lambda: not any(map(is_running, processes)), 5)
    assert time.monotonic() - began < 5


def test_ray_that_is_not_installed_is_refused_with_the_repair(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert resources.install("ray") in str(refused(run, squares, TASKS, ray="auto"))


@pytest.mark.parametrize("workers", [0, 1.5])
def test_workers_are_counted_from_1(workers, refused):
    assert "workers" in str(refused(run, squares, TASKS, workers=workers))


@pytest.mark.parametrize("address", ["ray://10.0.0.1:10001", "10.0.0.1"])
def test_what_is_no_address_is_refused(address, refused):
    pytest.importorskip("ray")
    error = refused(run, squares, TASKS, ray=address)
    assert error.fixes == ({"ray": "auto"}, {"ray": "local"})


@pytest.mark.slow
@pytest.mark.parametrize("address", ["auto", "127.0.0.1:1"])
def test_a_cluster_that_does_not_answer_is_refused_within_seconds(address, monkeypatch, tmp_path, refused):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # it is, by the cluster of other tests
    monkeypatch.setattr(actors, "PATIENCE", 4)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # where Ray notes the cluster of a machine
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    error = refused(list, run(squares, TASKS, ray=address))
    assert f"No Ray cluster is found by {address}: " in str(error)
    assert error.fixes == ({"ray": "local"},)


@on_linux
def test_workers_end_with_their_parent(tmp_path):
    code = f"""
from functools import partial
from pathlib import Path
from mha_core.executor import run
from tests.test_executor import endless
if __name__ == "__main__":
    list(run(partial(endless, Path({str(tmp_path)!r})), range(9), workers=2))
"""
    script = tmp_path / "program" / "parent.py"
    script.parent.mkdir()
    script.write_text(code, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, str(script)], env=environment, stderr=subprocess.DEVNULL
    ) as parent:
        try:
            wait_for(lambda: len([*tmp_path.glob("[0-9]*")]) == 2)
        finally:  # or leaving the block would wait for it for ever
            parent.kill()
    processes = [int(file.name) for file in tmp_path.glob("[0-9]*")]
    wait_for(lambda: not any(map(is_running, processes)))
