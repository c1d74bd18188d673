"""The lines of each room, blank ones and comments included: ``python -m tests.house.lines``.

A room is a folder of mha_core, a section of pages, or a folder of assets/components. Its lines are those of
its .py, .js and .css files, except the files that a script generates. Counted apart are the tests and the
workshop, which makes the shipped models: nobody who installs the wheel has them.
"""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("mha_core", "pages", "assets/components")
KINDS = (".py", ".js", ".css")
WORKSHOP = "mha_core/training/workshop"
GENERATED = ("assets/components/scene/schema.js",)


def lines() -> dict[str, Counter[str]]:
    """The lines by part of the project and room; a file outside a room counts for its own name."""
    counted: dict[str, Counter[str]] = {part: Counter() for part in (*PRODUCT, WORKSHOP, "tests")}
    for part, rooms in counted.items():
        for file in (ROOT / part).rglob("*"):
            path = file.relative_to(ROOT / part)
            name = file.relative_to(ROOT).as_posix()
            is_apart = name in GENERATED or (name.startswith(WORKSHOP) and part != WORKSHOP)
            if file.suffix in KINDS and not is_apart:
                rooms[path.parts[0]] += len(file.read_text(encoding="utf-8").splitlines())
    return counted


def main() -> None:
    counted = lines()
    for part, rooms in counted.items():
        print(f"{part} {rooms.total():,}:", ", ".join(f"{room} {n:,}" for room, n in rooms.most_common()))
    product, workshop, tests = (
        sum(counted[part].total() for part in parts) for parts in (PRODUCT, [WORKSHOP], ["tests"])
    )
    print(f"product {product:,}, workshop {workshop:,}, tests {tests:,}")


if __name__ == "__main__":
    main()
