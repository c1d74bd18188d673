"""Seeded faults, and which test finds each: a measure of the tests, and the licence to delete one.

    python -m tests.house.mutants cover KEPT
    python -m tests.house.mutants plant KEPT --seed 1

"cover" notes once which test runs which line; "plant" draws faults on these lines and looks for the test that
finds each. `KEPT` is a folder outside the checkout. A fault changes one expression of one line: a comparison,
an operator, a constant, a condition. It is planted in a copy of the checkout, and only the tests that run its
line are run, those of the same room first, until one fails. A fault that no test finds within `SECONDS`
counts as not found. Results are appended: a run that was stopped goes on. Needs the package ``coverage``.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("mha_core", "pages")
SECONDS = 90  # for the tests of one fault
LONG = 8.0  # seconds of a test that is run after the others
LINES, TIMES, FAULTS, FOUND = "lines.json", "times.json", "faults-{}.json", "found-{}-{}.jsonl"
SWAPPED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Recording:
    """A pytest plugin that notes for each test the lines of the product that it runs, and its seconds."""

    def __init__(self, folder: Path):
        import coverage

        self.folder = folder
        self.times: dict[str, float] = {}
        self.coverage = coverage.Coverage(
            data_file=str(folder / f".coverage.{os.getpid()}"), source=[str(ROOT / name) for name in PRODUCT]
        )

    def pytest_sessionstart(self) -> None:
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        began = time.perf_counter()
        result = yield
        self.times[item.nodeid] = time.perf_counter() - began
        self.coverage.switch_context("")
        return result

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        self.coverage.save()
        (self.folder / f"times.{os.getpid()}").write_text(json.dumps(self.times))


def cover(folder: Path, chosen: str, processes: int) -> None:
    """Run the chosen tests once under coverage, each file of tests in one process of several."""
    import coverage

    folder.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "--collect-only", "-m", chosen, "tests"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    sizes: dict[str, int] = defaultdict(int)
    for line in listed:
        if "::" in line:
            sizes[line.split("::")[0]] += 1
    parts: list[list[str]] = [[] for _ in range(processes)]
    for file in sorted(sizes, key=sizes.__getitem__, reverse=True):
        min(parts, key=lambda part: sum(map(sizes.__getitem__, part))).append(file)
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.house.mutants", "record", str(folder), "-m", chosen, *part],
            cwd=ROOT,
        )
        for part in parts
    ]
    for process in running:
        process.wait()
    whole = coverage.CoverageData(basename=str(folder / "whole"))
    for file in folder.glob(".coverage.*"):
        part = coverage.CoverageData(basename=str(file))
        part.read()
        whole.update(part)
    lines: dict[str, dict[int, list[str]]] = {}
    for measured in sorted(whole.measured_files()):
        name = Path(measured).relative_to(ROOT).as_posix()
        by_line = whole.contexts_by_lineno(measured)
        lines[name] = {line: sorted(filter(None, tests)) for line, tests in sorted(by_line.items())}
    (folder / LINES).write_text(json.dumps(lines))
    times = {}
    for file in folder.glob("times.*"):
        if file.name != TIMES:
            times |= json.loads(file.read_text())
    (folder / TIMES).write_text(json.dumps(times))


def faults(source: str, lines: set[int]) -> list[tuple[int, int, str, str]]:
    """All faults of a source on these lines: line, number of the node, what it was, what it becomes."""
    tree = ast.parse(source)
    found = []
    for number, node in enumerate(ast.walk(tree)):
        at = getattr(node, "lineno", 0)
        if at not in lines or node.end_lineno != at:
            continue
        became = changed(node)
        if became is not None:
            found.append((at, number, ast.unparse(node), ast.unparse(became)))
    return found


def changed(node: ast.AST) -> ast.expr | None:
    """The node with a fault; None for one that has none to be planted."""
    other = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            other.ops = [SWAPPED[type(op)]()]
        case ast.BinOp() | ast.BoolOp() if type(other.op) in SWAPPED:
            other.op = SWAPPED[type(other.op)]()
        case ast.Constant(value=bool() as value):
            other.value = not value
        case ast.Constant(value=int() as value):
            other.value = value + 1
        case ast.IfExp() | ast.If() | ast.While():
            return ast.UnaryOp(ast.Not(), other.test)
        case ast.UnaryOp(op=ast.Not()):
            return other.operand
        case _:
            return None
    return other


def planted(source: str, number: int) -> str:
    """The source with the fault at the node of that number."""
    tree = ast.parse(source)
    node = list(ast.walk(tree))[number]
    became = changed(node)
    assert became is not None
    place = node.test if isinstance(node, ast.IfExp | ast.If | ast.While) else node
    lines = source.splitlines(keepends=True)
    line = lines[place.lineno - 1].encode()
    assert place.lineno == place.end_lineno
    text = f"({ast.unparse(became)})".encode()
    lines[place.lineno - 1] = (line[: place.col_offset] + text + line[place.end_col_offset :]).decode()
    return "".join(lines)


def room_of(path: str) -> str:
    """The room of a file or a test, by which faults are spread: tests/pages and pages are one."""
    parts = Path(path.split("::")[0]).parts
    if parts[0] == "pages" or parts[:2] == ("tests", "pages"):
        return "pages"
    return Path(parts[1]).stem.removeprefix("test_")


def draw(folder: Path, seed: int, count: int) -> list[dict]:
    """Faults at random: each room has as many as fit its covered lines, at least two."""
    kept = folder / FAULTS.format(seed)
    if kept.exists():
        return json.loads(kept.read_text())
    covered = json.loads((folder / LINES).read_text())
    rng = random.Random(seed)
    by_room: dict[str, list[dict]] = defaultdict(list)
    sizes: dict[str, int] = defaultdict(int)
    for file, lines in covered.items():
        numbers = {int(line) for line, tests in lines.items() if tests}
        if not numbers:
            continue
        sizes[room_of(file)] += len(numbers)
        source = (ROOT / file).read_text(encoding="utf-8")
        for line, number, was, became in faults(source, numbers):
            by_room[room_of(file)].append(
                {"file": file, "line": line, "node": number, "was": was, "became": became}
            )
    total = sum(sizes.values())
    drawn = []
    for room in sorted(by_room):
        share = max(2, round(count * sizes[room] / total))
        drawn += rng.sample(by_room[room], min(share, len(by_room[room])))
    rng.shuffle(drawn)
    drawn = drawn[:count]
    kept.write_text(json.dumps(drawn, indent=1))
    return drawn


def ordered(tests: list[str], file: str, times: dict[str, float]) -> list[str]:
    """Tests of the same room first, quick ones first."""
    room = room_of(file)
    return sorted(
        tests, key=lambda test: (times.get(test, 1) > LONG, room_of(test) != room, times.get(test, 1))
    )


def plant(folder: Path, seed: int, count: int, name: str, processes: int) -> None:
    """Plant each fault of the seed that has no result under that name, in copies of the checkout."""
    drawn = draw(folder, seed, count)
    covered, times = (json.loads((folder / file).read_text()) for file in (LINES, TIMES))
    results = folder / FOUND.format(seed, name)
    known = (
        {json.loads(line)["key"] for line in results.read_text().splitlines()} if results.exists() else set()
    )
    copies = [folder / f"copy-{at}" for at in range(processes)]
    for one in copies:
        shutil.rmtree(one, ignore_errors=True)
        shutil.copytree(
            ROOT,
            one,
            ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"),
            symlinks=True,
        )
    existing = collected(copies[0])
    free = list(copies)

    def one(fault: dict) -> None:
        key = f"{fault['file']}:{fault['line']}:{fault['node']}"
        if key in known:
            return
        place = free.pop()
        tests = [test for test in covered[fault["file"]][str(fault["line"])] if test in existing]
        began = time.monotonic()
        by = find(place, fault, ordered(tests, fault["file"], times))
        line = fault | {
            "key": key,
            "by": by,
            "tests": len(tests),
            "seconds": round(time.monotonic() - began, 1),
        }
        with results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        free.append(place)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(one, drawn))


def collected(copy: Path) -> set[str]:
    """The tests that there are now."""
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "--collect-only", "tests"],
        cwd=copy, capture_output=True, text=True, check=True, env=_environment(copy),
    ).stdout.splitlines()  # fmt: skip
    return {line for line in listed if "::" in line}


def _environment(copy: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}


def find(copy: Path, fault: dict, tests: list[str]) -> str | None:
    """The first test that fails with the fault planted in the copy; None if none does."""
    file = copy / fault["file"]
    source = file.read_text(encoding="utf-8")
    listed = copy / "tests.txt"
    failed = copy / "failed.txt"
    failed.unlink(missing_ok=True)
    listed.write_text("\n".join(tests))
    try:
        file.write_text(planted(source, fault["node"]), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.house.mutants", "try", str(copy)],
            cwd=copy, env=_environment(copy), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return failed.read_text() if failed.exists() else None
        if failed.exists():
            return failed.read_text()
        return None if code == 0 else f"exit {code}"
    finally:
        file.write_text(source, encoding="utf-8")


class FirstFailure:
    """A pytest plugin that writes the name of the first test that fails."""

    def __init__(self, copy: Path):
        self.copy = copy

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            (self.copy / "failed.txt").write_text(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            (self.copy / "failed.txt").write_text(f"collecting {report.nodeid}")


def main() -> int:
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reader.add_argument("act", choices=("cover", "record", "plant", "try"))
    reader.add_argument("folder", type=Path)
    reader.add_argument("files", nargs="*")
    reader.add_argument("-m", dest="chosen", default="not slow")
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--count", type=int, default=240)
    reader.add_argument(
        "--name", default="tests", help="of the tests that are measured, in the file of results"
    )
    reader.add_argument("--processes", type=int, default=2)
    args = reader.parse_intermixed_args()
    match args.act:
        case "cover":
            cover(args.folder, args.chosen, args.processes)
        case "record":
            return pytest.main(
                ["-n0", "-q", "-m", args.chosen, *args.files], plugins=[Recording(args.folder)]
            )
        case "plant":
            plant(args.folder, args.seed, args.count, args.name, args.processes)
        case "try":
            tests = (args.folder / "tests.txt").read_text().splitlines()
            return pytest.main(
                ["-n0", "-q", "-x", "-p", "no:cacheprovider", *tests], plugins=[FirstFailure(args.folder)]
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
