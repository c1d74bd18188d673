"""The colours of heads in small text are readable in both themes, measured by numpy."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

CONFIG = Path(__file__).parents[2] / ".streamlit" / "config.toml"


def luminance(colour) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(colour) / 255]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colour_of_a_head_is_readable_as_small_text(javascript, theme):
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


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_word_is_readable_on_a_chip_of_any_weight_and_head(javascript, theme):
    named = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"][theme]
    code = f"""
    const {{ chartSequentialColors, chartCategoricalColors, backgroundColor }} = {json.dumps(named)};
    const shares = Array.from({{ length: 101 }}, (_, at) => at / 100);
    const ofHeads = chartCategoricalColors.map((colour) => [backgroundColor, colour]);
    const scales = [chartSequentialColors, ...ofHeads];
    const chips = scales.flatMap((scale) => shares.map((share) => shade(scale.map(colourOf), share)));
    return chips.map((chip) => [chip, colourOf(inkOn(chip))]);
    """
    chips = javascript(["pictures/colours.js"], code)
    assert len(chips) == 11 * 101
    for pair in chips:
        dark, light = sorted(luminance(colour) + 0.05 for colour in pair)
        assert light / dark >= 4.5
