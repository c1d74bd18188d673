"""What `streamlit run app.py` starts: the frame with its pages, with what all of them have in their head, and
the scripts that they fetch."""

from pathlib import Path

import streamlit as st
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mha_core import resources  # and torch, when the server starts and not when the first visitor comes
from mha_core.export import head_view, scripts

SCRIPTS = ("Html", "purify.es", "BidiComponent")  # what `st.html` and our components wait for
FONT = "SourceSerifVariable-Roman"  # of headings: a wider one that comes late would break their lines anew
ASKED = {
    'rel="modulepreload"': [f"js/{name}.*.js" for name in SCRIPTS],
    'rel="preload" as="font" type="font/woff2"': [f"media/{FONT}.*.woff2"],
}
STATIC = Path(st.__file__).parent / "static" / "static"
LINKS = (
    f'<link {how} crossorigin href="./static/{file.relative_to(STATIC).as_posix()}">'
    for how, patterns in ASKED.items()
    for pattern in patterns
    for file in STATIC.glob(pattern)
)
HEAD = resources.path("assets", "head.html").read_bytes() + "".join(LINKS).encode()


class Early:
    """Puts `HEAD` into the page that Streamlit sends before it knows what will be on it."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        started = None
        asked = dict(scope.get("headers", ()))
        if b"text/html" in asked.get(b"accept", b""):
            # Packed by Streamlit a page could not be written to.
            kept = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
            scope = scope | {"headers": kept}

        async def written(message):
            nonlocal started
            if message["type"] == "http.response.start" and _is_page(message["headers"]):
                started = message | {"body": b""}  # its length is not known yet
            elif started is None:
                await send(message)
            else:
                started["body"] += message.get("body", b"")
                if not message.get("more_body"):
                    body = started.pop("body").replace(b"</head>", HEAD + b"</head>", 1)
                    length = (b"content-length", str(len(body)).encode())
                    others = [own for own in started["headers"] if own[0].lower() != length[0]]
                    await send(started | {"headers": [*others, length]})
                    await send(message | {"body": body})

        await self.app(scope, receive, written if scope.get("method") == "GET" else send)


def _is_page(headers) -> bool:
    return any(name.lower() == b"content-type" and kind.startswith(b"text/html") for name, kind in headers)


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
app = st.App("pages/frame.py", routes=ROUTES, middleware=[(Early, (), {})])
