"""`python -m tests.parity [family …]`: compare families and write the tables.

Without names every family is compared, with `--missing` those that the table does not have. Models are built
in other processes, and in new ones after a few families each, so that memory stays bounded and none can spoil
many others. The tables are written then: a sweep that was interrupted goes on with `--missing`.
"""

import argparse
import resource
import time
from collections.abc import Iterator
from dataclasses import asdict

from mha_core import executor
from mha_core.errors import MhaError
from tests.parity import rows, table

EACH = 12  # families in a process


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="families of transformers")
    parser.add_argument("--missing", action="store_true", help="only what the tables do not have")
    parser.add_argument("--workers", type=int, default=2, help="processes at once, 2 or more")
    parser.add_argument("--ray", metavar="ADDRESS", help="auto, local or the address of a Ray cluster")
    asked = parser.parse_args()
    if asked.workers < 2:
        parser.error(
            f"--workers {asked.workers}: one would be this process, for all families; 2 and more work"
        )
    try:
        sweep(asked.names, missing=asked.missing, workers=asked.workers, ray=asked.ray)
    except MhaError as error:  # there is no such cluster
        parser.error(str(error))


def sweep(names: list[str], *, missing: bool, workers: int, ray: str | None) -> None:
    """Compare the named families, or all, write the tables and print the seconds."""
    import transformers

    from tests.parity import compare, tiny  # if that fails, it does so before the table is touched

    known = table.read()
    again = names or (missing and known.version == transformers.__version__)
    result, tasks = known if again else table.Table(), []
    result.version = transformers.__version__
    for section, there in {"families": list(tiny.families()), "long": list(compare.LONG)}.items():
        kept = {name: row for name, row in getattr(result, section).items() if name in there}
        setattr(result, section, kept)
        tasks += [(section, name) for name in there if (name in names if names else name not in kept)]
    began = time.monotonic()
    for at in range(0, len(tasks), EACH * workers):
        for section, row in compared(tasks[at : at + EACH * workers], workers, ray):
            print(*filter(None, table.texts(row)), sep="  ", flush=True)
            getattr(result, section)[next(iter(asdict(row).values()))] = row
        table.write(result)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = f"{time.monotonic() - began:.0f} s, {spent.ru_utime + spent.ru_stime:.0f} s of a processor"
    print(f"{result.summary} ({seconds})")


def compared(tasks: list[tuple[str, str]], workers: int, ray: str | None) -> Iterator[tuple[str, object]]:
    """Sections and rows computed in new processes; a family over which they die is reported."""
    left = dict(enumerate(tasks))
    while left:
        numbers = list(left)
        try:
            for at, row in executor.run(rows.prepare, list(left.values()), workers=workers, ray=ray):
                section, _ = left.pop(numbers[at])
                if row is not None:
                    yield section, row
        except MhaError as error:
            if (at := error.phrase.fields.get("number", executor.PREPARATION)) == executor.PREPARATION:
                raise
            section, name = left.pop(numbers[at])
            if section == "families":
                yield section, table.Row(name, "", "not built", missing="the process ended, or took too long")


if __name__ == "__main__":
    main()
