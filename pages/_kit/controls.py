"""The shared controls: drawn once by the frame, bound to the URL, the same on every page."""

import json

import streamlit as st

from mha_core import MhaError
from mha_core.attention.masks import MASKS
from mha_core.attention.module import AttentionSpec
from mha_core.attention.positions import POSITIONS
from mha_core.sources.random_weights import MAX_SEED
from mha_core.training.model import ARCHITECTURES
from pages._kit import hiding, opened, real, two_texts, work
from pages._kit.paths import ASSETS
from pages._kit.state import DEFAULTS, STARTED, current, go
from pages._kit.text import literal, t

MAX_CHARACTERS = 40_000
# The largest values that the controls offer: what one page can show and one server can share.
MOST = {
    "h": 64,
    "d_model": 1024,
    "d_k": 1024,
    "d_v": 1024,
    "n_kv_heads": 64,
    "layers": 16,
    "seed": MAX_SEED,
}


def controls(page: str) -> None:
    """Sentence, source, sizes, and what is looked at on the page with this path.

    What decides the sizes is read first, also where it stands lower: a link may set all at once.
    """
    with st.sidebar:
        sentence = st.container()
        _source()
        sizes, looked_at = st.container(), st.container()
    source = current().source
    stage = st.empty() if source == "model" else None  # on the page: loading takes a while
    with st.sidebar:
        if source == "file":
            with sizes:
                opened.controls()
            with sentence:
                opened.sentence()
        else:
            with sentence:
                _sentence()
        if source == "random":
            with st.expander(t("control.advanced")):
                _advanced()
        with sizes:
            if source == "run":
                _run()
            elif source == "model":
                real.controls(stage)
            elif source != "file":
                _sizes()
            if source == "mini":
                _choice("architecture", list(ARCHITECTURES))
        with looked_at:
            _looked_at(page)


def _source() -> None:
    offered = [source for source in work.SOURCES if source != "run" or work.finished_runs()]
    st.segmented_control(
        t("control.source"),
        offered,
        default=DEFAULTS.source,
        required=True,
        key="source",
        help=t("control.source_help"),
        on_change=_source_changed,
        bind="query-params",
    )
    st.session_state.source_before = current().source  # a link and a button set it too


def _source_changed() -> None:
    """Keep looking at the same word: small models put [CLS] before the sentence."""
    before, after = st.session_state.source_before, st.session_state.source
    step = (after in STARTED) - (before in STARTED)
    if step and "model" not in (before, after):  # what a model makes of the sentence is seen later
        go(token=max(1, current().token + step))


def _sentence() -> None:
    source = current().source
    most = real.limit(current()) if source == "model" else None
    help_text = t("control.text_help", limit=most or work.MAX_TOKENS[source] - (source in STARTED))
    st.text_area(
        t("control.text"),
        DEFAULTS.text,
        key="text",
        height=90,
        max_chars=MAX_CHARACTERS,
        help=help_text,
        bind="query-params",
    )
    text = current().text
    default = hiding.same(text, DEFAULTS.text)
    if not default and not {"twin"} & (set(st.session_state) | set(st.query_params)):
        st.session_state.twin = ""  # the second sentence of the default goes with the first
    if st.session_state.get("text_before", text) != text and st.session_state.get("twin") == DEFAULTS.twin:
        st.session_state.twin = DEFAULTS.twin if default else ""
    st.session_state.text_before = text
    st.text_area(
        t("control.twin"),
        DEFAULTS.twin,
        key="twin",
        height=90,
        max_chars=MAX_CHARACTERS,
        help=t("control.twin_help"),
        placeholder=t("control.twin_empty"),
        bind="query-params",
    )
    examples = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
    st.selectbox(
        t("control.example"),
        [example["text"] for example in examples],
        index=None,
        key="example",
        placeholder=t("control.example_empty"),
        label_visibility="collapsed",
        on_change=_take_example,
        args=(examples,),
    )


def _take_example(examples: list[dict]) -> None:
    for example in examples:
        if example["text"] == st.session_state.example:
            token = example["token"] + (current().source in STARTED)
            go(text=example["text"], twin=example.get("twin", ""), token=token, example=None)


def _run() -> None:
    """Which of the models that were trained here."""
    runs = list(work.finished_runs())
    asked = st.query_params.get("run")
    if asked and asked not in runs:
        st.caption(t("control.run_gone", name=literal(asked)))
    if st.session_state.get("run") not in runs:
        st.session_state.run = asked if asked in runs else runs[0]
    st.selectbox(t("control.run"), runs, key="run", bind="query-params")


def _sizes() -> None:
    left, right = st.columns(2)
    with left:
        _number("h", help=t("control.h_help"))
    with right:
        _number("d_model", help=t("control.d_model_help"))
    scene = current()
    try:
        if scene.source == "mini":
            spec = AttentionSpec(scene.d_model, scene.h)
        else:
            spec = AttentionSpec(scene.d_model, scene.h, scene.n_kv_heads, scene.d_k, scene.d_v)
    except MhaError:
        return  # the page says what does not fit
    st.caption(t("control.sizes", d_k=spec.d_k, d_v=spec.d_v))


def _looked_at(page: str) -> None:
    """Layer, head and token; a choice that the new sizes no longer offer moves to the nearest."""
    trace = work.peek(current())
    if trace is None:
        return  # the page says why there is nothing to look at
    real.same_word(trace)
    if len(trace.layers) > 1:
        _number("layer", most=len(trace.layers))
    layer = trace.layers[min(current().layer, len(trace.layers)) - 1]
    _number("head", most=layer.n_heads)
    _number("token", most=layer.n_query)
    # Here and not on the pages: what two pages bind each for itself is lost on the way between them.
    if two_texts.there(trace) and page in ("", "token"):
        help_text, empty = t("two.key_help"), t("two.key_empty")
        _number("key_token", most=layer.n_key, help=help_text, placeholder=empty)
    elif page == "":
        help_text, empty = t("detail.key_help"), t("detail.key_empty")
        _number("key_token", most=layer.n_key, help=help_text, placeholder=empty)


def _advanced() -> None:
    _number("layers", help=t("control.layers_help"))
    _number("seed", least=0, help=t("control.seed_help"))
    _choice("mask", list(MASKS))
    _choice("position", list(POSITIONS))
    _number("d_k", placeholder=t("control.auto_d_k"))
    _number("d_v", placeholder=t("control.auto_d_v"))
    _number("n_kv_heads", placeholder=t("control.auto_n_kv_heads"), help=t("control.n_kv_heads_help"))
    st.toggle(t("control.bias"), DEFAULTS.bias, key="bias", bind="query-params")


def _number(key: str, *, least: int = 1, most: int | None = None, **options) -> None:
    most = MOST[key] if most is None else most
    _clamp(key, most)
    default = getattr(DEFAULTS, key)
    value = None if default is None else min(default, most)
    st.number_input(t(f"control.{key}"), least, most, value, key=key, bind="query-params", **options)


def _choice(key: str, options: list[str]) -> None:
    """A choice by the field's own names: they stand in the link, whatever the language."""
    default = options.index(getattr(DEFAULTS, key))
    st.selectbox(
        t(f"control.{key}"), options, default, key=key, help=t(f"control.{key}_help"), bind="query-params"
    )


def _clamp(key: str, high: int) -> None:
    value = st.session_state.get(key)
    if value is not None and value > high:
        st.session_state[key] = high
