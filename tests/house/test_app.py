"""What the server adds to the page that Streamlit sends first, and that it touches nothing else."""

import gzip
import re

import pytest

from app import HEAD, STATIC, Early

PAGE = b"<html><head><title>x</title></head><body></body></html>"
WANTED = {"accept": "text/html,*/*", "accept-encoding": "gzip"}


def run(coroutine) -> None:
    """To its end: nothing here waits for anything, and another test may have a loop of its own running."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


def asked(
    kind: str, parts: list[bytes], headers: dict[str, str] | None = None, method: str = "GET"
) -> tuple[list[dict], dict]:
    """What a browser is sent of an answer of that kind, and what the server was asked."""
    sent, scopes = [], []

    async def server(scope, receive, send):
        scopes.append(scope)
        body = b"".join(parts)
        packed = any(name == b"accept-encoding" for name, _ in scope["headers"]) and "html" in kind
        pieces = [gzip.compress(body)] if packed else parts
        length = str(sum(map(len, pieces))).encode()
        head = [(b"content-type", kind.encode()), (b"content-length", length), (b"etag", b"7")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        for nth, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": nth < len(pieces)})

    async def send(message):
        sent.append(message)

    given = [
        (name.encode(), value.encode()) for name, value in (WANTED if headers is None else headers).items()
    ]
    run(Early(server)({"type": "http", "method": method, "headers": given}, None, send))
    return sent, scopes[0]


@pytest.mark.parametrize("parts", [[PAGE], [PAGE[:17], PAGE[17:], b""]], ids=["whole", "in parts"])
def test_a_page_is_given_the_style_that_it_waits_with(parts):
    [start, body], scope = asked("text/html; charset=utf-8", parts)
    assert body["body"] == PAGE.replace(b"</head>", HEAD + b"</head>")
    assert not body["more_body"]
    assert dict(start["headers"]) == {
        b"content-type": b"text/html; charset=utf-8",
        b"content-length": str(len(PAGE) + len(HEAD)).encode(),
        b"etag": b"7",
    }
    assert scope["headers"] == [(b"accept", b"text/html,*/*")]  # packed, it could not be written to


def test_all_else_is_sent_on_as_it_is():
    script = [b"</head>", b"more"]
    [start, first, second], scope = asked(
        "text/javascript", script, {"accept": "*/*", "accept-encoding": "gzip"}
    )
    assert dict(start["headers"])[b"content-length"] == b"11"
    assert [first["body"], second["body"]] == script
    assert dict(scope["headers"])[b"accept-encoding"] == b"gzip"


def test_a_socket_is_left_alone():
    seen = []

    async def server(scope, receive, send):
        seen.append((scope, receive, send))

    what = ({"type": "websocket", "headers": []}, object(), object())
    run(Early(server)(*what))
    assert seen == [what]


def test_the_scripts_and_the_font_that_are_fetched_early_are_there():
    links = re.findall(rb'<link rel="(\w+)"[^>]* href="./static/([^"]+)">', HEAD)
    assert [how for how, _ in links] == [b"modulepreload"] * 3 + [b"preload"]
    assert all((STATIC / name.decode()).is_file() for _, name in links)


def test_who_asks_for_the_head_alone_is_told_what_the_server_says():
    [start, *_], _ = asked("text/html; charset=utf-8", [PAGE], method="HEAD")
    assert dict(start["headers"])[b"content-length"] == str(len(PAGE)).encode()
