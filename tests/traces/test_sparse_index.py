"""A layer whose keys are chosen by a learned index: by hand, saved and loaded."""

import math
from types import MappingProxyType

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.attention.score_rule import ScoreRule
from mha_core.traces.facts import Facts
from mha_core.traces.layer import LayerTrace

CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()
CHOICE = torch.tensor([[[0, 1], [1, 0], [2, 0]]])  # of the first query also a key that it may not see
NEVER = -math.inf


def layer(**more) -> LayerTrace:
    """Two heads over one of keys; scores are q · k = k, since every query is 1."""
    chosen = torch.tensor([[True, False, False], [True, True, False], [True, False, True]])
    tensors = {
        "q": torch.ones(2, 3, 1),
        "k": torch.tensor([[[0.0], [1.0], [2.0]]]),
        "v": torch.ones(1, 3, 1),
        "index_choice": CHOICE,
        "index_scores": torch.tensor([[[5.0, NEVER, NEVER], [1.0, 2.0, NEVER], [3.0, 1.0, 4.0]]]),
        "dense_mask": CAUSAL[None],
    }
    rule = ScoreRule(scale=1.0, mask=chosen[None], **more)
    return LayerTrace(MappingProxyType(tensors), rule, about=Facts(index_block=1))


def test_chosen_keys_are_those_a_query_may_look_at():
    index = layer().index
    assert (index.n_heads, index.block_size, index.budget) == (1, 1, 2)
    assert index.chosen.astype(int).tolist() == [[[1, 0, 0], [1, 1, 0], [1, 0, 1]]]
    assert index.scores[0, 1].tolist() == [1.0, 2.0, NEVER]


@pytest.mark.parametrize("more", [{}, {"sinks": torch.tensor([0.5, -1.0])}, {"temperature": 2.0}])
def test_the_share_is_that_of_the_dense_weights_which_the_choice_kept(more):
    e = math.exp(1 / more.get("temperature", 1.0))
    expected = [1.0, 1.0, (1 + e**2) / (1 + e + e**2)]
    assert layer(**more).index.share(1).tolist() == pytest.approx(expected, abs=1e-6)
    assert layer(**more).index.share().shape == (2, 3)


def test_a_layer_without_an_index_has_none():
    made = layer()
    dense = {name: made.tensors[name] for name in ("q", "k", "v")}
    assert LayerTrace(MappingProxyType(dense), made.rule).index is None


def test_an_index_is_saved_with_its_trace(tmp_path):
    tokens = mha.from_tensors(
        q=torch.ones(1, 3, 1), k=torch.ones(1, 3, 1), v=torch.ones(1, 3, 1), tokens=list("abc")
    )
    trace = mha.AttentionTrace(tokens.tokens, (layer(),), tokens.source)
    trace.save(tmp_path / "t.safetensors")
    again = mha.load(tmp_path / "t.safetensors").layers[0]
    assert again.about.index_block == 1
    assert np.array_equal(again.index.scores, layer().index.scores)
    assert np.array_equal(again.index.chosen, layer().index.chosen)
    assert np.array_equal(again.index.share(), layer().index.share())
