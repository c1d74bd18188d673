"""All heads of an atlas by two of its measures; a click on one opens its passport."""

import pandas as pd
import streamlit as st

from mha_core.atlases.query import Atlas
from mha_core.figures.head_map import head_map
from mha_core.figures.packed import Packed
from pages._kit import charts, choice, compute, state
from pages._kit.head_labels import measure_name
from pages._kit.text import t
from pages.models._atlas.subject import Subject

# The measures of the axes at first, as far as an atlas has them.
ACROSS, UP = ("previous token",), ("pronoun to noun", "first token")
SHOWN = "atlas_heads"  # the field of which heads are drawn: these, or those of a layer
ALL, CLAIMED = "all", "claimed"
NUMBERS = ("mean", "low", "high", "shuffled", "chance")


def choose(subject: Subject) -> tuple[str, str]:
    """The controls of the measures across and up, which it returns, and of which heads are drawn."""
    atlas = subject.atlas
    axes = _axis(atlas, "atlas_x", ACROSS), _axis(atlas, "atlas_y", UP)
    layers = [str(number) for number in range(1, len(atlas.manifest["heads"]) + 1)]
    choice.draw(st.selectbox, t("atlas.show"), SHOWN, [ALL, CLAIMED, *layers], ALL, words=_shown, width=180)
    return axes


def show(subject: Subject, axes: tuple[str, str]) -> None:
    """The figure, and the same as a table."""
    drawn = st.session_state[SHOWN]
    heads: tuple[tuple[int, int], ...] | None = None  # all
    if drawn == CLAIMED:
        heads = tuple(subject.every_claim)
    elif drawn != ALL:
        layer = int(drawn) - 1
        heads = tuple((layer, head) for head in range(subject.atlas.manifest["heads"][layer]))
    figure, table = compute.once(
        subject.atlas,
        _drawn,
        axes=axes,
        heads=heads,
        chosen=(subject.layer, subject.head),
    )
    title = t("atlas.map_title", x=measure_name(axes[0]), y=measure_name(axes[1]))
    # The key changes with the head, so that the new chart does not keep the click that led to it.
    key = f"atlas_map-{subject.layer}-{subject.head}"
    charts.draw(
        figure,
        key=key,
        alt=f"{title}. {t('atlas.map_alt', count=len(table))}",
        title=title,
        name="atlas_map",
        origin=subject.origin,
        on_select=lambda: _clicked(key),
        selection_mode="points",
    )
    st.caption(t("atlas.map_how"))
    with st.popover(t("overview.table")):
        st.dataframe(table, hide_index=True, key="atlas_map_table")


def _axis(atlas: Atlas, field: str, usual: tuple[str, ...]) -> str:
    names = atlas.measures
    first = next(name for name in (*usual, *names) if name in names)
    choice.draw(
        st.selectbox, t(f"atlas.axis_{field[-1]}"), field, names, first, words=measure_name, width=180
    )
    return st.session_state[field]


def _shown(name: str) -> str:
    return t(f"atlas.show_{name}") if name in (ALL, CLAIMED) else t("atlas.show_layer", layer=name)


def _drawn(
    atlas: Atlas,
    *,
    axes: tuple[str, str],
    heads: tuple[tuple[int, int], ...] | None,
    chosen: tuple[int, int],
) -> tuple[Packed, pd.DataFrame]:
    """The figure and its table."""
    rows = atlas.heads().set_index(["layer", "head"])
    points = pd.DataFrame(index=rows.index.unique())
    table = pd.DataFrame(
        {t("control.layer"): [layer + 1 for layer, _ in points.index]}
        | {t("control.head"): [head + 1 for _, head in points.index]},
        index=points.index,
    )
    for letter, measure in zip("xy", axes, strict=True):
        of_measure = rows.loc[rows["measure"] == measure, list(NUMBERS)]
        names = {name: f"{letter}_{name}".removesuffix("_mean") for name in NUMBERS}
        points = points.join(of_measure.rename(columns=names))
        words = {name: f"{measure_name(measure)} · {t(f'atlas.column.{name}')}" for name in NUMBERS}
        if axes[0] != axes[1] or letter == "x":
            table = table.join(of_measure.round(3).rename(columns=words))
    points["name"] = [f"{layer + 1}·{head + 1}" for layer, head in points.index]
    points["label"] = [t("overview.name", layer=layer + 1, head=head + 1) for layer, head in points.index]
    if heads is not None:
        points, table = points.loc[[*heads]], table.loc[[*heads]]
    figure = head_map(
        points,
        axes=(measure_name(axes[0]), measure_name(axes[1])),
        layers=[t("atlas.show_layer", layer=number + 1) for number in range(len(atlas.manifest["heads"]))],
        shuffled=t("atlas.column.shuffled"),
        chosen=chosen,
    )
    return Packed(figure), table


def _clicked(key: str) -> None:
    points = st.session_state[key]["selection"]["points"]
    if points and "customdata" in points[0]:
        layer, head = points[0]["customdata"]
        state.go(layer=int(layer) + 1, head=int(head) + 1)
