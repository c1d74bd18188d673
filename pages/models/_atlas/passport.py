"""The passport of a head: what it does and how sure that is, and all its measures."""

from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from mha_core.atlases import measures as of_texts
from mha_core.atlases.query import Atlas
from mha_core.figures.packed import Packed
from mha_core.figures.strips import strips
from pages._kit import charts, chooser, compute
from pages._kit.head_labels import in_words, measure_name
from pages._kit.text import joined, literal, paragraph, t
from pages.models._atlas.subject import Subject, has_links

MAX_TEXT = 60  # characters of the visitor's sentence in a caption
BESIDES = "distance"  # is no share, so it is in the table alone
MARKS = ("mean", "shuffled", "chance", "fixed", "own")  # of the figure


def show(subject: Subject) -> None:
    """The choice of the head, and in sentences what stands out in it."""
    heads = subject.atlas.manifest["heads"]
    st.header(subject.name, anchor=False)
    chooser.show(chooser.rows(heads, subject.layer, subject.head), [])
    if not subject.claims:
        with st.container(key="atlas_claim"):
            st.markdown(t("atlas.none"))
        st.markdown(t("atlas.none_why", count=len(subject.atlas.measures)))
        return
    first, *others = subject.claims
    said = in_words(first)
    with st.container(key="atlas_claim"):
        st.markdown(literal(f"{said[0].upper()}{said[1:]}"))
    compared = {"shuffled": f"{first.shuffled:.0%}", "chance": f"{first.chance:.0%}"}
    lines = [t("atlas.compared", **compared)]
    if first.is_role:
        lines = [t("atlas.compared_fixed", fixed=f"{first.fixed:.0%}", **compared)]
    if first.by_position:
        lines.append(t("atlas.by_position"))
    own = _own_values(subject).get(first.measure)
    if own is not None and not np.isnan(own):
        lines.append(t("atlas.own", share=f"{own:.0%}"))
    st.markdown(paragraph(lines))
    if others:
        listed = [f"{measure_name(one.measure)} {one.mean:.0%}" for one in others]
        st.markdown(t("atlas.also", list=literal(joined(listed))))


def measures(subject: Subject) -> None:
    """Every measure of the head as a strip, with the visitor's sentence, and the same as a table."""
    st.subheader(t("atlas.measures"), anchor=False)
    own = _own_values(subject)
    figure, table = compute.once(
        subject.atlas,
        _drawn,
        layer=subject.layer,
        head=subject.head,
        claimed=tuple(claim.measure for claim in subject.claims),
        own=tuple(own.items()),
    )
    title = t("atlas.measures_title", head=subject.name)
    drawn = [name for name in MARKS if table[t(f"atlas.column.{name}")].notna().any()]
    marks = t("atlas.marks", list=joined(t(f"atlas.mark.{name}") for name in drawn))
    charts.draw(
        figure,
        key="atlas_measures",
        alt=t("atlas.measures_alt", head=subject.name, count=len(table)),
        title=title,
        origin=replace(subject.origin, note=paragraph([f"{subject.origin.note}.", marks])),
        config=charts.BARS_CONFIG,
    )
    st.caption(paragraph([marks, t("atlas.measures_how"), _of_own(subject)]))
    with st.popover(t("overview.table")):
        st.dataframe(table, hide_index=True, key="atlas_measures_table")


def _own_values(subject: Subject) -> dict[str, float]:
    """The measures of the head in the visitor's sentence; those of links are not known there."""
    if subject.own is None:
        return {}
    values = compute.once(subject.own.layers[subject.layer], of_texts.of_layer).value[subject.head]
    return dict(zip(of_texts.MEASURES, values.tolist(), strict=True))


def _of_own(subject: Subject) -> str:
    """A note on the visitor's own sentence, and on what is not known about it."""
    if subject.own is None:
        return ""
    text = subject.own.tokens.text
    short = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
    return t(f"atlas.of_own_{'linked' if has_links(subject.atlas) else 'alone'}", text=literal(short))


def _drawn(
    atlas: Atlas,
    *,
    layer: int,
    head: int,
    claimed: tuple[str, ...],
    own: tuple[tuple[str, float], ...],
) -> tuple[Packed, pd.DataFrame]:
    """The figure and its table."""
    rows = atlas.head(layer, head)
    rows["own"] = pd.Series(dict(own), dtype=float)
    figure = strips(
        rows.drop(index=BESIDES).dropna(subset="mean"),
        names={name: measure_name(name) for name in rows.index},
        words={name: t(f"atlas.column.{name}") for name in MARKS},
        hue=head,
        bold=claimed,
    )
    numbers = ["mean", "low", "high", "shuffled", "chance", "fixed", "own"]
    quantiles = [name for name in rows if name.startswith("q")]
    table = pd.DataFrame(
        {
            t("atlas.measure"): [measure_name(name) for name in rows.index],
            t("atlas.column.n"): rows["n"].to_numpy(),
        }
        | {t(f"atlas.column.{name}"): rows[name].round(3).to_numpy() for name in numbers}
        | {t("atlas.column.quantile", at=name[1:]): rows[name].round(3).to_numpy() for name in quantiles}
    )
    return Packed(figure), table
