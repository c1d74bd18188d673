"""How scores depend on the number of heads h, in the shipped models and in Vaswani et al. 2017."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

MIN_COUNTS = 4  # fewest values of h to compare
ARCHITECTURE = "glass-box"
SCORES = ("accuracy", "right", "answer", "shapes", "resolving")
# Source: Vaswani et al. 2017 (Attention Is All You Need), Table 3, rows (A) and the base model, h 8:
# English to German, development set newstest2013, d_model 512, d_k = d_v.
PUBLISHED = pd.DataFrame(
    {
        "d_k": [512, 128, 64, 32, 16],
        "ppl": [5.29, 5.00, 4.92, 4.91, 5.01],
        "bleu": [24.9, 25.5, 25.8, 25.8, 25.4],
    },
    index=pd.Index([1, 4, 8, 16, 32], name="h"),
)


def widths(entries: Iterable[Mapping]) -> tuple[int, ...]:
    """Every d_model for which at least `MIN_COUNTS` values of h were measured."""
    counts: dict[int, set] = {}
    for entry in _compared(entries):
        counts.setdefault(entry["plan"]["d_model"], set()).add(entry["plan"]["h"])
    return tuple(sorted(width for width, heads in counts.items() if len(heads) >= MIN_COUNTS))


def score_table(entries: Iterable[Mapping], d_model: int) -> pd.DataFrame:
    """One row for each h at one width, from the entries of a manifest for one language.

    - `accuracy`: the share of items in which the best head gives the right noun more weight than the other
    - `right`: the mean weight of that head on the right noun
    - `answer`: the share of right answers about pairs of nouns that training did not have
    - `shapes`: the share of right answers in sentence shapes that training did not have
    - `resolving`: the number of heads of the last layer that are right on their own
    - `seconds`: processor time; NaN if the training was interrupted
    """
    rows = []
    for entry in _compared(entries):
        if entry["plan"]["d_model"] == d_model:
            h = entry["plan"]["h"]
            scores = {name: entry["scores"][name] for name in SCORES}
            cost = {"parameters": entry["parameters"], "seconds": entry.get("cpu_seconds")}
            rows.append({"h": h, "d_k": d_model // h, **scores, **cost, "seed": entry["plan"]["seed"]})
    columns = ["h", "d_k", *SCORES, "parameters", "seconds", "seed"]
    table = pd.DataFrame(rows, columns=columns).set_index("h").sort_index()
    return table.astype({"seconds": float})


@dataclass(frozen=True)
class Extremes:
    """The largest and the smallest value of a column, and every h that has it."""

    maximum: float
    maximum_at: tuple[int, ...]
    minimum: float
    minimum_at: tuple[int, ...]


def extremes(column: pd.Series) -> Extremes:
    """Where a column over h is largest and smallest."""
    maximum, minimum = column.max(), column.min()
    return Extremes(
        float(maximum),
        tuple(column.index[column == maximum]),
        float(minimum),
        tuple(column.index[column == minimum]),
    )


def question_table(entries: Iterable[Mapping], d_model: int) -> pd.DataFrame:
    """The share of right answers to each question at one width: a row for each h, a column for each question.

    NaN if a model was not asked that question.
    """
    rows = {
        entry["plan"]["h"]: {name: found["right"] for name, found in entry["scores"]["questions"].items()}
        for entry in _compared(entries)
        if entry["plan"]["d_model"] == d_model
    }
    return pd.DataFrame.from_dict(rows, orient="index", dtype=float).rename_axis("h").sort_index()


def _compared(entries: Iterable[Mapping]) -> Iterable[Mapping]:
    """The entries of the one architecture that is compared."""
    return (entry for entry in entries if entry["plan"]["architecture"] == ARCHITECTURE)
