"""How does a sentence become the output? The steps for one head, with this sentence's numbers."""

import streamlit as st

from mha_core.analysis.derivation import STEPS, Step, steps
from pages._kit import matrices, model_info, refusals, state
from pages._kit.scene import scene_and_trace
from pages._kit.text import literal, number, t

MOST_BESIDE = 4  # matrices in a row

scene, trace = scene_and_trace()
layer_index, head, query = state.indices(trace, scene)
layer = trace.layers[layer_index]
limit = matrices.limits(layer)[head]
known = steps(trace, layer=layer_index, head=head) if layer.knows("q") else []


def sentences(step: Step) -> list[str]:
    """What there is to say about a step, its numbers written in."""
    given = {name: fact for name, fact in step.facts.items() if fact is not None}
    said = {name: fact if isinstance(fact, int | str) else number(fact) for name, fact in given.items()}
    written = {name: literal(fact) for name, fact in said.items()}
    return [t(f"steps.{step.name}.{note}", **written) for note in step.notes]


with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.header(t("steps.heading"))
    matrices.check_badge(layer, query)
st.caption(t("steps.intro", head=head + 1, layer=layer_index + 1))
model_info.layer(trace, layer_index)

missing = {make.__name__ for make in STEPS} - {step.name for step in known}
if not layer.knows("q"):
    refusals.only_weights(layer)
elif missing:
    model_info.left_out(trace, layer, count=len(missing))
for count, step in enumerate(known, start=1):
    st.subheader(f"{count}. {t(f'steps.{step.name}.title')}", divider="gray")
    words, formula = st.columns([2, 3], vertical_alignment="center")
    with words:
        for sentence in sentences(step):
            st.markdown(sentence)
    formula.latex(rf"\large {step.formula}")
    pictures = list(enumerate(step.before + step.after))
    cut = (
        len(step.before) if len(pictures) > MOST_BESIDE else 0
    )  # what comes in then stands above what is made
    rows = [pictures[:cut], pictures[cut:]] if cut else [pictures]
    for row in rows:
        cells = st.grid(step.per_row or max(map(len, rows)), min_column_width=225)
        for place, drawn in row:
            made = place >= len(step.before) > 0
            with cells.container():
                key = f"{step.name}-{place}-{drawn.name}"
                matrices.matrix(drawn, key=key, limit=limit, query=query, made=made)
