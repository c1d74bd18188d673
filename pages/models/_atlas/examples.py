"""Texts in which a head has much or little of a measure: one is drawn, and opens on other pages."""

from dataclasses import replace
from typing import Any, NamedTuple

import streamlit as st

from mha_core import MhaError
from mha_core.analysis.patterns import POSITIONS
from mha_core.atlases.measures import ROLES
from mha_core.atlases.query import DECILES, Atlas
from mha_core.focus.focus import focus_on
from mha_core.scene.link import SETTINGS
from mha_core.scene.page import HOME, compose, parts
from mha_core.scene.scene import Scene
from pages._kit import choice, compute, head_view, model_source, refusals
from pages._kit.head_labels import measure_name
from pages._kit.text import in_link, isolated, literal, said, short, t
from pages._server import streamlit_parts
from pages.models._atlas.subject import Subject

SOURCES = ("mini", "random")  # of an atlas; any other one is a model
MEASURE, DECILE, TEXT = "atlas_measure", "atlas_decile", "atlas_text"
MOST = 5  # texts of a decile; an atlas that is only a summary has fewer
# Pages on which a text opens: their names in an address, and in the catalogues.
OPENS = {HOME: "heads", "token": "one", "steps": "steps", "what-if": "what_if"}


class Example(NamedTuple):
    """A text of an atlas, the value of a measure in it, and its strongest cell."""

    text: str
    value: float
    query: int
    key: int


def show(subject: Subject) -> None:
    """The choice of a measure, a decile and a text; the text in the head view; links to it."""
    st.subheader(t("atlas.texts_title"), anchor=False)
    measures = subject.atlas.measures
    usual = subject.claims[0].measure if subject.claims else measures[0]
    _begin(subject, usual)
    names = [str(decile) for decile in range(DECILES, 0, -1)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        choice.draw(st.selectbox, t("atlas.measure"), MEASURE, measures, usual, words=measure_name, width=210)
        choice.draw(st.selectbox, t("atlas.decile"), DECILE, names, names[0], words=str, width=170)
    measure = st.session_state[MEASURE]
    about = "role" if measure in ROLES else "position" if measure in POSITIONS else measure
    st.caption(t(f"atlas.about.{about}", measure=measure_name(measure)))
    found = compute.once(
        subject.atlas,
        _examples,
        layer=subject.layer,
        head=subject.head,
        measure=measure,
        decile=int(st.session_state[DECILE]),
    )
    if not found:
        st.markdown(t("atlas.no_texts"))
        return
    lines = {
        str(at): f"**{short(one.value)}** {literal(isolated(one.text))}" for at, one in enumerate(found, 1)
    }
    if st.session_state.get(TEXT, "1") not in lines:
        st.session_state[TEXT] = "1"
    choice.draw(
        st.radio,
        t("atlas.text"),
        TEXT,
        list(lines),
        "1",
        words=lines.__getitem__,
        label_visibility="collapsed",
    )
    _draw(subject, found[int(st.session_state[TEXT]) - 1])


def _begin(subject: Subject, usual: str) -> None:
    """For another head, begin with the measure that stands out in it, and with its strongest text."""
    place = subject.atlas.folder.name, subject.layer, subject.head
    if st.session_state.get("atlas_place", place) != place and not streamlit_parts.after_history():
        st.session_state.update({MEASURE: usual, DECILE: str(DECILES), TEXT: "1"})
    st.session_state["atlas_place"] = place


def _examples(atlas: Atlas, *, layer: int, head: int, measure: str, decile: int) -> tuple[Example, ...]:
    rows = atlas.top(measure, layer=layer, head=head, n=MOST, decile=decile)
    columns = (rows[name].tolist() for name in ("string", "value", "query", "key"))
    return tuple(Example(*one) for one in zip(*columns, strict=True))


def _draw(subject: Subject, example: Example) -> None:
    """The text in the head view, looking at its strongest cell, and links to the same on other pages."""
    scene = _scene(subject.atlas, example.text)
    if scene.source == "model":
        if not model_source.ready(scene):
            refusals.no_model(scene)
            return
        model_source.load(scene, st.empty())
    try:
        trace = compute.trace(scene)
    except MhaError as error:
        st.caption(literal(said(error)))
        return
    place: dict[str, Any] = {"layer": subject.layer, "head": subject.head, "token": example.query}
    alone = {"questions": None}  # no other head is drawn that answers a question there
    head_view.draw_traces([trace], **place, key="atlas_view", follows=False, more=alone)
    row = trace.layers[subject.layer].weights(subject.head, rows=[example.query])[0]
    query, key = trace.sides.queries.labels[example.query], trace.sides.keys.labels[example.key]
    cell = {"query": literal(isolated(query)), "key": literal(isolated(key))}
    st.caption(t("atlas.cell", weight=short(float(row[example.key])), **cell))
    here = parts(replace(scene, focus=focus_on(trace, **place, heads=[subject.head])).link())
    values = {**here.values, **in_link()}
    addresses = {name: compose(here._replace(page=page, values=values)) for page, name in OPENS.items()}
    links = " · ".join(f"[{t(f'{name}.title')}](./{address})" for name, address in addresses.items())
    st.markdown(t("atlas.open", links=links))


def _scene(atlas: Atlas, text: str) -> Scene:
    """The scene of a text and the atlas's model."""
    made = atlas.manifest
    source = made["source"] if made["source"] in SOURCES else "model"
    settings = {name: value for name, value in made["settings"].items() if name in SETTINGS[source]}
    if source == "model":
        settings["model"] = made["source"]
    return Scene(text=text, twin="", source=source, **settings)
