"""Heads that papers describe, beside our scores for them, measured on request and once for each model."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis.literature import LINK, Finding, MeanScore, findings, measure
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface.files import PACKAGE
from pages._kit import model_source, state
from pages._kit.text import literal, said, t

MODELS = {  # the models in papers, each with the names that it may have on this machine
    "google-bert/bert-base-uncased": ("google-bert/bert-base-uncased", "bert-base-uncased"),
    "openai-community/gpt2": ("openai-community/gpt2", "gpt2"),
    "sentence-transformers/all-MiniLM-L6-v2": ("sentence-transformers/all-MiniLM-L6-v2", PACKAGE),
}
WIDTHS = (144, 46, 46, 76, 44)  # pixels of the first columns: together the width of a phone
HOW = ("link", "position", "repeated", "names")


def show(scene: Scene) -> None:
    """A table for each model in papers, with a button where its heads can be measured here."""
    st.markdown(t("literature.intro"))
    for nth, (model, names) in enumerate(MODELS.items()):
        local = next((name for name in names if name in model_source.local_models()), None)
        if (
            local is None
            and scene.source == "model"
            and scene.model in names
            and model_source.loaded_model(scene)
        ):
            local = scene.model
        _of_model(scene, nth, model, local)
    for kind in HOW:
        st.caption(t(f"literature.how_{kind}"))


def _of_model(scene: Scene, nth: int, model: str, local: str | None) -> None:
    published = findings(model)
    ours = measured(local) if local else {}
    heading = st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute")
    if local and st.session_state.get("measure") == local and not ours:
        ours = _measure(scene, local, published)
    with heading:
        st.markdown(f"**{literal(model)}**", width="content")
        if local is None:
            absent = (
                t("real.none_here") if model_source.hosted() else t("literature.absent", name=literal(model))
            )
            st.caption(absent, width="content")
        elif not ours:
            st.button(
                t("literature.measure"),
                key=f"measure_{nth}",
                on_click=_request,
                args=(local,),
                icon=":material/timer:",
            )
    names = [_name(finding) for finding in published]
    table = pd.DataFrame(
        {
            t("literature.column_does"): names,
            t("control.layer"): [finding.layer + 1 for finding in published],
            t("control.head"): [finding.head + 1 for finding in published],
            t("literature.column_paper"): [finding.paper for finding in published],
            **(_measured_columns(ours, published) if ours else {}),
            t("literature.column_baseline"): [finding.baseline for finding in published],
            t("literature.column_source"): [said(finding.source) for finding in published],
            t("literature.column_printed"): [finding.printed for finding in published],
        }
    )
    widths = dict(zip(table, WIDTHS, strict=False))
    shares = {t(f"literature.column_{name}") for name in ("paper", "ours", "baseline")} & {*table}
    config = {name: st.column_config.Column(width=width) for name, width in widths.items()}
    config |= {name: st.column_config.NumberColumn(format="%.2f", width=widths.get(name)) for name in shares}
    key = f"literature_{nth}"
    st.dataframe(
        table,
        hide_index=True,
        height="content",
        placeholder="",
        key=key,
        on_select=(lambda: _picked(key, local, published)) if local else "ignore",
        selection_mode="single-cell",  # rows would need a column of boxes
        column_config=config,
    )
    if local:
        st.caption(t("literature.click"))


def _measured_columns(ours: dict[Finding, MeanScore], published: Sequence[Finding]) -> dict[str, list]:
    return {
        t("literature.column_ours"): [ours[f].score if f in ours else None for f in published],
        t("literature.column_n"): pd.array(
            [ours[f].n if f in ours else None for f in published], dtype="Int64"
        ),
    }


def _name(finding: Finding) -> str:
    return t(f"literature.measure_{finding.measure.removeprefix(LINK)}")


@st.cache_resource
def _scores() -> dict[str, dict[Finding, MeanScore]]:
    return {}


def measured(name: str) -> dict[Finding, MeanScore]:
    """The scores measured in this model on this server."""
    return _scores().get(name, {})


def _request(name: str) -> None:
    st.session_state.measure = name
    state.go(source="model", model=name, revision="")


def _measure(scene: Scene, name: str, published: tuple[Finding, ...]) -> dict[Finding, MeanScore]:
    """The score of each published head on our sentences, with a progress bar."""
    entry = model_source.loaded_model(scene)
    if scene.model != name or entry is None:
        return {}  # another part of the page says why it is not loaded
    traces: dict[str, AttentionTrace] = {}
    scores: dict[Finding, MeanScore] = {}

    def trace(text: str) -> AttentionTrace:
        if text not in traces:
            traces[text] = entry.parts(text)[entry.kinds[0] if entry.kinds else "self"]
        return traces[text]

    bar = st.progress(0.0, t("literature.measuring", count=len(published)))
    try:
        for done, finding in enumerate(published):
            bar.progress(done / len(published), t("literature.now", name=_name(finding)))
            scores[finding] = measure(finding, trace)
    except MhaError as error:
        bar.empty()
        st.warning(literal(said(error)))
        return {}
    bar.empty()
    st.session_state.measure = None
    _scores()[name] = scores
    return scores


def _picked(key: str, name: str, published: tuple[Finding, ...]) -> None:
    """Choose the model and the head of the row that holds the clicked cell."""
    for row, _ in st.session_state[key]["selection"]["cells"]:
        finding = published[row]
        state.go(source="model", model=name, revision="", layer=finding.layer + 1, head=finding.head + 1)
