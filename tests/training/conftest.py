"""What the tests of training share: little to read, and tiny models."""

import pytest

from mha_core.training import data
from mha_core.training.fit import Plan

BATCHES = 7  # a reading of the little there is


@pytest.fixture
def little(monkeypatch):
    """7 batches of 16 to a reading, instead of hundreds of batches of 64."""
    monkeypatch.setattr(data, "BATCH", 16)
    monkeypatch.setattr(data, "SENTENCES", BATCHES * 16)
    data.made_sentences.cache_clear()
    yield BATCHES
    data.made_sentences.cache_clear()


@pytest.fixture
def tiny():
    """`tiny(steps=…)`: a plan for a model of 2 heads and 8 dimensions."""

    def make(**settings) -> Plan:
        return Plan(**{"h": 2, "d_model": 8, "steps": 23, "seed": 3, **settings})

    return make
