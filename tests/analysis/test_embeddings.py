"""Word vectors as tables: the best flat map, neighbours, and patterns beyond chance."""

import math

import numpy as np
import pandas as pd
import pytest

from mha_core.analysis.embeddings import (
    NEIGHBOURS,
    RELATIONS,
    Map,
    agreement,
    chance,
    kept,
    nearest,
    project,
    table,
    verdict,
)
from mha_core.sources import mini
from mha_core.training.lexicon import lexicon


def random_vectors(n_words: int, width: int, seed: int = 0) -> pd.DataFrame:
    matrix = np.random.default_rng(seed).standard_normal((n_words, width))
    return table([f"w{i}" for i in range(n_words)], matrix)


# Map


def test_with_all_axes_distances_are_exact_and_each_explains_less_variance_than_the_one_before():
    vectors = random_vectors(9, 4)
    found = project(vectors, axes=4)

    def distances(rows):
        return np.linalg.norm(rows[:, None] - rows[None], axis=-1)

    np.testing.assert_allclose(distances(found.points.to_numpy()), distances(vectors.to_numpy()), atol=1e-12)
    assert found.shares.sum() == pytest.approx(1)
    assert (np.diff(found.shares) <= 0).all()
    variance = found.points.var(ddof=0) / vectors.var(ddof=0).sum()
    np.testing.assert_allclose(found.shares, variance, rtol=1e-9)
    np.testing.assert_allclose(found.points.mean(), 0, atol=1e-12)
    np.testing.assert_allclose(np.triu(found.points.corr(), 1), 0, atol=1e-9)


def test_a_map_does_not_depend_on_the_sign_that_the_algorithm_found():
    vectors = random_vectors(20, 5)
    turned = table(vectors.index[::-1], vectors.to_numpy()[::-1])
    there = project(turned, axes=2).points.loc[vectors.index]
    np.testing.assert_allclose(project(vectors, axes=2).points, there, atol=1e-9)


def test_the_axes_are_fitted_to_the_named_words_and_others_projected():
    vectors = table([*"abcd"], np.array([[0, 0, 0], [0, 2, 0], [0, 4, 0], [9, 3, 9]]))
    found = project(vectors, axes=1, along=["a", "b", "c"])
    np.testing.assert_allclose(found.points[1], [-2, 0, 2, 1], atol=1e-12)
    np.testing.assert_allclose(found.shares, [1])


def test_percentages_are_right_to_a_digit_and_sum_to_the_percentage_of_all():
    shares = np.array([0.6016, 0.2527, 0.1457])  # each rounded by itself: 60.2 + 25.3 + 14.6 = 100.1
    percents = Map(pd.DataFrame(), shares).percents
    assert f"{percents.sum():.1f}" == "100.0"
    np.testing.assert_allclose(percents, 100 * shares, atol=0.1)


@pytest.mark.parametrize("n_words", [1, 2])
def test_axes_that_the_words_do_not_fill_are_zero(n_words):
    found = project(random_vectors(n_words, 8), axes=3)
    assert found.points.shape == (n_words, 3)
    assert found.shares.sum() == pytest.approx(n_words - 1)
    assert not found.points.iloc[:, n_words - 1 :].to_numpy().any()


# Nearest


def test_the_nearest_words_are_those_of_the_largest_cosine():
    vectors = table([*"abcd0"], np.array([[1, 0], [5, 0], [1, 1], [-1, 0], [0, 0]]))
    found = nearest(vectors, "a")
    assert [*found.index] == ["b", "c", "0", "d"]  # the length of a vector does not matter
    np.testing.assert_allclose(found, [1, math.sqrt(0.5), 0, -1])  # zeros are near nothing
    assert len(nearest(random_vectors(40, 3), "w2")) == NEIGHBOURS


# Differences


def test_parallel_differences_agree_fully_and_opposite_ones_not_at_all():
    vectors = table([*"abcdef"], np.array([[0, 0], [1, 0], [0, 5], [3, 5], [2, 2], [1, 2]]))
    found = agreement(vectors, [("a", "b"), ("c", "d"), ("e", "f")])
    assert [*found.index] == [*found.columns] == ["a→b", "c→d", "e→f"]
    np.testing.assert_allclose(found, [[1, 1, -1], [1, 1, -1], [-1, -1, 1]])
    assert [*agreement(vectors, [("a", "b"), ("a", "x")]).index] == ["a→b"]  # x has no vector
    assert agreement(vectors, [("x", "y")]).shape == (0, 0)


@pytest.mark.parametrize(
    ("cosines", "said"),
    [
        *(([0.3, 0.5], "all"), ([0.25], "all"), ([0.2], "none"), ([0.1, 0.4], "some"), ([0.1, 0.15], "none")),
        ([0.1, 0.2], "none"),  # mean 0.15, limit 0.24 / √2 = 0.170
        ([0.1, 0.2] * 2, "some"),  # limit 0.12
    ],
)
def test_a_verdict_needs_more_than_chance(cosines, said):
    assert verdict(cosines, 0.24) == said


def test_random_directions_do_what_chance_says():
    n_words, width = 1000, 64
    rows = np.random.default_rng(1).standard_normal((n_words, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -1)
    expected = chance(n_words, width)
    assert np.median(cosines.max(1)) == pytest.approx(expected.nearest, abs=0.02)
    single = cosines[np.triu_indices(n_words, 1)]
    assert (np.abs(single) < expected.pair).mean() == pytest.approx(0.95, abs=0.005)
    assert max(chance(2000, 1)) == 1.0  # never more than the same direction
    assert chance(2, 64).nearest == pytest.approx(0)  # one other word: as often above as below


# The words of the small models


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_small_model_gives_each_of_its_words_its_own_row(language):
    trained = mini.model(mini.find(language, "glass-box", 4, 64))
    words, matrix = mini.vectors(trained)
    assert {"[CLS]", "[MASK]"} < set(words) < set(lexicon(language).vocabulary)
    row = trained.model.embedding[lexicon(language).number[words[700]]]
    assert (matrix[700] == row).all()
    assert matrix.shape == (len(words), 64)


MAX_CLASSES = 26  # in the list from which a reader chooses


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_word_has_one_class_and_every_known_pair_is_there(language):
    kinds = lexicon(language).kinds
    assert set(kinds) == {"[CLS]", "[MASK]", *lexicon(language).known}
    assert len(set(kinds.values())) <= MAX_CLASSES
    for kind, names in lexicon(language).grammar["shown_as"].items():
        assert not set(names.split()) & set(kinds.values()), kind  # each is a class, and shown as another one
    for pairs in RELATIONS[language].values():
        assert {word for pair in pairs for word in pair} <= set(kinds)


def test_words_are_classed_by_what_they_are():
    kinds = lexicon().kinds
    said = {word: kinds[word] for word in ("dog", "queen", "doctor", "swam", "it", "tired", "bread", "the")}
    assert [*said.values()] == ["animal", "person", "person", "verb", "pronoun", "cue", "food", "other"]


def test_a_projection_keeps_what_lies_along_its_columns():
    rows = np.random.default_rng(0).normal(size=(50, 6)) * [3, 1, 1, 1, 1, 1]
    columns = np.eye(6)[:, [0, 2]] @ [[2, 1], [1, 1]]  # a plane, whatever its two columns are
    plane = rows[:, [0, 2]] - rows[:, [0, 2]].mean(0)
    assert kept(rows, columns) == pytest.approx((plane**2).sum() / ((rows - rows.mean(0)) ** 2).sum())
    assert kept(rows, np.eye(6)) == pytest.approx(1)
    assert kept(rows, np.ones((6, 2))) < kept(rows, columns)  # two equal columns are one direction
    assert kept(np.ones((3, 6)), columns) == 1
