"""Heads that papers describe, in a table for each model; where the model is at hand, a row opens its head."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from mha_core.analysis.published import PublishedHead, published_heads
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface.files import PACKAGE
from pages._kit import model_source, state
from pages._kit.text import literal, said, t

WIDTHS = (144, 46, 46, 76, 44)  # pixels of the first columns: together the width of a phone
HOW = ("link", "position", "repeated", "names")


def show(scene: Scene) -> None:
    """A table for each model in papers."""
    st.markdown(t("literature.intro"))
    for nth, (model, heads) in enumerate(published_heads().items()):
        names = (model, PACKAGE if model == model_source.PACKAGED else model.rpartition("/")[2])
        local = next((name for name in names if name in model_source.local_models()), None)
        if local is None and scene.source == "model" and scene.model in names:
            local = scene.model if model_source.loaded_model(scene) else None
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown(f"**{literal(model)}**", width="content")
            if local is None:
                absent = (
                    t("real.none_here")
                    if model_source.hosted()
                    else t("literature.absent", name=literal(model))
                )
                st.caption(absent, width="content")
        _table(heads, key=f"literature_{nth}", local=local)
    for kind in HOW:
        st.caption(t(f"literature.how_{kind}"))


def _table(heads: Sequence[PublishedHead], *, key: str, local: str | None) -> None:
    table = pd.DataFrame(
        {
            t("literature.column_does"): [t(f"literature.role_{head.role}") for head in heads],
            t("control.layer"): [head.layer for head in heads],
            t("control.head"): [head.head for head in heads],
            t("literature.column_paper"): [head.score for head in heads],
            t("literature.column_baseline"): [head.baseline for head in heads],
            t("literature.column_source"): [said(head.source) for head in heads],
            t("literature.column_printed"): [head.printed for head in heads],
        }
    )
    widths = dict(zip(table, WIDTHS, strict=False))
    config = {name: st.column_config.Column(width=width) for name, width in widths.items()}
    for column in ("paper", "baseline"):
        name = t(f"literature.column_{column}")
        config[name] = st.column_config.NumberColumn(format="%.2f", width=widths.get(name))
    st.dataframe(
        table,
        hide_index=True,
        height="content",
        placeholder="",
        key=key,
        on_select=(lambda: _picked(key, local, heads)) if local else "ignore",
        selection_mode="single-cell",  # rows would need a column of boxes
        column_config=config,
    )
    if local:
        st.caption(t("literature.click"))


def _picked(key: str, name: str, heads: Sequence[PublishedHead]) -> None:
    """Choose the model and the head of the row that holds the clicked cell."""
    for row, _ in st.session_state[key]["selection"]["cells"]:
        state.go(source="model", model=name, revision="", layer=heads[row].layer, head=heads[row].head)
