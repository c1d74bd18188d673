"""Step by step from X to Z: a drawing of the way, and the steps of one head with this sentence's numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.derivation import STEPS, Step, adjust
from mha_core.analysis.explanation import MAX_SYMBOLS, symbolic_scores
from mha_core.analysis.frames import MAX_ALL_PAIRS, Crop, around, largest_weight
from mha_core.focus import token_names
from mha_core.scene.places import indices
from mha_core.traces.tokens import subscript
from pages._kit import (
    cell_path,
    charts,
    chooser,
    components,
    compute,
    formulas,
    head_labels,
    heatmaps,
    model_info,
    refusals,
    state,
    views,
    why,
)
from pages._kit.scene import in_fragment, scene_and_trace
from pages._kit.text import literal, number, t, template
from pages.understand._steps import own

NAMES = ("tokens", *(builder.__name__ for builder in (*STEPS, adjust)), "add")
MAX_ALONE = 32  # tokens whose rows the browser has for the words above: a choice asks nobody
MAX_ACROSS = 5  # matrices in a row
HEIGHT = 95  # pixels of the drawing until it is there
TALL = 276  # pixels of a matrix, so that a step fits on a screen
ON_THE_PATH = ("scores", "scaled", "masked", "weights")  # matrices of pairs of tokens
STAGES = {"scores": "products", "scale": "scale", "mask": "mask", "softmax": "shares", "mix": "mixture"}

_river = components.component("river", "pictures/river.js", "pictures/river.css")


def page() -> None:
    scene_and_trace(heading=t("steps.heading"))
    _steps()


@st.fragment
def _steps() -> None:
    scene, trace = in_fragment()
    layer_index, head, query = indices(trace, scene.focus)
    layer = trace.layers[layer_index]
    part = around(trace, query, layer=layer_index, head=head, size=MAX_ALL_PAIRS)
    limit = heatmaps.scale_end(state.focus().scale, compute.once(layer, largest_weight, part=part))
    place: dict[str, Any] = {"layer": layer_index, "head": head}
    steps = compute.once(trace, own.whole, **place, part=part, query=query)

    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title(t("steps.heading"), anchor=False)
        model_info.check_badge(layer, query)
    if steps:
        names = [step.name for step in steps]
        formulas.draw(formulas.of_layer(layer), key="formulas", steps=names, here=True)
        charts.show_part(part, layer.sides, t("steps.part"))
        shown = _draw_river(trace, steps, **place)
    with st.container(gap=None, key="of_steps"):  # one of them is shown (`_draw_river`)
        for count, step in enumerate(steps, start=1):
            with st.container(key=f"step-{step.name}"):
                words, formula = st.columns(2, vertical_alignment="center")
                with words:
                    st.header(f"{count}. {t(f'steps.{step.name}.title')}", anchor=False)
                    st.markdown("\n\n".join(_sentences(step)))
                    if step.name == "tokens":
                        own.cut(trace)
                    if step.code:
                        components.code(step.code)
                with formula.container(key=f"formula-{step.name}"):
                    st.latex(rf"\large {step.formula}")
                    if step.name == "scores" and max(layer.n_query, layer.n_key) <= MAX_SYMBOLS:
                        st.latex(symbolic_scores(layer))
    alone = layer.sides.same and layer.n_query <= MAX_ALONE and not st.session_state.get(why.FOLD)
    if steps:
        cell_path.draw(trace, **place, query=query, steps=STAGES, opens=shown in STAGES)
        drawn, of_steps = compute.once(trace, _pictures, **place, part=part, query=query, limit=limit)
        traces = dict.fromkeys((matrix.name for matrix in drawn), trace)
        labels = token_names.names(trace.tokens) if alone else None  # the frame follows the token by itself
        heatmaps.draw(drawn, key="steps", tall=TALL, steps=of_steps, traces=traces, names=labels)
    chooser.show_head(trace, **place, query=query, limit=limit, in_browser=alone)
    head_labels.atlas_link(trace)
    st.caption(t("steps.intro", head=head + 1, layer=layer_index + 1))
    if steps:
        if opened := views.fold(t("why.title"), key=why.FOLD):
            with opened:
                why.show(scene, trace, **place, query=query)
        formulas.code_of_layer(trace, layer_index, steps)
    model_info.layer(trace, layer_index)
    if not steps:
        refusals.only_weights(layer)
    elif missing := {builder.__name__ for builder in STEPS} - {*names}:
        model_info.left_out(trace, layer, count=len(missing))


def _sentences(step: Step) -> list[str]:
    """The sentences about a step, with its numbers filled in."""
    facts = {name: fact for name, fact in step.facts.items() if fact is not None}
    words = {name: fact if isinstance(fact, int | str) else number(fact) for name, fact in facts.items()}
    escaped = {name: literal(word) for name, word in words.items()}
    return [t(f"steps.{step.name}.{note}", **escaped) for note in step.notes]


def _draw_river(trace: AttentionTrace, steps: Sequence[Step], *, layer: int, head: int) -> str:
    """Draw the way from X to Z with the step in focus that the link names; returns that step."""
    names = [step.name for step in steps]
    linked = st.query_params.get("operation")
    if linked not in (None, *NAMES):
        state.say_instead("operation", names[0])
    shown = linked if linked in names else names[0]
    st.html(f"<style>html .st-key-step-{shown} {{ display: flex; }}</style>")  # the container with that key
    data = {
        "steps": [{"name": step.name, "title": t(f"steps.{step.name}.title")} for step in steps],
        "nodes": [
            {"at": at, "row": row, "symbol": symbol}
            for at, symbols in enumerate(_nodes(trace, steps, layer=layer, head=head))
            for row, symbol in symbols.items()
        ],
        "texts": {name: template(f"steps.{name}") for name in ("before", "after", "here")},
    }
    _river(key="river", data=data, height=HEIGHT)
    return shown


def _nodes(trace: AttentionTrace, steps: Sequence[Step], *, layer: int, head: int) -> list[dict[int, str]]:
    """The symbols before each step and after the last, by row; "" where only a line passes."""
    of = trace.layers[layer]
    nth, shared = subscript(head + 1), subscript(of.kv_head(head) + 1)
    vectors = {0: f"Q{nth}", 1: f"K{shared}", 2: f"V{shared}"}
    inputs = {1: "X"}
    if of.knows("x_v"):
        inputs = {0: "X", 1: "X", 2: "Y"} if of.sides.same else {0: "X", 1: "Y", 2: "Y"}
    rows = {
        "tokens": {1: t("steps.text")},
        "project": inputs,
        "split": {0: "Q", 1: "K", 2: "V"},
        "adjust": vectors,
        "scores": vectors,
        "scale": {0: f"S{nth}", 2: ""},
        "mask": {0: "S/√d", 2: ""},
        "softmax": {0: "S+M", 2: ""},
        "mix": {0: f"A{nth}", 2: f"V{shared}"},
        "concat": {1: f"head{nth}"},
        "output": {1: "concat"},
        "add": {1: "Z"},
    }
    end = {"output": "Z", "add": "x + Z"}.get(steps[-1].name, "concat")
    return [*(rows[step.name] for step in steps), {1: end}]


def _pictures(
    trace: AttentionTrace, *, layer: int, head: int, query: int, part: Crop, limit: float
) -> tuple[list[heatmaps.Heatmap], dict[str, heatmaps.StepMatrices]]:
    """The matrices of all steps, each one once; a step shows those that it reads and computes."""
    unique: dict[str, heatmaps.Heatmap] = {}
    drawn: dict[str, heatmaps.StepMatrices] = {}
    for step in compute.once(trace, own.whole, layer=layer, head=head, part=part, query=query):
        every = step.before + step.after + step.wrong
        shown = {f"{picture.name} {picture.symbol}": picture for picture in every}
        names = list(shown)
        for name, picture in shown.items():
            matrix = heatmaps.to_heatmap(picture, name, limit=limit, query=query)
            if picture.name in ON_THE_PATH:  # a click chooses both tokens; the path explains the number
                matrix = replace(matrix, cell=None, start=picture.start)
            unique.setdefault(name, matrix)
        count = len(names)
        across = step.per_row or (count if count <= MAX_ACROSS else -(-count // 2))
        results = names[len(step.before) : len(names) - len(step.wrong)] if step.before else []
        drawn[step.name] = heatmaps.StepMatrices(names, results, across)
    return list(unique.values()), drawn
