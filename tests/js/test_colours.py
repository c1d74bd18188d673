"""The colours of heads in small text are readable in both themes, measured by numpy."""

import itertools
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
def test_heads_and_words_are_readable_in_small_text_on_chips_of_any_weight(javascript, theme):
    named = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"][theme]
    code = f"""
    const named = {json.dumps(named)};
    const [ground, ...heads] = [named.backgroundColor, ...named.chartCategoricalColors].map(colourOf);
    const focus = shade([ground, colourOf(named.primaryColor)], 0.16);
    const texts = named.chartCategoricalColors.map((colour) => textColour(colour, named.textColor, focus));
    const shares = Array.from({{ length: 101 }}, (_, at) => at / 100);
    const scales = [named.chartSequentialColors.map(colourOf), ...heads.map((colour) => [ground, colour])];
    const chips = scales.flatMap((scale) => shares.map((share) => shade(scale, share)));
    return [[ground, focus], heads, texts, chips.map((chip) => [chip, colourOf(inkOn(chip))])];
    """
    grounds, heads, texts, chips = javascript(["pictures/colours.js"], code)
    found = [[int(part) for part in re.findall(r"\d+", text)] for text in texts]
    assert len(set(texts)) == len(texts)  # heads are still told apart
    assert [text == colour for text, colour in zip(found, heads, strict=True)].count(True) >= 2
    for pair in [*chips, *itertools.product(grounds, found)]:
        dark, light = sorted(luminance(colour) + 0.05 for colour in pair)
        assert light / dark >= 4.5
