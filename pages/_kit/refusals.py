"""Errors and missing models or files on a page, each with buttons for what works instead."""

from collections.abc import Mapping

import streamlit as st

from mha_core import AttentionTrace, LayerTrace, MhaError, words
from mha_core.sources.huggingface.catalogue import hub_models
from mha_core.sources.mini import UnknownWords
from mha_core.training.fit import LIVE_WIDTHS
from mha_core.training.language import MAX_WORDS
from pages._kit import compute, model_source, sentence
from pages._kit.controls import max_values
from pages._kit.state import CONTROLS, DEFAULTS, Scene, go, setting
from pages._kit.text import PAGES, isolated, literal, t

MAX_NAMED = 4  # unknown words in one line
MAX_NEAR = 4  # known words that are offered in place of them, or one for each
MAX_LABEL = 40  # characters of a value, such as a text, on a button
OWN_SOURCES = ("mini", "random")  # which are always there
INSTALL = 'pip install "headscope[minilm]"'
INSTALL_LIBRARY = 'pip install "headscope[models]"'
EXAMPLE = """import mha_core as mha

with mha.record(tokens=["the", "old", "cat"]) as rec:
    my_model(x)
rec.trace.save("mine.safetensors")
"""


def show(error: MhaError, *, page_offers: bool = False) -> None:
    """The message of an error, with a button for each of its fixes; the user's text stays.

    `page_offers` says that the page itself offers other sources.
    """
    if setting("source") == "run" and not compute.trainings().steps(setting("run")):
        title = t("run.gone")
    else:
        title = t("real.refused") if page_offers else t("error.title")
    st.error(literal(error), title=title, icon=":material/straighten:")
    settings = set(CONTROLS) - ({"source"} if page_offers else set())
    known = [fix for fix in error.fixes if fix.keys() <= settings]
    most = max_values()
    allowed = [
        fix for fix in known if all(value <= most[name] for name, value in fix.items() if name in most)
    ]
    with st.container(horizontal=True, vertical_alignment="center"):
        for index, fix in enumerate(allowed):
            values = ", ".join(f"{name} {str(value)[:MAX_LABEL]}" for name, value in fix.items())
            own = len(fix) == 1 and fix.get("source") in OWN_SOURCES
            label = t(f"real.use_{fix['source']}") if own else t("error.use", what=values)
            st.button(literal(label), key=f"fix_{index}", on_click=go, kwargs=fix)
        if setting("source") == "run":
            _train()


def is_empty(scene: Scene) -> bool:
    """Whether the sentence has no word to look at."""
    try:
        words(scene.text, limit=len(scene.text))
    except MhaError:
        return True
    return False


def no_text() -> None:
    """What to do where no sentence is typed."""
    st.info(t("empty.text"), icon=":material/edit:")
    st.button(t("empty.example"), key="example_text", on_click=go, kwargs={"text": DEFAULTS.text})


def instead(
    reason: MhaError, trace: AttentionTrace, scene: Scene, *, field: str, vectors: bool = False
) -> None:
    """One line on a sentence that its source cannot read and on what is shown instead, with three ways on.

    The ways are words that the model knows, another source, and a training. `field` is where the sentence is
    typed, "text" or "twin"; `vectors` are of words alone, which need no sentence.
    """
    if not compute.is_stand_in(trace):
        st.caption(t("instead.beginning", count=f"{len(trace.tokens):,}", reason=literal(reason)))
        return
    lines = [_line(reason, scene, vectors=vectors)]
    of_sizes = not isinstance(reason, UnknownWords) and not any("text" in fix for fix in reason.fixes)
    if not any(lines) or (of_sizes and field == "twin"):  # the sizes of both sentences are the same
        return
    if len(scene.text if field == "text" else scene.twin) > len(trace.tokens.text):
        lines.append(t("instead.stand_in_beginning", count=f"{len(trace.tokens):,}"))
    if field == "twin":
        lines.insert(0, t("instead.second"))
    st.markdown(f":material/casino: {' '.join(lines)}")
    with st.container(horizontal=True, vertical_alignment="center", key=f"instead_{field}"):
        if isinstance(reason, UnknownWords):
            _known_words(reason, trace, field)
        else:
            _nearest(reason, field)
        if field == "text" or compute.trace_or_stand_in(scene)[1] is None:  # once on a page
            _other_sources()
            _training(trace, scene)


def _line(reason: MhaError, scene: Scene, *, vectors: bool) -> str:
    """What the small model cannot read, and that the numbers are random; empty where nothing is random."""
    if isinstance(reason, UnknownWords):
        names = [_marked(word) for word in dict.fromkeys(entry.word for entry in reason.unknown)]
        others = [t("instead.others", count=len(names) - MAX_NAMED)] if len(names) > MAX_NAMED else []
        listing = ", ".join(names[:MAX_NAMED] + others)
        return t("instead.off_map", words=listing) if vectors else t("instead.unknown", words=listing)
    if any("text" in fix for fix in reason.fixes):
        return "" if vectors else t("instead.long", limit=MAX_WORDS - 1)  # [CLS] is one of them
    sizes = {"h": scene.h, "d_model": scene.d_model, "architecture": scene.architecture}
    return t("instead.no_vectors", **sizes) if vectors else t("instead.no_model", **sizes)


def _marked(word: str) -> str:
    return f"**{literal(isolated(word))}**"


def _known_words(reason: UnknownWords, trace: AttentionTrace, field: str) -> None:
    """Words in place of the unknown ones: those near them, all that the model knows, or the hidden word."""
    entries = reason.unknown[:MAX_NAMED]
    for number, entry in enumerate(entries):
        for place, word in enumerate(entry.near[: max(1, MAX_NEAR // len(entries))]):
            unknown = isolated(entry.word)
            in_place = t("instead.take_for", unknown=unknown, word=word)  # of which one
            st.button(
                literal(t("instead.take", word=word) if len(entries) == 1 else in_place),
                key=f"near_{field}_{number}_{place}",
                type="tertiary",
                on_click=go,
                kwargs={field: reason.instead(entry, word)},
            )
    if len(reason.unknown) <= MAX_NAMED:
        starts = {entry.start for entry in reason.unknown}
        tokens = [at for at, (start, _) in enumerate(trace.tokens.spans) if at and start in starts]
        names = ", ".join(f"“{isolated(entry.word)}”" for entry in reason.unknown)
        st.button(
            literal(t("instead.hide", words=names)),
            key=f"hide_{field}",
            type="tertiary",
            on_click=sentence.hide_unknown,
            args=(trace.tokens, tokens, field),
        )
    vocabulary = st.popover(t("instead.words"), type="tertiary", key=f"words_{field}", on_change="rerun")
    if not vocabulary.open:
        return
    with vocabulary:
        for number, entry in enumerate(entries):
            key = f"known_{field}_{number}"
            st.selectbox(
                t("instead.in_place", word=literal(isolated(entry.word))),
                reason.known_words,
                index=None,
                key=key,
                placeholder=t("instead.search"),
                on_change=_take,
                args=(reason, number, field, key),
            )


def _take(reason: UnknownWords, number: int, field: str, key: str) -> None:
    """Put the chosen word in place of an unknown one."""
    if word := st.session_state[key]:
        go(**{field: reason.instead(reason.unknown[number], word), key: None})


def _nearest(reason: MhaError, field: str) -> None:
    """The beginning of a text that is too long, or the nearest sizes of which there is a model."""
    for number, fix in enumerate(reason.fixes):
        if "text" in fix:
            label, values = t("instead.keep", count=MAX_WORDS - 1), {field: fix["text"]}
        else:
            label, values = ", ".join(f"{name} {value}" for name, value in fix.items()), fix
        st.button(
            literal(label), key=f"nearest_{field}_{number}", type="tertiary", on_click=go, kwargs=values
        )


def _other_sources() -> None:
    st.button(
        t("instead.random"), key="instead_random", type="tertiary", on_click=go, kwargs={"source": "random"}
    )
    if model_source.library() and (model_source.local_models() or not model_source.hosted()):
        st.button(
            t("instead.model"), key="instead_model", type="tertiary", on_click=go, kwargs={"source": "model"}
        )


def _training(trace: AttentionTrace, scene: Scene) -> None:
    """A link to the page Train, with the sizes of the stand-in, where such a model can be trained there."""
    layer = trace.layers[0]
    if layer.d_model not in LIVE_WIDTHS:
        return
    sizes = {"train_h": str(layer.n_heads), "train_d_model": str(layer.d_model)}
    _train(t("instead.train_help", limit=MAX_WORDS - 1), sizes | {"train_architecture": scene.architecture})


def _train(help_text: str | None = None, plan: Mapping[str, str] | None = None) -> None:
    st.page_link(
        PAGES / "learn" / "train.py",
        label=t("instead.train"),
        icon=":material/model_training:",
        help=help_text,
        query_params=plan,
    )


def no_model(scene: Scene) -> None:
    """What to do where no model is chosen, or the user has not agreed to download the chosen one."""
    if not model_source.library():
        no_library()
        return
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


def no_library() -> None:
    """What to install where models cannot be read at all."""
    st.info(t("real.no_library"), icon=":material/deployed_code:")
    st.code(INSTALL_LIBRARY, language="bash")
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
        for source in OWN_SOURCES:
            st.button(t(f"real.use_{source}"), key=f"use_{source}", on_click=go, kwargs={"source": source})


def _ask_to_download(scene: Scene) -> None:
    """Ask before a download: a model that a URL names is downloaded only after a click."""
    entry = next((model for model in hub_models() if model.id == scene.model), None)
    name, revision = literal(scene.model), model_source.revision_of(scene)
    if revision:
        name = t("real.at_revision", name=name, revision=literal(revision))
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
