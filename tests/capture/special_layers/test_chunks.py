"""Reformer's chunks: its own code with unit vectors gives weights of token to token."""

import numpy as np
import pytest
import torch

from mha_core.capture.gap import gap
from mha_core.capture.special_layers import chunks
from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny

pytestmark = pytest.mark.filterwarnings("ignore")  # inside of other people's models


def weights(model: huggingface.Model, n: int) -> np.ndarray:
    layers, _, _ = huggingface.flow(model, {"input_ids": torch.arange(5, 5 + n)[None]})
    return np.stack([layer.weights() for layer in layers])


def test_the_first_long_text_does_not_choose_the_buckets_of_later_ones():
    model = huggingface.adopt(tiny.model("reformer"))
    first = weights(model, 23)
    later = weights(model, 61)
    np.testing.assert_array_equal(later, weights(huggingface.adopt(tiny.model("reformer")), 61))
    np.testing.assert_array_equal(first, weights(model, 23))
    np.testing.assert_allclose(later.sum(-1), 1.0, atol=1e-5)


def test_weights_that_do_not_make_the_output_are_not_shown(monkeypatch, refused):
    monkeypatch.setattr(chunks, "gap", lambda mixed, own: gap(mixed.roll(1, 2), own))
    model = huggingface.adopt(tiny.model("reformer"))
    message = str(refused(huggingface.flow, model, {"input_ids": torch.arange(5, 46)[None]}))
    assert "its weights are not those of token to token" in message
