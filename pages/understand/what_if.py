"""What if a head were off, one word blocked from another, √d_k left out? The sentence without and with it."""

import streamlit as st

from mha_core.scene.changes import read
from mha_core.scene.places import indices
from pages._kit import head_labels, pair, refusals
from pages._kit.scene import scene_and_trace
from pages._kit.text import t
from pages.understand._what_if import changed_answers, changes, moved, sides

st.title(t("what_if.heading"), anchor=False)
st.caption(t("what_if.intro"))
scene, before = scene_and_trace()
if scene.source == "file":
    st.info(t("what_if.file"), icon=":material/tune:")
    st.stop()
layer, head, query = indices(before, scene.focus)
chosen, _ = read(scene.edits)
text, after, refusal = sides.changed(scene, before, chosen)
words = sides.typed(scene, before)
at = text.query(query)
changes.taken_away(scene)
came_of_it = st.container(key="came_of_it")  # above the fields: a change is seen at once
if chosen:
    with came_of_it:
        changes.listed(chosen, text.trace, words)
changes.choose(text.trace, words, chosen, layer=layer, head=head, query=at)
with came_of_it if chosen else st.container():
    if refusal is not None:
        refusals.show(refusal)
        changes.take_away(scene, before, chosen)
        st.stop()
    answered = changed_answers.asked(text, before, after, scene=scene)
    if answered is not None:
        changed_answers.show(answered.before, answered.after, text.swaps)
        if chosen:
            changed_answers.of_word(scene, answered.before, answered.after)
if text.swaps:
    st.caption(t("what_if.swapped") if text.partners else t("what_if.unpaired"))
both = [pair.PairSide(t("what_if.before"), before, layer, head, query)]
if chosen:
    both.append(pair.PairSide(t("what_if.after"), after, layer, head, at))
pair.view(both, key="what_if_view", answered=() if answered is None else answered.seen)
head_labels.atlas_link(before)
changes.heads(after, chosen, query=at)
kind = "matrices" if chosen else "matrices_before"
st.header(t(f"what_if.{kind}", head=head + 1, layer=layer + 1), anchor="matrices")
if chosen:
    moved.without_w_o(after, layer=layer, head=head, query=at)
painted = changes.painter(chosen, layer=layer, head=head)
moved.matrices(both, partners=text.partners, painted=painted)
if chosen:
    st.header(t("what_if.layers"))
    moved.reached(before, after, text, query=at)
    moved.measured(before, after, text, layer=layer, head=head, query=query)
if answered is not None:
    changed_answers.of_heads(scene, answered.after)
