"""Scores are those that one counts by hand, on pairs of nouns that no other set has."""

import numpy as np
import pytest
import torch

from mha_core.training import checkpoints, evaluation
from mha_core.training.evaluation import PAIRS, Scores, best_head, famous, noun_weights, pairs, scores
from mha_core.training.language import Grammar
from mha_core.training.lexicon import LANGUAGES, lexicon
from mha_core.training.model import ARCHITECTURES, Shape, SmallModel


def drawn(architecture="glass-box", language="en", h=3, d_model=15) -> SmallModel:
    model = SmallModel(Shape(architecture, h, d_model), len(lexicon(language).vocabulary))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model.requires_grad_(False)


# The pairs


def nouns(encoded, language) -> set[frozenset[str]]:
    words = lexicon(language)
    one = {form: noun.one for noun in words.nouns for form in (noun.one, noun.many) if form}
    at = np.arange(len(encoded.ids))[:, None]
    return {
        frozenset(one[words.vocabulary[i]] for i in both) for both in encoded.ids[at, encoded.nouns].tolist()
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_validation_and_test_pairs_share_no_pair_of_nouns(language):
    validation, test = (nouns(pairs(language, split), language) for split in ("validation", "test"))
    assert not validation & test
    assert min(len(validation), len(test)) > 100
    agreement = nouns(pairs(language, "test", agreement=True), language)
    assert not agreement & validation


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("split", ["validation", "test"])
def test_each_pattern_is_measured_as_often_as_the_others_by_minimal_pairs(language, split):
    encoded = pairs(language, split)
    n_patterns = len(Grammar(lexicon(language)).names)
    assert len(encoded.ids) == 2 * PAIRS * n_patterns
    one, other = slice(0, None, 2), slice(1, None, 2)
    assert (encoded.nouns[one] == encoded.nouns[other, ::-1]).all()
    differ = encoded.ids[one] != encoded.ids[other]
    assert (differ.sum(1) == 1).all()
    assert (differ.argmax(1) == encoded.cue[one]).all()
    agreement = pairs(language, split, agreement=True)
    assert len(agreement.ids) == 2 * PAIRS
    assert (agreement.cue == agreement.pronoun).all()


def test_the_pairs_are_the_same_in_every_process():
    encoded = pairs("en", "test", count=2)
    pairs.cache_clear()
    again = pairs("en", "test", count=2)
    assert encoded is not again
    assert (encoded.ids == again.ids).all()
    grammar = Grammar(lexicon("en"))
    assert len(encoded.ids) == 4 * len(grammar.names)


# What the heads do


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_looked_at_is_what_a_sentence_alone_gives(architecture):
    model, encoded = drawn(architecture), pairs("en", "test", count=1)
    weights, answers = noun_weights(model, encoded)
    n_layers = len(ARCHITECTURES[architecture])
    assert weights.shape == (len(encoded.ids), n_layers, 3, 2)
    for i, length in enumerate(encoded.lengths):
        hidden, flows = model(torch.from_numpy(encoded.ids[i : i + 1, :length]))
        for layer, flow in enumerate(flows):
            q, k = flow.attended.q[0], flow.attended.k[0]
            rows = (q @ k.mT / 5**0.5).softmax(-1)[:, encoded.pronoun[i]]
            np.testing.assert_allclose(weights[i, layer], rows[:, encoded.nouns[i]], atol=1e-5)
        logits = model.logits(hidden[0, encoded.pronoun[i]])
        right, wrong = logits[encoded.ids[i, encoded.nouns[i]]]
        assert answers[i] == bool(right > wrong)


def test_two_hops_are_the_product_of_the_weights_of_both_layers():
    model, encoded = drawn("standard"), pairs("en", "test", count=1)
    reached = evaluation._two_hop_weights(model, encoded)
    assert reached.shape == (len(encoded.ids), 3, 3, 2)
    for i, length in enumerate(encoded.lengths):
        first, second = (
            (flow.attended.q[0] @ flow.attended.k[0].mT / 5**0.5).softmax(-1)
            for flow in model(torch.from_numpy(encoded.ids[i : i + 1, :length]))[1]
        )
        for one in range(3):
            for other in range(3):
                row = (second[other] @ first[one])[encoded.pronoun[i], encoded.nouns[i]]
                np.testing.assert_allclose(reached[i, one, other], row, atol=1e-5)


def test_the_pair_of_heads_is_chosen_on_validation_pairs(monkeypatch):
    good, bad = [(0.75, 0.25)] * 4, [(0.25, 0.5)] * 4
    validation, test = by_head(bad, bad, good, bad), by_head(good, good, [*bad[:3], (0.5, 0.25)], good)
    taken = {id(pairs("en", "validation", count=2)): validation, id(pairs("en", "test", count=2)): test}
    monkeypatch.setattr(evaluation, "_two_hop_weights", lambda model, encoded: taken[id(encoded)])
    assert evaluation.two_hops(None, count=2) == {
        "first": 1, "second": 0, "accuracy": 0.25, "right": 0.3125, "wrong": 0.4375,
    }  # fmt: skip


# Scores by hand: four sentences (two pairs), two layers of two heads, weights on the right and wrong noun.

RIGHT, WRONG = (0.75, 0.25), (0.25, 0.75)


def by_head(*heads) -> np.ndarray:
    """(sentence, layer, head, 2) from what the heads (0, 0), (0, 1), (1, 0), (1, 1) do in each sentence."""
    return np.array(heads, float).reshape(2, 2, 4, 2).transpose(2, 0, 1, 3)


NEVER, ALWAYS = [WRONG] * 4, [RIGHT] * 4


@pytest.fixture
def by_hand(monkeypatch):
    """`scores` of weights and answers given by hand for each set of sentences."""

    def score(validation, test, agreement, of_famous, answers=(True,) * 4, famous_answers=(True, True)):
        table = {
            id(pairs("en", "validation")): (validation, np.array(answers) & False),
            id(pairs("en", "test")): (test, np.array(answers)),
            id(pairs("en", "test", agreement=True)): (agreement, np.zeros(4, bool)),
            id(famous("en")): (of_famous, np.array(famous_answers)),
        }
        sets = {
            "validation": pairs("en", "validation"),
            "test": pairs("en", "test"),
            "agreement": pairs("en", "test", agreement=True),
        }

        def pick(language, split, *, agreement=False, count=PAIRS):
            return sets["agreement" if agreement else split]

        monkeypatch.setattr(evaluation, "pairs", pick)
        monkeypatch.setattr(evaluation, "noun_weights", lambda model, encoded: table[id(encoded)])
        return scores(None, "en")

    return score


def test_the_scores_of_weights_given_by_hand(by_hand):
    test = by_head(
        ALWAYS,
        ALWAYS,
        [(0.5, 0.25), (0.75, 0.125), (0.25, 0.5), (0.5, 0.125)],  # the head of the validation pairs
        [(0.5, 0.5)] * 4,  # as much on both is not right
    )
    validation = by_head(NEVER, NEVER, ALWAYS, [RIGHT, RIGHT, RIGHT, WRONG])
    agreement = by_head([RIGHT, WRONG, WRONG, WRONG], NEVER, [RIGHT, RIGHT, WRONG, WRONG], NEVER)
    of_famous = by_head(NEVER, NEVER, [(0.875, 0.0), (0.625, 0.25), WRONG, WRONG], NEVER)[:2]
    measured = by_hand(validation, test, agreement, of_famous, (True, True, True, False), (True, False))
    assert measured == Scores(
        answer=0.75,
        accuracy=0.75,  # three of four sentences
        both=0.5,  # one of two pairs
        right=0.5,
        wrong=0.25,
        layer=1,
        head=0,
        agreement=0.5,  # the best head of any layer
        resolving=0,  # in the last layer no head is right in 95 %
        famous=(0.875, 0.625),
        famous_right=(True, False),
    )


def test_heads_that_resolve_are_counted_in_the_last_layer_alone(by_hand):
    first, last = by_head(ALWAYS, ALWAYS, NEVER, NEVER), by_head(NEVER, NEVER, ALWAYS, ALWAYS)
    half = by_head(NEVER, NEVER, ALWAYS, NEVER)
    for test, count in ((first, 0), (last, 2), (half, 1)):
        assert by_hand(first, test, first, first[:2]).resolving == count


def test_the_head_is_chosen_on_validation_pairs_and_not_on_test_pairs(by_hand):
    validation = by_head(NEVER, ALWAYS, NEVER, NEVER)
    test = by_head(NEVER, NEVER, ALWAYS, NEVER)
    measured = by_hand(validation, test, validation, test[:2])
    assert (measured.layer, measured.head, measured.accuracy) == (0, 1, 0.0)


def test_of_heads_that_are_right_as_often_the_one_with_more_weight_is_best():
    weak, strong = [(0.3, 0.1)] * 4, [(0.6, 0.1)] * 4
    assert best_head(by_head(weak, NEVER, strong, NEVER)) == (1, 0)
    assert best_head(by_head(NEVER, strong, weak, NEVER)) == (0, 1)
    assert best_head(by_head(NEVER, weak, [(0.3, 0.1)] * 3 + [WRONG], NEVER)) == (0, 1)


def test_a_head_with_much_more_weight_is_better_than_one_that_is_right_a_little_more_often():
    faint, clear = [(0.2, 0.1)] * 4, [(0.9, 0.1)] * 3 + [WRONG]
    assert best_head(by_head(faint, clear, NEVER, NEVER)) == (0, 1)  # 0.75 + 0.74 and not 1 + 0.2


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_model_that_was_never_trained_is_no_better_than_a_coin(language):
    measured = scores(drawn("standard", language), language)
    assert measured.answer == pytest.approx(0.5, abs=0.05)
    assert measured.accuracy == pytest.approx(0.5, abs=0.05)
    assert measured.both < 0.2
    assert len(measured.famous) == len(measured.famous_right) == 2


@pytest.mark.slow
def test_all_heads_decide_and_the_more_there_are_the_less_one_of_them_does():
    """On the shipped models; in the standard one the answer comes in two hops, past this edge."""
    plans = {
        (plan.architecture, plan.h): plan
        for plan in checkpoints.PLANS
        if (plan.language, plan.d_model) == ("en", 64)
    }
    models = {kind: checkpoints.load_model(checkpoints.path(plan)).model for kind, plan in plans.items()}
    by_h = {h: evaluation.cuts(models["glass-box", h]) for h in (2, 4, 8)}
    for of_all in by_h.values():
        assert of_all.all_heads >= 0.95
        assert of_all.patched >= 0.95
    best = [one.best_head for one in by_h.values()]
    assert best == sorted(best, reverse=True)
    assert best[0] > 0.8
    assert best[-1] < 0.1
    assert evaluation.cuts(models["standard", 4]).all_heads < 0.2
    assert evaluation.two_hops(models["standard", 4])["accuracy"] > 0.9
