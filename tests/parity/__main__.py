"""`python -m tests.parity [family …]`: compare families and write the table.

Without names every family is compared, with `--missing` those that the table does not have. Models are
built in fresh processes, a few families each, so that memory stays bounded and none can spoil another.
The table is written after each process: a sweep that was interrupted goes on with `--missing`.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.parity import table

ROOT = Path(__file__).parents[2]
EACH = 30  # families in a process
LIMIT = 240  # seconds that one may take


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__.splitlines()[0])
    asked.add_argument("families", nargs="*")
    asked.add_argument("--missing", action="store_true", help="only families that the table does not have")
    asked.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = asked.parse_args()
    if asked.worker:
        worker(asked.families)
        return
    import transformers

    from tests.parity import compare  # if that fails, it does so here, before the table is touched

    known = table.read() if table.version() == transformers.__version__ else {}
    every = list(compare.tiny.families())
    todo = asked.families or [f for f in every if not (asked.missing and f in known)]
    rows = {family: row for family, row in known.items() if family in every}
    began = time.monotonic()
    while todo:
        done = sweep(todo[:EACH])
        rows |= done
        todo = [family for family in todo if family not in done]
        table.write(rows.values(), transformers.__version__)
    print(f"{table.summary(rows.values())} ({time.monotonic() - began:.0f} s)")


def sweep(families: list[str]) -> dict[str, table.Row]:
    """Compare families in a process of their own; one in which the process ends is said to do so."""
    command = [sys.executable, "-m", "tests.parity", "--worker", *families]
    rows = {}
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=False
        )
        printed = done.stdout
    except subprocess.TimeoutExpired as late:
        printed = (late.stdout or b"").decode() if isinstance(late.stdout, bytes) else late.stdout or ""
    for line in printed.splitlines():
        if line.startswith("{"):
            row = table.Row(**json.loads(line))
            rows[row.family] = row
            print(row.family, row.verdict, row.layers, row.weights, row.output, row.note[:100], flush=True)
    left = [family for family in families if family not in rows]
    if left:
        rows[left[0]] = table.Row(left[0], "", "not built", note="the process ended, or took too long")
    return rows


def worker(families: list[str]) -> None:
    """Print a row as JSON for each family."""
    import gc
    import warnings

    warnings.filterwarnings("ignore")  # those of other people's models
    import torch
    import transformers

    from tests.parity import compare

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for family in families:
        print(json.dumps(asdict(compare.compare(family))), flush=True)
        gc.collect()  # models refer to themselves


if __name__ == "__main__":
    main()
