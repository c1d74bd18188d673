"""What does each head look at? One sentence or two, one head's six matrices, and all heads of the layer."""

import streamlit as st

from mha_core.analysis.frames import MAX_ALL_PAIRS
from mha_core.scene.link import WITH_CLS
from mha_core.scene.places import indices
from pages._kit import (
    answers,
    chooser,
    head_labels,
    invitation,
    model_info,
    model_source,
    overview,
    state,
    why,
)
from pages._kit.scene import scene_and_trace, second_trace
from pages._kit.text import PAGES, paragraph, t
from pages._kit.views import fold
from pages.see._heads import folds, sentences

# Keys of what follows the focus where it is open.
FOLDS = ("measurements", "likeness", "numbers", why.FOLD)

with st.container(horizontal=True, vertical_alignment="bottom"):
    st.title(t("heads.question"), width="content", anchor=False)
    source = state.setting("source")
    is_asked = source in WITH_CLS and "decoder" not in state.setting("architecture")
    note = t("heads.start") if is_asked else t("heads.random") if source == "random" else ""
    with st.container(key="how", width="content"):
        st.caption(paragraph([t("heads.how"), note]))
    if invitation.is_newcomer():
        invitation.show()
scene, trace = scene_and_trace()
twin = second_trace(scene)
layer, head, query = indices(trace, scene.focus)
of_layer = trace.layers[layer]
opened = any(st.session_state.get(name) for name in FOLDS)
# What a fold is about: the pictures above may have moved on without the server.
named = t("overview.name", layer=layer + 1, head=head + 1)
answered = []
if scene.source == "model":
    texts = [scene.text] if twin is None else [scene.text, scene.twin]
    answered = [
        one.with_kind(scene.kind)
        for one in answers.traces_with_answers(scene, [(text, ()) for text in texts])
    ]
    if answered and not answered[0].answers:
        st.caption(t("answer.elsewhere"))
weights = sentences.show(
    trace, twin, scene, layer=layer, head=head, token=query, reports=opened, answered=answered
)
with st.container(horizontal=True, vertical_alignment="center"):
    head_labels.atlas_link(trace)
    if of_layer.knows("w_o"):
        st.page_link(
            PAGES / "understand/steps.py",
            label=t("heads.z"),
            icon=":material/arrow_forward:",
            query_params={"operation": "output"},
        )
model_info.about(trace)
if model_source.is_third_party(trace):
    chooser.layer_pills_with_link(trace, scene)
overview_fold = overview.fold(trace, opened=overview.opens(trace))
if trace.sides.length <= MAX_ALL_PAIRS:  # for a longer text the overview shows the other measurements
    if measured := fold(t("roles.title"), key="measurements"):
        with measured:
            st.caption(named)
            folds.measurements(trace, scene, layer=layer, head=head)
elif of_layer.n_heads > 1 and (alike := fold(t("roles.alike_title"), key="likeness")):
    with alike:
        st.caption(named)
        folds.likeness(trace, scene, layer=layer)
if of_layer.knows("q") and (explained := fold(t("why.title"), key=why.FOLD)):
    with explained:
        why.show(scene, trace, layer=layer, head=head, query=query)
if numbers := fold(t("heads.numbers"), key="numbers"):
    with numbers:
        st.caption(named)
        model_info.check_badge(of_layer, query)
        folds.numbers(trace, layer=layer, head=head, query=query)

# Computed last, since it takes the longest: a long text has millions of weights in each head.
overview.show(trace, scene, overview_fold, layer=layer, head=head, weights=weights)
