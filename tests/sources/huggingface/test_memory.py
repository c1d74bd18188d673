"""What a model needs of the memory, and a model that has no room in it."""

import sys

import pytest
import safetensors.torch
import torch
import transformers

from mha_core.sources.huggingface import memory
from mha_core.sources.huggingface import model as huggingface


def test_numbers_that_are_no_floats_are_counted_and_eights_of_a_byte_refused(tmp_path, refused):
    file = tmp_path / "model.safetensors"
    tensors = {"a": torch.zeros(3, 5), "b": torch.zeros(7, dtype=torch.float16), "c": torch.zeros(2).long()}
    safetensors.torch.save_file(tensors, file)
    assert memory.memory_needed([file], torch.float32, name="x") == 15 * 4 + 7 * 4 + 2 * 8
    assert memory.memory_needed([file], torch.bfloat16, name="x") == 15 * 2 + 7 * 2 + 2 * 8
    safetensors.torch.save_file({"a": torch.zeros(3).to(torch.float8_e4m3fn)}, file)
    message = str(refused(memory.memory_needed, [file], torch.float32, name="x"))
    assert message.startswith("x is quantised (a is F8_E4M3)")


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
def test_on_this_machine_there_is_memory():
    assert memory.free_bytes("cpu") > 1e6
