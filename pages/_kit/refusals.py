"""What does not fit or is not there, told on the page, with what works instead as buttons."""

from dataclasses import fields

import streamlit as st

from mha_core import LayerTrace, MhaError
from mha_core.sources.huggingface.files import curated
from mha_core.sources.mini import UnknownWords
from mha_core.training.fit import HEADS, WIDTHS
from pages._kit import model_source
from pages._kit.controls import MOST
from pages._kit.state import Scene, current, go
from pages._kit.text import PAGES, literal, t

INSTALL = 'pip install "headscope[minilm]"'
EXAMPLE = """import mha_core as mha

with mha.record(tokens=["the", "old", "cat"]) as rec:
    my_model(x)
rec.trace.save("mine.safetensors")
"""


def show(error: MhaError, *, own: bool = False) -> None:
    """Say what was refused and why, and offer what works; nothing that was typed is lost.

    `own`: the page offers other sources itself.
    """
    if isinstance(error, UnknownWords):
        _unknown(error)
        return
    st.error(
        literal(error), title=t("real.refused") if own else t("error.title"), icon=":material/straighten:"
    )
    ours = {field.name for field in fields(Scene)}
    known = [fix for fix in error.fixes if fix.keys() <= ours - ({"source"} if own else set())]
    offered = [fix for fix in known if all(v <= MOST[name] for name, v in fix.items() if name in MOST)]
    with st.container(horizontal=True):
        for index, fix in enumerate(offered):
            said = ", ".join(f"{name} {value}" for name, value in fix.items())
            label = t("error.text") if "text" in fix else t("error.use", what=said)
            st.button(literal(label), key=f"fix_{index}", on_click=go, kwargs=fix)


def offer_training(scene: Scene) -> None:
    """A link to the page Train, for sizes that no shipped model has and that can be trained."""
    if scene.source != "mini" or scene.d_model not in WIDTHS or scene.h not in HEADS:
        return
    asked = {
        "train_h": str(scene.h),
        "train_d_model": str(scene.d_model),
        "train_architecture": scene.architecture,
    }
    st.page_link(
        PAGES / "learn" / "train.py",
        label=t("error.train", h=scene.h, d_model=scene.d_model),
        icon=":material/model_training:",
        query_params=asked,
    )


def short(error: MhaError) -> str:
    """The refusal of a second sentence, in one paragraph."""
    return t("error.twin", reason=literal(error))


def _unknown(error: UnknownWords) -> None:
    names = ", ".join(f"**{literal(entry.word)}**" for entry in error.unknown)
    st.error(
        t("unknown.text", words=names, count=f"{error.n_words:,}"),
        title=t("unknown.title"),
        icon=":material/spellcheck:",
    )
    for number, entry in enumerate(error.unknown):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(t("unknown.instead", word=literal(entry.word)), width="content")
            for index, word in enumerate(entry.suggestions):
                st.button(
                    literal(word),
                    key=f"known_{number}_{index}",
                    on_click=go,
                    kwargs={"text": error.instead(entry, word)},
                )
    with st.container(horizontal=True):
        st.button(t("unknown.random"), key="unknown_random", type="primary", on_click=_random)
        if model_source.here() or not model_source.hosted():
            st.button(t("unknown.model"), key="unknown_model", on_click=go, kwargs={"source": "model"})


def _random() -> None:
    go(source="random", token=max(1, current().token - 1))


def no_model(scene: Scene) -> None:
    """What to do where no model is chosen, or nobody has agreed yet that the chosen one is fetched."""
    if scene.model is not None:
        _consent(scene)
        return
    st.info(
        t("real.none_hosted") if model_source.hosted() else t("real.none"), icon=":material/deployed_code:"
    )
    if not model_source.hosted():
        st.code(INSTALL, language="bash")
        st.markdown(t("real.typed"))
    _others()


def offer_models(scene: Scene) -> None:
    """What works instead, under a refusal: the model again, one that is here, and our own."""
    with st.container(horizontal=True):
        if (
            scene.model is not None
            and model_source.refuses(scene) is None
            and model_source.at_hand(scene) is None
        ):
            st.button(
                t("real.again"),
                key="again",
                icon=":material/refresh:",
                on_click=model_source.again,
                args=(model_source.key_of(scene),),
            )
        for nth, name in enumerate([name for name in model_source.here() if name != scene.model][:2]):
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
    if st.session_state.get("model_stopped") == model_source.key_of(scene):
        st.info(t("real.stopped", name=name), icon=":material/stop_circle:")
    elif entry is None:
        st.info(t("real.elsewhere", name=name), icon=":material/cloud_download:")
    else:
        st.info(
            t("real.curated", name=name, size=model_source.size(entry.bytes)),
            icon=":material/cloud_download:",
        )
        st.markdown(literal(entry.notice))
        if entry.gated:
            st.caption(t("real.gated", name=name))
    st.button(
        t("real.fetch_sized", size=model_source.size(entry.bytes)) if entry else t("real.fetch"),
        key="fetch_model",
        type="primary",
        on_click=model_source.again,
        args=(model_source.key_of(scene),),
    )
    _others()


def no_file() -> None:
    """What to do where no file is open yet."""
    st.info(t("file.empty"), icon=":material/upload_file:")
    st.code(EXAMPLE, language="python")


def only_weights(layer: LayerTrace) -> None:
    """Said in the place of Q, K, V and the scores, where a trace has none of them."""
    own = bool(layer.about.missing)  # the model hands out its weights alone
    st.info(t("real.unknown") if own else t("file.unknown"), icon=":material/help:")
