"""Fixtures of the training tests: plans of tiny models."""

import pytest

from mha_core.training.fit import Plan


@pytest.fixture
def tiny():
    """`tiny(steps=…)`: a plan for a model of 2 heads and 8 dimensions."""

    def make(**settings) -> Plan:
        return Plan(**{"h": 2, "d_model": 8, "steps": 23, "seed": 3, **settings})

    return make
