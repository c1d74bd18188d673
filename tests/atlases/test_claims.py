"""What an atlas says of a head: what stands out from chance, shuffled words and a fixed distance."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core.atlases import library
from mha_core.atlases.claims import claims

NAMES = ("n", "mean", "low", "high", "shuffled", "chance", "fixed")
LINK = {"measure": "pronoun to noun", **dict(zip(NAMES, (100, 0.9, 0.85, 0.95, 0.4, 0.1, 0.5), strict=True))}
POSITION = {
    "measure": "previous token",
    **dict(zip(NAMES, (100, 0.9, 0.88, 0.92, 0.85, 0.1, np.nan), strict=True)),
}


def of_rows(*rows: dict) -> dict:
    table = pd.DataFrame([{"layer": 0, "head": head, **row} for head, row in enumerate(rows)])
    return claims(SimpleNamespace(heads=lambda: table))


@pytest.fixture(scope="module")
def shipped():
    return claims(library.of(mha.trace("The cat sat", source="mini", h=4, d_model=64).source))


def test_the_last_layer_of_the_small_model_finds_nouns_subjects_objects_and_the_word_before(shipped):
    names = {place: [claim.measure for claim in of_head] for place, of_head in shipped.items()}
    assert names[1, 0][0] == "pronoun to noun"
    assert "verb to subject" in names[1, 1]
    assert names[1, 2][0] == "object to preposition"
    assert names[1, 3] == ["previous token"]
    assert all(claim.low <= claim.mean <= claim.high for of_head in shipped.values() for claim in of_head)
    assert shipped[1, 0][0].n == 489


def test_a_link_to_the_word_beside_is_nothing_that_a_head_is_said_to_find(shipped):
    heads = library.of(mha.trace("The cat sat", source="mini", h=4, d_model=64).source).heads()
    of_adjectives = heads[heads["measure"] == "adjective to noun"]
    assert of_adjectives["mean"].max() > 0.99
    assert set(of_adjectives["fixed"]) == {1.0}  # the noun is always the next word
    assert not any(claim.measure == "adjective to noun" for of_head in shipped.values() for claim in of_head)


@pytest.mark.parametrize(
    "worse",
    [{"n": 19}, {"mean": 0.59}, {"low": 0.69}, {"shuffled": 0.66}, {"chance": 0.66}, {"fixed": 0.66}],
    ids=str,
)
def test_a_link_is_claimed_only_within_every_limit(worse):
    assert [claim.measure for claim in of_rows(LINK)[0, 0]] == ["pronoun to noun"]
    assert not of_rows(LINK | worse)


def test_a_position_stands_out_also_where_shuffled_words_do_the_same():
    [claim] = of_rows(POSITION)[0, 0]
    assert claim.by_position
    [other] = of_rows(POSITION | {"shuffled": 0.5})[0, 0]
    assert not other.by_position
    assert not of_rows(LINK)[0, 0][0].by_position


def test_entropy_and_distance_are_not_claimed_and_a_head_without_a_claim_is_left_out():
    found = of_rows(POSITION | {"measure": "entropy"}, LINK, POSITION | {"measure": "distance"})
    assert [*found] == [(0, 1)]
