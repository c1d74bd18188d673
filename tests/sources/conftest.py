"""Fixtures of the source tests: folders with tiny models, and the same numbers in each run."""

from pathlib import Path

import pytest
import torch

from tests.sources import tiny


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """`folder("gpt2")`: a folder with such a model and a tokenizer, made once."""
    make = tiny.folders(tmp_path_factory)
    return lambda family, tokenizer="byte_level": Path(make(family, tokenizer))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
