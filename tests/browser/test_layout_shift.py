"""What a user sees stays where it is while a page loads for the first time, on a busy machine, too.

Not counted: that Streamlit's empty page is made wide, and moves aside when Streamlit draws its sidebar.
"""

import pytest

MAX_SHIFT = 0.1  # up to here Chromium calls a page good
LAYOUT_SHIFT = """() => new Promise((resolve) => {
    const whole = '[data-testid="stMainBlockContainer"]';
    const frame = ({ node }) => node instanceof Element && (node.matches(whole) || node.querySelector(whole));
    const observer = new PerformanceObserver((list) => {
        const counts = (shift) => !shift.hadRecentInput && !shift.sources.some(frame);
        resolve(list.getEntries().filter(counts).reduce((sum, { value }) => sum + value, 0));
    });
    observer.observe({ type: 'layout-shift', buffered: true });
    requestAnimationFrame(() => setTimeout(() => resolve(0)));  // where nothing has moved it is not called
})"""
PAGES = ["", "?source=random&layers=12", "token", "model", "steps", "hops", "embeddings", "train"]
PAGES += ["before-after", "sweep"]
WIDE, PHONE = (1440, 900), (390, 844)
ON_PHONES = ["", "?source=random&layers=12", "token", "steps"]  # where pictures stand above each other


@pytest.mark.parametrize(
    ("page", "size"), [*((page, WIDE) for page in PAGES), *((page, PHONE) for page in ON_PHONES)]
)
def test_what_is_seen_stays_where_it_is_while_a_page_loads(visit, app, page, size):
    opened = visit(f"{app}/{page}", width=size[0], height=size[1], first=True)
    assert opened.evaluate(LAYOUT_SHIFT) <= MAX_SHIFT
