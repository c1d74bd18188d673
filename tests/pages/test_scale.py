"""Colours of weights go from 0 to 1 on every page, or up to the largest weight if the link asks for it."""

import json

import numpy as np
import pytest

# For each page a link to it, and the keys of its pictures of weights.
PAGES = {
    "see/token.py": ({"layers": 2}, ("one-heads", "one-layers", "one-products")),
    "see/compare.py": ({}, ("compare-weights",)),
    "understand/steps.py": ({}, ("steps",)),
    "understand/what_if.py": ({"edits": "off,layer=1,head=1"}, ("what-if-weights",)),
    "understand/steps.py?": (
        {"architecture": "standard", "layers": 2, "steps_view": "layers"},
        ("hops-first",),
    ),
}
# Pages with words above them that are shaded by the weights.
STRIPS = PAGES.keys() - {"see/compare.py", "understand/what_if.py"}


@pytest.mark.parametrize("page", PAGES)
def test_equal_colours_are_equal_weights_on_every_page_unless_the_link_asks_for_more(
    opened_on, heatmaps, page
):
    def ends(**scale: str) -> tuple[list[tuple[float, float]], float | None]:
        """Where the colours of each picture of weights end, with its largest weight, and those above."""
        link, keys = PAGES[page]
        app = opened_on(page.strip("?"), "exactly", **link, **scale)
        drawn = []
        for key in keys:
            weights = [one for one in heatmaps(app, key).values() if not one["signed"]]
            largest = max(float(np.nanmax(one["values"])) for one in weights)
            drawn += [(one["end"], largest) for one in weights]
        if page not in STRIPS:
            return drawn, None
        return drawn, json.loads(app.get_by_key("chooser").proto.json)[0]["strips"][-1]["limit"]

    drawn, words = ends()
    assert {end for end, _ in drawn} == {1.0}
    assert words in (None, 1.0)
    drawn, words = ends(scale="fitted")
    assert all(largest <= end + 1e-6 for end, largest in drawn)
    if page != "understand/steps.py":
        assert any(end == pytest.approx(largest) for end, largest in drawn)
    assert max(end for end, _ in drawn) < 1
    if page in STRIPS:
        assert words < 1
