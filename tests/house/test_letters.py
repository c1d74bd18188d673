"""The letters of our own elements have the sizes that are written beside the colours."""

import re

from tests.house.test_texts import ROOT

# What is to be read from the back of a room, or is as large as its own place.
OTHERS = {
    "28px",
    "2.4em",
    "2.6rem",
    "clamp(1rem, 0.35rem + 1.76vw, 3rem)",
    "clamp(3.5rem, 10.5vw, 15rem)",
    "0.5em",
    "var(--small)",
    "inherit",
    "0",
}


def test_every_size_is_one_of_six():
    written = re.search(
        r"^# ([\d. ]+)\. Numbers", (ROOT / ".streamlit/config.toml").read_text(encoding="utf-8"), re.M
    )
    sizes = {f"{size}{unit}" for size in written[1].split() for unit in ("rem", "em")}
    assert len(sizes) == 12
    for file in (ROOT / "assets" / "components").rglob("*.css"):
        used = set(re.findall(r"(?:font-size|--small): ([^;}]+)", file.read_text(encoding="utf-8")))
        assert used <= sizes | OTHERS, file.name
