"""Step by step from X to Z: the steps for one head, with this sentence's numbers."""

from typing import Any

import streamlit as st

from mha_core.analysis.derivation import STEPS, Step
from mha_core.analysis.explanation import MAX_SYMBOLS, symbolic_scores
from mha_core.analysis.frames import MAX_ALL_PAIRS, around, largest_weight
from mha_core.scene.places import indices
from pages._kit import (
    cell_path,
    charts,
    chooser,
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
from pages._kit.text import literal, number, t
from pages.understand._steps import own, river

MAX_ALONE = 32  # tokens whose rows the browser has for the words above: a choice asks nobody


def page() -> None:
    scene_and_trace(heading=t("steps.heading"))
    _steps()


def _sentences(step: Step) -> list[str]:
    """The sentences about a step, with its numbers filled in."""
    facts = {name: fact for name, fact in step.facts.items() if fact is not None}
    words = {name: fact if isinstance(fact, int | str) else number(fact) for name, fact in facts.items()}
    escaped = {name: literal(word) for name, word in words.items()}
    return [t(f"steps.{step.name}.{note}", **escaped) for note in step.notes]


@st.fragment
def _steps() -> None:
    scene, trace = in_fragment()
    layer_index, head, query = indices(trace, scene.focus)
    layer = trace.layers[layer_index]
    part = around(trace, query, layer=layer_index, head=head, size=MAX_ALL_PAIRS)
    limit = heatmaps.scale_end(state.focus().scale, compute.once(layer, largest_weight, part=part))
    place: dict[str, Any] = {"layer": layer_index, "head": head}
    known_steps = compute.once(trace, own.whole, **place, part=part, query=query)

    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title(t("steps.heading"), anchor=False)
        model_info.check_badge(layer, query)
    missing = {builder.__name__ for builder in STEPS} - {step.name for step in known_steps}
    if known_steps:
        formulas.draw(
            formulas.of_layer(layer), key="formulas", steps=[step.name for step in known_steps], here=True
        )
        charts.show_part(part, layer.sides, t("steps.part"))
        shown = river.draw(trace, known_steps, layer=layer_index, head=head)
    with st.container(gap=None, key="of_steps"):  # one of them is shown (river.draw)
        for count, step in enumerate(known_steps, start=1):
            with st.container(key=f"step-{step.name}"):
                words, formula = st.columns(2, vertical_alignment="center")
                with words:
                    st.header(f"{count}. {t(f'steps.{step.name}.title')}", anchor=False)
                    st.markdown("\n\n".join(_sentences(step)))
                    if step.name == "tokens":
                        own.cut(trace)
                    if step.code:
                        st.code(step.code, language=None)  # colours of syntax are too pale on our paper
                with formula.container(key=f"formula-{step.name}"):
                    st.latex(rf"\large {step.formula}")
                    if step.name == "scores" and max(layer.n_query, layer.n_key) <= MAX_SYMBOLS:
                        st.latex(symbolic_scores(layer))
    alone = layer.sides.same and layer.n_query <= MAX_ALONE
    alone = alone and not st.session_state.get(why.FOLD)
    if known_steps:
        cell_path.draw(trace, **place, query=query, steps=river.STAGES, opens=shown in river.STAGES)
        river.pictures(trace, **place, query=query, part=part, limit=limit, follow=alone)
    chooser.show_head(trace, **place, query=query, limit=limit, in_browser=alone)
    head_labels.atlas_link(trace)
    st.caption(t("steps.intro", head=head + 1, layer=layer_index + 1))
    if layer.knows("q") and (opened := views.fold(t("why.title"), key=why.FOLD)):
        with opened:
            why.show(scene, trace, **place, query=query)
    if layer.knows("q"):
        formulas.code_of_layer(trace, layer_index, known_steps)
    model_info.layer(trace, layer_index)
    if not layer.knows("q"):
        refusals.only_weights(layer)
    elif missing:
        model_info.left_out(trace, layer, count=len(missing))
