"""Heads that papers describe, beside what they do here: measured when somebody asks, once for each model."""

import pandas as pd
import streamlit as st

from mha_core import MhaError
from mha_core.analysis.literature import Finding, Measured, findings, measure
from mha_core.sources.huggingface.files import PACKAGE
from pages._kit import model_source, state
from pages._kit.text import literal, t

MODELS = {  # what papers speak about, and by which names it can be here
    "google-bert/bert-base-uncased": ("google-bert/bert-base-uncased", "bert-base-uncased"),
    "openai-community/gpt2": ("openai-community/gpt2", "gpt2"),
    "sentence-transformers/all-MiniLM-L6-v2": ("sentence-transformers/all-MiniLM-L6-v2", PACKAGE),
}
LINK = "link: "
HOW = ("link", "position", "repeated", "names")
KIND = {
    "previous token": "position",
    "next token": "position",
    "first token": "position",
    "duplicate": "repeated",
    "induction": "repeated",
    "name mover": "names",
    "second subject": "names",
}


def show(scene: state.Scene) -> None:
    """A table for each model that papers speak about, with a button where it can be measured here."""
    st.markdown(t("literature.intro"))
    for nth, (model, names) in enumerate(MODELS.items()):
        at = next((name for name in names if name in model_source.here()), None)
        if at is None and scene.source == "model" and scene.model in names and model_source.at_hand(scene):
            at = scene.model
        _of_model(scene, nth, model, at)
    for kind in HOW:
        st.caption(t(f"literature.how_{kind}"))


def _of_model(scene: state.Scene, nth: int, model: str, at: str | None) -> None:
    found = findings(model)
    ours = measured(at) if at else {}
    head = st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute")
    if at and st.session_state.get("measure") == at and not ours:
        ours = _measure(scene, at, found)
    with head:
        st.markdown(f"**{literal(model)}**", width="content")
        if at is None:
            absent = (
                t("real.none_here") if model_source.hosted() else t("literature.absent", name=literal(model))
            )
            st.caption(absent, width="content")
        elif not ours:
            st.button(
                t("literature.measure"),
                key=f"measure_{nth}",
                on_click=_ask,
                args=(at,),
                icon=":material/timer:",
            )
    names = [_name(finding) for finding in found]
    table = pd.DataFrame(
        {
            t("literature.column_does"): names,
            t("control.layer"): [finding.layer + 1 for finding in found],
            t("control.head"): [finding.head + 1 for finding in found],
            t("literature.column_paper"): [finding.paper for finding in found],
            t("literature.column_ours"): [ours[f].score if f in ours else None for f in found],
            t("literature.column_n"): pd.array(
                [ours[f].n if f in ours else None for f in found], dtype="Int64"
            ),
            t("literature.column_baseline"): [finding.baseline for finding in found],
            t("literature.column_source"): [finding.source for finding in found],
            t("literature.column_printed"): [finding.printed for finding in found],
        }
    )
    shares = ("column_paper", "column_ours", "column_baseline")
    key = f"literature_{nth}"
    st.dataframe(
        table,
        hide_index=True,
        height="content",
        placeholder="",
        key=key,
        on_select=(lambda: _picked(key, at, found)) if at else "ignore",
        selection_mode="single-row",
        column_config={
            t(f"literature.{name}"): st.column_config.NumberColumn(format="%.2f") for name in shares
        },
    )


def _name(finding: Finding) -> str:
    return t(f"literature.measure_{finding.measure.removeprefix(LINK)}")


@st.cache_resource
def _all() -> dict[str, dict[Finding, Measured]]:
    return {}


def measured(name: str) -> dict[Finding, Measured]:
    """What was measured in this model on this server."""
    return _all().get(name, {})


def _ask(name: str) -> None:
    st.session_state.measure = name
    state.go(source="model", model=name, revision="")


def _measure(scene: state.Scene, name: str, found: tuple[Finding, ...]) -> dict[Finding, Measured]:
    """Each head's score on our sentences, one after the other, and how far that is."""
    entry = model_source.at_hand(scene)
    if scene.model != name or entry is None:
        return {}  # the page says why it is not loaded
    seen, scores = {}, {}

    def trace(text: str):
        if text not in seen:
            seen[text] = entry.parts(text)[entry.kinds[0] if entry.kinds else "self"]
        return seen[text]

    bar = st.progress(0.0, t("literature.measuring", count=len(found)))
    try:
        for done, finding in enumerate(found):
            bar.progress(done / len(found), t("literature.now", name=_name(finding)))
            scores[finding] = measure(finding, trace)
    except MhaError as error:
        bar.empty()
        st.warning(literal(error))
        return {}
    bar.empty()
    st.session_state.measure = None
    _all()[name] = scores
    return scores


def _picked(key: str, name: str, found: tuple[Finding, ...]) -> None:
    """Look at the head of the row that was clicked."""
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        head = found[rows[0]]
        state.go(source="model", model=name, revision="", layer=head.layer + 1, head=head.head + 1)
