"""Adds our style rules and scripts to Streamlit's page, and names the files it would ask for late."""

import gzip
from functools import lru_cache
from urllib.parse import parse_qsl

import streamlit as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mha_core.export import scripts
from pages._server import streamlit_parts

FIRST = "streamlit/address.js"  # runs as soon as it is there: Back is heard before Streamlit hears of it
EARLY = (FIRST, "pictures/charts.js", "streamlit/head_view.js")  # on nearly all pages


class FirstPaint:
    """Adds our style rules and scripts to Streamlit's page, and a `Link` header with files it asks for late.

    Style rules that arrived with the first run would move what is already drawn. Without the files, headings
    would first appear in another font, wrap differently and push down what is below them. For the same reason
    a page that is embedded in another site has a class of its own.
    """

    def __init__(self, app: ASGIApp) -> None:
        how = "rel=preload; as=font; type=font/woff2; crossorigin"
        links = [f"<./static/{file}>; {how}" for file in streamlit_parts.early_fonts()]
        self.app, self.link = app, (b"link", ", ".join(links).encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start: Message | None = None
        parts: list[bytes] = []

        async def send_page(message: Message) -> None:
            nonlocal start
            if start is None:
                headers = {name.lower(): value for name, value in message.get("headers", ())}
                is_html = headers.get(b"content-type", b"").startswith(b"text/html")
                if is_html and not scope["path"].endswith(".html"):  # those are our own files
                    start = message
                else:
                    await send(message)
                return
            parts.append(message.get("body", b""))
            if message.get("more_body"):
                return
            headers = {name.lower(): value for name, value in start["headers"]}
            if body := b"".join(parts):
                packed = headers.get(b"content-encoding") == b"gzip"
                body = _with_ours(body, packed, _is_embedded(scope["query_string"]))
                headers[b"content-length"] = b"%d" % len(body)
            for name in (b"etag", b"last-modified"):  # they describe the page without our rules
                headers.pop(name, None)
            await send({**start, "headers": [*headers.items(), self.link]})
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, send_page)


def _is_embedded(query: bytes) -> bool:
    """Whether the address says `embed=true`, in capitals or not, as Streamlit reads it."""
    values = parse_qsl(query.decode("latin-1"))  # from bytes it reads only ASCII
    return ("embed", "true") in [(name.lower(), value.lower()) for name, value in values]


@lru_cache(maxsize=8)  # Streamlit's page: gzipped or not, embedded or not
def _with_ours(page: bytes, packed: bool, embedded: bool) -> bytes:
    text = gzip.decompress(page) if packed else page
    if embedded:
        text = text.replace(b"<html ", b'<html class="embedded" ', 1)
    # In the body: of two rules with the same specificity the later one wins, and Streamlit's are in the head.
    rules = f"<style>{_ground()}{scripts.asset('streamlit/app.css')}</style>"
    text = text.replace(b"</body>", f"{rules}{_early_scripts()}</body>".encode(), 1)
    return gzip.compress(text) if packed else text


def _ground() -> str:
    """The colour of the page while Streamlit starts, which would be white for a reader with a dark system."""
    light, dark = (st.get_option(f"theme.{kind}.backgroundColor") for kind in ("light", "dark"))
    rule = "html:not(.embedded) {{ background: {}; }}".format
    return f"{rule(light)} @media (prefers-color-scheme: dark) {{ {rule(dark)} }}"


def _early_scripts() -> str:
    """Our scripts, loaded with a lower priority than Streamlit's own files while that starts."""
    files = dict.fromkeys(file for module in EARLY for file in scripts.order(module))
    address = f"./headscope/{scripts.digest()}/"
    links = [f'<link rel="modulepreload" fetchpriority="low" href="{address}{file}">' for file in files]
    return "".join(
        [*links, f'<script type="module" async fetchpriority="low" src="{address}{FIRST}"></script>']
    )
