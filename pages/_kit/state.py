"""What the app is looking at: every key of its state, with its default and limits, and the controls.

Keys are URL parameters too (``?text=…&h=4``), so a copied link shows the same picture.
Heads, layers and tokens count from 1 here, as on screen.
"""

import json
from dataclasses import asdict, dataclass, fields

import streamlit as st

from mha_core import AttentionTrace, MhaError, words
from mha_core.embed import POSITIONS
from mha_core.masks import MASKS
from mha_core.sources.toy import MAX_SEED
from mha_core.spec import AttentionSpec
from pages._kit.paths import ASSETS
from pages._kit.text import literal, t

MAX_TOKENS = 256
MAX_CHARACTERS = 8000
# The largest values that the controls offer: what one page can show and one server can share.
MOST = {
    "h": 64,
    "d_model": 1024,
    "d_k": 1024,
    "d_v": 1024,
    "n_kv_heads": 64,
    "layers": 6,
    "seed": MAX_SEED,
}


@dataclass(frozen=True)
class Scene:
    """Everything that decides what is on screen."""

    text: str = "The animal didn't cross the street because it was too tired."
    h: int = 4
    d_model: int = 64
    seed: int = 0
    layers: int = 1
    d_k: int | None = None
    d_v: int | None = None
    n_kv_heads: int | None = None
    position: str = "sinusoidal"
    mask: str = "full"
    bias: bool = True
    layer: int = 1
    head: int = 1
    token: int = 8

    def settings(self) -> dict:
        """The arguments of `mha_core.trace`: all but what is merely looked at."""
        looked_at = ("layer", "head", "token")
        return {name: value for name, value in asdict(self).items() if name not in looked_at}


DEFAULTS = Scene()


def current() -> Scene:
    """The scene that the controls describe, also where a page runs without its frame."""
    chosen = {field.name: st.session_state.get(field.name) for field in fields(Scene)}
    return Scene(**{name: value for name, value in chosen.items() if value is not None})


def indices(trace: AttentionTrace, scene: Scene) -> tuple[int, int, int]:
    """Layer, head and token of the scene as positions from 0 that the trace has."""
    layer = min(scene.layer, len(trace.layers)) - 1
    return layer, min(scene.head, trace.layers[layer].n_heads) - 1, min(scene.token, len(trace.tokens)) - 1


def go(**values: object) -> None:
    """Move to another scene; for callbacks, since a widget's state is set before it is drawn."""
    st.session_state.update(values)


def controls() -> None:
    """The shared controls, drawn once by the frame and meaning the same on every page.

    What decides the sizes is read first, also where it stands lower: a link may set all at once.
    """
    with st.sidebar:
        _sentence()
        left, right = st.columns(2)
        with left:
            _number("h", help=t("control.h_help"))
        with right:
            _number("d_model", help=t("control.d_model_help"))
        sizes, looked_at = st.empty(), st.container()
        with st.expander(t("control.advanced")):
            _advanced()
        with sizes:
            _sizes()
        with looked_at:
            _looked_at()


def _sentence() -> None:
    st.text_area(
        t("control.text"),
        DEFAULTS.text,
        key="text",
        height=110,
        max_chars=MAX_CHARACTERS,
        help=t("control.text_help", limit=MAX_TOKENS),
        bind="query-params",
    )
    examples = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
    st.selectbox(
        t("control.example"),
        examples,
        index=None,
        key="example",
        placeholder=t("control.example_empty"),
        label_visibility="collapsed",
        on_change=_take_example,
    )


def _take_example() -> None:
    if st.session_state.example:
        go(text=st.session_state.example, example=None)


def _sizes() -> None:
    scene = current()
    try:
        spec = AttentionSpec(scene.d_model, scene.h, scene.n_kv_heads, scene.d_k, scene.d_v)
    except MhaError:
        return  # the page says what does not fit
    st.caption(t("control.sizes", d_k=spec.d_k, d_v=spec.d_v))


def _looked_at() -> None:
    """Layer, head and token; a choice that the new sizes no longer offer moves to the nearest."""
    scene = current()
    try:
        labels = words(scene.text, limit=MAX_TOKENS).labels
    except MhaError:
        labels = ()
    if scene.layers > 1:
        _number("layer", most=scene.layers)
    _number("head", most=scene.h)
    if labels:
        _number("token", most=len(labels))


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


def show_error(error: MhaError) -> None:
    """Say what does not fit, and offer the nearest values that do as buttons."""
    st.error(literal(error), title=t("error.title"), icon=":material/straighten:")
    offered = [fix for fix in error.fixes if all(v <= MOST[name] for name, v in fix.items() if name in MOST)]
    with st.container(horizontal=True):
        for index, fix in enumerate(offered):
            [(name, value)] = fix.items()
            label = t("error.text") if name == "text" else t("error.use", name=name, value=value)
            st.button(literal(label), key=f"fix_{index}", on_click=go, kwargs=fix)
