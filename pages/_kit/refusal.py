"""What does not fit, told on the page, with the nearest things that do as buttons."""

from dataclasses import fields

import streamlit as st

from mha_core import MhaError
from mha_core.sources.mini import UnknownWords
from mha_core.training.fit import HEADS, WIDTHS
from pages._kit import real
from pages._kit.controls import MOST
from pages._kit.paths import PAGES
from pages._kit.state import Scene, current, go
from pages._kit.text import literal, t


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
        if real.here() or not real.hosted():
            st.button(t("unknown.model"), key="unknown_model", on_click=go, kwargs={"source": "model"})


def _random() -> None:
    go(source="random", token=max(1, current().token - 1))
