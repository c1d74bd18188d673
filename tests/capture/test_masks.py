"""What models add to their scores, as rules that the layers of one pass share."""

import torch

from mha_core.capture.masks import SharedRules

SIZES = {"n_query": 3, "n_key": 3}
LOWEST = torch.finfo(torch.float32).min
CAUSAL = torch.full((3, 3), LOWEST).triu(1)[None, None]


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


def test_a_bias_by_distance_is_a_table_whatever_the_hidden_cells_hold():
    bias = torch.arange(3) - torch.arange(3)[:, None] + 5.0
    bias[1, 1] = LOWEST
    rule = SharedRules().rule(bias[None, None], **SIZES)
    assert rule.distance_bias.tolist() == [[3.0, 4.0, 5.0, 6.0, 7.0]]
    assert rule.bias is None
    assert (~rule.mask[0, 0]).nonzero().tolist() == [[1, 1]]
