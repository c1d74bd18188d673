"""How many texts the module that runs an attention reads."""

import sys

import pytest
import torch
from torch import nn

from mha_core.capture.own_code.caller import caller


class Probe(nn.Module):
    """Asks for its caller, inside a module that contains it."""

    def __init__(self, block, model=None):
        super().__init__()
        self.block, self.model, self.softmax, self.found = block, model, nn.Softmax(-1), None

    def forward(self, x, mask=None):
        self.found = caller(self.block, self.model)
        return x


@pytest.fixture
def probe():
    return Probe(sys._getframe())


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ((torch.randn(2, 7, 5),), 2),
        ((torch.randn(7, 2, 5),), 2),  # tokens first
        ((torch.randn(7, 7, 5),), 7),
        ((torch.randn(7, 5),), 1),
        ((torch.ones(3, 7, dtype=torch.long),), 3),
        ((torch.ones(7, dtype=torch.long),), 1),
        ((torch.randn(2, 7, 5), torch.randn(7, 7)), 2),
        ((torch.randn(2, 3, 8, 8),), None),  # pictures
        ((torch.randn(7, 7),), None),  # a mask
        ((torch.randn(6, 7, 4), torch.randn(6, 7, 5)), None),  # queries and values themselves
        ((torch.randn(2, 9, 5),), None),
    ],
)
def test_the_number_of_texts_of_a_module_is_found(probe, inputs, expected):
    probe(*inputs)
    assert probe.found.batch((7, 7), (6, 7, 4)) == expected
