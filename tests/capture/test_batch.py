"""A pass of several texts is cut into the calls of each, with the rule that the text has alone."""

import torch

from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.batch import Batch
from mha_core.capture.call import Call

LENGTHS, WIDTH, HEADS = (3, 5), 5, 2


def test_each_text_has_its_part_of_mask_bias_and_table_of_distances(normal):
    filled = torch.arange(WIDTH) < torch.tensor(LENGTHS)[:, None, None, None]
    rule = ScoreRule(
        scale=0.3,
        bias=normal(2, 1, WIDTH, WIDTH),
        distance_bias=normal(HEADS, 2 * WIDTH - 1, seed=1),
        mask=(normal(2, HEADS, WIDTH, WIDTH, seed=2) > -1) & filled,
    )
    q, k, v = (normal(1, HEADS, 2 * WIDTH, 7, seed=seed) for seed in (3, 4, 5))
    batch = Batch({}, LENGTHS, WIDTH)
    batch.calls.append(Call("a", None, q, k, v, rule, False))
    whole = rule.at(slice(None), slice(None), n_query=WIDTH, n_key=WIDTH)
    for at, ([call], n) in enumerate(zip(batch.texts(), LENGTHS, strict=True)):
        sizes = {"n_query": n, "n_key": n}
        own = call.rule.at(slice(None), slice(None), **sizes)
        scores = normal(1, HEADS, n, n, seed=6)
        padded = torch.zeros(1, HEADS, WIDTH, WIDTH)
        padded[..., :n, :n] = scores
        torch.testing.assert_close(own.masked(scores)[0], whole.masked(padded)[at, :, :n, :n], rtol=0, atol=0)
        assert torch.equal(call.q, q[:, :, at * WIDTH : at * WIDTH + n])
        assert call.rule.scale == 0.3
    assert batch.calls == []
