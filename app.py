"""The entry point of `streamlit run app.py`: the frame with its pages, and the files that browsers load."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import streamlit as st
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mha_core.errors import MhaError
from mha_core.export import head_view, scripts  # torch loads here, not with the first visitor
from mha_core.scene.page import MOVED, LinkParts, compose, moved, parts
from pages._server import guard, logs, rooms, runtime
from pages._server.first_paint import FirstPaint

FOREVER = "public, max-age=31536000, immutable"  # changed scripts have a new address
ROOT = f"/{st.get_option('server.baseUrlPath').strip('/')}".rstrip("/")
FOLDER = f"{ROOT}/headscope"
BASE = f"{FOLDER}/{scripts.digest()}"


class Modules(StaticFiles):
    """Our scripts, served as JavaScript whatever MIME type the system has for them."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["content-type"] = "text/javascript; charset=utf-8"
        response.headers["cache-control"] = FOREVER
        return response


def saved_page(_request: Request) -> HTMLResponse:
    """The page to save, without its numbers (streamlit/head_view.js fills them in)."""
    return HTMLResponse(head_view.page(), headers={"cache-control": FOREVER})


def model_page(request: Request) -> Response:
    """A page with a small model inside that opens at the link of the request's query, to be saved."""
    from mha_core.static import site  # only for who asks

    try:
        page = site.page(request.url.query)
    except MhaError as error:
        return PlainTextResponse(str(error), 404)
    return HTMLResponse(page, headers={"cache-control": "no-store"})


async def health(_request: Request) -> JSONResponse:
    """Whether the server is ready for visitors: a shipped model can be opened.

    Where it has rooms, also whether their database answers; without it everything else works.
    """
    told = {"ready": await run_in_threadpool(runtime.ready)}
    if rooms.offered():
        told["rooms"] = await rooms.answer()
    return JSONResponse(told, 200 if told["ready"] else 503, {"cache-control": "no-store"})


def older_link(request: Request) -> RedirectResponse:
    """Redirects a link to a page that has become a view of another page."""
    name = request.url.path.rpartition("/")[2]
    return RedirectResponse(compose(LinkParts(*moved(name, parts(f"?{request.url.query}").values))))


def failed(_request: Request, error: Exception) -> PlainTextResponse:
    """The response to an error outside the pages, with the headers that middleware does not add to it."""
    headers = {name.decode(): value.decode() for name, value in guard.headers()}
    return PlainTextResponse(f"Internal Server Error {logs.failure(error)}", 500, headers)


@contextlib.asynccontextmanager
async def lifespan(_app: object) -> AsyncIterator[dict]:
    logs.begin()  # again: the web server has set up logs of its own
    gc.freeze()  # a search of all that has been imported would keep a visitor waiting for 0.2 s
    logs.event("started")
    cleaning = asyncio.create_task(rooms.clean())
    yield {}
    cleaning.cancel()


ROUTES = [
    *(Route(f"{ROOT}/{name}", older_link) for name in MOVED),
    Route(f"{FOLDER}/health", health),
    Route(f"{FOLDER}/rooms/{{invitation}}", rooms.version),
    Route(f"{BASE}/saved_page.html", saved_page),
    Route(f"{BASE}/model_page.html", model_page),
    Mount(BASE, Modules(directory=scripts.FOLDER)),
]
runtime.begin()
app = st.App(
    "pages/frame.py",
    routes=ROUTES,
    middleware=[Middleware(guard.Guard), Middleware(guard.FirstVisit), Middleware(FirstPaint)],
    exception_handlers={Exception: failed},
    lifespan=lifespan,
    on_script_error=logs.show_failure,
)
