"""What `streamlit run app.py` starts: the frame with its pages, with what all of them have in their head."""

from pathlib import Path

import streamlit as st

from mha_core import resources, trace  # noqa: F401 (so torch is loaded before the first visitor comes)

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


app = st.App("pages/frame.py", middleware=[(Early, (), {})])
