"""What this visitor is looking at: the scene that the session holds, and how to move elsewhere.

Keys are URL parameters too (``?text=…&h=4&token=it``), so a copied link shows the same picture. Controls that
are bound to the link hold the scene; the focus is held by the browser (scene/address.js), which
writes it into every address and sends it with its messages.

Another message can stop a run at each read or write of `st.session_state`. What says that something has been
taken up is therefore written last: the next run makes up for one that was stopped before that.
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
from pages._kit.visit import CONTROLS, REPLACED, SHAPES, Visit
from pages._server import streamlit_parts

HINTS = "hints"  # what pictures of this run say about clicks, by their element keys (heatmaps.py)


def begin() -> Visit | None:
    """Take up the focus of the link at first, and after Back and Forward; the frame calls it first.

    Returns the link that was read then; None in a run that goes on with what the session holds.
    """
    for name in (HINTS, SHAPES, REPLACED):
        st.session_state.pop(name, None)
    goes_back = streamlit_parts.after_history()
    visit = Visit.read() if goes_back or "focus" not in st.session_state else None
    _receive(visit)
    if visit is not None and goes_back:
        _take_link(visit)
    return visit


def _receive(visit: Visit | None = None) -> None:
    """Take up what the browser has sent since; it stands in every message until another is sent."""
    if "focus" not in st.session_state:
        _take_link(visit or Visit.read())
    receive((st.session_state.get("address") or {}).get("focus"))


def receive(sent: Mapping | None) -> None:
    """Take up what the browser has sent of the focus, perhaps with a message about a part of the page.

    It counts what it sends: an older message stands in later ones, too.
    """
    if sent and sent["count"] > st.session_state.get("focus_count", 0):
        _take(sent["link"], Focus.of_link(sent["link"]))
        st.session_state["focus_count"] = sent["count"]


def _take_link(visit: Visit) -> None:
    st.session_state["weights_are_others"] = any(one.name == WEIGHTS for one in visit.opened.refused)
    st.session_state["token_is_named"] = True
    _take(visit.link, visit.opened.scene.focus)


def _take(link: Mapping[str, object], now: Focus) -> None:
    st.session_state["focus_received"] = Focus().link() | strings(link)
    st.session_state["focus"] = now


def focus() -> Focus:
    """What the pictures of the page look at."""
    _receive()
    return st.session_state["focus"]


def setting(name: str) -> Any:
    """What the control of that name holds, or its default."""
    chosen = st.session_state.get(name)
    return getattr(DEFAULTS, name) if chosen is None else chosen


def current() -> Scene:
    """The scene that the controls describe, also where a page runs without its frame."""
    held = st.session_state.to_dict()
    chosen: dict[str, Any] = {name: held.get(name) for name in CONTROLS}
    nothing = {
        name for name, value in chosen.items() if value is None or (value == "" and _is_optional(name))
    }
    return Scene(**{name: chosen[name] for name in chosen.keys() - nothing}, focus=focus())


def _is_optional(name: str) -> bool:
    return getattr(DEFAULTS, name) is None


def address() -> dict[str, dict[str, str]]:
    """For the browser: the focus, and the one that the server had received before."""
    return {
        "focus": focus().link(),
        "received": st.session_state["focus_received"],
    }


def name_tokens(trace: AttentionTrace) -> None:
    """Give the focus's tokens the names of words, which another sentence has, too, where they are numbered.

    A new text is looked at from its `first_token` alone, by the head whose question has an answer there,
    whatever was looked at in the old one, unless a token was named with it, by a link or by the page. So is a
    text that has no word of the name, the first sentence after a second one that was looked at has become
    another, and the word of a link to heads of other weights.
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
    """Move the focus to what there is, where the layers or heads have become others since the last run.

    Or the page's own link would name what nobody sees. What stands in no link, as the layer and the head that
    a page begins with, stays.
    """
    shape, now = shape_of(trace), focus()
    if st.session_state.get("shape", shape) != shape:
        inside = clamped(now, [shape])
        kept = {name: getattr(now, name) for name in ("layer", "head")}
        first = {name: value for name, value in kept.items() if value == getattr(Focus, name)}
        st.session_state["focus"] = replace(inside, **first)
    st.session_state["shape"] = shape


def on_phone() -> bool:
    """Whether the visitor's browser calls itself that of a phone."""
    return "Mobi" in st.context.headers.get("User-Agent", "")


def say_instead(name: str, taken: object) -> None:
    """A page has another value of a field that it draws than the link; the frame says so in its line."""
    st.session_state.setdefault(REPLACED, {})[name] = taken


def follow(key: str, **values: object) -> None:
    """Move to another scene, and to the page to which the link in the container of that key leads.

    The link is followed in the browser: Streamlit changes no page while controls are bound to the link.
    """
    go(**values)
    st.session_state.follow = key


def go(**values: object) -> None:
    """Move to another scene; for callbacks, since a widget's state is set before it is drawn.

    A token is named by its word or its number from 1. The link follows a control that the page has drawn by
    itself, and Streamlit refuses a second writer; for the others it is written here.
    """
    _receive()
    names = [field.name for field in fields(Focus) if field.name in values]
    moves = {name: "" if (value := values.pop(name)) is None else str(value) for name in names}
    if moves.get("token"):
        st.session_state["token_is_named"] = True
    st.session_state["focus"] = Focus.of_link(st.session_state["focus"].link() | moves)
    st.session_state.update(values)
    for name, value in values.items():
        if name in CONTROLS and value not in (None, "", getattr(DEFAULTS, name)):
            with suppress(StreamlitAPIException):
                st.query_params[name] = str(value)


def forget(key: str) -> None:
    """Let go of what the user has chosen under a key that is no control; for callbacks."""
    st.session_state.pop(key, None)
