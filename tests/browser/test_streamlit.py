"""Components of ours among the elements of Streamlit: they take as much room as they need."""

import pytest


@pytest.mark.parametrize(
    ("address", "keys"),
    [("?source=random&layers=3", ("head_view", "overview_fold")), ("token", ("chooser",))],
)
def test_components_have_the_height_they_need(visit, app, address, keys):
    page = visit(f"{app}/{address}")
    for key in keys:
        page.locator(f".st-key-{key} :is(.panel, canvas, button)").first.wait_for()
        box = page.locator(f".st-key-{key}")
        whole = box.locator(":scope > *").evaluate_all("all => Math.max(...all.map((e) => e.scrollHeight))")
        assert box.bounding_box()["height"] >= whole - 1, key
        box.evaluate(
            "box => box.querySelectorAll('*').forEach(({ shadowRoot }) => shadowRoot?.replaceChildren())"
        )
        assert box.bounding_box()["height"] < 100, key  # it has no more room than what is in it
