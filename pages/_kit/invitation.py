"""Invites first-time visitors to the first minute of lesson 1."""

import streamlit as st

from pages._kit import components
from pages._kit.language import in_link
from pages._kit.text import t

COOKIE = "headscope_invited"  # where a browser remembers that it was followed or closed
LINK = "./lessons?lesson=heads&screen=1"
HEIGHT = 32  # pixels

_invitation = components.component(
    "invitation",
    "lesson/invitation.js",
    html='<div class="invitation"></div>',
    styles=("lesson/lesson.css",),
)


def show() -> None:
    language = "".join(f"&{name}={value}" for name, value in in_link().items())
    texts = {"text": t("lessons.invitation"), "close": t("lessons.no_invitation")}
    with st.container(key="invited", width="content"):
        _invitation(
            key="invitation", data={"cookie": COOKIE, "href": LINK + language, **texts}, height=HEIGHT
        )
