"""A server with many visits: every one is answered and memory stays bounded (short bench_class.py --soak)."""

from pathlib import Path

import pytest

from tests import event_loop

ROOT = Path(__file__).parents[2]
ACTS = 14


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="reads the memory of a process as Linux has it"
)
def test_many_visits_are_answered_and_leave_nothing_in_memory(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "bench")
    import bench_class

    kind = bench_class.BenchServer(ROOT / "app.py", (), ROOT, True)

    async def visits(address: str, count: int) -> None:
        url = address.replace("http", "ws") + "/_stcore/stream"
        for _ in range(count):  # each does the same, over the pages, sentences and sizes of the mix
            student = bench_class.Student(kind, bench_class.Measured(), seed=1)
            async with bench_class.connect(url, subprotocols=["streamlit"], max_size=None) as socket:
                await student.ask(socket)  # an exception on a page is raised here
                for _ in range(ACTS):
                    student.choose()
                    await student.ask(socket)
            assert student.measured.received > 0

    with bench_class.running(kind) as server:
        event_loop.run(visits(server.address, 4))
        before = bench_class.memory(server.process.pid)
        event_loop.run(visits(server.address, 8))
        after = bench_class.memory(server.process.pid)
    assert after < bench_class.MAX_GROWTH * before
