"""`python -m tests.parity [family …]`: compare families and write the tables.

Without names every family is compared, with `--missing` those that the table does not have. Models are built
in fresh processes, two at once and a few families each, so that memory stays bounded and none can spoil
another. The tables are written after each process: a sweep that was interrupted goes on with `--missing`.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from tests.parity import table

ROOT = Path(__file__).parents[2]
EACH = 12  # families in a process
AT_ONCE = 2  # processes
LIMIT = 1200  # seconds that one may take


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="families, or checkpoints that are installed")
    parser.add_argument("--missing", action="store_true", help="only what the tables do not have")
    parser.add_argument("--worker", choices=table.SECTIONS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        worker(asked.worker, asked.names)
    else:
        sweep(asked.names, missing=asked.missing)


def sweep(names: list[str], *, missing: bool) -> None:
    """Compare the named families, or all, write the tables and print the seconds."""
    import transformers

    from tests.parity import compare, real, tiny  # if that fails, it does so before the table is touched

    every = {"families": list(tiny.families()), "long": list(compare.LONG), "checkpoints": real.installed()}
    known = table.read()
    again = names or (missing and known.version == transformers.__version__)
    result = known if again else table.Table(checkpoints=known.checkpoints)
    result.version = transformers.__version__
    for section in ("families", "long"):
        rows = getattr(result, section)
        setattr(result, section, {name: row for name, row in rows.items() if name in every[section]})
    parts = []
    for section, there in every.items():
        todo = [name for name in there if (name in names if names else name not in getattr(result, section))]
        if section == "checkpoints" and not (names or missing):
            todo = there
        parts += [(section, todo[at : at + EACH]) for at in range(0, len(todo), EACH)]
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in as_completed([pool.submit(compared, *part) for part in parts]):
            for section, row in done.result():
                getattr(result, section)[next(iter(asdict(row).values()))] = row
                result.keywords |= set(getattr(row, "keywords", ()))
            table.write(result)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = f"{time.monotonic() - began:.0f} s, {spent.ru_utime + spent.ru_stime:.0f} s of a processor"
    print(f"{result.summary} ({seconds})")


def compared(section: str, names: list[str]) -> list[tuple[str, object]]:
    """Rows computed in processes of their own; a process that dies is reported."""
    kind, rows = table.SECTIONS[section][0], []
    while names:
        for line in printed([sys.executable, "-m", "tests.parity", "--worker", section, *names]):
            if line.startswith("{"):
                rows.append((section, table.from_json(kind, json.loads(line))))
                print(*filter(None, table.texts(rows[-1][1])), sep="  ", flush=True)
                names = names[1:]
        if names and section == "families":
            rows.append(
                (section, table.Row(names[0], "", "not built", missing="the process ended, or took too long"))
            )
        names = names[1:]
    return rows


def printed(command: list[str]) -> list[str]:
    """The lines that a process prints, as far as it comes."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=False
        )
        return done.stdout.splitlines()
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode().splitlines()


def worker(section: str, names: list[str]) -> None:
    """Print a row as JSON for each name."""
    import gc
    import warnings

    warnings.filterwarnings("ignore")  # those of other people's models
    import torch
    import transformers

    from tests.parity import compare, real

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    ways: dict[str, Callable] = {
        "families": compare.compare,
        "long": compare.compare_long,
        "checkpoints": real.compare,
    }
    for name in names:
        print(json.dumps(asdict(ways[section](name))), flush=True)
        gc.collect()  # models refer to themselves


if __name__ == "__main__":
    main()
