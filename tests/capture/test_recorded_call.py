"""Calls of one head each, set side by side as the heads of one layer."""

import numpy as np
import torch

from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.masks import SharedTensors
from mha_core.capture.recorded_call import ForwardPass, Place, Queries, RecordedCall, side_by_side
from mha_core.traces.facts import Facts


def test_heads_side_by_side_keep_each_its_own_sink(normal):
    place = Place("", ForwardPass(), None)
    calls = []
    for number, sink in enumerate((0.5, -2.0, 3.0)):
        q, k, v = (normal(1, 5, width) for width in (7, 7, 3))
        rule = ScoreRule(sinks=torch.tensor([sink]))
        calls.append(RecordedCall(number, place, f"heads.{number}", (Queries(q, rule, 5),), k, v, Facts()))
    layer = side_by_side(calls).layer("self", SharedTensors())
    assert layer.name == "heads"
    alone = [call.layer("self", SharedTensors()).weights(0) for call in calls]
    np.testing.assert_allclose(layer.weights(), np.stack(alone), atol=1e-6)
