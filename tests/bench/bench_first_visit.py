"""The cost of a first visit: Heads in a browser with an empty cache, against an empty page of Streamlit.

Run it with ``python tests/bench/bench_first_visit.py``; the last lines are one JSON object each. The two
pages take turns. The first picture is complete with the sentence's lines, on the empty page with its title.
Bytes are those of every response and of the websocket; the blocking time of a task of the main thread is its
time above 50 milliseconds (https://web.dev/articles/tbt); all figures are medians. Tests check that nothing
moves while a page opens, and that Heads loads no script of plotly's (tests/browser/test_first_visit.py).
"""

import statistics
import time
from typing import NamedTuple

from chromium import app, chromium, served
from measuring import report

CALM = 3000  # milliseconds after the page is complete
EMPTY = """
import streamlit as st

st.title("Empty")
"""
VISITS = 7  # of each of the two pages
MAX_BYTES = 5.0  # million
MAX_TIME = 1.3  # multiple of the empty page's, to the first picture
MAX_BLOCKING, MORE_BLOCKING = 1.5, 0.5  # multiple of the empty page's, plus seconds
# Runs before the page's own scripts and counts the milliseconds for which tasks blocked.
BLOCKED = """(() => {
    window.blocked = 0;
    new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) window.blocked += duration - 50;
    }).observe({ type: 'longtask', buffered: true });
})()"""
DONE = "[data-testid=stApp][data-test-script-state=notRunning]"


class Load(NamedTuple):
    """The cost of one visit."""

    seconds: float  # to the first picture
    megabytes: float
    blocked: float  # seconds


def load(browser, address: str, picture: str) -> Load:
    """A visit with an empty cache, until the page has been quiet for a while after this first picture."""
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
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.locator(picture).first.wait_for()
    seconds = time.perf_counter() - start
    page.locator(DONE).wait_for()
    page.wait_for_timeout(CALM)
    blocked = page.evaluate("window.blocked")
    context.close()
    return Load(seconds, sum(received) / 1e6, blocked / 1000)


def main() -> None:
    visits: dict[str, list[Load]] = {"heads": [], "empty": []}
    with chromium() as browser, app() as heads, served(EMPTY) as empty:
        for number in range(VISITS + 1):
            for name, address, picture in (("heads", heads, ".lines canvas"), ("empty", empty, "h1")):
                one = load(browser, address, picture)
                print(name, one, flush=True)
                if number:  # the first one warms the server
                    visits[name].append(one)
    ours, least = (Load(*map(statistics.median, zip(*each, strict=True))) for each in visits.values())
    targets = Load(MAX_TIME * least.seconds, MAX_BYTES, MAX_BLOCKING * least.blocked + MORE_BLOCKING)
    names = ("seconds_to_the_first_picture", "first_load_megabytes", "first_load_blocking_seconds")
    for name, value, target, empty_page in zip(names, ours, targets, least, strict=True):
        report(name, value, round(target, 3), empty_page=round(empty_page, 3))


if __name__ == "__main__":
    main()
