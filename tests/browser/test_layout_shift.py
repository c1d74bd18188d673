"""Little on the screen moves while a page loads, on a busy machine, too.

Not counted: that the page as a whole moves aside when Streamlit draws its sidebar. Not asked: pages that
begin with a sentence, which pushes down what is below it when a browser sees one for the first time.
"""

import pytest

MAX_SHIFT = 0.25  # from here on Chromium calls a page poor
LAYOUT_SHIFT = """() => new Promise((resolve) => {
    let sum = 0;
    const whole = ({ previousRect }) => previousRect.height >= innerHeight;
    new PerformanceObserver((list) => {
        for (const shift of list.getEntries()) {
            if (!shift.hadRecentInput && !shift.sources.some(whole)) sum += shift.value;
        }
    }).observe({ type: 'layout-shift', buffered: true });
    setTimeout(() => resolve(sum), 300);
})"""
PAGES = ["model", "steps", "hops", "embeddings", "train", "sweep"]
HEIGHT = {1440: 900, 390: 844}


@pytest.mark.parametrize("width", HEIGHT)
@pytest.mark.parametrize("page", PAGES)
def test_what_is_seen_stays_about_where_it_is_while_a_page_loads(visit, app, page, width):
    assert (
        visit(f"{app}/{page}", width=width, height=HEIGHT[width], first=True).evaluate(LAYOUT_SHIFT)
        < MAX_SHIFT
    )
