"""Shared by the benchmarks: this checkout first on the path, ways that take turns, memory, and results."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def report(name: str, value: float, target: float | None = None, **facts: object) -> None:
    """Print one result, as a JSON object."""
    print(json.dumps({"name": name, "value": round(value, 3), "target": target, **facts}), flush=True)


def in_turns(
    ways: dict[str, Callable[[], object]], turns: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Seconds of each way in each turn, in alternating order; a first turn warms up and is left out."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name in list(ways) if turn % 2 else reversed(ways):
            start = clock()
            ways[name]()
            if turn:
                taken[name].append(clock() - start)
    return taken


def median_ratio(above: list[float], below: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def memory(process: int | str = "self", name: str = "VmRSS") -> int:
    """Bytes of resident memory of a process (Linux), now (VmRSS) or at most so far (VmHWM)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(name)]
    return int(line.split()[1]) * 1024
