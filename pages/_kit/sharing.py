"""The menu that shares a scene, and the link beside a scene that another site embeds."""

import streamlit as st

from pages._kit import components, language
from pages._kit.text import joined, t, templates
from pages._server import limits

_menu = components.component(
    "share", "streamlit/share.js", html='<div class="share"></div>', styles=("streamlit/share.css",)
)
_whole = components.component(
    "whole", "streamlit/embedded.js", html='<div class="whole"></div>', styles=("streamlit/embedded.css",)
)


def menu() -> None:
    """Draw the menu in the header of every page."""
    data = {"texts": templates("share."), "note": _note(), "language": language.shared_language()}
    _menu(key="share", data=data)


def _note() -> str:
    """A note on who will not see what is shared; "" if everybody will."""
    sites = limits.framing_sites()
    if st.session_state.get("source", st.query_params.get("source")) == "file":
        return t("share.file")
    if sites == limits.THIS_MACHINE:
        return t("share.this_machine", variable=limits.FRAMES)
    return "" if sites is None else t("share.sites", sites=joined(sites))


def link_to_whole() -> None:
    """Draw, in a frame on another site, the link that opens the same scene with all its controls."""
    _whole(key="whole", data={"text": t("share.whole")})
