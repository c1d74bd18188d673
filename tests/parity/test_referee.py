"""The referee: unit vectors as values read the matrix out of any code that mixes values linearly.

Where the values are the unit vectors of some tokens, the heads' outputs are the columns of these tokens.
Nothing of a softmax, a mask or a scale is needed for that, and nothing of ours.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("transformers", reason="Hugging Face models come with an extra")

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny

N = 41
CLOSE = 2e-5  # torch's fused kernels add up in another order
pytestmark = pytest.mark.filterwarnings("ignore")


def unit_vectors(value: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Values (1, head, key, d) with a unit vector for each of d keys, and zeros for all others, and which."""
    n_key, d = value.shape[-2:]
    for start in range(0, n_key, d):
        keys = slice(start, min(start + d, n_key))
        units = torch.zeros_like(value)
        units[..., keys, : keys.stop - start] = torch.eye(keys.stop - start)
        yield keys, units


def read_out(attend: Callable[[Tensor], Tensor], value: Tensor, n_query: int, n_heads: int) -> Tensor:
    """The matrix (head, query, key) of a function from values to heads' outputs, (1, query, head, d)."""
    matrix = torch.zeros(n_heads, n_query, value.shape[-2])
    for keys, units in unit_vectors(value):
        columns = attend(units)[0].transpose(0, 1)
        matrix[:, :, keys] = columns[..., : keys.stop - keys.start]
    return matrix


@contextmanager
def reading_kernels(model: nn.Module, kernel: str) -> Iterator[list[Tensor]]:
    """The matrices of all calls of a kernel that models call by its name."""
    found, function = [], ALL_ATTENTION_FUNCTIONS[kernel]

    def read(module, query, key, value, *args, **more):
        def attend(units: Tensor) -> Tensor:
            return function(module, query, key, units, *args, **more)[0]

        found.append(read_out(attend, value, query.shape[-2], query.shape[1]))
        return function(module, query, key, value, *args, **more)

    model.set_attn_implementation(kernel)
    ALL_ATTENTION_FUNCTIONS[kernel] = read
    try:
        yield found
    finally:
        ALL_ATTENTION_FUNCTIONS[kernel] = function


def shown_mixing(family: str) -> tuple[nn.Module, dict[str, Tensor], tuple, tuple]:
    """A model and its inputs, and the layers and mixers that are shown of it."""
    draw = torch.Generator().manual_seed(1)
    inputs = {"input_ids": torch.randint(5, 90, (1, N), generator=draw)}
    model = tiny.model(family)
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(5, 90, (1, 23), generator=draw)
    layers, _, mixers = huggingface.flow(huggingface.adopt(model), inputs)
    return model, inputs, layers, mixers


@pytest.fixture(autouse=True)
def _quiet():
    transformers.logging.set_verbosity_error()


@pytest.mark.parametrize(
    "family",
    [
        *("bart", "bert", "deepseek_v3", "deepseek_v32", "falcon_h1", "gemma3_text", "llama", "llama4_text"),
        "minimax_m3_vl_text",
    ],
)
def test_torch_s_kernel_mixes_values_by_the_weights_that_are_shown(family):
    model, inputs, layers, _ = shown_mixing(family)
    with torch.no_grad(), reading_kernels(model, "sdpa") as matrices:
        model(**inputs, use_cache=False)
    assert len(matrices) == len(layers)
    for layer, matrix in zip(layers, matrices, strict=True):
        np.testing.assert_allclose(layer.weights(), matrix, atol=CLOSE)


# The matrices W^V and W^O of models whose kernel is code of their own.
OWN_CODE = {
    "gptj": ("v_proj", "out_proj"),
    "deberta-v2": ("value_proj", "dense"),
    "gpt_oss": ("v_proj", "o_proj"),
    "t5": ("v", "o"),
}


@pytest.mark.parametrize("family", OWN_CODE)
def test_a_model_s_own_code_mixes_values_by_the_weights_that_are_shown(family):
    """Its values are replaced after W^V, and its heads' outputs read before W^O."""
    model, inputs, layers, _ = shown_mixing(family)
    for layer in layers:
        matrix = own_matrix(model, inputs, layer, *OWN_CODE[family])
        np.testing.assert_allclose(layer.weights(), matrix, atol=CLOSE)


def own_matrix(model: nn.Module, inputs: dict, layer, values: str, output: str) -> Tensor:
    parts = model.get_submodule(layer.name.removesuffix(".self")).named_modules()
    named = {name.rpartition(".")[2]: part for name, part in parts}
    into, out = named[values], named[output]

    def attend(units: Tensor) -> Tensor:
        taken = []
        replaced = units[0].transpose(0, 1).reshape(1, units.shape[-2], -1)
        hooks = [
            into.register_forward_hook(lambda *_: replaced),
            out.register_forward_pre_hook(lambda _, args: taken.append(args[0])),
        ]
        with torch.no_grad():
            model(**inputs, use_cache=False)
        for hook in hooks:
            hook.remove()
        return taken[0].reshape(1, layer.n_query, layer.n_heads, -1)

    value = torch.zeros(1, layer.n_kv_heads, layer.n_key, layer.d_v)
    return read_out(attend, value, layer.n_query, layer.n_heads)


def test_the_recurrent_kernel_mixes_values_by_the_matrix_of_the_kernel_in_chunks(monkeypatch):
    """Where there is no softmax: the model runs in chunks, the referee token by token."""
    from transformers.models.qwen3_next import modeling_qwen3_next as file

    model, inputs, _, mixers = shown_mixing("qwen3_next")
    matrices, chunks = [], file.torch_chunk_gated_delta_rule

    def read(query, key, value, **more):
        def attend(units: Tensor) -> Tensor:
            gates = {name: more[name] for name in ("g", "beta", "use_qk_l2norm_in_kernel")}
            return file.torch_recurrent_gated_delta_rule(query, key, units.transpose(1, 2), **gates)[0]

        matrices.append(read_out(attend, value.transpose(1, 2), N, value.shape[2]))
        return chunks(query, key, value, **more)

    monkeypatch.setattr(file, "torch_chunk_gated_delta_rule", read)
    with torch.no_grad():
        model(**inputs, use_cache=False)
    assert len(matrices) == len(mixers) == 1
    assert (matrices[0] < -1e-3).any()
    np.testing.assert_allclose(mixers[0].mixing(), matrices[0], atol=CLOSE)
