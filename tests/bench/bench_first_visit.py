"""What does a first visit cost, and what moves while a page opens?

Run it with ``python tests/bench/bench_first_visit.py [page …]``, or with ``--load`` for the cost alone; the
last lines are one JSON object each.

Cost: Heads in a browser that knows nothing, beside an empty page of Streamlit, in turns. Bytes are those of
every answer and of the websocket; a task of the main thread blocks for what it takes above 50 milliseconds
(https://web.dev/articles/tbt); both are medians. Plotly's script weighs more than all the rest: pages ask for
it where they show a figure of it, and Heads has none.

Moves: the layout shift of each page, on a fresh server and again on a warm one. A shift counts how much of
the screen moves how far (https://web.dev/articles/cls); up to `MAX_SHIFT` Chromium calls a page good, and the
ratio printed is against that. Not counted: that Streamlit's empty page is made wide, and moves aside when
Streamlit draws its sidebar.
"""

import json
import statistics
import sys
from typing import NamedTuple

from chromium import MAX_SHIFT, PHONE, SHIFT, app, chromium, served

PAGES = [
    "",
    "?source=random&layers=12",
    "token",
    "model",
    "steps",
    "what-if",
    "steps?steps_view=layers",
    "embeddings",
    "steps?steps_view=order",
    "cost",
    "train",
    "compare",
    "train?train_view=heads",
    "cases",
]
SCREENS = {
    "wide": {"viewport": {"width": 1440, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "user_agent": PHONE},
}
TARGET = 1.0  # times MAX_SHIFT
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
    plotly: int  # requests for a script of plotly's


def load(browser, address: str) -> Load:
    """A visit in a browser that knows nothing, until the page has been calm for a while."""
    context = browser.new_context(**SCREENS["wide"])
    context.add_init_script(BLOCKED)
    page = context.new_page()
    received, asked = [], []
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    network.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    page.on("request", lambda request: asked.append(request.url))
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
    return Load(sum(received) / 1e6, blocked / 1000, sum("plotly" in url.lower() for url in asked))


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
        "first_load_plotly_requests": (sum(one.plotly for one in visits["heads"]), 0, least.plotly),
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


def shift(browser, address: str, screen: dict) -> float:
    """What moved in one visit, in a browser that knows nothing."""
    page = browser.new_context(**screen).new_page()
    page.goto(address)
    page.locator("h1").first.wait_for()
    page.locator(DONE).wait_for()
    page.wait_for_timeout(CALM)
    moved = page.evaluate(SHIFT)
    page.context.close()
    return moved


def main() -> None:
    costs = loads()
    if "--load" not in sys.argv:
        moves(sys.argv[1:] or PAGES)
    for cost in costs:
        print(json.dumps(cost))


def moves(pages: list[str]) -> None:
    """What moves while these pages open."""
    worst: dict[str, tuple[float, str]] = {}
    with chromium() as browser:
        for screen, kind in SCREENS.items():
            for page in pages:
                with app() as address:
                    for server in ("fresh", "warm"):
                        moved = shift(browser, f"{address}/{page}", kind)
                        print(f"{screen:6} {page or 'heads':26} {server:6} {moved:.3f}", flush=True)
                        name = f"first_visit_{screen}_{server}"
                        worst[name] = max(worst.get(name, (0.0, "")), (moved, page or "heads"))
    for name, (moved, page) in worst.items():
        value = round(moved / MAX_SHIFT, 3)
        print(json.dumps({"name": name, "value": value, "target": TARGET, "worst page": page}))


if __name__ == "__main__":
    main()
