"""How does a sentence become the output? The nine steps for one head, with this sentence's numbers."""

import streamlit as st

from mha_core.steps import Step, steps
from pages._kit import scale, show, state, work
from pages._kit.text import literal, number, t

scene = state.current()
trace = work.trace(scene)
layer_index, head, _ = state.indices(trace, scene)
layer = trace.layers[layer_index]
limit = scale.limits(layer)[head]


def why(step: Step) -> list[str]:
    """The sentences that explain a step, chosen by what happened in it."""
    facts = {k: v if isinstance(v, int | str) else number(v) for k, v in step.facts.items() if v is not None}
    facts = {k: literal(v) for k, v in facts.items()}
    notes = {
        "split": {"shared": layer.n_kv_heads < layer.n_heads, "rotary": scene.position == "rotary"},
        "mask": {"biased": step.facts.get("biased")},
        "softmax": {"empty": step.facts.get("empty")},
    }.get(step.name, {})
    main = "none" if step.name == "mask" and not step.facts["hidden"] else "why"
    keys = [main, *(note for note, holds in notes.items() if holds)]
    return [t(f"steps.{step.name}.{key}", **facts) for key in keys]


with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.header(t("steps.heading"))
    show.check_badge(layer)
st.caption(t("steps.intro", head=head + 1, layer=layer_index + 1))

for count, step in enumerate(steps(trace, layer=layer_index, head=head), start=1):
    st.subheader(f"{count}. {t(f'steps.{step.name}.title')}", divider="gray")
    words, formula = st.columns([2, 3], vertical_alignment="center")
    with words:
        for sentence in why(step):
            st.markdown(sentence)
    formula.latex(rf"\large {step.formula}")
    pictures = step.before + step.after
    cells = st.grid(len(pictures), min_column_width=225)
    for place, drawn in enumerate(pictures):
        made = place >= len(step.before) > 0
        with cells.container():
            show.matrix(drawn, key=f"{step.name}-{place}-{drawn.name}", limit=limit, made=made)
