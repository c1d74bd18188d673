"""What every part of the page Token needs: what is looked at, its figures, and its tables to take home."""

from typing import NamedTuple

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, LayerTrace
from mha_core.analysis.frames import origin
from pages._kit import charts, matrices, sentence
from pages._kit.text import isolated, literal, t

OFF_ONE = 1e-3  # how far the sum of a row may be from 1 by rounding, in half precision too


class Subject(NamedTuple):
    """What the page looks at; layer, head and token from 0."""

    trace: AttentionTrace
    layer: int
    head: int
    token: int

    @property
    def of_layer(self) -> LayerTrace:
        return self.trace.layers[self.layer]

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the tokens that look."""
        return self.of_layer.sides.queries.labels

    @property
    def key(self) -> int:
        """Whose column is shown: the token's own, or that of a token of the other text."""
        return sentence.looked_at(self.trace, layer=self.layer, head=self.head, query=self.token)

    @property
    def name(self) -> str:
        return word(self.labels[self.token])


def word(label: str) -> str:
    """A token in a place that reads Markdown: as typed, whatever direction it is written in."""
    return literal(isolated(label))


def chart(subject: Subject, drawn, *, key: str, alt: str, **options) -> None:
    """A figure about the token; what it says to those who do not see it is its title in a file."""
    where = origin(subject.trace, layer=subject.layer, head=subject.head)
    charts.draw(drawn, key=key, alt=alt, title=alt, origin=where, **options)


def table(frame: pd.DataFrame, *, name: str, subject: Subject) -> None:
    """What a figure shows, all of it, as a table that can be taken home."""
    at = subject.token
    with st.expander(t("heads.numbers")):
        st.dataframe(frame, hide_index=True)
        st.download_button(
            t("heads.download"),
            lambda: matrices.csv(frame),
            file_name=f"{charts.file_name(name, 'token', at + 1, subject.labels[at])}.csv",
            mime="text/csv",
            key=f"{name}_csv",
            on_click="ignore",
        )


def whole(total: float) -> str:
    """What the weights of a row sum to, and where the rest is if that is not 1."""
    return t("one.sum_row") if abs(total - 1) < OFF_ONE else t("one.sum_less", total=f"{total:.2f}")
