"""The browser and the server of the browser tests, for commands that measure."""

import contextlib
import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[2]

_spec = importlib.util.spec_from_file_location("support", ROOT / "tests" / "browser" / "conftest.py")
_support = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_support)

program, Server, settle, broken = _support.program, _support.Server, _support.settle, _support.broken
WATCH, TWO_FRAMES = _support.WATCH, _support.TWO_FRAMES
PHONE, MAX_PHONE_WIDTH = _support.PHONE, _support.MAX_PHONE_WIDTH


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium as the tests start it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=_support.OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def served(code: str) -> Iterator[str]:
    """The address of a server with this code as its page."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "page.py"
        script.write_text(code, encoding="utf-8")
        server = Server(script)
        try:
            yield server.address
        finally:
            server.stop()


@contextlib.contextmanager
def app() -> Iterator[str]:
    """The address of a fresh server of the app."""
    server = Server()
    try:
        yield server.address
    finally:
        server.stop()
