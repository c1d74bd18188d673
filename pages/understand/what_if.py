"""What if a head were off, a word cut from another, √d_k left out? The sentence without and with it."""

import streamlit as st

from pages._kit import compute, pair, refusals, state
from pages._kit.scene import scene_and_trace
from pages._kit.text import t
from pages.understand._what_if import answers, changes

st.title(t("what_if.heading"), anchor=False)
st.caption(t("what_if.intro"))
scene, before = scene_and_trace()
if scene.source == "file" or compute.is_stand_in(before):
    st.info(t("what_if.file") if scene.source == "file" else t("what_if.stand_in"), icon=":material/tune:")
    st.stop()
layer, head, query = state.indices(before, scene)
chosen = changes.current(scene)
changes.choose(before, chosen, layer=layer, head=head, query=query)
after = before
if chosen:
    changes.listed(chosen, before)
    after, refusal = changes.traced(scene, chosen)
    if refusal is not None:
        refusals.show(refusal, page_offers=False)
        st.stop()
answered = answers.asked(scene, before, after, chosen)
if answered is not None:
    answers.show(*answered)
sides = [pair.Side(t("what_if.before"), before, layer, head, query)]
sides += [pair.Side(t("what_if.after"), after, layer, head, query)] if chosen else []
pair.view(sides, key="what_if_view")
changes.heads(after, chosen, query=query)
kind = "matrices" if chosen else "matrices_before"
st.header(t(f"what_if.{kind}", head=head + 1, layer=layer + 1))
names = ("weights", "masked", "output")
painter = changes.painter(chosen, before, layer=layer, head=head)
pair.show_matrices(
    sides, names if chosen else names[:1], key="what-if", difference=bool(chosen), painted=painter
)
if chosen:
    st.header(t("what_if.layers"))
    changes.reached(before, after, chosen)
    changes.measured(before, after, layer=layer, head=head, query=query)
if answered is not None:
    answers.of_heads(scene, answered[1])
