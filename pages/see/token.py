"""What does this token do in every head, and who looks at it? From its row in words to single products."""

import streamlit as st

from mha_core.scene.places import indices
from pages._kit import (
    answers,
    chooser,
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
from pages._kit.text import t
from pages.see._token import products, weights
from pages.see._token.subject import Subject

SEARCH = ("scores", "scale", "mask", "softmax")  # steps from a query to its weights

scene_and_trace(heading=t("one.title"))


@st.fragment
def page() -> None:
    scene, trace = in_fragment()
    layer, head, token = indices(trace, scene.focus)
    subject = Subject(trace, layer, head, token)
    st.title(t("one.heading", token=subject.name, layer=layer + 1, head=head + 1), anchor=False)
    both = subject.of(weights.both_of, key=subject.key)
    row = both[0].looks.weights.iloc[head]
    limit = heatmaps.scale_end(state.focus().scale, float(row.max()))
    chooser.show_head(trace, layer=layer, head=head, query=token, limit=limit, sticky=True)
    answers.reading(trace, layer=layer, head=head, query=token)
    head_labels.atlas_link(trace)
    model_info.layer(trace, layer)
    if note := model_info.collapsed(trace, layer):
        st.caption(note)

    st.header(t("one.every", layer=layer + 1))
    weights.every_head(subject, both)
    if exactly := views.fold(t("one.exact", head=head + 1), key="exactly"):
        with exactly:
            weights.ranked(subject, both)

    if len(trace.layers) > 1:
        st.header(t("one.layers"))
        st.markdown(t("one.layers_intro"))
        weights.layers(subject, both)

    if subject.of_layer.knows("q"):
        sizes, steps = formulas.of_layer(subject.of_layer), formulas.STEPS
        st.header(t("one.query", head=head + 1), anchor="search")
        formulas.draw(sizes, key="of_search", steps=steps, lit=SEARCH, alone=True)
        products.search(subject)

        st.header(t("one.output_title", head=head + 1), anchor="mixture")
        formulas.draw(sizes, key="of_mixture", steps=steps, lit=("mix",), alone=True)
        products.mixed(subject)
    else:
        refusals.only_weights(subject.of_layer)
    if why.has_ledger(scene, trace, token) and (
        written := views.fold(t("ledger.title"), key=why.LEDGER, in_link=True)
    ):
        with written:
            why.show_ledger(scene, trace, token=token)
    model_info.about(trace)


page()
