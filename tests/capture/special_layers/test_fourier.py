"""FNet: the two matrices of its Fourier transform are those of cosines and sines."""

import numpy as np
import pytest
import torch

from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny

pytestmark = pytest.mark.filterwarnings("ignore")  # inside of other people's models


def test_fnet_adds_what_cosines_and_sines_mix():
    model, computed = huggingface.adopt(tiny.model("fnet")), []
    for layer in model.module.fnet.encoder.layer:
        layer.fourier.self.register_forward_hook(lambda _module, _args, output: computed.append(output[0][0]))
    ids = torch.randint(5, 90, (1, 23), generator=torch.Generator().manual_seed(3))
    _, skipped, mixers = huggingface.flow(model, {"input_ids": ids})
    angles = 2 * np.pi * np.outer(np.arange(23), np.arange(23)) / 23
    assert (len(mixers), skipped) == (2, ())
    for layer, own in zip(mixers, computed, strict=True):
        assert (layer.rule, layer.unit, layer.n_heads) == ("Fourier transform (FNet)", "component", 2)
        np.testing.assert_allclose(layer.mixing(), [np.cos(angles), np.sin(angles)], atol=1e-5)
        np.testing.assert_allclose((layer.mixing() @ layer.v).sum(0), own, atol=1e-4)
