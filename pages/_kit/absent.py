"""Where a model of others is not there: what can be done instead, and whether it shall be fetched."""

import streamlit as st

from mha_core.sources.huggingface.files import curated
from pages._kit import real
from pages._kit.state import Scene, go
from pages._kit.text import literal, t

INSTALL = 'pip install "headscope[minilm]"'


def stands(scene: Scene) -> bool:
    """Is a model chosen, and agreed to where it has to be fetched? If not, say what to do."""
    if scene.model is None:
        nothing()
        return False
    if real.at_hand(scene) is None and not real.wanted(scene) and not real.refuses(scene):
        _consent(scene)
        return False
    return True


def nothing() -> None:
    """What to install and what can be typed, where no model is on this machine."""
    st.info(t("real.none_hosted") if real.hosted() else t("real.none"), icon=":material/deployed_code:")
    if not real.hosted():
        st.code(INSTALL, language="bash")
        st.markdown(t("real.typed"))
    _others()


def offers(scene: Scene) -> None:
    """What works instead, under a refusal: the model again, one that is here, and our own."""
    with st.container(horizontal=True):
        if scene.model is not None and real.refuses(scene) is None and real.at_hand(scene) is None:
            st.button(
                t("real.again"),
                key="again",
                icon=":material/refresh:",
                on_click=real.again,
                args=(real.key_of(scene),),
            )
        for nth, name in enumerate([name for name in real.here() if name != scene.model][:2]):
            st.button(
                t("real.take", name=literal(name)),
                key=f"take_model_{nth}",
                on_click=go,
                kwargs={"model": name},
            )
    _others()


def _others() -> None:
    with st.container(horizontal=True):
        for source, label in (("mini", t("real.use_mini")), ("random", t("real.use_random"))):
            st.button(label, key=f"use_{source}", on_click=go, kwargs={"source": source})


def _consent(scene: Scene) -> None:
    """A model that is not here is fetched when a person says so, not because a link names it."""
    entry = next((model for model in curated() if model.id == scene.model), None)
    name = literal(scene.model)
    if st.session_state.get("model_stopped") == real.key_of(scene):
        st.info(t("real.stopped", name=name), icon=":material/stop_circle:")
    elif entry is None:
        st.info(t("real.elsewhere", name=name), icon=":material/cloud_download:")
    else:
        st.info(t("real.curated", name=name, size=real.size(entry.bytes)), icon=":material/cloud_download:")
        st.markdown(literal(entry.notice))
        if entry.gated:
            st.caption(t("real.gated", name=name))
    st.button(
        t("real.fetch_sized", size=real.size(entry.bytes)) if entry else t("real.fetch"),
        key="fetch_model",
        type="primary",
        on_click=real.again,
        args=(real.key_of(scene),),
    )
    _others()
