"""The cost of a page without a server, against an empty page of the same host and against the app.

Run it with ``python tests/bench/bench_static.py``; each line is a JSON object. The host compresses with gzip,
as static hosts do. The first picture is complete with the sentence's lines. A key press is the time that the
script of one input event takes, in milliseconds, the median of `KEYS` on a sentence of 20 tokens.
"""

import gzip
import statistics
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from chromium import app, chromium
from measuring import report

from mha_core.static import site

PICTURE = ".view .panel .status span"
EMPTY = "<!doctype html><h1>Empty</h1>"
VISITS, KEYS = 5, 30
MAX_BYTES = 1.0  # million, compressed
MAX_KEY = {32: 16, 64: 16, 128: 50, 256: None, 512: None}  # milliseconds, by d_model
PRESS = """async (count) => {
  const field = document.querySelector(".text textarea"), took = [];
  const text = "The animal didn't cross the street because it was too tired and a small dog saw it at home.";
  for (let turn = 0; turn < count; turn++) {
    field.value = text.slice(0, text.length - (turn % 2));
    const start = performance.now();
    field.dispatchEvent(new Event("input", { bubbles: true }));
    took.push(performance.now() - start);
    await new Promise((done) => setTimeout(done, 40));
  }
  return took.sort((a, b) => a - b)[count >> 1];
}"""


class Host(ThreadingHTTPServer):
    """A static host of a folder, which compresses, and counts what it sends."""

    def __init__(self, folder: Path):
        self.sent = 0
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                file = folder / self.path.partition("?")[0].lstrip("/")
                found = file.is_file()
                body = gzip.compress(file.read_bytes(), 6) if found else b""
                self.send_response(200 if found else 404)
                self.send_header("content-type", "text/javascript" if file.suffix == ".js" else "text/html")
                self.send_header("content-encoding", "gzip")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                host.sent += len(body)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


def seconds(browser, address: str, picture: str) -> float:
    """The time to the first picture of a visit with an empty cache."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.locator(picture).first.wait_for()
    taken = time.perf_counter() - start
    context.close()
    return taken


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        site.save_folder(folder)
        (Path(folder) / "empty.html").write_text(EMPTY, encoding="ascii")
        host = Host(Path(folder))
        with app() as running:
            seconds(browser, running, PICTURE)  # the first visitor waits for the server
            visits = {
                "static": (f"{host.address}/index.html", PICTURE),
                "empty": (f"{host.address}/empty.html", "h1"),
                "app": (running, PICTURE),
            }
            taken = {
                name: [seconds(browser, *visit) for _ in range(VISITS)] for name, visit in visits.items()
            }
        median = {name: statistics.median(times) for name, times in taken.items()}
        report("first picture / empty page", median["static"] / median["empty"], seconds=median["static"])
        report("first picture / app", median["static"] / median["app"], target=1.0, app_seconds=median["app"])
        host.sent = 0
        seconds(browser, *visits["static"])
        report("megabytes of the first load", host.sent / 1e6, MAX_BYTES)
        for width, target in MAX_KEY.items():
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{host.address}/index.html?d_model={width}&twin=")
            page.locator(PICTURE).first.wait_for()
            report(f"milliseconds of a key, d_model {width}", page.evaluate(PRESS, KEYS), target)
            page.close()
        host.shutdown()


if __name__ == "__main__":
    main()
