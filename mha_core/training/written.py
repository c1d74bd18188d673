"""Sentences written by hand, with questions about their words and the right answers, in halves.

One half is for fitting the temperatures of the small models, the other measures how often they are right.
"""

from functools import cache
from typing import NamedTuple

from mha_core import resources

HALVES = ("fit", "held out")
NOTHING = "-"


class Asked(NamedTuple):
    """A question about a word of a sentence written by hand, and its right answer."""

    text: str
    question: str
    word: str
    answer: str


@cache
def written(language: str) -> dict[str, tuple[Asked, ...]]:
    """The questions of each half of the sentences."""
    halves: dict[str, list[Asked]] = {half: [] for half in HALVES}
    half = HALVES[0]
    file = resources.path("assets", "small_languages", "written", f"{language}.txt")
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            half = next((name for name in HALVES if line.startswith(f"# {name}:")), half)
        elif line:
            text, _, questions = line.partition(" | ")
            for one in questions.split("; "):
                word, question, answer = one.split()
                halves[half].append(Asked(text, question, word, answer))
    return {name: tuple(asked) for name, asked in halves.items()}
