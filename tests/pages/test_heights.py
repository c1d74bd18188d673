"""The heights that components state before they are drawn are about those that they have in Chromium."""

import pytest

import mha_core as mha
from mha_core.scene.scene import Scene
from pages._kit import heights

LABELS = ("[CLS]", *mha.words(Scene().text).labels)
MEASURED = [  # at 1440 and at 390 pixels
    (heights.chooser, ([LABELS],), (72, 127)),
    (heights.chooser, ([LABELS], [2, 4]), (113, 168)),
    (heights.chooser, ([["我", "很", "累"]],), (72, 60)),
    (heights.view, ([13, 13],), (484, 577)),
    (heights.heads, ([LABELS, LABELS], 4), (1011, 1541)),
    (heights.worded_view, ([LABELS, LABELS],), (558, 708)),
    (heights.heatmaps, (2, 2, heights.heatmap(13)), (439, 461)),
    (heights.heatmaps, (2, 2, heights.heatmap(4), True), (323, 624)),
    (heights.overview, ([12] * 6,), (516, 524)),
    (heights.overview, ([12] * 12,), (768, 668)),
]


@pytest.fixture(params=["desk", "phone"])
def screen(request, monkeypatch):
    monkeypatch.setattr(heights, "on_phone", lambda: request.param == "phone")
    return request.param


@pytest.mark.parametrize(("estimate", "arguments", "measured"), MEASURED)
def test_a_stated_height_is_about_the_one_measured(screen, estimate, arguments, measured):
    assert estimate(*arguments) == pytest.approx(measured[screen == "phone"], abs=30)


def test_a_strip_grows_by_rows_up_to_its_greatest_height(screen):
    assert heights.chooser([["a" * 12] * 5]) < heights.chooser([["語" * 12] * 5])
    row = heights.TOKEN_ROW_ON_PHONE if screen == "phone" else heights.TOKEN_ROW
    assert heights.chooser([["a" * 1000]]) == row
    assert heights.chooser([[*"ab"] * 200]) == heights.MAX_STRIP
    assert heights.chooser([["a"], ["b"]]) == 2 * (row + heights.STRIP_NAME)


def test_a_view_is_as_high_as_its_longest_text(screen):
    growth = heights.view([13, 20]) - heights.view([13, 13])
    assert growth == 7 * heights.LINE_ROW
    names = heights.NAMES_IN_TWO_LINES if screen == "phone" else heights.TITLE
    assert heights.view([13, 20]) - heights.view([20]) == names
    assert heights.view([5000]) == heights.view([4000])


@pytest.mark.parametrize(
    ("agent", "phone"), [("Chrome/150.0 Mobile Safari/537.36", True), ("Chrome/150.0 Safari/537.36", False)]
)
def test_a_browser_says_whether_it_is_a_phones(monkeypatch, agent, phone):
    monkeypatch.setattr(type(heights.st.context), "headers", {"User-Agent": agent})
    assert heights.on_phone() is phone
