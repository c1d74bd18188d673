"""The scene that this visitor is looking at, as the session holds it, and moves to other scenes.

The keys are also URL parameters (``?text=…&h=4&token=it``), so a copied link shows the same picture. Controls
bound to the link hold the scene. The browser holds the focus (scene/address.js): it writes it into every
address and sends it with its messages.

Another message can stop a run at any read or write of `st.session_state`. Each mark that something was
received is therefore written last, so that the next run repeats what a stopped one left undone.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import streamlit as st
from streamlit.errors import StreamlitAPIException

from mha_core import AttentionTrace
from mha_core.focus.focus import Focus, is_unset, strings
from mha_core.focus.token_names import position
from mha_core.scene.first_look import focus_on_answer
from mha_core.scene.link import WEIGHTS
from mha_core.scene.places import clamped, shape_of, with_names
from mha_core.scene.scene import DEFAULTS, Scene
from pages._kit.opened_link import CONTROLS, REPLACED, SHAPES, OpenedLink
from pages._server import streamlit_parts

HINTS = "hints"  # the hints about clicks that this run has drawn, by element key (heatmaps.py)


def begin() -> OpenedLink | None:
    """Read the focus from the link in a new session and after Back or Forward; the frame calls this first.

    Returns the link that was read then; None in a run that goes on with what the session holds.
    """
    for name in (HINTS, SHAPES, REPLACED):
        st.session_state.pop(name, None)
    goes_back = streamlit_parts.after_history()
    opened = OpenedLink.read() if goes_back or "focus" not in st.session_state else None
    _receive(opened)
    if opened is not None and goes_back:
        _take_link(opened)
    return opened


def _receive(opened: OpenedLink | None = None) -> None:
    """Receive the focus that the browser sent last; every message repeats it until there is a newer one."""
    if "focus" not in st.session_state:
        _take_link(opened or OpenedLink.read())
    receive((st.session_state.get("address") or {}).get("focus"))


def receive(sent: Mapping | None) -> None:
    """Receive a focus that the browser has sent, perhaps with a message about a part of the page.

    The browser counts what it sends, since later messages repeat older ones.
    """
    if sent and sent["count"] > st.session_state.get("focus_count", 0):
        st.session_state["focus_received"] = Focus().link() | strings(sent["link"])
        st.session_state["focus"] = Focus.of_link(sent["link"])
        st.session_state["focus_count"] = sent["count"]


def _take_link(opened: OpenedLink) -> None:
    st.session_state["weights_are_others"] = any(one.name == WEIGHTS for one in opened.result.refused)
    st.session_state["token_is_named"] = True
    st.session_state["focus_received"] = Focus().link() | strings(opened.values)
    st.session_state["focus"] = opened.result.scene.focus


def focus() -> Focus:
    """The focus of the pictures on the page."""
    _receive()
    return st.session_state["focus"]


def setting(name: str) -> Any:
    """The value of the control of that name, or its default."""
    chosen = st.session_state.get(name)
    return getattr(DEFAULTS, name) if chosen is None else chosen


def current() -> Scene:
    """The scene that the controls describe."""
    chosen: dict[str, Any] = {name: st.session_state.get(name) for name in CONTROLS}
    for name, value in [*chosen.items()]:
        if value is None or (value == "" and getattr(DEFAULTS, name) is None):  # it is optional
            del chosen[name]
    return Scene(**chosen, focus=focus())


def address() -> dict[str, dict[str, str]]:
    """The focus for the browser, with the focus that the server received before."""
    return {"focus": focus().link(), "received": st.session_state["focus_received"]}


def name_tokens(trace: AttentionTrace) -> None:
    """Name the tokens of the focus by words instead of numbers, so that another sentence can have them, too.

    In a new text the focus moves to its `first_token` and to the head whose question has an answer there,
    unless a link or the page named a token together with the text. It moves in the same way if the text has
    no word of that name, if the second sentence in focus was replaced, and for a link to the heads of other
    weights.
    """
    texts, held = (setting("text"), setting("twin")), st.session_state
    before = held.get("texts_of_token", texts)
    is_new = before[: focus().sentence] != texts[: focus().sentence] and not held.get("token_is_named")
    has_no_head = held.get("weights_are_others", False) and focus().sentence == 1
    moves = is_new or has_no_head or is_unset(focus(), trace.sides.queries)
    now = with_names(focus(), trace.sides, new_text=is_new)
    at = position(trace.sides.queries, now.token) if moves and now.token else None
    if at is not None:
        now = focus_on_answer(now, trace, at)
    held["focus"], held["texts_of_token"] = now, texts
    held["token_is_named"] = held["weights_are_others"] = False


def stay_within(trace: AttentionTrace) -> None:
    """Move the focus inside the trace if its numbers of layers or heads have changed since the last run.

    Otherwise the page's own link would name a layer or head that is not there. The layer and the head that a
    page begins with are in no link, so they stay.
    """
    shape, now = shape_of(trace), focus()
    if st.session_state.get("shape", shape) != shape:
        inside = clamped(now, [shape])
        kept = {name: getattr(now, name) for name in ("layer", "head")}
        first = {name: value for name, value in kept.items() if value == getattr(Focus, name)}
        st.session_state["focus"] = replace(inside, **first)
    st.session_state["shape"] = shape


def on_phone() -> bool:
    """Whether the visitor's browser says that it runs on a phone."""
    return "Mobi" in st.context.headers.get("User-Agent", "")


def say_instead(name: str, taken: object) -> None:
    """Note that a page uses another value for one of its fields than the link; the frame says so."""
    st.session_state.setdefault(REPLACED, {})[name] = taken


def follow(key: str, **values: object) -> None:
    """Move to another scene, on the page that the link in the container of that key leads to.

    The browser follows the link: Streamlit cannot switch pages while controls are bound to the link.
    """
    go(**values)
    st.session_state.follow = key


def go(**values: object) -> None:
    """Move to another scene; for callbacks, since a widget's state is set before it is drawn.

    A token is named by its word or its number from 1. Streamlit itself updates the link for controls that the
    page has drawn, and refuses a second writer; for other fields the link is written here.
    """
    _receive()
    names = [field.name for field in fields(Focus) if field.name in values]
    moves = {name: "" if (value := values.pop(name)) is None else str(value) for name in names}
    if moves.get("token"):
        st.session_state["token_is_named"] = True
    st.session_state["focus"] = Focus.of_link(st.session_state["focus"].link() | moves)
    if "edits" in values:
        st.session_state.pop("edits_gone", None)
    st.session_state.update(values)
    for name, value in values.items():
        if name in CONTROLS and value not in (None, "", getattr(DEFAULTS, name)):
            with suppress(StreamlitAPIException):
                st.query_params[name] = str(value)
