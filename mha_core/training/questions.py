"""The questions that a small model answers about every word, and the heads that answer each question.

The answer is a word of the sentence, or [CLS] if there is nothing to find. Where to look is never taught: a
question reads the output of its own heads, and they learn from the answer alone.
"""

from functools import cache
from typing import NamedTuple

from mha_core import resources

QUESTIONS = ("noun", "doer", "object", "before", "after", "decider")
HIDDEN_WORD = "hidden"  # the question for the word behind [MASK]
NEXT_WORD = "next"  # the one question of a decoder: the word after this one

# Every kind of link from a word to the answer of a question about it, with that question.
LINKS = {
    "pronoun to noun": "noun",
    "agreement: pronoun to noun": "noun",
    "cue to noun": "noun",
    "article to noun": "noun",
    "adjective to noun": "noun",
    "predicate to noun": "noun",
    "preposition to object": "noun",
    "verb to subject": "doer",
    "auxiliary to subject": "doer",
    "subject to verb": "doer",
    "verb to object": "object",
    "object to verb": "object",
    "object to preposition": "object",
    "word before": "before",
    "word after": "after",
    "pronoun to cue": "decider",
}

# With few heads, questions share a head: those that rarely have an answer at the same word.
FEW_HEADS = {
    1: (("noun", "doer", "object", "before", "after", "decider"),),
    2: (("noun", "after"), ("doer", "object", "before", "decider")),
    3: (("noun",), ("doer", "decider"), ("object", "before")),
    4: (("noun",), ("doer", "decider"), ("object",), ("before",)),
    5: (("noun",), ("doer", "decider"), ("object",), ("before",), ("after",)),
}


def heads_of(h: int) -> dict[str, tuple[int, ...]]:
    """The heads of the last layer that each question reads, counted from 0; "hidden" reads all of them.

    With six heads or more each question has as many heads of its own; with eight or more some are left for
    hidden words. With fewer heads questions share them; with three or four there is no question for the word
    after.
    """
    each = max(1, (h - 2) // len(QUESTIONS))
    groups = FEW_HEADS.get(h) or tuple((question,) for question in QUESTIONS for _ in range(each))
    heads = {
        question: tuple(head for head, asked in enumerate(groups) if question in asked)
        for question in QUESTIONS
    }
    return {question: of for question, of in heads.items() if of} | {HIDDEN_WORD: tuple(range(h))}


@cache
def questions_of(h: int) -> tuple[tuple[str, ...], ...]:
    """The questions of each head; "hidden" for a head that only helps to guess hidden words."""
    heads = heads_of(h)
    return tuple(
        tuple(question for question in QUESTIONS if head in heads.get(question, ())) or (HIDDEN_WORD,)
        for head in range(h)
    )


# Questions about sentences written by hand, with the right answers. One half is for fitting the temperatures
# of the small models, the other measures how often they are right.

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
