"""A gate between the heads' outputs and W^O: known where numbers prove it, and in what heads contribute."""

import numpy as np
import pytest

pytest.importorskip("transformers", reason="Hugging Face models come with an extra")

import torch

import mha_core as mha
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface.batches import follow_many
from mha_core.traces.facts import OutputGate
from tests.parity import tiny

GATES = {
    "afmoe": OutputGate("sigmoid", "number"),
    "axk2": OutputGate("sigmoid", "number"),
    "bailing_hybrid": OutputGate("sigmoid", "head"),
    "hrm_text": OutputGate("sigmoid", "number"),
    "hy_v4": OutputGate("sigmoid", "number"),
    "laguna": OutputGate("softplus", "head"),
    "qwen3_next": OutputGate("sigmoid", "number"),
}
TEXT = list(range(5, 24))

pytestmark = pytest.mark.filterwarnings("ignore")  # inside of other people's models


def traced(family: str, dtype: torch.dtype = torch.float32):
    """A trace, and what each attention's W^O returned, by the name of the attention."""
    model, outputs = huggingface.adopt(tiny.model(family).to(dtype)), {}
    for name, part in model.module.named_modules():
        of, _, last = name.rpartition(".")
        if last in ("o_proj", "dense", "out_proj"):
            part.register_forward_hook(lambda _, __, output, of=of: outputs.update({of: output[0].float()}))
    return huggingface.follow(model, TEXT), outputs


@pytest.mark.parametrize("family", GATES)
def test_gated_heads_through_w_o_sum_to_what_the_layer_returned(family):
    trace, outputs = traced(family)
    for layer in {
        layer.name: layer for layer in trace.layers
    }.values():  # some run the same one several times
        assert layer.about.gate == GATES[family]
        width = layer.d_v if layer.about.gate.over == "number" else 1
        assert layer.tensor("gate").shape == (layer.n_heads, layer.n_query, width)
        np.testing.assert_allclose(layer.result(), outputs[layer.name], atol=1e-5)
        bias = layer.projections.b_o
        bias = 0.0 if bias is None else bias.numpy()
        np.testing.assert_allclose(layer.contribution().sum(0) + bias, layer.result(), atol=1e-5)
        gated = layer.output() * layer.tensor("gate")
        np.testing.assert_allclose(layer.concat(), gated.transpose(1, 0, 2).reshape(len(TEXT), -1), atol=1e-6)
        part = layer.contribution(1, rows=[2, 5])
        np.testing.assert_allclose(part, layer.contribution(1)[[2, 5]], atol=1e-6)


def test_in_half_precision_too():
    trace, outputs = traced("qwen3_next", torch.bfloat16)
    [layer] = trace.layers
    assert layer.about.gate == GATES["qwen3_next"]
    largest = outputs[layer.name].abs().max().item()
    np.testing.assert_allclose(layer.result(), outputs[layer.name], atol=0.02 * largest)


def test_another_function_than_is_known_is_no_gate(monkeypatch):
    monkeypatch.setattr(torch, "sigmoid", torch.tanh)  # in the model's own code
    model = huggingface.adopt(tiny.model("afmoe"))
    [layer, *_], *_ = huggingface.flow(model, {"input_ids": torch.tensor([TEXT])})
    assert layer.about.gate is None
    with pytest.raises(mha.MhaError, match="The output matrix"):
        layer.contribution(0)


def test_a_model_without_a_gate_has_none():
    [layer, *_] = traced("llama")[0].layers
    assert layer.about.gate is None
    assert not layer.knows("gate")
    np.testing.assert_array_equal(layer.concat(), layer.output().transpose(1, 0, 2).reshape(len(TEXT), -1))


def test_a_gate_is_saved_with_its_layer(tmp_path):
    trace, _ = traced("bailing_hybrid")
    trace.save(tmp_path / "t.safetensors", mixers=False)
    [ours], [theirs] = trace.layers, mha.load(tmp_path / "t.safetensors").layers
    assert theirs.about == ours.about
    np.testing.assert_array_equal(theirs.contribution(), ours.contribution())


def test_texts_that_go_together_have_their_own_gates():
    model = huggingface.adopt(tiny.model("afmoe"))
    texts = [TEXT, TEXT[3:12], TEXT[::-1]]
    alone = [huggingface.follow(model, ids) for ids in texts]
    for ours, theirs in zip(follow_many(model, texts, batch=3), alone, strict=True):
        for one, other in zip(ours.layers, theirs.layers, strict=True):
            np.testing.assert_allclose(one.contribution(), other.contribution(), atol=1e-5)
