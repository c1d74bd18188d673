"""What stands between heads' outputs and the layer's: a gate, a rotation, a W^O of one or two matrices."""

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.derivation import steps
from mha_core.capture.projections import output_rotation
from mha_core.capture.rotary import RotaryCode
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface.batches import outcomes
from mha_core.traces.facts import OutputGate, Rotary
from tests.parity import tiny

GATES = {
    "qwen3_next": OutputGate("sigmoid", "number"),
    "axk2": OutputGate("sigmoid", "number"),
    "beam": OutputGate("sigmoid", "number"),  # with a bias for each head
    "bailing_hybrid": OutputGate("sigmoid", "head"),
    "hrm_text": OutputGate("sigmoid", "number"),  # which runs a layer several times
    "laguna": OutputGate("softplus", "head"),
    **dict.fromkeys(("gpt_neox", "opt")),
}
TEXT = list(range(5, 24))

pytestmark = pytest.mark.filterwarnings("ignore")  # inside of other people's models


def traced(family: str):
    """A trace, and the output of each attention's W^O, by the name of the attention."""
    model, outputs = huggingface.adopt(tiny.model(family)), {}
    for name, part in model.module.named_modules():
        of, _, last = name.rpartition(".")
        if last in ("o_proj", "dense", "out_proj"):
            part.register_forward_hook(lambda _, __, output, of=of: outputs.update({of: output[0]}))
    return huggingface.follow(model, TEXT), outputs


@pytest.mark.parametrize("family", GATES)
def test_gated_heads_through_w_o_sum_to_what_the_layer_returned(family):
    trace, outputs = traced(family)
    for layer in {layer.name: layer for layer in trace.layers}.values():
        assert layer.about.gate == GATES[family]
        gate = 1.0
        if layer.about.gate is not None:
            gate, width = layer.tensor("gate"), layer.d_v if layer.about.gate.over == "number" else 1
            assert gate.shape == (layer.n_heads, layer.n_query, width)
        np.testing.assert_allclose(layer.result(), outputs[layer.name], atol=1e-5)
        bias = layer.projections.b_o
        bias = 0.0 if bias is None else bias.numpy()
        np.testing.assert_allclose(layer.contribution().sum(0) + bias, layer.result(), atol=1e-5)
        gated = layer.output() * gate
        np.testing.assert_allclose(layer.concat(), gated.transpose(1, 0, 2).reshape(len(TEXT), -1), atol=1e-6)
        part = layer.contribution(1, rows=[2, 5])
        np.testing.assert_allclose(part, layer.contribution(1)[[2, 5]], atol=1e-6)


def test_an_unknown_function_is_not_a_gate(monkeypatch):
    monkeypatch.setattr(torch, "sigmoid", torch.tanh)  # in the model's own code
    model = huggingface.adopt(tiny.model("afmoe"))
    [layer, *_], *_ = huggingface.flow(model, {"input_ids": torch.tensor([TEXT])})
    assert layer.about.gate is None
    with pytest.raises(mha.MhaError, match="The output matrix"):
        layer.contribution(0)


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
    for ours, theirs in zip(outcomes(model, texts, batch=3), alone, strict=True):
        for one, other in zip(ours.layers, theirs.layers, strict=True):
            np.testing.assert_allclose(one.contribution(), other.contribution(), atol=1e-5)


def low_rank(n: int, dtype: torch.dtype):
    """The layer of DeepSeek V4 between tokens, its output, and its model."""
    model = tiny.model("deepseek_v4").to(dtype)
    trace = mha.trace(list(range(5, 5 + n)), source=model, tokenizer=tiny.tokenizer(model))
    [layer] = trace.layers
    outputs = []
    model.get_submodule(f"{layer.name}.o_b_proj").register_forward_hook(lambda _, __, y: outputs.append(y))
    with torch.no_grad():
        model(torch.arange(5, 5 + n)[None])
    return trace, outputs[0][0].float(), model


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dtype"), [(41, torch.float32), (11, torch.bfloat16)])
def test_heads_that_are_rotated_back_through_a_w_o_of_low_rank(n, dtype):
    trace, output, _ = low_rank(n, dtype)
    [layer] = trace.layers
    limit = 1e-5 if dtype == torch.float32 else 0.02
    np.testing.assert_allclose(layer.contribution().sum(0), output, atol=limit)
    np.testing.assert_allclose(layer.result(), output, atol=limit)
    assert layer.about.output_rotary == Rotary("half", 2, start=layer.d_v - 2)
    np.testing.assert_array_equal(layer.concat()[0], layer.output(rows=[0]).reshape(-1))  # at position 0
    assert np.abs(layer.concat() - layer.output().transpose(1, 0, 2).reshape(n, -1)).max() > 0.01
    part = layer.contribution(1, rows=[2, 5])
    np.testing.assert_allclose(part, layer.contribution(1)[[2, 5]], atol=limit / 10)
    matrices = layer.projections
    first, second = matrices.w_o_a.float(), matrices.w_o_b.float()
    groups = torch.from_numpy(layer.concat().copy()).reshape(n, *first.shape[:2])
    np.testing.assert_allclose(
        torch.einsum("tgi,gir->tgr", groups, first).flatten(1) @ second, output, atol=limit
    )


@pytest.mark.slow
def test_both_matrices_of_a_w_o_of_low_rank_are_the_models_own_and_saved(tmp_path, refused):
    trace, _, model = low_rank(11, torch.float32)
    [layer] = trace.layers
    attention = model.get_submodule(layer.name)
    *_, concat, output = steps(trace, layer=0, head=1)
    assert ("rotated" in concat.notes, "low_rank" in output.notes) == (True, True)
    assert layer.projections.w_o_b.data_ptr() == attention.o_b_proj.weight.data_ptr()
    trace.save(tmp_path / "t.safetensors", mixers=False)
    [loaded] = mha.load(tmp_path / "t.safetensors").layers
    assert loaded.about == layer.about
    assert loaded.projections.known == layer.projections.known
    np.testing.assert_array_equal(loaded.contribution(), layer.contribution())
    untouched = mha.trace(list(range(5, 16)), source=model, tokenizer=tiny.tokenizer(model)).layers[0]
    with torch.no_grad():
        attention.o_a_proj.weight.mul_(2)
    assert "W^O is the model's own" in str(refused(untouched.contribution))


@pytest.mark.parametrize(("form", "start"), [("pairs", 2), ("half", 2), ("pairs", 0)])
def test_which_way_outputs_were_rotated_back(form, start):
    heads, angle = torch.randn(1, 3, 5, 6), torch.rand(5, 2)
    whole = {"half": lambda x: torch.cat([x, x], -1), "pairs": lambda x: x.repeat_interleave(2, -1)}[form]
    code = RotaryCode(form, whole(angle.cos()), whole(angle.sin()), start)
    joined, rotated = (x.transpose(1, 2) for x in (code.rotate(heads), heads))
    found = output_rotation(joined, rotated, [None, (angle.cos()[None], angle.sin()[None])])
    assert found.fact == code.fact
    torch.testing.assert_close(found.rotate(code.rotate(heads)), heads)
    assert output_rotation(joined, rotated + 0.1, [(angle.cos()[None], angle.sin()[None])]) is None
