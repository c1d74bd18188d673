"""The controls that pages share. The frame draws those that the page uses and binds them to the URL."""

import json
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core import AttentionTrace, MhaError, Tokens
from mha_core.attention.module import AttentionSpec
from mha_core.focus import token_names
from mha_core.focus.fields import range_rule
from mha_core.focus.focus import Focus
from mha_core.scene.link import CHARACTERS, LEAST, SETTINGS, WITH_CLS, WITH_HEADS, choices, library_limits
from mha_core.scene.page import SEPARATOR
from mha_core.scene.places import clamped, shape_of
from mha_core.scene.scene import DEFAULTS, scene_of_values, twin_of
from mha_core.sources.huggingface.files import PACKAGE
from mha_core.training.lexicon import HIDDEN
from pages._kit import choice, compute, model_source, runs, uploads
from pages._kit.language import CHOSEN, DEFAULT, LANG, language, languages, usual_language
from pages._kit.state import CONTROLS, current, go, name_tokens, setting, stay_within
from pages._kit.text import ASSETS, catalogue, literal, said, t
from pages._server import limits, streamlit_parts

MAX_SENTENCES = 2  # side by side
SENTENCE = 72  # pixels of its field: two lines
TEXTS = ("text", "twin", "target")  # they have a figure in common
SIZES = ("h", "d_model", "d_k", "d_v", "n_kv_heads", "layers")  # each has a figure in `Limits`


def max_values() -> dict[str, int]:
    """The largest values that the controls offer: what one page can show and one server can share."""
    figures = limits.current()
    return library_limits() | {name: getattr(figures, name) for name in SIZES}


def max_characters() -> int:
    """Of a text that is typed or comes in a link."""
    return limits.current().characters


def with_sentence(*more: str, sources: Sequence[str] = compute.SOURCES) -> dict[str, frozenset[str]]:
    """The controls of a page that shows a sentence: it and the settings of each source, and more."""
    return {source: frozenset({"text", *SETTINGS[source], *more}) for source in sources}


def controls(of_source: Mapping[str, frozenset[str]], place: DeltaGenerator) -> None:
    """Sentence, source and sizes: of the chosen source those that change something.

    The source itself can always be chosen, except where a page is about none. What a page does not draw keeps
    its value and its place in the link.
    """
    _rewrite_values()
    st.session_state.drawn = set()
    used, sizes = _visible(of_source, place)
    _hidden()
    # From here on every setting of the link is known, whether its control can be seen or not.
    if "h" in used and setting("source") in ("mini", "random"):
        with sizes:
            _widths()
    trace = compute.peek(current()) if used else None
    if trace is not None:
        stay_within(trace)
        name_tokens(trace)


def _visible(
    of_source: Mapping[str, frozenset[str]], place: DeltaGenerator
) -> tuple[frozenset[str], DeltaGenerator]:
    """Draws what can be seen; returns what the page uses of the source, and where its sizes stand."""
    if not of_source:
        return frozenset(), place
    with place, st.container(horizontal=True, key="scene_row"):
        sentences = st.container(horizontal=True, key="sentences")
        sizes = st.container(key="sizes", width="content", gap="xxsmall")
        with st.container(key="choices", width="content", gap="xxsmall"):
            _source()
            menus = st.container(horizontal=True, gap="small")
    source = setting("source")
    used = of_source.get(source)
    if used is None:
        return frozenset(), sizes
    stage = st.empty() if source == "model" else None  # on the page: loading takes a while
    with sentences:
        if source == "file":
            _file_sentence()
        else:
            _sentence(used)
    with menus:
        if source != "file":
            _examples_menu()
        if source in ("mini", "random"):
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
    return used, sizes


def whole_link() -> dict[str, str]:
    """The link that is open; of a field that has several values they are one, with commas between them."""
    given = {name: st.query_params.get_all(name) for name in st.query_params}
    return {name: SEPARATOR.join(values) if len(values) > 1 else values[0] for name, values in given.items()}


def begin_language() -> None:
    """An invisible control, which holds the language of the link."""
    choice.hold(LANG, languages(), usual_language())


def language_switch() -> None:
    """The switch between the languages, in the header of every page."""
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


def refused(link: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    """The values of a link that a control or the focus cannot have, each with the one that it has instead."""
    uploads.begin()  # which file is open
    other = {
        name: (value, model_source.usual_dtype() if name == "dtype" else taken)
        for name, value, _, taken in scene_of_values(link, _limits()).refused
    }
    if link.get("source", DEFAULTS.source) not in _sources():
        other["source"] = link["source"], DEFAULTS.source
    if link.get(LANG, language()) not in languages():
        other[LANG] = link[LANG], language()
    now = st.session_state.get("file")
    if link.get("file", "") not in ("", now):  # a file is open for one visit
        other["file"] = link["file"], now
    if link.get("source") == "model" and link.get("model") and not model_source.is_offered(link["model"]):
        other["model"] = link["model"], next(iter(model_source.local_models()), None)
    elif link.get("source") == "model" and link.get("model") and link.get("revision"):
        taken = model_source.revision_of(replace(DEFAULTS, model=link["model"], revision=link["revision"]))
        if taken != link["revision"]:
            other["revision"] = link["revision"], taken
    return other


def take(link: Mapping[str, str]) -> None:
    """Let each control begin with what was taken in place of a value of the link that it cannot have."""
    scene, refused = scene_of_values(link, _limits())
    for name in {one.name for one in refused} & {*CONTROLS} | link.keys() & {*WITH_HEADS}:
        taken = getattr(scene, name)
        if str(taken) != link[name]:
            streamlit_parts.begin_with(name, "" if taken is None else str(taken))


def begin_with_package() -> None:
    """Begin with the model of the package, where it is installed and the visit has no other source yet."""
    has_source = "source" in st.session_state or "source" in st.query_params
    if not has_source and PACKAGE in model_source.local_models():
        streamlit_parts.begin_with("source", "model")


def _limits() -> dict[str, int]:
    return max_values() | {CHARACTERS: max_characters()}


def replaced(link: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    """Of a page that has been drawn: the values of the link in place of which it has others.

    They are known with the trace, as its layers, heads and words are, or to the page alone.
    """
    shapes, instead = st.session_state.pop("shapes", None), st.session_state.pop("instead", {})
    if not link:
        return {}
    asked, others = scene_of_values(link).scene.focus, {}
    trace = compute.peek(current()) if "source" in st.session_state.drawn else None  # of a page with a trace
    if trace is not None:
        others = _beyond(link, asked, clamped(asked, shapes or [shape_of(trace)]))
        others |= _no_words(link, asked, trace)
    for key in link.keys() - {*CONTROLS, *asked.link()} | link.keys() & {"kind"}:
        if key in st.session_state:
            value = st.session_state[key]
            if isinstance(value, str | int | float | list | None) and not _is_same(link[key], value):
                others[key] = link[key], value
    return others | {key: (link[key], instead[key]) for key in link.keys() & instead}


def _beyond(link: Mapping[str, str], asked: Focus, taken: Focus) -> dict[str, tuple[str, object]]:
    """The numbers of a link that are beyond the last layer, head or sentence."""
    if asked.sentence > MAX_SENTENCES:
        taken = replace(taken, sentence=MAX_SENTENCES if setting("twin").strip() else 1)
    was, now = asked.link(), taken.link()
    return {name: (link[name], now[name]) for name in link.keys() & was if was[name] != now[name]}


def _no_words(link: Mapping[str, str], asked: Focus, trace: AttentionTrace) -> dict[str, tuple[str, object]]:
    """The words and their numbers in a link that are not in the sentence."""
    focus, sides = st.session_state["focus"], trace.sides
    others: dict[str, tuple[str, object]] = {}
    if asked.sentence == 2:  # of another sentence, which the view in the browser has
        return others
    words = {"token": [asked.token], "key_token": [asked.key_token], "pins": asked.pins.split()}
    for name, names in words.items():
        tokens = sides.keys if name == "key_token" or (name, asked.side) == ("pins", "key") else sides.queries
        if name in link and any(not _is_in(tokens, one) for one in names if one):
            others[name] = link[name], getattr(focus, name)
    return others


def _is_in(tokens: Tokens, name: str) -> bool:
    if name.isascii() and name.isdecimal():  # beyond the end it is the last one
        return 0 < (token_names.as_number(name) or 0) <= len(tokens)
    return token_names.position(tokens, name) is not None


def _is_same(text: str, value: str | float | list | None) -> bool:
    """Whether a value of a link is that of a control."""
    if isinstance(value, list):
        return sorted(map(str, value)) == sorted(filter(None, text.split(SEPARATOR)))
    if value is None:
        return not text
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    with suppress(ValueError):
        return text == value if isinstance(value, str) else float(text) == value
    return False


def exceeded(name: str, value: str) -> int | None:
    """The limit of this server that a value of a link is beyond, a number or a text; None where it is not."""
    if name in TEXTS:
        return max_characters() if len(value) > max_characters() else None
    most = max_values().get(name)
    if most is None or not value.isascii() or not value.isdecimal():
        return None
    return most if range_rule(name, value, 0, most) else None


def _rewrite_values() -> None:
    """Streamlit forgets the value of a control that a page does not draw, unless it is written anew."""
    held = st.session_state.to_dict()
    for key in CONTROLS:
        if key in held:
            st.session_state[key] = held[key]


def _hidden() -> None:
    """Invisible controls for the values that belong in the link and have no control on this page.

    Streamlit binds controls alone to a link, and takes out of it the values without a control.
    """
    link, drawn, held = st.query_params.to_dict(), st.session_state.drawn, st.session_state.to_dict()
    with st.container(key="unseen"):
        for key in CONTROLS:
            if key in drawn or key == "file":  # a file is open for one visit
                continue
            default = _default(key)
            if key not in link and held.get(key) in (None, default):
                continue
            options = _options(key)
            if options:
                st.selectbox(key, options, options.index(default), **_linked(key))
            elif isinstance(default, bool):
                st.toggle(key, default, **_linked(key))
            elif key in max_values():
                st.number_input(key, LEAST[key], max_values()[key], default, **_linked(key))
            else:
                st.text_area(key, default, max_chars=max_characters(), **_linked(key))


def _linked(key: str) -> dict[str, Any]:
    """Of a control: its key, which is its name in the link, too."""
    st.session_state.drawn.add(key)
    return {"key": key, "bind": "query-params"}


def _default(key: str) -> Any:
    return model_source.usual_dtype() if key == "dtype" else getattr(DEFAULTS, key)


def _options(key: str) -> list[str]:
    """The names of which the field has one: they stand in the link, whatever the language."""
    return _sources() if key == "source" else list(choices().get(key, ()))


def _sources() -> list[str]:
    """The sources that have something to show, and the one that is asked for."""
    offered = {"run": bool(runs.names()), "model": model_source.offers_models()}
    asked = st.session_state.get("source", st.query_params.get("source"))
    return [source for source in compute.SOURCES if source == asked or offered.get(source, True)]


def _source() -> None:
    """Whose weights."""
    help_text = f"{t('control.source_help')}\n\n{said(compute.device().reason)}"
    _choice("source", words=lambda source: t(f"source.{source}"), help=help_text)


def _sentence(used: Set[str]) -> None:
    source = setting("source")
    maximum = model_source.limit(current()) if source == "model" else None
    help_text = t("control.text_help", limit=maximum or compute.max_tokens(source) - (source in WITH_CLS))
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
    if not twin and "twin" not in st.session_state and "twin" not in st.query_params:
        st.session_state.twin = ""  # the second sentence of the default goes with the first
    if st.session_state.get("text_before", text) != text and _goes_with_another(st.session_state.get("twin")):
        st.session_state.twin = twin
    st.session_state.text_before = text
    # The field of what is compared comes later: as a link opens, the link alone says it.
    against = st.session_state.get("against", st.query_params.get("against"))
    if "twin" in used or ("against" in used and against == "twin"):
        st.text_area(
            t("control.twin"),
            DEFAULTS.twin,
            height=SENTENCE,
            max_chars=max_characters(),
            placeholder=t("control.twin_empty"),
            **_linked("twin"),
        )


def _goes_with_another(twin: str | None) -> bool:
    """Whether a second sentence is that of an example whose first one is not what is read now."""
    text = setting("text")
    if not twin or HIDDEN in text:  # a hidden word leaves the rest of an example as it was
        return False
    every = (example for examples in _examples().values() for example in examples)
    return any(example.get("twin") == twin and example["text"] != text for example in every)


def _examples_menu() -> None:
    with st.popover(t("control.example"), type="tertiary", key="examples"):
        for number, example in enumerate(_examples_in(language())):
            st.button(
                example["text"], type="tertiary", key=f"example_{number}", on_click=_take, args=(example,)
            )


def _advanced_menu(used: Set[str]) -> None:
    """Settings that are rarely needed. While the menu is closed, invisible controls hold them in the link."""
    menu = st.popover(t("control.advanced"), type="tertiary", key="advanced", on_change="rerun")
    if menu.open:
        with menu:
            if "architecture" in used:
                _choice("architecture")
            _advanced(used)


@cache
def _examples() -> dict[str, list[dict]]:
    """The examples of each language; the first is where a visit begins."""
    return json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))


def _examples_in(name: str) -> list[dict]:
    """The examples of a language, the English ones where it has none."""
    return _examples().get(name, _examples()[DEFAULT])


def begin_with_sentences() -> None:
    """Begin with the sentences of this language, where the link names none."""
    start = _examples_in(language())[0]
    if "text" not in st.session_state and "text" not in st.query_params and start["text"] != DEFAULTS.text:
        for name in ("text", "twin"):
            streamlit_parts.begin_with(name, start[name])


def _switch(chosen: str) -> None:
    """Speak the other language; the sentences of the start change with it, others stay."""
    if _examples_in(language())[0]["text"] == setting("text"):
        _take(_examples_in(chosen)[0])
    st.session_state[CHOSEN] = True


def _take(example: Mapping[str, str]) -> None:
    go(text=example["text"], twin=example.get("twin", ""), token=example["token"])


def _run() -> None:
    """Which of the models that were trained here, and at which step of its training."""
    names = runs.names()
    if names and st.session_state.get("run") not in names:
        st.session_state.run = names[0]  # and no default, which a link would not name
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


def _widths() -> None:
    """How wide the query, key and value of each head are."""
    names = ("d_model", "h") if setting("source") == "mini" else ("d_model", "h", "n_kv_heads", "d_k", "d_v")
    try:
        spec = AttentionSpec(*map(setting, names))
    except MhaError:
        return  # the page says what does not fit
    st.caption(t("control.sizes", d_k=spec.d_k, d_v=spec.d_v))


def _advanced(used: Set[str]) -> None:
    draws = {
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
    for key, draw in draws.items():
        if key in used:
            draw()


def _model(stage: DeltaGenerator, used: frozenset[str]) -> None:
    """Which model, what it reads besides the text, and whose attention of it; loading is shown in `stage`."""
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
            kinds = list(model_source.parts(entry, current(), scene.text))
    except MhaError:
        kinds = []  # the page says what does not fit
    stage.empty()
    _kind(kinds)


def _file() -> None:
    """The file, and whose attention of it; what was open stays open when the next file is no trace."""
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
    if refusal or st.session_state.get("trace_file") is None:  # what is open is not what stands above
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.caption(t("file.open", name=literal(opened.name)), width="content")
            st.button(t("file.close"), type="tertiary", key="close_file", on_click=uploads.close)
    _kind(list(opened.parts))


def _file_sentence() -> None:
    """The text of the file where others have theirs; what was typed there waits in the link."""
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
    """Whose attention: a choice between encoder, decoder and cross; nothing where there is one kind alone."""
    if len(kinds) < 2:
        return
    if st.session_state.get("kind") not in kinds:
        st.session_state.pop("kind", None)
    st.session_state.drawn.add("kind")
    label, help_text = t("control.kind"), t("control.kind_help")
    choice.draw(st.segmented_control, label, "kind", kinds, kinds[0], required=True, help=help_text)


def _number(key: str, *, minimum: int = 1, **options: Any) -> None:
    maximum = max_values()[key]
    _clamp(key, maximum)
    default = getattr(DEFAULTS, key)
    value = None if default is None else min(default, maximum)
    st.number_input(t(f"control.{key}"), minimum, maximum, value, **_linked(key), **options)


def _choice(key: str, **options: Any) -> None:
    st.session_state.drawn.add(key)
    options.setdefault("help", t(f"control.{key}_help"))
    choice.draw(st.selectbox, t(f"control.{key}"), key, _options(key), _default(key), **options)


def _clamp(key: str, high: int) -> None:
    value = st.session_state.get(key)
    if value is not None and value > high:
        st.session_state[key] = high
