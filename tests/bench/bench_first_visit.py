"""What does a first visit cost? Heads in a browser that knows nothing, beside an empty page of Streamlit.

Run it with ``python tests/bench/bench_first_visit.py``; the last lines are one JSON object each. The two
pages take turns. Bytes are those of every answer and of the websocket; a task of the main thread blocks for
what it takes above 50 milliseconds (https://web.dev/articles/tbt); both are medians. What moves while a page
opens, and that Heads asks for no script of plotly's, are tests (tests/browser/test_first_visit.py).
"""

import json
import statistics
from typing import NamedTuple

from chromium import app, chromium, served

CALM = 3000  # milliseconds after the page has said that it is done
EMPTY = """
import streamlit as st

st.title("Empty")
"""
VISITS = 7  # to each of the two pages
MAX_BYTES = 5.0  # million
MAX_BLOCKING, MORE_BLOCKING = 1.5, 0.5  # times the empty page's, and so many seconds more
# Runs before the page's own scripts: for how many milliseconds its tasks have blocked.
BLOCKED = """(() => {
    window.blocked = 0;
    new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) window.blocked += duration - 50;
    }).observe({ type: 'longtask', buffered: true });
})()"""
DONE = "[data-testid=stApp][data-test-script-state=notRunning]"


class Load(NamedTuple):
    """What one visit cost."""

    megabytes: float
    blocked: float  # seconds


def load(browser, address: str) -> Load:
    """A visit in a browser that knows nothing, until the page has been calm for a while."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(BLOCKED)
    page = context.new_page()
    received = []
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    network.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    page.on(
        "websocket",
        lambda socket: socket.on("framereceived", lambda frame: received.append(len(frame))),
    )
    page.goto(address)
    page.locator("h1").first.wait_for()
    page.locator(DONE).wait_for()
    page.wait_for_timeout(CALM)
    blocked = page.evaluate("window.blocked")
    context.close()
    return Load(sum(received) / 1e6, blocked / 1000)


def loads() -> list[dict]:
    """What a first visit of Heads costs beside the empty page, as the lines that are printed last."""
    visits: dict[str, list[Load]] = {"heads": [], "empty": []}
    with chromium() as browser, app() as heads, served(EMPTY) as empty:
        for number in range(VISITS + 1):
            for name, address in (("heads", heads), ("empty", empty)):
                one = load(browser, address)
                print(f"{name:6} {one.megabytes:.2f} MB, blocked for {one.blocked:.2f} s", flush=True)
                if number:  # the first one warms the server
                    visits[name].append(one)
    half = {name: Load(*map(statistics.median, zip(*all_, strict=True))) for name, all_ in visits.items()}
    least, ours = half["empty"], half["heads"]
    rows = {
        "first_load_megabytes": (ours.megabytes, MAX_BYTES, least.megabytes),
        "first_load_blocking_seconds": (
            ours.blocked,
            MAX_BLOCKING * least.blocked + MORE_BLOCKING,
            least.blocked,
        ),
    }
    return [
        {"name": name, "value": round(value, 3), "target": round(target, 3), "empty page": round(empty, 3)}
        for name, (value, target, empty) in rows.items()
    ]


def main() -> None:
    for cost in loads():
        print(json.dumps(cost))


if __name__ == "__main__":
    main()
