"""What moves while a page opens? The layout shift of each page, on a fresh server and again on a warm one.

Run it with ``python tests/bench/bench_first_visit.py [page …]``; the last lines are one JSON object each.
A shift counts how much of the screen moves how far (https://web.dev/articles/cls); up to `MAX_SHIFT`
Chromium calls a page good, and the ratio printed is against that. Not counted: that Streamlit's empty page
is made wide, and moves aside when Streamlit draws its sidebar.
"""

import json
import sys

from chromium import PHONE, app, chromium

PAGES = [
    "",
    "?source=random&layers=12",
    "token",
    "model",
    "steps",
    "what-if",
    "hops",
    "embeddings",
    "positions",
    "cost",
    "train",
    "compare",
    "sweep",
    "cases",
]
SCREENS = {
    "wide": {"viewport": {"width": 1440, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "user_agent": PHONE},
}
MAX_SHIFT = 0.1
TARGET = 1.0  # times MAX_SHIFT
CALM = 3000  # milliseconds after the page has said that it is done
SHIFT = """() => new Promise((resolve) => {
    const whole = '[data-testid="stMainBlockContainer"]';
    const frame = ({ node }) => node instanceof Element && (node.matches(whole) || node.querySelector(whole));
    const observer = new PerformanceObserver((list) => {
        const counts = (shift) => !shift.hadRecentInput && !shift.sources.some(frame);
        resolve(list.getEntries().filter(counts).reduce((sum, { value }) => sum + value, 0));
    });
    observer.observe({ type: 'layout-shift', buffered: true });
    requestAnimationFrame(() => setTimeout(() => resolve(0)));  // where nothing has moved it is not called
})"""
DONE = "[data-testid=stApp][data-test-script-state=notRunning]"


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
    pages = sys.argv[1:] or PAGES
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
