"""Nothing on the screen jumps while a page loads."""

import pytest

MAX_SHIFT = 0.1  # Chromium's own bound of a good page
LAYOUT_SHIFT = """() => new Promise((resolve) => {
    let sum = 0;
    new PerformanceObserver((list) => {
        for (const jump of list.getEntries()) if (!jump.hadRecentInput) sum += jump.value;
    }).observe({ type: 'layout-shift', buffered: true });
    setTimeout(() => resolve(sum), 300);
})"""
PAGES = ["", "?source=random&layers=12", "token", "model", "steps", "hops", "embeddings", "train"]
PAGES += ["before-after", "sweep"]
HEIGHT = {1440: 900, 390: 844}


@pytest.mark.parametrize("width", HEIGHT)
@pytest.mark.parametrize("page", PAGES)
def test_what_is_seen_stays_where_it_is_while_a_page_loads(visit, app, page, width):
    assert (
        visit(f"{app}/{page}", width=width, height=HEIGHT[width], first=True).evaluate(LAYOUT_SHIFT)
        < MAX_SHIFT
    )


def test_a_page_is_seen_once_it_has_its_sidebar_and_its_style(visit, app):
    page = visit(app)
    for part in ("stAppViewContainer", "stMain"):
        shown = page.get_by_test_id(part).evaluate(
            "e => [getComputedStyle(e).opacity, e.getAnimations().length]"
        )
        assert shown == ["1", 0]
