"""Longformer's windows: weights that stand in bands are those of its queries and keys."""

import numpy as np
import pytest
import torch
import transformers

import mha_core as mha
from mha_core.capture.special_layers import bands
from tests.parity import tiny

pytestmark = pytest.mark.filterwarnings("ignore")  # inside of other people's models


def longformer(kind: type) -> torch.nn.Module:
    """A tiny model with windows of four neighbours to each side."""
    torch.manual_seed(0)
    config = tiny.config("longformer")
    config._attn_implementation = "eager"
    return kind(config).eval()


def test_a_band_is_laid_along_the_diagonal():
    weights = torch.tensor([[0.0, 0.1, 0.2], [0.3, 0.4, 0.5], [0.6, 0.7, 0.0]])
    square = bands.dense(weights, 1)
    assert square.tolist() == torch.tensor([[0.1, 0.2, 0.0], [0.3, 0.4, 0.5], [0.0, 0.6, 0.7]]).tolist()
    assert bands.dense(weights[None], 2).dim() == 4  # columns of tokens that all others look at


@pytest.mark.parametrize("n", [5, 9, 16, 23])  # of nine tokens the band is a square, too
def test_a_window_is_shown_with_queries_keys_and_values(n):
    model, ids = longformer(transformers.LongformerForTokenClassification), list(range(5, 5 + n))
    with torch.no_grad():
        own = model(torch.tensor([ids]), output_attentions=True).attentions
    trace = mha.trace(ids, source=model)
    assert (len(trace.layers), trace.source.skipped) == (2, ())
    for layer, weights in zip(trace.layers, own, strict=True):
        for row in range(n):
            near = [
                weights[0, :, row, key - row + 4] if abs(key - row) <= 4 else torch.zeros(6)
                for key in range(n)
            ]
            np.testing.assert_allclose(layer.weights()[:, row], torch.stack(near, 1), atol=1e-6)
        assert {"w_q", "w_k", "w_v", "w_o"} <= {*layer.projections.known}


@pytest.mark.parametrize("n", [7, 10])  # of ten tokens, with a column for the first one, the band is a square
def test_a_token_that_all_look_at_is_refused(n, refused):
    model = longformer(transformers.LongformerForSequenceClassification)
    message = str(refused(mha.trace, list(range(5, 5 + n)), source=model))
    assert "its weights are not those of token to token" in message
