"""Sentences written by people, not from templates: how many of their words get right answers.

The floors are a little under what is measured.
"""

import tomllib
from functools import cache
from pathlib import Path

import pytest

import mha_core as mha
from mha_core.training.lexicon import lexicon
from mha_core.training.questions import QUESTIONS

# The least share of right answers of the models with d_model 64, of pronouns and of all other links.
FLOORS = {
    ("en", 4): (0.8, 0.93),
    ("en", 8): (0.88, 0.95),
    ("zh", 4): (0.85, 0.92),
    ("zh", 8): (0.87, 0.88),
}


@cache
def right_answers(code: str, h: int) -> dict[str, list[tuple[bool, str]]]:
    """Whether each answer is right, and its question, for pronouns and for other links."""
    file = Path(__file__).with_name(f"by_hand_{code}.toml")
    pronouns, found = lexicon(code).pronouns, {"pronouns": [], "other links": []}
    for entry in tomllib.loads(file.read_text(encoding="utf-8"))["sentence"]:
        trace = mha.trace(entry["text"], source="mini", h=h)
        for question in entry.keys() - {"text"}:
            assert question in QUESTIONS
            for word, right in entry[question].items():
                said = trace.questions[question][trace.tokens.index(word)][0][0]
                wanted = trace.tokens.pieces[trace.tokens.index(right)]
                is_pronoun = question == "noun" and word.lower() in pronouns
                kind = "pronouns" if is_pronoun else "other links"
                asked = f"{entry['text']} {question} of {word}: {wanted}, not {said}"
                found[kind].append((said.lower() == wanted.lower(), asked))
    return found


@pytest.mark.parametrize(("code", "h"), FLOORS)
def test_most_words_in_sentences_written_by_people_get_right_answers(code, h):
    for floor, (kind, found) in zip(FLOORS[code, h], right_answers(code, h).items(), strict=True):
        wrong = [asked for is_right, asked in found if not is_right]
        assert len(found) >= 10
        assert 1 - len(wrong) / len(found) >= floor, (kind, wrong)
