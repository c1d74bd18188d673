"""Adds headers to every response, and enforces the limits on open pages and messages."""

import asyncio
import contextlib
import os
import time

import streamlit as st
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mha_core import resources
from pages._kit.text import COOKIE, LANG, first_known, set_language, t
from pages._server import limits, logs, streamlit_parts

RETRY = 30  # seconds
# Styled like the app's pages; the page reloads itself with the same link.
FULL = """<!doctype html><html lang="{code}"><meta charset="utf-8">
<meta http-equiv="refresh" content="{seconds}">
<meta name="viewport" content="width=device-width"><title>Headscope</title><style>
:root {{ color-scheme: light dark; font: 1.05rem/1.5 sans-serif }}
body {{ margin: 20vh auto; max-width: 34rem; padding: 0 1.2rem;
    color: light-dark(#20242e, #e6e3da); background: light-dark(#fbfaf6, #15171c) }}
h1 {{ font: 600 1.7rem/1.25 serif }}</style>
<h1>{title}</h1>
<p>{text}</p></html>"""
CLOSE_TRY_AGAIN = 1013  # the code with which a websocket closes: try again later


def headers() -> list[tuple[bytes, bytes]]:
    """The headers that forbid a page to run, contact or show anything that is not part of the app.

    They are as strict as Streamlit allows: its components are blob: scripts, its protocol is decoded with
    WebAssembly, its styles are inline, and its one inline script is allowed by its hash.
    """
    sites = limits.framing_sites()
    policy = {
        "default-src": "'none'",
        "script-src": " ".join(["'self'", "blob:", "'wasm-unsafe-eval'", *streamlit_parts.inline_scripts()]),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "media-src": "'self' blob:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "manifest-src": "'self'",
        "base-uri": "'self'",
        "form-action": "'none'",
    }
    if sites is not None:
        policy["frame-ancestors"] = " ".join(["'self'", *sites])
    values = {
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",  # an address contains the sentence
        "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
        "cross-origin-opener-policy": "same-origin",
    }
    return [(name.encode(), value.encode()) for name, value in values.items()]


class Guard:
    """Adds the headers to every response, and enforces the limits on open pages and messages."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.headers, self.limits, self.pages = app, headers(), limits.current(), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._page(scope, receive, send)
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        elif not self.limits.metrics and any(path in scope["path"] for path in streamlit_parts.CLOSED):
            await _answer(404, b"Not Found", "text/plain", self._with_headers(send))
        elif self._full() and b"text/html" in dict(scope["headers"]).get(b"accept", b""):
            more = [(b"retry-after", b"%d" % RETRY), (b"cache-control", b"no-store")]
            await _answer(503, full_page(scope), "text/html", self._with_headers(send), *more)
        else:
            # Replacing a file during its upload aborts the first upload, and nobody waits for its answer.
            with contextlib.suppress(ClientDisconnect):
                await self.app(scope, receive, self._with_headers(send))

    def _with_headers(self, send: Send) -> Send:
        names = {name for name, _ in self.headers}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [pair for pair in message.get("headers", ()) if pair[0].lower() not in names]
                message = {**message, "headers": [*others, *self.headers]}
            await send(message)

        return send_with_headers

    def _with_handshake(self, scope: Scope, send: Send) -> Send:
        """Adds the headers to the answer to a page that connects, even when it is refused."""
        can_answer, begun = "websocket.http.response" in scope.get("extensions", ()), False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            first, begun = not begun, True
            if first and message["type"] == "websocket.close" and can_answer:
                status = 503 if message.get("code") == CLOSE_TRY_AGAIN else 403
                start = {"type": "websocket.http.response.start", "status": status, "headers": self.headers}
                await send(start)
                await send({"type": "websocket.http.response.body", "body": b""})
                return
            if first and message["type"] == "websocket.accept":
                message = {**message, "headers": [*message.get("headers", ()), *self.headers]}
            await send(message)

        return send_with_headers

    def _full(self) -> bool:
        return self.limits.sessions is not None and self.pages >= self.limits.sessions

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an open page from its first message to its last."""
        send = self._with_handshake(scope, send)
        if self._full():
            logs.event("page refused", pages=self.pages)
            await send({"type": "websocket.close", "code": CLOSE_TRY_AGAIN})
            return
        self.pages += 1
        try:
            await self.app(scope, paced(receive, self.limits), send)
        finally:
            self.pages -= 1


class FirstVisit:
    """Redirects the first visit without a query to the link that `headscope open` was given."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.link = app, os.environ.get(resources.LINK, "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        base = f"/{st.get_option('server.baseUrlPath').strip('/')}".rstrip("/")
        is_bare = scope.get("path") in (base, f"{base}/") and not scope.get("query_string")
        if not (self.link and scope["type"] == "http" and scope["method"] == "GET" and is_bare):
            await self.app(scope, receive, send)
            return
        location, self.link = f"{base}{self.link}", ""
        headers = ((b"location", location.encode()), (b"cache-control", b"no-store"))
        await _answer(307, b"", "text/plain", send, *headers)


def full_page(scope: Scope) -> bytes:
    """The page shown to a visitor while as many pages are open as the server can serve."""
    request = HTTPConnection(scope)
    link, cookie = request.query_params.get(LANG), request.cookies.get(COOKIE)
    preferred = request.headers.get("accept-language", "").split(",")  # browsers name the best first
    set_language(first_known([link, cookie, *map(str.strip, preferred)]))
    text, code = t("server.full_text", seconds=RETRY), t("language.code")
    return FULL.format(code=code, seconds=RETRY, title=t("server.full"), text=text).encode()


async def _answer(status: int, text: bytes, kind: str, send: Send, *more: tuple[bytes, bytes]) -> None:
    content = [(b"content-type", f"{kind}; charset=utf-8".encode()), (b"content-length", b"%d" % len(text))]
    headers = [*content, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def paced(receive: Receive, server: limits.Limits) -> Receive:
    """Delays the messages beyond the limit; nobody but their sender waits for them."""
    rate, burst = server.messages_per_second, server.messages_at_once
    if rate is None or burst is None:
        return receive
    left, before = float(burst), time.monotonic()

    async def receive_at_pace() -> Message:
        nonlocal left, before
        message = await receive()
        if message["type"] == "websocket.receive":
            now = time.monotonic()
            left, before = min(burst, left + (now - before) * rate) - 1, now
            if left < 0:
                await asyncio.sleep(-left / rate)
        return message

    return receive_at_pace
