"""What models add to their scores, as rules that the layers of one pass share."""

import torch

from mha_core.capture.masks import SharedRules

SIZES = {"n_query": 3, "n_key": 3}
LOWEST = torch.finfo(torch.float32).min
CAUSAL = torch.full((3, 3), LOWEST).triu(1)[None, None]


def test_layers_that_are_given_the_same_have_one_rule():
    parts = SharedRules()
    one = parts.rule(CAUSAL, scale=0.5, **SIZES)
    assert parts.rule(CAUSAL, scale=0.5, **SIZES) is one
    assert one.mask.tolist() == [[torch.ones(3, 3).tril().bool().tolist()]]


def test_a_layer_with_another_scale_or_cap_has_a_rule_of_its_own():
    parts = SharedRules()
    told = [{"scale": 0.5}, {"scale": 0.25}, {"scale": 0.5, "soft_cap": 30.0}, {}]
    rules = [parts.rule(CAUSAL, **each, **SIZES) for each in told]
    assert [(rule.scale, rule.soft_cap) for rule in rules] == [
        (0.5, None),
        (0.25, None),
        (0.5, 30.0),
        (None, None),
    ]
    assert all(rule.mask is rules[0].mask for rule in rules)  # which is taken apart once


def test_the_sinks_of_one_layer_are_not_those_of_the_next():
    parts, sinks = SharedRules(), [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])]
    rules = [parts.rule(None, sinks=own, **SIZES) for own in (None, *sinks, None)]
    assert [rule.sinks for rule in rules] == [None, *sinks, None]
