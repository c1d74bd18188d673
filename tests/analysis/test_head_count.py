"""Scores by number of heads: the manifest's numbers, one row for each h."""

import math

import pandas as pd
import pytest

from mha_core.analysis.head_count import MIN_COUNTS, extremes, question_table, score_table, widths
from mha_core.training import checkpoints
from mha_core.training.lexicon import LANGUAGES
from mha_core.training.questions import HIDDEN_WORD, heads_of


def entry(h: int, d_model: int = 64, **changes) -> dict:
    plan = {"architecture": "glass-box", "language": "en", "h": h, "d_model": d_model, "seed": 0}
    scores = {"accuracy": 0.9, "right": 0.8, "answer": 0.95, "shapes": 0.9, "resolving": h}
    known = {"parameters": 1000, "cpu_seconds": 60}
    return {
        "plan": plan | {k: v for k, v in changes.items() if k in plan},
        "scores": scores | {k: v for k, v in changes.items() if k in scores},
    } | {k: changes.get(k, v) for k, v in known.items()}


def test_a_row_has_the_numbers_of_its_entry():
    known = {"accuracy": 0.5, "right": 0.25, "answer": 0.75, "shapes": 0.9, "resolving": 3}
    found = score_table([entry(8, **known, cpu_seconds=12), entry(1, cpu_seconds=None)], 64)
    more = {"d_k": 8, "parameters": 1000, "seconds": 12, "seed": 0}
    assert found.loc[8].to_dict() == known | more
    assert math.isnan(found.loc[1, "seconds"])  # not known
    others = [entry(4, 32), entry(16, architecture="standard")]
    assert [*score_table([entry(8), entry(2), *others], 64).index] == [2, 8]  # in the order of h
    assert [*score_table(others, 32).index] == [4]
    assert score_table([], 64).empty
    assert widths([]) == ()


def test_a_width_is_offered_when_enough_numbers_of_heads_were_measured():
    full, short = [entry(h, 64) for h in (1, 2, 4, 8)], [entry(h, 32) for h in (1, 2, 4)]
    assert widths([*full, *short]) == (64,)
    assert widths([*short, entry(8, 32, architecture="standard")]) == ()
    assert widths([*short, *short]) == ()  # the same h twice is one
    assert widths([*full, *short, entry(8, 32)]) == (32, 64)


def test_extremes_name_every_h_that_has_them():
    found = extremes(pd.Series([0.5, 1.0, 1.0, 0.75], index=[1, 2, 4, 8]))
    assert (found.maximum, found.maximum_at) == (1.0, (2, 4))
    assert (found.minimum, found.minimum_at) == (0.5, (1,))


def test_each_question_has_a_column_and_what_was_not_asked_is_missing():
    entries = [entry(h) for h in (8, 2)]
    entries[0]["scores"]["questions"] = {"noun": {"right": 1.0}, "after": {"right": 0.75}}
    entries[1]["scores"]["questions"] = {"noun": {"right": 0.5}}
    found = question_table(entries, 64)
    assert [*found.index] == [2, 8]
    assert found.loc[8].to_dict() == {"noun": 1.0, "after": 0.75}
    assert found.loc[2, "noun"] == 0.5
    assert math.isnan(found.loc[2, "after"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_shipped_manifest_can_be_read(language):
    entries = [one for one in checkpoints.manifest().values() if one["plan"]["language"] == language]
    assert {64, 128} <= {*widths(entries)}
    for d_model in widths(entries):
        found = score_table(entries, d_model)
        assert len(found) >= MIN_COUNTS
        assert found[["accuracy", "answer", "shapes"]].stack().between(0, 1).all()
        asked = question_table(entries, d_model)
        assert [*asked.index] == [*found.index]
        for h, of_h in asked.iterrows():
            assert {*of_h.dropna().index} == {*heads_of(h)} - {HIDDEN_WORD}
        assert (found["resolving"] <= found.index).all()
        assert (found["d_k"] * found.index == d_model).all()
