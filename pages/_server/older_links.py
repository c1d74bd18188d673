"""Redirects links to pages that have become views of other pages."""

import streamlit as st
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

from mha_core.scene.page import MOVED, LinkParts, compose, moved, parts


def routes() -> list[Route]:
    """A redirecting route for each former page, below the app's own path."""
    below = st.get_option("server.baseUrlPath").strip("/")
    return [Route(f"/{f'{below}/{name}'.lstrip('/')}", _redirect) for name in MOVED]


def _redirect(request: Request) -> RedirectResponse:
    name = request.url.path.rpartition("/")[2]
    return RedirectResponse(compose(LinkParts(*moved(name, parts(f"?{request.url.query}").values))))
