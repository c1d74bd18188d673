"""What `streamlit run app.py` starts: the frame with its pages, and the files that they fetch."""

import contextlib

import streamlit as st
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mha_core.export import head_view, scripts  # and torch, when the server starts and not with a visitor
from pages._server import guard, logs, older_links, runtime
from pages._server.first_paint import FirstPaint

FOREVER = "public, max-age=31536000, immutable"  # other scripts have another address
ROOM = "/".join([st.get_option("server.baseUrlPath").strip("/"), "headscope"]).lstrip("/")
BASE = f"{ROOM}/{scripts.digest()}"


class Modules(StaticFiles):
    """Our scripts, called scripts whatever the system takes a file of that name for."""

    def file_response(self, *args, **options):
        response = super().file_response(*args, **options)
        response.headers["content-type"] = "text/javascript; charset=utf-8"
        response.headers["cache-control"] = FOREVER
        return response


def saved_page(_request) -> HTMLResponse:
    """A page to be saved, without its numbers (streamlit/head_view.js)."""
    return HTMLResponse(head_view.page(), headers={"cache-control": FOREVER})


async def health(_request) -> JSONResponse:
    """Whether visitors can be sent here: a shipped model opens."""
    ready = await run_in_threadpool(runtime.ready)
    return JSONResponse({"ready": ready}, 200 if ready else 503, {"cache-control": "no-store"})


def failed(_request, error: Exception) -> PlainTextResponse:
    """An error outside of the pages; this response passes no middleware."""
    headers = {name.decode(): value.decode() for name, value in guard.headers()}
    return PlainTextResponse(f"Internal Server Error {logs.failure(error)}", 500, headers)


@contextlib.asynccontextmanager
async def lifespan(_app):
    logs.begin()  # once more: the web server has set up logs of its own
    runtime.settle()
    logs.event("started")
    yield {}


ROUTES = [
    *older_links.routes(),
    Route(f"/{ROOM}/health", health),
    Route(f"/{BASE}/saved_page.html", saved_page),
    Mount(f"/{BASE}", Modules(directory=scripts.FOLDER)),
]
runtime.begin()
app = st.App(
    "pages/frame.py",
    routes=ROUTES,
    middleware=[(guard.Guard, (), {}), (guard.FirstVisit, (), {}), (FirstPaint, (), {})],
    exception_handlers={Exception: failed},
    lifespan=lifespan,
    on_script_error=logs.show_failure,
)
