"""Reads and writes the tables of the comparison; `TABLE.md` is their only store."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

PATH = Path(__file__).with_name("TABLE.md")
EXACT = 1e-5  # the largest difference of weights, and of outputs in units of the largest number above 1
ORDER = ("exact", "part", "weights only", "refused", "WRONG")  # of verdicts, the best one first
VERDICTS = {
    "exact": "every layer that mixes tokens is shown, and its numbers are the model's own at both lengths",
    "part": "the same for the layers that are shown; the others are named with the reason",
    "weights only": "the weights that the model returns are shown, without queries, keys and values",
    "refused": "a message with the reason instead of a picture",
    "not built": "no tiny model of it could be built here, so nothing is known of it",
    "WRONG": "weights or output differ, and nothing says so: a bug of ours",
}
INTRODUCTION = """\
# Which architectures are exact

Written by `python -m tests.parity`; never by hand. For each family of text models of transformers {version}
a tiny model with random weights is saved with a tokenizer, loaded from its folder and traced, as a person
does; a part of a larger model is traced in memory. The reference is the model's
own code in its own eager attention, with `output_attentions`. There are two texts: 11 tokens (and 7 of a
target), and 41 (and 23). Every window, chunk, block, bucket and top-k of a model is smaller than the longer
text, and nearly all are more than the 7 tokens of the trial that decides how a model is traced.

*weights* is the largest difference of any attention weight, *output* that of the output in units of its
largest number above 1, in float32 on a CPU. The limit is {exact:g}, or how far the model's own weights move
when its parameters change in their last digit, where that is more: then the note says so. Ours attends by
torch's fused kernel where that can do what a model asks for, so it differs by roundings. *mixing* is, of
layers without softmax, how far their matrix by their values is from their own output, in the same units.

*bf16* and *fp16* are the largest difference of any weight from the model's own run in that precision, at the
longer text, and which of both lies nearer, in the median of all rows, to what the same model computes in
float32: ours, its own, or neither ("even"). Weights are shown in float32, of queries and keys in half
precision. One token that rounding sends to another expert makes the largest difference large.

*edits*, of models that take our attention function: "same" where edits that change nothing (a temperature of
1, a bias of 0, the scale that is there) leave every bit of the output as it is; and the largest difference,
in units of the output's largest number, between ours and torch with the same change of scores, weights or
outputs written by hand in its first call, where transformers runs that model through torch's own kernel.

*beside* is what else moves: all that is shown is blocked, so that each token takes its own value alone, and
one token of a text of 41 is changed. "nothing" where no other token of the output moves, "named" where the
trace names all that moves one.

*ledger*, of models that write words, is how far the shares of the most probable word's logit (`mha.ledger`)
are from the logit of the model's own run, in units of the sum of their sizes; or why there is no ledger. Then
the norms of heads: "same" where each is that of the head's vector through W^O (`layer.contribution`),
"scaled" where all heads of a layer have one factor, "normed" where a norm stands behind W^O.

*known* are W^Q, W^K, W^V and W^O: a small letter where only some layers have it, a dash where none has.

"""


@dataclass(frozen=True)
class Row:
    """The results for one family. Differences are None if nothing could be compared."""

    family: str
    kind: str
    verdict: str  # a key of `VERDICTS`
    door: str = ""  # where it was opened: "folder", "memory", or "larger model" that it is a part of
    layers: str = ""  # how many of which kind are shown
    route: str = ""
    weights: float | None = None
    output: float | None = None
    long_weights: float | None = None
    long_output: float | None = None
    mixing: float | None = None
    bf16: str = ""
    fp16: str = ""
    edits: str = ""
    beside: str = ""
    ledger: str = ""
    known: str = ""
    missing: str = ""

    TITLES = (
        *("family", "kind", "verdict", "door", "layers", "route", "weights 11", "output 11", "weights 41"),
        *(
            "output 41",
            "mixing 41",
            "bf16",
            "fp16",
            "edits",
            "beside",
            "ledger",
            "known",
            "what is missing, and notes",
        ),
    )


@dataclass(frozen=True)
class LongRow:
    """The results at 2,100 tokens, for one family of each kind of attention."""

    family: str
    attention: str
    verdict: str
    route: str = ""
    weights: float | None = None
    output: float | None = None

    TITLES = ("family", "attention", "verdict", "route", "weights 2,100", "output 2,100")


@dataclass
class Table:
    """The content of `TABLE.md`: rows by their first column."""

    version: str = ""
    families: dict[str, Row] = field(default_factory=dict)
    long: dict[str, LongRow] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """How many families came out how, in a line."""
        counts = Counter(row.verdict for row in self.families.values())
        return ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])


SECTIONS = {
    "families": (Row, ""),
    "long": (LongRow, "\n## At 2,100 tokens\n\nOne family of each kind of attention, in float32.\n\n"),
}


def write(table: Table) -> None:
    """Write the tables, each by name."""
    counts = Counter(row.verdict for row in table.families.values())
    lines = [INTRODUCTION.format(version=table.version, exact=EXACT)]
    lines += ["| verdict | families | what it means |\n|---|---|---|\n"]
    lines += [f"| {name} | {counts[name]} | {meaning} |\n" for name, meaning in VERDICTS.items()]
    lines += ["\n"]
    for name, (kind, introduction) in SECTIONS.items():
        rows = getattr(table, name)
        lines += [introduction, _line(kind.TITLES), _line(["---"] * len(kind.TITLES))]
        lines += [_line(texts(rows[key])) for key in sorted(rows)]
    PATH.write_text("".join(lines), encoding="utf-8")


def read() -> Table:
    """The content of the tables; an empty table if there are none."""
    text = PATH.read_text(encoding="utf-8") if PATH.exists() else ""
    version = re.search(r"transformers (\d\S*)", text)
    table = Table(version[1] if version else "")
    kinds = {kind.TITLES: (kind, getattr(table, name)) for name, (kind, _) in SECTIONS.items()}
    kind, rows = None, {}
    for line in text.splitlines():
        cells = tuple(
            cell.strip().replace("¦", "|") for cell in line.removeprefix("|").removesuffix("|").split("|")
        )
        if cells in kinds:
            kind, rows = kinds[cells]
        elif kind is not None and len(cells) == len(kind.TITLES) and cells[0] != "---":
            rows[cells[0]] = kind(*map(_value, fields(kind), cells))
    return table


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def texts(row: Row | LongRow) -> list[str]:
    """The cells of a row."""
    values = [getattr(row, each.name) for each in fields(row)]
    return ["" if v is None else f"{v:.1e}" if isinstance(v, float) else v.replace("|", "¦") for v in values]


def _value(where, cell: str) -> str | float | None:
    if where.type not in (float, float | None):
        return cell
    return None if cell == "" else float(cell)
