"""What models add to their scores, as rules that the layers of one pass share."""

import torch

from mha_core.capture.masks import Choice, SharedRules

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


def test_the_keys_of_an_index_are_let_through_and_no_others():
    keys = torch.tensor([[[0, -1], [1, 0], [2, 0]]])
    [[allowed]] = Choice(keys).allowed(n_heads=5, n_key=3)
    assert allowed.int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1]]


def test_each_head_of_an_index_chooses_blocks_for_heads_beside_one_another():
    blocks = torch.tensor([[[[0, -1], [2, 0]], [[1, -1], [1, 2]]]])  # two index heads, two queries
    [allowed] = Choice(blocks, size=2).allowed(n_heads=4, n_key=5)
    assert allowed.int().tolist() == [
        *[[[1, 1, 0, 0, 0], [1, 1, 0, 0, 1]]] * 2,
        *[[[0, 0, 1, 1, 0], [0, 0, 1, 1, 1]]] * 2,
    ]


def test_layers_that_share_an_index_share_a_rule_and_others_do_not():
    rules, keys = SharedRules(), torch.tensor([[[0, -1], [1, -1], [2, 0]]])
    one = rules.rule(CAUSAL, None, Choice(keys), **SIZES)
    assert rules.rule(CAUSAL, None, Choice(keys), **SIZES) is one
    assert one.mask.int().tolist() == [[[[1, 0, 0], [0, 1, 0], [1, 0, 1]]]]
    other = rules.rule(CAUSAL, None, Choice(keys.flip(1)), **SIZES)
    assert other.mask.int().tolist() == [[[[1, 0, 0], [0, 1, 0], [1, 0, 0]]]]
    assert rules.rule(CAUSAL, **SIZES).mask.int().tolist() == [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]


def test_a_bias_by_distance_is_a_table_whatever_the_hidden_cells_hold():
    bias = torch.arange(3) - torch.arange(3)[:, None] + 5.0
    bias[1, 1] = LOWEST
    rule = SharedRules().rule(bias[None, None], **SIZES)
    assert rule.distance_bias.tolist() == [[3.0, 4.0, 5.0, 6.0, 7.0]]
    assert rule.bias is None
    assert (~rule.mask[0, 0]).nonzero().tolist() == [[1, 1]]
