"""The invitation to the first minute of lesson 1, for a browser that is here for the first time."""

import streamlit as st

from pages._kit import components
from pages._kit.text import after_link, t

INVITED = "headscope_invited"  # cookie: whether the browser has followed or closed the invitation
FIRST_LESSON = "./lessons?lesson=heads&screen=1"

_invitation = components.component("invitation", "lesson/invitation.js", "lesson/lesson.css")


def is_newcomer() -> bool:
    """Whether the browser has neither followed nor closed the invitation."""
    return not st.context.cookies.get(INVITED)


def show() -> None:
    """Invite a newcomer."""
    href = FIRST_LESSON + after_link()
    texts = {"text": t("lessons.invitation"), "close": t("lessons.no_invitation")}
    with st.container(key="invited", width="content"):
        _invitation(key="invitation", data={"cookie": INVITED, "href": href, **texts}, height=32)
