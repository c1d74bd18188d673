"""A model that does not fit into memory."""

import sys

import pytest
import transformers

from mha_core.sources.huggingface import memory
from mha_core.sources.huggingface import model as huggingface


def test_a_model_that_is_too_large_is_refused_before_it_is_loaded(folder, monkeypatch, refused):
    monkeypatch.setattr(memory, "free_bytes", lambda _: 100_000)
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", None)
    error = refused(huggingface.load, str(folder("gpt2")))
    assert "needs about 0.0 GB and 0.0 GB are free" in str(error)
    assert error.fixes == ({"dtype": "bfloat16"},)
    error = refused(huggingface.load, str(folder("gpt2")), dtype="float16")
    assert "half precision" not in str(error)  # it is in half precision already
    assert not error.fixes


@pytest.mark.skipif(sys.platform != "linux", reason="how much is free is known on Linux")
def test_free_memory_is_known_on_this_machine():
    assert memory.free_bytes("cpu") > 1e6
