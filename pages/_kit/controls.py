"""The controls that pages share. The frame draws those that the page uses and binds them to the URL."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core import AttentionTrace, MhaError, device
from mha_core.scene import changes
from mha_core.scene.link import CHOICES, NUMBERS, SETTINGS, WITH_CLS
from mha_core.scene.scene import DEFAULTS, EXAMPLES, twin_of
from mha_core.sources.huggingface.files import PACKAGE
from pages._kit import choice, compute, model_source, uploads
from pages._kit.opened_link import CONTROLS, max_characters, max_values, offered_sources
from pages._kit.state import current, go, name_tokens, setting, stay_within
from pages._kit.text import (
    CHOSEN,
    DEFAULT,
    LANG,
    catalogue,
    language,
    languages,
    literal,
    said,
    t,
    usual_language,
)
from pages._server import streamlit_parts

SENTENCE = 72  # pixels of its field: two lines
# The share of common characters from which an edited sentence still goes with the example's second one.
ALIKE = 0.7


def with_sentence(*more: str, sources: Sequence[str] = compute.SOURCES) -> dict[str, frozenset[str]]:
    """The controls of a page that shows a sentence: it and the settings of each source, and more."""
    return {source: frozenset({"text", *SETTINGS[source], *more}) for source in sources}


def controls(of_source: Mapping[str, frozenset[str]], place: DeltaGenerator) -> AttentionTrace | None:
    """Draw the sentence, the source and the sizes: for the chosen source, those that change something.

    The source itself can always be chosen, except where a page is about none. What a page does not draw keeps
    its value and its place in the link. Returns the trace that the page draws; None where it draws none.
    """
    held = st.session_state
    for key in CONTROLS:  # Streamlit forgets the value of a control that a page does not draw
        if key in held:
            held[key] = held[key]
    held.drawn = set()
    used, sizes = _visible(of_source, place)
    _take_changes_away()
    _hidden()
    # From here on every setting of the link is known, visible or not.
    trace = compute.peek(current()) if used else None
    if trace is None:
        return None
    layer = trace.layers[0]  # of the nearest sizes, where there is none of these
    if "h" in used and (layer.n_heads, layer.d_model) == (setting("h"), setting("d_model")):
        sizes.caption(t("control.sizes", d_k=layer.d_k, d_v=layer.d_v))
    st.session_state["edited"] = setting("text"), setting("edits")
    stay_within(trace)
    name_tokens(trace)
    return trace


def _visible(
    of_source: Mapping[str, frozenset[str]], place: DeltaGenerator
) -> tuple[frozenset[str], DeltaGenerator]:
    """Draw the visible controls; return those used for the source, and the place of its sizes."""
    if not of_source:
        return frozenset(), place
    with place, st.container(horizontal=True, key="scene_row"):
        sentences = st.container(horizontal=True, key="sentences")
        sizes = st.container(key="sizes", width="content", gap="xxsmall")
        with st.container(key="choices", width="content", gap="xxsmall"):
            help_text = f"{t('control.source_help')}\n\n{said(device.fastest())}"
            _choice("source", words=lambda source: t(f"source.{source}"), help=help_text)
            menus = st.container(horizontal=True, gap="small")
    source = setting("source")
    used = of_source.get(source)
    if used is None:
        return frozenset(), sizes
    stage = st.empty() if source == "model" else None  # on the page: loading takes a while
    if source != "file":
        with sentences:
            _sentence(used)
    with menus:
        if source != "file":
            _examples_menu()
        if source == "random" or "architecture" in used:
            _advanced_menu(used)
    if source in ("mini", "random"):
        with sizes, st.container(horizontal=True):
            for key in ("h", "d_model"):
                if key in used:
                    _number(key)
    if source in ("run", "model", "file"):
        with place, st.container(horizontal=True, key="settings"):
            if source == "run":
                _run()
            elif stage is not None:
                _model(stage, used)
            else:
                _file()
                with sentences:  # of the kind of attention that was chosen
                    _file_sentence()
    return used, sizes


def _take_changes_away() -> None:
    """Take away changes whose words are not in the sentence that has just been typed."""
    held, text, edits = st.session_state, setting("text"), setting("edits")
    before, edits_before = held.get("edited", (text, edits))
    if streamlit_parts.after_history():
        for name in ("edits_gone", "taken_away"):
            held.pop(name, None)
    elif text != before and edits and edits == edits_before:
        was, now = (compute.peek(replace(current(), text=one)) for one in (before, text))
        if was is not None and now is not None:
            kept = changes.write(changes.fitting(changes.read(edits)[0], was.sides, now.sides))
            if kept != edits:
                held["edits_gone"], held["taken_away"] = (edits, kept), (before, edits, text)
    gone, kept = held.get("edits_gone", (None, None))
    if gone == edits:
        held["edits"] = kept
    else:
        held.pop("edits_gone", None)  # the address has the new ones


def begin_language() -> None:
    """Draw the invisible control that holds the language of the link."""
    choice.hold(LANG, languages(), usual_language())


def language_switch() -> None:
    """Draw the switch between the languages, in the header of every page."""
    choice.show(
        st.segmented_control,
        t("language.switch"),
        LANG,
        languages(),
        words=lambda name: catalogue(name)["language.name"],
        on_change=_switch,
        required=True,
        label_visibility="collapsed",
    )


def begin_with_package() -> None:
    """Begin with the packaged model if it is installed and the visit has no source yet."""
    has_source = "source" in st.session_state or "source" in st.query_params
    if not has_source and PACKAGE in model_source.local_models():
        streamlit_parts.begin_with("source", "model")


def _hidden() -> None:
    """Draw invisible controls for the values that belong in the link but have no control on this page.

    Streamlit binds only controls to a link, and removes values without a control from it.
    """
    link, held, drawn = st.query_params.to_dict(), st.session_state, st.session_state.drawn
    with st.container(key="unseen"):
        for key in CONTROLS:
            if key in drawn or key == "file":  # a file is open for one visit
                continue
            if key not in link and held.get(key) is None:
                continue
            default = _default(key)
            if key not in link and held[key] == default:
                continue
            options = _options(key)
            if options:
                st.selectbox(key, options, options.index(default), **_linked(key))
            elif isinstance(default, bool):
                st.toggle(key, default, **_linked(key))
            elif key in max_values():
                st.number_input(key, NUMBERS[key].least, max_values()[key], default, **_linked(key))
            else:
                st.text_area(key, default, max_chars=max_characters(), **_linked(key))


def _linked(key: str) -> dict[str, Any]:
    """The options that bind a control to the link: its key is also its name there."""
    st.session_state.drawn.add(key)
    return {"key": key, "bind": "query-params"}


def _default(key: str) -> Any:
    return model_source.usual_dtype() if key == "dtype" else getattr(DEFAULTS, key)


def _options(key: str) -> list[str]:
    """The names that a field can have, as links write them in every language; empty for other fields."""
    return offered_sources() if key == "source" else list(CHOICES.get(key, ()))


def _sentence(used: Set[str]) -> None:
    source = setting("source")
    entry = model_source.loaded_model(current()) if source == "model" else None
    own_limit = compute.max_tokens(source) - (source in WITH_CLS)
    help_text = t("control.text_help", limit=model_source.longest(entry) if entry else own_limit)
    st.text_area(
        t("control.text"),
        DEFAULTS.text,
        height=SENTENCE,
        max_chars=max_characters(),
        help=help_text,
        **_linked("text"),
    )
    text = setting("text")
    twin = twin_of(text)
    is_opened = "twin" not in st.session_state or streamlit_parts.after_history()
    if is_opened and not twin and "twin" not in st.query_params:
        streamlit_parts.begin_with("twin", "")  # the default second sentence belongs to the default first one
    held = st.session_state.get("twin")
    if st.session_state.get("text_before", text) != text and _goes_with_another(held):
        st.session_state.twin_dropped = held
    if st.session_state.get("twin_dropped") not in (None, held):
        del st.session_state.twin_dropped  # the browser has heard of it
    elif "twin_dropped" in st.session_state:
        st.session_state.twin = twin
        st.session_state.twin_emptied = not twin
    st.session_state.text_before = text
    # The control of the comparison is drawn later, so as a link opens only the link knows it.
    against = st.session_state.get("against", st.query_params.get("against"))
    if "twin" in used or ("against" in used and against == "twin"):
        emptied = st.session_state.get("twin_emptied", False)
        st.text_area(
            t("control.twin"),
            DEFAULTS.twin,
            height=SENTENCE,
            max_chars=max_characters(),
            placeholder=t("control.twin_emptied") if emptied else t("control.twin_empty"),
            **_linked("twin"),
        )


def _goes_with_another(twin: str | None) -> bool:
    """Whether a second sentence belongs to an example whose first one is not the current text nor like it."""
    text = setting("text")
    if not twin or SequenceMatcher(None, text, twin).ratio() >= ALIKE:
        return False
    every = (example for examples in EXAMPLES.values() for example in examples)
    return any(example.get("twin") == twin and example["text"] != text for example in every)


def _examples_menu() -> None:
    with st.popover(t("control.example"), type="tertiary", key="examples"):
        for number, example in enumerate(_examples_in(language())):
            st.button(
                example["text"], type="tertiary", key=f"example_{number}", on_click=_take, args=(example,)
            )


def _advanced_menu(used: Set[str]) -> None:
    """Draw the rarely needed settings. While the menu is closed, invisible controls keep them in the link."""
    menu = st.popover(t("control.advanced"), type="tertiary", key="advanced", on_change="rerun")
    draws = {
        "architecture": lambda: _choice("architecture"),
        "layers": lambda: _number("layers", help=t("control.layers_help")),
        "seed": lambda: _number("seed", minimum=0, help=t("control.seed_help")),
        "mask": lambda: _choice("mask"),
        "position": lambda: _choice("position"),
        "d_k": lambda: _number("d_k", placeholder=t("control.auto_d_k")),
        "d_v": lambda: _number("d_v", placeholder=t("control.auto_d_v")),
        "n_kv_heads": lambda: _number(
            "n_kv_heads", placeholder=t("control.auto_n_kv_heads"), help=t("control.n_kv_heads_help")
        ),
        "bias": lambda: st.toggle(t("control.bias"), DEFAULTS.bias, **_linked("bias")),
    }
    if menu.open:
        with menu:
            for key, draw in draws.items():
                if key in used:
                    draw()


def _examples_in(name: str) -> list[dict[str, str]]:
    """The examples in a language, or the English ones if it has none."""
    return EXAMPLES.get(name, EXAMPLES[DEFAULT])


def begin_with_sentences() -> None:
    """Begin with this language's sentences, but for those that the link names."""
    start = _examples_in(language())[0]
    if "text" not in st.session_state and "text" not in st.query_params and start["text"] != DEFAULTS.text:
        for name in {"text", "twin"} - {*st.query_params}:
            streamlit_parts.begin_with(name, start[name])


def at_start() -> bool:
    """Whether the link says nothing but the sentences with which a visit in this language begins."""
    return st.query_params.to_dict().items() <= _examples_in(language())[0].items()


def _switch(chosen: str) -> None:
    """Switch to the other language; the starting sentences change with it, your own stay."""
    if _examples_in(language())[0]["text"] == st.session_state.get("text"):
        _take(_examples_in(chosen)[0])
    st.session_state[CHOSEN] = True


def _take(example: Mapping[str, str]) -> None:
    go(text=example["text"], twin=example.get("twin", ""), token=example["token"])


def _run() -> None:
    """Draw the choice of a model that was trained here, and of the step of its training."""
    names = compute.run_names()
    if names and st.session_state.get("run") not in names:
        st.session_state.run = names[0]  # written as a value: a default would not appear in the link
    st.selectbox(
        t("control.run"),
        names,
        index=None,
        placeholder=t("control.run_empty"),
        help=t("control.run_help"),
        **_linked("run"),
    )
    steps = compute.trainings().steps(setting("run"))
    if len(steps) < 2:
        return
    asked = setting("step") or st.query_params.get("step")
    if asked is not None and str(asked) not in map(str, steps):
        return  # the page says which steps there are
    st.select_slider(t("control.step"), steps, steps[-1], help=t("control.step_help"), **_linked("step"))


def _model(stage: DeltaGenerator, used: frozenset[str]) -> None:
    """Draw the choice of a model, its second text and its kind of attention; `stage` shows the loading."""
    if not model_source.offers_models():
        return  # the page says why
    names, hosted = list(model_source.local_models()), model_source.hosted()
    asked = st.query_params.get("model")
    if asked and not model_source.is_offered(asked) and st.session_state.get("model") not in names:
        st.session_state.pop("model", None)
    st.selectbox(
        t("control.model"),
        [*names, *model_source.downloadable()],
        index=0 if names else None,
        placeholder=t("control.model_none") if hosted else t("control.model_empty"),
        help=t("control.model_hosted") if hosted else t("control.model_help"),
        accept_new_options=not hosted,
        **_linked("model"),
    )
    scene = current()
    if scene.model is None:
        return
    if not hosted:
        with st.expander(t("control.advanced")):
            if scene.model != PACKAGE and not model_source.is_folder(scene.model):
                st.text_input(
                    t("control.revision"),
                    placeholder=t("control.revision_empty"),
                    help=t("control.revision_help"),
                    **_linked("revision"),
                )
            _choice("dtype", words=str)
    if "ask_model" in used:
        st.toggle(t("answer.ask"), help=t("answer.ask_help"), **_linked("ask_model"))
    elif "ask_model" not in st.session_state:  # its invisible control comes after the model has been loaded
        st.session_state.ask_model = st.query_params.get("ask_model", "").lower() == "true"
    model_source.load(current(), stage)
    if (entry := model_source.loaded_model(current())) is None:
        return
    if entry.model.has_target:
        st.text_area(
            t("control.target"),
            height=68,
            max_chars=max_characters(),
            placeholder=t("control.target_empty"),
            help=t("control.target_help"),
            **_linked("target"),
        )
    try:
        with stage.container(), st.spinner(t("real.reading", name=literal(scene.model))):
            kinds = list(model_source.read(current(), scene.text).traces)
    except MhaError:
        kinds = []  # the page says what does not fit
    stage.empty()
    _kind(kinds)


def _file() -> None:
    """Draw the choice of a saved trace and its kind of attention; an invalid file leaves it open."""
    st.file_uploader(
        t("control.file", megabytes=uploads.megabytes()),
        type="safetensors",
        key="trace_file",
        help=t("control.file_help"),
        max_upload_size=uploads.megabytes(),
        on_change=uploads.take,
    )
    if refusal := st.session_state.get("file_refused"):
        st.error(literal(said(refusal)))
    opened = uploads.opened()
    if opened is None:
        return
    # Where the open file is not the one that the uploader names.
    if refusal or st.session_state.get("trace_file") is None:
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.caption(t("file.open", name=literal(opened.name)), width="content")
            st.button(t("file.close"), type="tertiary", key="close_file", on_click=uploads.close)
    _kind(list(opened.parts))


def _file_sentence() -> None:
    """Show the file's text in place of the sentence field; the typed sentence stays in the link."""
    trace = uploads.trace(current())
    if trace is None:
        return
    sides = trace.sides
    _read_only(t("control.text"), "file_text", sides.queries.text)
    if not sides.same:
        _read_only(t("file.keys"), "file_keys", sides.keys.text)


def _read_only(label: str, key: str, text: str) -> None:
    st.session_state[key] = text
    st.text_area(label, key=key, height=90, disabled=True, help=t("file.text_help"))


def _kind(kinds: Sequence[str]) -> None:
    """Draw the choice between encoder, decoder and cross attention; nothing if there is only one kind."""
    if len(kinds) < 2:
        return
    if st.session_state.get("kind") not in kinds:
        st.session_state.pop("kind", None)
    st.session_state.drawn.add("kind")
    label, help_text = t("control.kind"), t("control.kind_help")
    choice.draw(st.segmented_control, label, "kind", kinds, kinds[0], required=True, help=help_text)


def _number(key: str, *, minimum: int = 1, **options: Any) -> None:
    maximum, held = max_values()[key], st.session_state.get(key)
    if held is not None and held > maximum:
        st.session_state[key] = maximum
    default = getattr(DEFAULTS, key)
    value = None if default is None else min(default, maximum)
    st.number_input(t(f"control.{key}"), minimum, maximum, value, **_linked(key), **options)


def _choice(key: str, **options: Any) -> None:
    st.session_state.drawn.add(key)
    options.setdefault("help", t(f"control.{key}_help"))
    choice.draw(st.selectbox, t(f"control.{key}"), key, _options(key), _default(key), **options)
