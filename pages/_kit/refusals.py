"""Errors and missing models or files on a page, each with buttons for what works instead."""

from dataclasses import fields

import streamlit as st

from mha_core import LayerTrace, MhaError
from mha_core.sources.huggingface.files import curated
from mha_core.sources.mini import UnknownWords
from mha_core.training.fit import HEADS, WIDTHS
from pages._kit import model_source
from pages._kit.controls import MAX_VALUES
from pages._kit.state import Scene, current, go
from pages._kit.text import PAGES, literal, t

INSTALL = 'pip install "headscope[minilm]"'
EXAMPLE = """import mha_core as mha

with mha.record(tokens=["the", "old", "cat"]) as rec:
    my_model(x)
rec.trace.save("mine.safetensors")
"""


def show(error: MhaError, *, page_offers: bool = False) -> None:
    """The message of an error, with a button for each of its fixes; the user's text stays.

    `page_offers` says that the page itself offers other sources.
    """
    if isinstance(error, UnknownWords):
        _unknown(error)
        return
    st.error(
        literal(error),
        title=t("real.refused") if page_offers else t("error.title"),
        icon=":material/straighten:",
    )
    settings = {field.name for field in fields(Scene)} - ({"source"} if page_offers else set())
    known = [fix for fix in error.fixes if fix.keys() <= settings]
    allowed = [
        fix
        for fix in known
        if all(value <= MAX_VALUES[name] for name, value in fix.items() if name in MAX_VALUES)
    ]
    with st.container(horizontal=True):
        for index, fix in enumerate(allowed):
            values = ", ".join(f"{name} {value}" for name, value in fix.items())
            label = t("error.text") if "text" in fix else t("error.use", what=values)
            st.button(literal(label), key=f"fix_{index}", on_click=go, kwargs=fix)


def offer_training(scene: Scene) -> None:
    """A link to the page Train, for sizes without a shipped model that can be trained."""
    if scene.source != "mini" or scene.d_model not in WIDTHS or scene.h not in HEADS:
        return
    parameters = {
        "train_h": str(scene.h),
        "train_d_model": str(scene.d_model),
        "train_architecture": scene.architecture,
    }
    st.page_link(
        PAGES / "learn" / "train.py",
        label=t("error.train", h=scene.h, d_model=scene.d_model),
        icon=":material/model_training:",
        query_params=parameters,
    )


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
        st.button(t("unknown.random"), key="unknown_random", type="primary", on_click=_use_random)
        if model_source.local_models() or not model_source.hosted():
            st.button(t("unknown.model"), key="unknown_model", on_click=go, kwargs={"source": "model"})


def _use_random() -> None:
    go(source="random", token=max(1, current().token - 1))


def no_model(scene: Scene) -> None:
    """What to do where no model is chosen, or the user has not agreed to download the chosen one."""
    if scene.model is not None:
        _ask_to_download(scene)
        return
    st.info(
        t("real.none_hosted") if model_source.hosted() else t("real.none"), icon=":material/deployed_code:"
    )
    if not model_source.hosted():
        st.code(INSTALL, language="bash")
        st.markdown(t("real.typed"))
    _offer_own_sources()


def offer_models(scene: Scene) -> None:
    """Buttons under an error: the same model again, two models on this machine, and our own sources."""
    with st.container(horizontal=True):
        if (
            scene.model is not None
            and model_source.refusal(scene) is None
            and model_source.loaded_model(scene) is None
        ):
            st.button(
                t("real.again"),
                key="again",
                icon=":material/refresh:",
                on_click=model_source.agree_to_load,
                args=(model_source.key_of(scene),),
            )
        for nth, name in enumerate([name for name in model_source.local_models() if name != scene.model][:2]):
            st.button(
                t("real.take", name=literal(name)),
                key=f"take_model_{nth}",
                on_click=go,
                kwargs={"model": name},
            )
    _offer_own_sources()


def _offer_own_sources() -> None:
    with st.container(horizontal=True):
        for source, label in (("mini", t("real.use_mini")), ("random", t("real.use_random"))):
            st.button(label, key=f"use_{source}", on_click=go, kwargs={"source": source})


def _ask_to_download(scene: Scene) -> None:
    """Ask before a download: a model that a URL names is downloaded only after a click."""
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
        on_click=model_source.agree_to_load,
        args=(model_source.key_of(scene),),
    )
    _offer_own_sources()


def no_file() -> None:
    """What to do where no file is open yet."""
    st.info(t("file.empty"), icon=":material/upload_file:")
    st.code(EXAMPLE, language="python")


def only_weights(layer: LayerTrace) -> None:
    """A note in place of Q, K, V and the scores, where the trace has weights alone."""
    by_model = bool(layer.about.missing)  # the code of the model returns weights alone
    st.info(t("real.unknown") if by_model else t("file.unknown"), icon=":material/help:")
