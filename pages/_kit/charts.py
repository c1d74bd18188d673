"""Every plotly figure of the app is drawn here: it can be clicked, saved, and traced back to its scene.

What a figure is and where it comes from travels in its `layout.meta`; charts.js, which the frame mounts
once, reads it there for the files that it saves and for the cells that are clicked.
"""

import re
from collections.abc import Mapping

import pandas as pd
import streamlit as st

from mha_core.analysis.frames import Origin
from mha_core.traces.source import FileSource, ModelSource, RandomSource, TrainedSource
from pages._kit import components, state
from pages._kit.text import t

CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["toImage", "select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
}
# A heatmap has few: dragging zooms, and with Shift it moves what is seen.
FEW = CONFIG | {"modeBarButtonsToRemove": [*CONFIG["modeBarButtonsToRemove"], "zoom2d", "pan2d"]}
LONGEST_TEXT = 300  # characters of the sentence that a saved figure carries


def mount() -> None:
    """Let every figure be clicked and saved; shows nothing by itself."""
    components.charts({name: t(f"save.{name}") for name in ("open", "png", "svg", "csv")}, _picked)


def _picked(*, chart: str, row: object, column: object) -> None:
    """Go to the tokens of the cell that was clicked: its row looks, its column is looked at."""
    places = {"token": row, "key_token": column}
    # The browser sent this; that the tokens are there is seen to where the controls are drawn.
    state.go(**{key: at + 1 for key, at in places.items() if isinstance(at, int) and at >= 0})


def draw(
    figure,
    *,
    key: str,
    alt: str,
    title: str,
    origin: Origin = Origin(),
    table: pd.DataFrame | None = None,
    start: tuple[int, int | None] | None = None,
    config: Mapping = CONFIG,
    **options,
) -> None:
    """A figure on the page; `title` and `origin` are written into every file that is made of it.

    `table` has the full names of a heatmap's rows and columns. `start` makes cells clickable: it is the
    position of the first row and the first column, from 0, None where columns are no tokens.
    """
    meta = described(key, title, origin) | {"start": start}
    if table is not None:
        axes = {"rows": table.index, "columns": table.columns}
        meta |= {name: [str(label) for label in axis] for name, axis in axes.items()}
        meta["corner"] = " / ".join(str(axis.name or "") for axis in axes.values())
    figure.update_layout(meta=meta)
    st.plotly_chart(figure, key=key, config=dict(config), alt=alt, **options)


def described(key: str, title: str, origin: Origin) -> dict[str, object]:
    """What a saved figure says of itself, and the name of its file."""
    return {"title": title, "caption": caption(origin), "file": file_name(*_named(key, origin))}


def caption(origin: Origin) -> list[str]:
    """The lines under a saved figure: the sentence, and what its numbers come from."""
    text = origin.text or ""
    short = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
    where = [_weights(origin)] if origin.source else []
    if origin.layer is not None:
        where.append(t("save.layer", layer=origin.layer + 1))
    if origin.head is not None:
        where.append(t("save.head", head=origin.head + 1))
    lines = [t("save.text", text=short) if short else "", origin.note, " · ".join([*where, "Headscope"])]
    return [line for line in lines if line]


def _weights(origin: Origin) -> str:
    match origin.source:
        case FileSource() as source:
            return t("save.file", file=source.file, source=source.name)
        case ModelSource() as source:
            return t("save.model", name=source.name, architecture=source.architecture, dtype=source.dtype)
        case RandomSource() as source:
            return t("save.random", h=origin.h, d_model=origin.d_model, seed=source.seed)
        case TrainedSource(step=0) as source:
            return t("save.untrained", **_sizes(source))
        case TrainedSource() as source:
            return t("save.trained", step=f"{source.step:,}", **_sizes(source))
        case source:
            return source.name


def _sizes(source: TrainedSource) -> dict:
    return {"architecture": source.architecture, "h": source.h, "d_model": source.d_model}


def _named(key: str, origin: Origin) -> list:
    """What is in a file, in words for its name."""
    counted = {"layer": origin.layer, "head": origin.head}
    places = [part for name, at in counted.items() if at is not None for part in (name, at + 1)]
    return [key.removeprefix("matrix-"), *places, *([origin.text[:40]] if origin.text else [])]


def file_name(*parts: object) -> str:
    """Words joined into a name that every file system takes."""
    return "-".join(re.sub(r"[^\w]+", "-", str(part)).strip("-") for part in ("headscope", *parts))
