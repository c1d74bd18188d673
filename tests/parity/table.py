"""The table of the comparison, written and read: `TABLE.md` is its only store."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).with_name("TABLE.md")
EXACT = 1e-5  # the largest difference of weights, and of outputs in units of the largest number above 1
VERDICTS = {
    "exact": "every attention layer is shown, and weights and output are the model's own",
    "part": "the same for the layers that are shown; the others are named with the reason",
    "weights only": "the weights that the model returns are shown, without queries, keys and values",
    "refused": "a message with the reason instead of a picture",
    "not built": "no tiny model of it could be built here, so nothing is known of it",
    "WRONG": "weights or output differ, and nothing says so: a bug of ours",
}
HEAD = ("family", "kind", "verdict", "layers", "route", "weights", "output", "note")
INTRODUCTION = """\
# Which architectures are exact

Written by `python -m tests.parity`; never by hand. For each family of text models of transformers {version}
a tiny model with random weights runs on 11 tokens (and 7 of a target) in its own eager attention with
`output_attentions`, and in ours. *weights* is the largest difference of any attention weight, *output* that
of the output in units of its largest number above 1, in float32 on a CPU. The limit is {exact:g}. Ours
attends by torch's fused kernel where that can do what a model asks for, so it differs by roundings.

"""


@dataclass(frozen=True)
class Row:
    """What came out for one family. Differences are None where nothing could be compared."""

    family: str
    kind: str
    verdict: str  # a key of `VERDICTS`
    layers: str = ""  # how many of which kind are shown
    route: str = ""
    weights: float | None = None
    output: float | None = None
    note: str = ""


def write(rows: Iterable[Row], version: str) -> None:
    """Write the table, by name of the family."""
    rows = sorted(rows, key=lambda row: row.family)
    counts = Counter(row.verdict for row in rows)
    lines = [INTRODUCTION.format(version=version, exact=EXACT)]
    lines += ["| verdict | families | what it means |\n|---|---|---|\n"]
    lines += [f"| {name} | {counts[name]} | {what} |\n" for name, what in VERDICTS.items()]
    lines += ["\n", _line(HEAD), _line(["---"] * len(HEAD))]
    lines += [_line([_text(getattr(row, name)) for name in HEAD]) for row in rows]
    PATH.write_text("".join(lines), encoding="utf-8")


def read() -> dict[str, Row]:
    """The rows of the table by family; none if there is no table."""
    rows = {}
    for line in PATH.read_text(encoding="utf-8").splitlines() if PATH.exists() else ():
        cells = [cell.strip().replace("¦", "|") for cell in line.strip("|").split("|")]
        if len(cells) == len(HEAD) and cells[0] not in (HEAD[0], "---"):
            numbers = [None if cell == "" else float(cell) for cell in cells[5:7]]
            rows[cells[0]] = Row(*cells[:5], *numbers, cells[7])
    return rows


def version() -> str | None:
    """The version of transformers that the table is of."""
    found = re.search(r"transformers (\d\S*)", PATH.read_text(encoding="utf-8")) if PATH.exists() else None
    return None if found is None else found[1]


def summary(rows: Iterable[Row]) -> str:
    """How many families came out how, in a line."""
    counts = Counter(row.verdict for row in rows)
    return ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.1e}" if isinstance(value, float) else str(value).replace("|", "¦")
