"""Curves between tokens, run by node and compared with numpy."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

CONFIG = Path(__file__).parents[2] / ".streamlit" / "config.toml"


def bezier(points, t):
    p = np.array(points).reshape(4, 2)
    return (
        (1 - t) ** 3 * p[0] + 3 * (1 - t) ** 2 * t * p[1] + 3 * (1 - t) * t**2 * p[2] + t**3 * p[3]
    ).tolist()


def test_the_distance_to_a_curve_is_the_nearest_of_its_points(javascript):
    curve = [0, 12, 45, 12, 55, 108, 100, 108]
    every = np.array([bezier(curve, t) for t in np.linspace(0, 1, 4001)])
    places = [(0, 12), (100, 108), (50, 60), (50, 66), (20, 19), (97, 100), (30, 60)]
    code = f"return {json.dumps(places)}.map(([x, y]) => distance({curve}, x, y, 1000));"
    found = javascript(["pictures/curves.js"], code)
    for (x, y), d in zip(places, found, strict=True):
        assert d == pytest.approx(np.hypot(*(every - (x, y)).T).min(), abs=0.15)


def test_what_is_clearly_elsewhere_is_not_computed(javascript):
    code = (
        "return [distance([0,0,45,0,55,50,100,50], 50, 80, 8), distance([0,0,45,0,55,50,100,50], -9, 0, 8)];"
    )
    assert javascript(["pictures/curves.js"], code) == ["Infinity", "Infinity"]


def test_under_the_pointer_is_the_nearest_curve_and_of_equals_the_strongest(javascript):
    code = """
    const flat = (y, weight, head) => ({ points: between(0, y, 100, y), weight, head });
    const name = (curve) => curve?.head ?? null;
    const curves = [flat(10, 0.2, 0), flat(10.5, 0.9, 1), flat(20, 0.1, 2)];
    return [name(under(curves, 50, 9.8)), name(under(curves, 50, 18)), name(under(curves, 50, 40)),
            name(under(curves, 50, 14.9)), name(under([], 50, 10))];
    """
    assert javascript(["pictures/curves.js"], code) == [1, 2, None, 1, None]


def test_an_arc_rises_with_the_distance_up_to_a_limit_and_a_tokens_own_is_a_loop(javascript):
    code = "return [[10, 60], [10, 900], [10, 10], [60, 10]].map(([from, to]) => arc(from, to, 200, 150));"
    near, far, own, back = javascript(["pictures/curves.js"], code)
    tops = [min(bezier(one, t)[1] for t in np.linspace(0, 1, 101)) for one in (near, far, own, back)]
    assert tops[0] == pytest.approx(200 - (14 + 0.45 * 50), abs=0.1)
    assert tops[1] == pytest.approx(50, abs=0.1)
    assert 175 < tops[2] < 195
    assert tops[3] == tops[0]
    assert (near[:2], near[-2:]) == ([10, 200], [60, 200])
    assert own[0] < 10 < own[-2]


def test_heads_beyond_the_colours_have_dashes(javascript):
    code = "return Array.from({ length: 7 }, (_, head) => lookOf(['#1', '#2', '#3'], head));"
    looks = javascript(["pictures/colours.js"], code)
    assert [look["colour"] for look in looks] == ["#1", "#2", "#3", "#1", "#2", "#3", "#1"]
    assert len({json.dumps(look) for look in looks}) == 7


def luminance(colour) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(colour) / 255]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colour_of_a_head_as_small_text_stands_out_from_the_page_and_from_a_word_in_focus(
    javascript, theme
):
    named = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"][theme]
    code = f"""
    const {{ chartCategoricalColors, textColor, backgroundColor, primaryColor }} = {json.dumps(named)};
    const focus = shade([colourOf(backgroundColor), colourOf(primaryColor)], 0.16);
    const texts = chartCategoricalColors.map((colour) => textColour(colour, textColor, focus));
    return [[colourOf(backgroundColor), focus], texts, chartCategoricalColors.map(colourOf)];
    """
    grounds, texts, colours = javascript(["pictures/colours.js"], code)
    found = [[int(part) for part in re.findall(r"\d+", text)] for text in texts]
    for ground in grounds:
        for text in found:
            dark, light = sorted(luminance(colour) + 0.05 for colour in (text, ground))
            assert light / dark >= 4.5
    assert len(set(texts)) == 10  # heads are still told apart
    assert [text == colour for text, colour in zip(found, colours, strict=True)].count(True) >= 2
