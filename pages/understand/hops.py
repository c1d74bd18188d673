"""Where does a token get to in two steps? The weights of two layers, multiplied."""

import streamlit as st

from mha_core.scene.places import indices
from pages._kit import model_info
from pages._kit.scene import in_fragment, scene_and_trace, second_trace
from pages._kit.text import literal, t
from pages.understand._hops import two_hops


@st.fragment
def hops() -> None:
    """The two heads, the sentence, the path and the matrices of both sentences."""
    scene, trace = in_fragment()
    layer = two_hops.last(trace, scene)
    two_hops.intro(layer)
    *_, query = indices(trace, scene)
    first, second = two_hops.heads(trace, scene, query, layer=layer)
    two_hops.choose(trace, query, first=first, second=second, layer=layer)
    twin = second_trace(scene, says=False)
    for name, sentence_trace in (("first", trace), ("twin", twin)):
        if sentence_trace:
            if twin:
                st.header(literal(sentence_trace.title), anchor=False)
            two_hops.path(sentence_trace, query, first=first, second=second, layer=layer)
            two_hops.show_matrices(sentence_trace, query, first=first, second=second, key=name, layer=layer)


def page() -> None:
    st.title(t("hops.heading"), anchor=False)
    scene, trace = scene_and_trace()
    second_trace(scene)
    if not trace.sides.same:
        st.info(t("hops.two_texts"), icon=":material/translate:")
    elif len(trace.layers) < 2:
        st.info(t("hops.one_layer"), icon=":material/layers:")
        two_hops.offer()
    else:
        hops()
        if model_info.is_standard(trace):
            st.markdown(t("hops.standard"))
        model_info.about(trace)


page()
