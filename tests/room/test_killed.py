"""A class on two servers behind nginx, one of which is killed while it answers: each answer is kept once."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from mha_core.room.rooms import DATABASE, Rooms
from tests.bench import proxy

BENCH = Path(__file__).parents[1] / "bench"
STUDENTS = 10
VOTES = [(1, 1), (2, 1), (2, 2)]


@pytest.mark.slow
def test_no_answer_is_lost_or_doubled_when_a_server_is_killed(postgres, monkeypatch):
    """The short form of bench_room.py --replicas 2."""
    if proxy.program() is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have nginx; .ci/run installs it")
        pytest.skip("no nginx on this machine")
    monkeypatch.syspath_prepend(BENCH)
    import bench_room

    settings = {DATABASE: postgres.database(), bench_room.ROOMS: "1", "HEADSCOPE_HOSTED": "1"}
    for name, value in (settings | {"STREAMLIT_SERVER_COOKIE_SECRET": "the same for both"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bench_room, "THINK", 0.5)
    monkeypatch.setattr(bench_room, "VOTES", VOTES)
    with closing(Rooms()) as rooms, ThreadPoolExecutor(1) as thread:
        found = thread.submit(bench_room.with_kills, STUDENTS, 0.15, 4, rooms, cut=1).result()
    assert found["kills"] >= 1
    assert found["connections"] > STUDENTS  # of whom some were on the server that was killed
    for where in ("sent", "acknowledged", "in_database", "in_table"):
        assert found[where] == len(VOTES) * STUDENTS, where
    assert [found[name] for name in ("lost", "doubled", "changed", "missing", "errors")] == 5 * [0]
