"""Fixtures of the source tests: folders with tiny models."""

import pytest

from tests.sources import tiny


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """`folder("gpt2")`: a folder with such a model and a tokenizer, made once."""
    made = {}

    def make(family: str, tokenizer: str = "byte_level"):
        if (family, tokenizer) not in made:
            path = tmp_path_factory.mktemp(family)
            tiny.module(family).save_pretrained(path)
            tiny.fast(tokenizer).save_pretrained(path)
            made[family, tokenizer] = path
        return made[family, tokenizer]

    return make
