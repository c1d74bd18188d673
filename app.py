"""What `streamlit run app.py` starts: the frame with its pages, and the files that they fetch."""

import streamlit as st
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mha_core.export import head_view, scripts  # and torch, when the server starts and not with a visitor
from pages._kit.streamlit_parts import Preload

FOREVER = "public, max-age=31536000, immutable"  # other scripts have another address
BASE = "/".join([st.get_option("server.baseUrlPath").strip("/"), "headscope", scripts.digest()]).lstrip("/")


class Modules(StaticFiles):
    """Our scripts, called scripts whatever the system takes a file of that name for."""

    def file_response(self, *args, **options):
        response = super().file_response(*args, **options)
        response.headers["content-type"] = "text/javascript; charset=utf-8"
        response.headers["cache-control"] = FOREVER
        return response


def saved_page(_request) -> HTMLResponse:
    """A page to be saved, without its numbers (head_view_app.js)."""
    return HTMLResponse(head_view.page(), headers={"cache-control": FOREVER})


ROUTES = [
    Route(f"/{BASE}/saved_page.html", saved_page),
    Mount(f"/{BASE}", Modules(directory=scripts.FOLDER)),
]
app = st.App("pages/frame.py", routes=ROUTES, middleware=[(Preload, (), {})])
