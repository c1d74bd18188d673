"""What runs an attention: its line, its modules, its forward pass, and how many texts they read."""

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


def test_a_call_names_its_line_and_modules(probe):
    model = nn.Sequential(nn.Sequential(probe))
    probe.block = sys._getframe()
    model(torch.randn(2, 7, 5))
    line = Probe.forward.__code__.co_firstlineno + 1
    assert probe.found.line == f"test_caller.py:{line}"
    assert probe.found.module is probe.found.innermost is probe
    assert probe.found.root.called is model
    probe.model = model[0]
    model(torch.randn(2, 7, 5))
    assert probe.found.root.called is model[0]


def test_without_modules_the_root_is_the_outermost_function_below_the_block():
    def attention(block):
        return caller(block)

    def model(block):
        return attention(block)

    here = sys._getframe()
    assert model(here).root.called[0] is model.__code__
    assert caller(here).root is None
    assert model(here).module is None
    assert model(None).root is None


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
