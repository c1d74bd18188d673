"""The subject of the page Token: the chosen layer, head and token, with its figures and tables."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, LayerTrace
from mha_core.analysis.frames import Origin, csv, origin
from pages._kit import charts, chooser, compute, views
from pages._kit.text import isolated, literal, t

Result = TypeVar("Result")
COLUMNS = ("layer", "head", "query_position", "query", "key_position", "key")  # of all files of weights
ROUNDING = 1e-3  # largest distance from 1 of the sum of a row, in half precision too


class Subject(NamedTuple):
    """The trace that the page shows, with the chosen layer, head and token, from 0."""

    trace: AttentionTrace
    layer: int
    head: int
    token: int

    @property
    def origin(self) -> Origin:
        """The source of the numbers, for the caption of a saved figure."""
        return origin(self.trace, layer=self.layer, head=self.head)

    @property
    def of_layer(self) -> LayerTrace:
        return self.trace.layers[self.layer]

    def of(self, function: Callable[..., Result], **settings: object) -> Result:
        """The kept result of a function of the trace, layer and token, which `settings` can replace."""
        return compute.once(self.trace, function, layer=self.layer, **{"token": self.token, **settings})

    @property
    def label(self) -> str:
        return self.of_layer.sides.queries.labels[self.token]

    @property
    def key(self) -> int:
        """The key whose column is shown: the token itself, or a token of the other text. From 0."""
        return chooser.key_of(self.trace, layer=self.layer, head=self.head, query=self.token)

    @property
    def name(self) -> str:
        return word(self.label)


def word(label: str) -> str:
    """A token escaped for Markdown, in direction isolates where it is written right to left."""
    return literal(isolated(label))


def table(
    subject: Subject,
    frame: Callable[[], pd.DataFrame],
    *,
    name: str,
    above: Callable[[], object] | None = None,
) -> None:
    """A fold with all numbers behind a figure, below what `above` draws, and a button for a CSV file."""
    if (fold := views.fold(t("heads.numbers"), key=f"{name}_table")) is None:
        return
    with fold:
        if above is not None:
            above()
        numbers = frame()
        st.dataframe(numbers, hide_index=True, column_config={name: _heading(name) for name in numbers})
        st.download_button(
            t("heads.download"),
            lambda: csv(filed(subject, numbers)),
            file_name=f"{charts.file_name(name, 'token', subject.token + 1, subject.label)}.csv",
            mime="text/csv",
            key=f"{name}_csv",
            on_click="ignore",
        )


def filed(subject: Subject, numbers: pd.DataFrame) -> pd.DataFrame:
    """The numbers of a table with the columns that all files of weights have, counted from 1.

    Rows of weights received, where the token is the key, follow those of weights given.
    """
    sides, parts = subject.of_layer.sides, []
    own = {"query": (subject.token, sides.queries.labels), "key": (subject.key, sides.keys.labels)}
    values = [name for name in numbers if name not in ("layer", "head", "position", "token")]
    received = [name for name in values if name.endswith(" received")]
    for of, axis, columns in (
        ("query", "key", [name for name in values if name not in received]),
        ("key", "query", received),
    ):
        at, labels = own[of]
        lines = {"layer": subject.layer + 1} | ({} if "layer" in numbers else {"head": subject.head + 1})
        rows = numbers.dropna(subset=columns, how="all").assign(**{f"{of}_position": at + 1, of: labels[at]})
        rows = rows.assign(**{name: value for name, value in lines.items() if name not in rows})
        rows = rows.rename(columns={"position": f"{axis}_position", "token": axis})
        rows = rows[[*(name for name in COLUMNS if name in rows), *columns]]
        short = {name: name.removesuffix(" given").removesuffix(" received") for name in columns}
        parts.append(rows.rename(columns=short).rename(columns={"weight": "weights"}))
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def _heading(name: str) -> str:
    """A column of the file as it is called on screen; the file keeps the names that programs read."""
    of, _, dimension = name.rpartition(" ")
    return f"{t(f'one.column.{of}')} {dimension}" if dimension.isdecimal() else t(f"one.column.{name}")


def sum_of_row(total: float) -> str:
    """A sentence on the sum of a row's weights, and on the rest where the sum is not 1."""
    return t("one.sum_row") if abs(total - 1) < ROUNDING else t("one.sum_less", total=f"{total:.2f}")
