"""Draws every plotly figure of the app, so that users can save it as a file.

The title, caption and file name of a figure are in its `layout.meta`. charts.js, which the frame mounts
once, reads them there when the user saves the figure.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from mha_core.analysis.frames import WINDOW, Crop, Origin, Span, window
from mha_core.errors import listed
from mha_core.figures.packed import Packed
from mha_core.traces.source import Source
from mha_core.traces.source import caption as source_caption
from mha_core.traces.tokens import Sides
from pages._kit.text import joined, paragraph, said, t

CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["toImage", "select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
}
BARS_CONFIG = CONFIG | {"displayModeBar": False}  # nothing zooms; on a phone buttons would cover numbers
MAX_TEXT = 300  # characters of the sentence in the caption of a saved figure


def draw(
    figure: Any,  # plotly's, or packed
    *,
    key: str,
    alt: str,
    title: str,
    origin: Origin = Origin(),
    words: Mapping[str, str] | None = None,
    name: str | None = None,
    config: Mapping = CONFIG,
    **options: Any,
) -> None:
    """Draw a figure on the page; files saved from it carry `title` and `origin`, and `name` or else its key.

    `words` maps labels of tokens to the figure's words for them, which light up where the token is pointed
    at.
    """
    meta = described(name or key, title, origin)
    if words is not None:
        meta["words"] = dict(words)
    figure = figure if isinstance(figure, Packed) else Packed(figure)
    st.plotly_chart(figure.with_meta(meta), key=key, config=dict(config), alt=alt, **options)


def described(key: str, title: str, origin: Origin) -> dict[str, object]:
    """Title, caption lines and file name of a saved figure, for its `layout.meta`."""
    indices = {"layer": origin.layer, "head": origin.head}
    parts = [part for name, at in indices.items() if at is not None for part in (name, at + 1)]
    parts += ["edited"] if origin.source and origin.source.edits else []
    parts += [f"{span.axis}-{span.start + 1}-{span.stop}" for span in origin.spans]
    parts += [origin.text[:40]] if origin.text else []
    return {"title": title, "caption": caption(origin), "file": file_name(key, *parts)}


def caption(origin: Origin) -> list[str]:
    """The lines under a saved figure: the sentence, the note, and the source of the numbers."""
    text = origin.text or ""
    excerpt = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
    sources = []
    if origin.source:
        facts = {"h": origin.h, "d_model": origin.d_model} | origin.source.caption_facts()
        sources.append(said(source_caption(facts | {"edited": None})))  # its edits have a part of their own
        if origin.source.edits:
            sources.append(changes(origin.source))
    if origin.layer is not None:
        sources.append(t("save.layer", layer=origin.layer + 1))
    if origin.head is not None:
        sources.append(t("save.head", head=origin.head + 1))
    lines = [
        t("save.text", text=excerpt) if excerpt else "",
        origin.note,
        part(origin.spans),
        " · ".join([*sources, "Headscope"]),
    ]
    return [line for line in lines if line]


def part(spans: Iterable[Span]) -> str:
    """The part of a long text that is drawn, for each axis or for both alike; "" for the whole text."""
    unique = {span[1:]: span.axis for span in spans}
    names = unique.values() if len(unique) > 1 else ["token"]
    return joined(
        t(f"part.{name}", first=f"{start + 1:,}", last=f"{stop:,}", count=f"{count:,}")
        for name, (start, stop, count) in zip(names, unique, strict=False)
    )


def show_part(drawn: Crop, sides: Sides, *more: str) -> None:
    """Show which part of a long text is drawn, followed by `more`; nothing for the whole text."""
    if spans := drawn.spans(sides):
        st.caption(paragraph([t("long.part", tokens=part(spans)), *more]))


def window_of(sides: Sides, token: int, *, keys: bool) -> tuple[slice, int, tuple[Span, ...]]:
    """Choose and name the tokens of a long text that a picture shows, those around a token.

    Returns their slice, the first of them, and the spans for the picture's caption. With `keys` they are on
    both axes.
    """
    cut = window(len(sides.queries), token, WINDOW)
    drawn = Crop(cut, cut if keys else None)
    show_part(drawn, sides)
    part = cut or slice(None)
    return part, part.start or 0, drawn.spans(sides)


def changes(source: Source) -> str:
    """The edits behind the numbers; if there are many, their count and the first ones."""
    edits = said(listed((edit.describe() for edit in source.edits), "semicolon"))
    if len(edits) <= MAX_TEXT:
        return t("save.edited", changes=edits)
    return t("save.edited_much", changes=edits[:MAX_TEXT], count=len(source.edits))


def file_name(*parts: object) -> str:
    """Join words into a file name that every file system accepts."""
    return "-".join(re.sub(r"[^\w]+", "-", str(part)).strip("-") for part in ("headscope", *parts))
