"""Errors, unknown words, and missing models or files on a page, with buttons for what works instead."""

from collections.abc import Iterable, Mapping, Sequence

import streamlit as st

from mha_core import AttentionTrace, LayerTrace, MhaError, words
from mha_core.analysis.published import published_heads
from mha_core.scene.scene import DEFAULTS, Scene
from mha_core.sources.huggingface.catalogue import hub_models
from mha_core.sources.huggingface.files import INSTALL_LIBRARY, INSTALL_PACKAGE, PACKAGE
from mha_core.traces.source import DECODER, Source, TrainedSource
from mha_core.training.fit import LIVE_WIDTHS
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import HAN, lexicon
from pages._kit import choice, components, compute, model_source, uploads
from pages._kit.compute import Nearest
from pages._kit.opened_link import CONTROLS, max_values
from pages._kit.state import go, setting
from pages._kit.text import PAGES, bold, in_bytes, isolated, joined, literal, paragraph, said, t

WHOLE = "whole_"  # before a field's name: the long text of which a part is the sentence now
MAX_LABEL = 40  # characters of a value, such as a text, on a button
OWN_SOURCES = ("mini", "random")  # which are always there
# Writes a file to open.
EXAMPLE = """import mha_core as mha

with mha.record(tokens=["the", "old", "cat"]) as rec:
    my_model(x)
rec.trace.save("mine.safetensors")
"""


def show(error: MhaError, *, page_offers: bool = False) -> None:
    """Show an error with a button for each of its fixes; what you typed stays.

    With `page_offers` the page itself offers other sources.
    """
    if setting("source") == "run" and not compute.trainings().steps(setting("run")):
        title = t("run.gone")
    else:
        title = t("real.refused") if page_offers else t("error.title")
    settings = set(CONTROLS) - ({"source"} if page_offers else set())
    known = [fix for fix in error.fixes if fix.keys() <= settings]
    most = max_values()
    beyond = [{name for name, value in fix.items() if name in most and value > most[name]} for fix in known]
    allowed = [fix for fix, names in zip(known, beyond, strict=True) if not names]
    limits = [t("error.most", name=name, most=f"{most[name]:,}") for name in sorted(set().union(*beyond))]
    st.error(literal(paragraph([said(error), *limits])), title=title, icon=":material/straighten:")
    with st.container(horizontal=True, vertical_alignment="center"):
        for index, fix in enumerate(allowed):
            values = joined(choice.setting(name, str(value)[:MAX_LABEL]) for name, value in fix.items())
            own = len(fix) == 1 and fix.get("source") in OWN_SOURCES
            label = t(f"real.use_{fix['source']}") if own else t("error.use", what=values)
            st.button(literal(label), key=f"fix_{index}", on_click=go, kwargs=fix)
        if setting("source") == "run":
            _train(t("run.train"))


def misfit(error: MhaError, prefix: str, fixes: Iterable[Mapping[str, int]]) -> None:
    """Say which sizes do not fit together, with buttons for others; `prefix` begins their controls' keys."""
    st.error(literal(said(error)), title=t("error.title"), icon=":material/straighten:")
    with st.container(horizontal=True):
        for number, fix in enumerate(fixes):
            [(name, value)] = fix.items()
            label, values = t("error.use", what=literal(f"{name} {value}")), {f"{prefix}{name}": value}
            st.button(label, key=f"fix_{number}", on_click=st.session_state.update, kwargs=values)


def no_trace(error: MhaError, scene: Scene) -> None:
    """Ask for what a trace needs and is not there: a file, a model or words; otherwise show the error.

    In place of a model that does not read the text, others are offered.
    """
    if scene.source == "file" and uploads.trace(scene) is None:
        st.info(t("file.empty"), icon=":material/upload_file:")
        components.code(EXAMPLE)
        return
    if scene.source == "model" and not model_source.ready(scene):
        no_model(scene)
        return
    try:
        words(scene.text, limit=len(scene.text))
    except MhaError:
        st.info(t("empty.text"), icon=":material/edit:")
        st.button(t("empty.example"), key="example_text", on_click=go, kwargs={"text": DEFAULTS.text})
    else:
        show(error, page_offers=scene.source == "model")
    if scene.source == "model":
        offer_models(scene)


def instead(found: Nearest, asked: Scene, field: str) -> None:
    """Say why the trace is not the one that was asked for, with buttons for the alternatives.

    `field` is where its sentence is typed, "text" or "twin".
    """
    trace = found.trace
    too_long = [reason for reason in found.reasons if "text" in reason.fixes[0]]
    if others := [reason for reason in found.reasons if reason not in too_long]:
        _sizes(trace, asked, others)
    if isinstance(trace.source, TrainedSource):
        _parts(trace.source.language, asked, field, too_long=bool(too_long))
    elif too_long:
        st.caption(t("instead.beginning", count=f"{len(trace.tokens):,}", reason=literal(too_long[0])))


def _sizes(trace: AttentionTrace, asked: Scene, reasons: Sequence[MhaError]) -> None:
    """Say that no model has these sizes or reads a hidden word, which one is shown, and how to get others."""
    names = ("architecture", "h", "d_model")
    shown = {name: getattr(trace.source, name) for name in names}
    wanted = {name: getattr(asked, name) for name in names}
    taken = joined(choice.setting(name, shown[name]) for name in names if shown[name] != wanted[name])
    said_as = wanted | {"architecture": choice.word("architecture", asked.architecture)}
    why = "indivisible" if asked.d_model % asked.h else "no_model"
    if reasons[-1].fixes[0].keys() == {"architecture"}:  # at the same sizes another one reads it
        why, said_as = "hidden", {"reason": literal(said(reasons[-1]))}
    with st.container(horizontal=True, vertical_alignment="center", key="instead"):
        line = t(f"instead.{why}", taken=taken, **said_as)
        st.markdown(f":material/straighten: {line}", width="content")
        label = t("instead.sizes", taken=taken)
        st.button(label, key="instead_sizes", type="tertiary", on_click=go, kwargs=shown)
        if why == "indivisible":  # nothing has these sizes
            return
        if asked.d_model in LIVE_WIDTHS and not asked.architecture.startswith(DECODER):
            plan = {f"train_{name}": str(value) for name, value in wanted.items()}
            _train(t("instead.train"), t("instead.train_help"), plan)
        st.button(
            t("instead.random"),
            key="instead_random",
            type="tertiary",
            on_click=go,
            kwargs={"source": "random"},
        )


def _parts(language: str, asked: Scene, field: str, *, too_long: bool) -> None:
    """Offer the parts of a text that is too long for a small model, to be read one after another.

    The whole text is kept as long as the sentence is one of its parts.
    """
    text, key = getattr(asked, field), f"{WHOLE}{field}"
    if too_long:
        st.session_state[key] = text
    whole = st.session_state.get(key)
    if whole is None:
        return
    parts = lexicon(language).sentences(whole, limit=MAX_WORDS)
    if text not in (whole, *parts):
        del st.session_state[key]
        return
    chosen = st.session_state.get(f"part_{field}") or 0
    if text != whole and (chosen >= len(parts) or parts[chosen] != text):
        chosen = parts.index(text)
    st.session_state[f"part_{field}"] = 0 if text == whole else chosen
    line = t("instead.long", limit=MAX_WORDS - 1, count=len(parts))
    st.markdown(f":material/short_text: {line if field == 'text' else t('instead.second', line=line)}")
    with st.container(horizontal=True, vertical_alignment="center", key=f"parts_{field}"):
        st.selectbox(
            t("instead.part"),
            range(len(parts)),
            format_func=lambda at: t("instead.part_is", number=at + 1, text=isolated(parts[at])),
            key=f"part_{field}",
            label_visibility="collapsed",
            on_change=lambda: go(**{field: parts[st.session_state[f"part_{field}"]]}),
            width=420,
        )
        if text != whole:
            st.button(
                t("instead.whole"),
                key=f"take_whole_{field}",
                type="tertiary",
                on_click=go,
                kwargs={field: whole},
            )


def _train(label: str, help_text: str | None = None, plan: Mapping[str, str] | None = None) -> None:
    st.page_link(
        PAGES / "learn" / "train.py",
        label=label,
        icon=":material/model_training:",
        help=help_text,
        query_params=plan,
    )


def no_model(scene: Scene) -> None:
    """Ask for a model, or for consent to download the chosen one."""
    if not model_source.offers_models():
        no_models()
        return
    if scene.model is not None:
        _ask_to_download(scene)
        return
    st.info(t("real.none"), icon=":material/deployed_code:")
    components.code(INSTALL_PACKAGE)
    st.markdown(t("real.typed"))
    _offer_own_sources()


def no_models() -> None:
    """Say what to install to read models, or that a public server has none."""
    if not model_source.hosted():
        st.info(t("real.no_library"), icon=":material/deployed_code:")
        components.code(INSTALL_LIBRARY)
        _offer_own_sources()
        return
    st.info(t("real.none_hosted"), icon=":material/deployed_code:")
    if setting("source") == "model":
        _offer_own_sources()
    else:
        st.page_link(PAGES / "see/heads.py", label=t("next.heads"), icon=":material/arrow_forward:")


def offer_models(scene: Scene) -> None:
    """Draw buttons below an error: the same model again, two models on this machine, our own sources."""
    with st.container(horizontal=True):
        if model_source.refusal(scene) is None and model_source.loaded_model(scene) is None:
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
    """Ask before a download: a model that a link names is downloaded only after a click."""
    entry = next((model for model in hub_models() if model.id == scene.model), None)
    name, revision = literal(scene.model), model_source.revision_of(scene)
    if revision:
        name = t("real.at_revision", name=name, revision=literal(revision))
    if st.session_state.get("model_stopped") == model_source.key_of(scene):
        st.info(t("real.stopped", name=name), icon=":material/stop_circle:")
    elif entry is None:
        st.info(t("real.elsewhere", name=name), icon=":material/cloud_download:")
    else:
        st.info(t("real.curated", name=name, size=in_bytes(entry.bytes)), icon=":material/cloud_download:")
        st.markdown(literal(model_source.notice(entry)))
        if entry.gated:
            st.caption(t("real.gated", name=name))
    st.button(
        t("real.fetch_sized", size=in_bytes(entry.bytes)) if entry else t("real.fetch"),
        key="fetch_model",
        type="primary",
        on_click=model_source.agree_to_load,
        args=(model_source.key_of(scene),),
    )
    _offer_own_sources()


def unknown_words(found: Nearest, asked: Scene, field: str, *, vectors: bool) -> None:
    """Say that a small model does not know words, and offer a model that reads them.

    With `vectors` the line names the words, which have none. What a line below the first sentence says is not
    repeated below the second one.
    """
    pieces = [found.trace.tokens.pieces[at] for at in found.trace.tokens.unknown]
    if vectors:
        st.caption(t("unknown.off_map", words=joined(dict.fromkeys(map(bold, pieces)))))
    elif field == "text" or not ((first := compute.peek(asked)) and first.tokens.unknown):
        with st.container(horizontal=True, vertical_alignment="center", gap="xxsmall"):
            simplified = "".join((*lexicon("zh").known, *lexicon("zh").unlisted))
            traditional = {*HAN.findall("".join(pieces))} - {*simplified}
            st.caption(paragraph([t("unknown.line"), t("unknown.traditional") if traditional else ""]))
            _offer_real_model(found.trace.source, "".join(pieces))


def _offer_real_model(source: Source, unknown: str) -> None:
    """Offer the packaged model for an English sentence with words that a small model does not know.

    It opens on its head that links pronouns with their nouns. Without it, the page Real model says how to
    install it.
    """
    if not isinstance(source, TrainedSource) or source.language != "en":
        return
    if not any(letter.isascii() and letter.isalpha() for letter in unknown):
        return  # of another script, or none at all
    if PACKAGE in model_source.local_models():
        [known] = [head for head in published_heads()[model_source.PACKAGED] if head.role == "reference"]
        place = {"layer": known.layer, "head": known.head}
        st.button(
            t("unknown.read"),
            key="read_with_package",
            type="tertiary",
            icon=":material/arrow_forward:",
            on_click=go,
            kwargs={"source": "model", "model": PACKAGE, "revision": ""} | place,
        )
    elif not model_source.hosted():
        label = t("unknown.more")
        st.page_link(PAGES / "models" / "real.py", label=label, icon=":material/arrow_forward:")


def only_weights(layer: LayerTrace) -> None:
    """Say why there are no Q, K, V and scores if only the weights are known."""
    by_model = bool(layer.about.missing)  # the code of the model returns weights alone
    st.info(t("real.unknown") if by_model else t("file.unknown"), icon=":material/help:")
