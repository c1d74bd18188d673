"""Layers without softmax: the matrix of their own code is what mixed the values, in every family."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from mha_core import MhaError
from mha_core.capture.special_layers import without_softmax
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.mixer import MixerTrace
from tests.parity import tiny

# Longer than the chunks of every kernel but RWKV's, Mamba's and the convolution's, which have none.
N_TOKENS = 71
RULES = {
    "qwen3_next": ("gated delta rule", "head", 4),
    "bailing_hybrid": ("Kimi delta attention", "head", 4),
    "minimax": ("lightning attention", "head", 0),
    "mamba": ("selective state space (Mamba)", "channel", 4),
    "mamba2": ("state space duality (Mamba 2)", "head", 4),
    "rwkv": ("RWKV", "channel", 0),
    "recurrent_gemma": ("gated linear recurrence (RG-LRU)", "channel", 4),
    "xlstm": ("mLSTM", "head", 0),
    "lfm2_moe": ("short convolution", "channel", 0),
}

pytestmark = pytest.mark.filterwarnings("ignore")  # inside of other people's models


@pytest.fixture(autouse=True)
def _quiet():
    transformers.logging.set_verbosity_error()


def flowed(family: str, n_tokens: int = N_TOKENS):
    """Attention layers, what was skipped, and mixers; the limit of the tiny models does not count."""
    ids = torch.randint(5, 90, (1, n_tokens), generator=torch.Generator().manual_seed(3))
    return huggingface.flow(huggingface.adopt(tiny.model(family)), {"input_ids": ids})


def output(layer: MixerTrace, heads: list[int]) -> np.ndarray:
    """``gate · (M V) + bias``, in float64."""
    values = {name: tensor[heads].double().numpy() for name, tensor in layer.tensors.items()}
    matrices = np.stack([layer.mixing(head) for head in heads]).astype(np.float64)
    return matrices @ values["v"] * values.get("gate", 1.0) + values.get("bias", 0.0)


@pytest.mark.parametrize("family", RULES)
def test_the_matrix_times_the_values_is_what_the_layer_computed(family):
    _, skipped, mixers = flowed(family)
    assert not any("other means" in entry for entry in skipped)
    layer = mixers[0]
    assert (layer.rule, layer.unit, layer.convolution) == RULES[family]
    assert (layer.d_v == 1) == (layer.unit == "channel")
    for layer in mixers:
        heads = sorted({0, 1, layer.n_heads // 2, layer.n_heads - 1})
        np.testing.assert_allclose(output(layer, heads), layer.output()[heads], rtol=1e-6, atol=1e-5)
        for head in heads:
            matrix = layer.mixing(head)
            assert matrix.shape == (N_TOKENS, N_TOKENS)
            assert not np.triu(matrix, 1).any()  # causal
            assert np.abs(np.tril(matrix)).sum() > 0


@pytest.mark.parametrize("family", ["qwen3_next", "minimax", "mamba", "rwkv", "lfm2_moe"])
def test_another_value_of_one_token_moves_the_output_by_its_column(family):
    model = huggingface.adopt(tiny.model(family))
    recorded = []
    own = without_softmax.KernelRecorder.add
    with without_softmax.KernelRecorder() as recorder:
        recorder.add = lambda *call: (recorded.append(call), own(recorder, *call))
        model.module(input_ids=torch.arange(5, 28)[None])
    [layer, *_], (_, kernel, function, arguments, _) = recorder.layers(model.mixers), recorded[0]
    at, head = 9, layer.n_heads - 1

    def mixed(arguments: dict) -> torch.Tensor:
        result = function(**arguments)
        return kernel.by_head(result[0] if isinstance(result, tuple) else result)

    with torch.no_grad():
        before = mixed(arguments)
        values = kernel.by_head(arguments[kernel.value]).clone()
        values[head, at] += 0.5
        after = mixed({**arguments, kernel.value: kernel.as_values(values)})
    moved = (after - before).numpy()
    gate = layer.tensors["gate"].numpy()[head] if "gate" in layer.tensors else 1.0
    column = np.broadcast_to(gate * 0.5 * layer.mixing(head)[:, [at]], moved[head].shape)
    np.testing.assert_allclose(moved[head], column, atol=1e-5)
    assert not moved[:head].any()


@pytest.mark.parametrize(("family", "dtype"), [("qwen3_next", torch.bfloat16), ("mamba2", torch.float16)])
def test_the_numbers_agree_in_half_precision(family, dtype):
    trace = huggingface.follow(huggingface.adopt(tiny.model(family).to(dtype)), list(range(5, 40)))
    [layer, *_] = trace.mixers
    assert layer.tensors["v"].dtype == dtype
    own, scale = layer.output()[0], np.abs(layer.mixing(0)) @ np.abs(layer.v[0])
    assert np.abs(output(layer, [0])[0] - own).max() <= 0.03 * scale.max()


def test_another_layer_s_matrix_is_refused():
    first, second = flowed("mamba2", 23)[2]
    with pytest.raises(MhaError, match="not linear in its values: the matrix of its own code gives another"):
        replace(first, matrices=second.matrices).mixing(0)
    assert without_softmax.provable([first, replace(second, matrices=first.matrices)]) == {first.name}


def test_a_layer_that_is_not_linear_is_named_and_not_shown(monkeypatch):
    """The same model with a kernel that is: its values squared."""
    from transformers.models.mamba2 import modeling_mamba2

    own = modeling_mamba2.mamba2_chunk_scan

    def squared(hidden_states, *args, **kwargs):
        return own(hidden_states.square(), *args, **kwargs)

    monkeypatch.setattr(modeling_mamba2, "mamba2_chunk_scan", squared)
    with pytest.raises(MhaError, match=r"backbone.layers.0.mixer: Mamba2Mixer mixes tokens by other means"):
        huggingface.adopt(tiny.model("mamba2"))


def test_the_model_itself_is_left_alone():
    module = tiny.model("qwen3_next")
    before = [dict(vars(part)) for part in module.modules()]
    model = huggingface.adopt(module)
    huggingface.follow(model, list(range(5, 20)))
    assert [dict(vars(part)) for part in module.modules()] == before
    ids = {"input_ids": torch.arange(5, 20)[None]}
    with torch.no_grad():
        torch.testing.assert_close(model.module(**ids).logits, module(**ids, use_cache=False).logits)


def test_a_second_pass_replaces_the_first():
    model = huggingface.adopt(tiny.model("zamba2"))  # of its layers each runs once, of some kernels several
    with without_softmax.KernelRecorder() as recorder:
        for n_tokens in (9, 13):
            model.module(input_ids=torch.arange(5, 5 + n_tokens)[None])
    layers = recorder.layers(model.mixers)
    assert [layer.name for layer in layers] == list(model.mixers)
    assert {layer.n_tokens for layer in layers} == {13}
