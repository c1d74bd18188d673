"""Edits of third-party models: each is what torch computes with the same change written by hand.

The reference is transformers' own path through the kernel that it calls "sdpa"; in one call of it, scores,
softmax and mixture are written out with the change in the middle. Nothing of ours takes part in that.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import mha_core as mha
from mha_core import MhaError, edits
from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny

LENGTH = (13, 11)  # tokens of the text and of the target
HEAD, ROW, KEY = 1, 7, 3
CLOSE = 1e-6  # of the largest number of the output; torch's kernel adds up in another order
pytestmark = pytest.mark.filterwarnings("ignore")

FAMILIES = (
    *("albert", "apertus", "arcee", "aria_text", "bart", "bert", "bitnet", "camembert", "cohere"),
    *(
        "data2vec-text",
        "deepseek_v3",
        "diffllama",
        "electra",
        "ernie",
        "exaone4",
        "falcon_h1",
        "gemma",
        "glm",
    ),
    *("glm", "glm4", "gpt2", "gpt_neox", "granite", "helium", "hunyuan_v1_dense", "lfm2", "llama"),
    *(
        "marian",
        "mbart",
        "minicpm3",
        "mistral",
        "mixtral",
        "olmo",
        "olmo2",
        "opt",
        "persimmon",
        "phi",
        "phi3",
    ),
    *("phi", "phi3", "qwen2", "qwen3", "roberta", "seed_oss", "smollm3", "stablelm", "starcoder2", "whisper"),
)


@dataclass(frozen=True)
class ByHand:
    """An edit, and what it does to scores, weights and outputs of a call, (1, head, …), written in torch."""

    edit: Callable[[int, int], edits.Edit]  # of a layer with so many keys
    scores: Callable[[Tensor, float], Tensor] = lambda scores, scale: scores
    weights: Callable[[Tensor], Tensor] = lambda weights: weights
    outputs: Callable[[Tensor], Tensor] = lambda outputs: outputs


def cell(number: float) -> Callable[[Tensor, float], Tensor]:
    """Add a number to the score of one cell of one head."""

    def changed(scores: Tensor, scale: float) -> Tensor:
        scores = scores.clone()
        scores[0, HEAD, ROW, KEY] += number
        return scores

    return changed


def uniform(weights: Tensor) -> Tensor:
    weights = weights.clone()
    row = weights[0, :, ROW]
    weights[0, :, ROW] = (row > 0).float() / (row > 0).sum(-1, keepdim=True)
    return weights


def off(outputs: Tensor) -> Tensor:
    outputs = outputs.clone()
    outputs[0, HEAD] = 0.0
    return outputs


def own_row(weights: Tensor) -> Tensor:
    """In one row half of the weight for each of two keys."""
    weights = weights.clone()
    weights[0, HEAD, ROW] = 0.0
    weights[0, HEAD, ROW, [0, KEY]] = 0.5
    return weights


def halves(n_key: int) -> list[float]:
    return [0.5 if key in (0, KEY) else 0.0 for key in range(n_key)]


AT = {"heads": HEAD, "rows": ROW}
CHANGES = {
    "hide": ByHand(lambda at, n: edits.Hide(layer=at, keys=KEY, **AT), cell(float("-inf"))),
    "bias": ByHand(lambda at, n: edits.Bias(layer=at, values=1.75, keys=KEY, **AT), cell(1.75)),
    "scale": ByHand(lambda at, n: edits.Scale(layer=at, factor=1.0), lambda scores, scale: scores / scale),
    "temperature": ByHand(
        lambda at, n: edits.Temperature(layer=at, temperature=3.0), lambda scores, _: scores / 3
    ),
    "uniform": ByHand(lambda at, n: edits.Weights(layer=at, rows=ROW), weights=uniform),
    "weights": ByHand(lambda at, n: edits.Weights(layer=at, values=halves(n), **AT), weights=own_row),
    "off": ByHand(lambda at, n: edits.Output(layer=at, heads=HEAD), outputs=off),
}


@contextmanager
def changed(model: nn.Module, at: int, change: ByHand | None) -> Iterator[list[Tensor | None]]:
    """The model with a change in call `at`, and for each call the heads' outputs where they are changed."""
    called, function = [], ALL_ATTENTION_FUNCTIONS["sdpa"]

    def kernel(module, query, key, value, attention_mask, *args, scaling=None, is_causal=None, **more):
        called.append(None)
        if change is None or len(called) - 1 != at:
            return function(
                module, query, key, value, attention_mask, *args, scaling=scaling, is_causal=is_causal, **more
            )
        group = query.shape[1] // key.shape[1]
        k, v = (part.repeat_interleave(group, dim=1) for part in (key, value))
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        mask = torch.ones(query.shape[2], k.shape[2], dtype=torch.bool)
        mask = mask.tril() if causal and attention_mask is None and query.shape[2] > 1 else mask
        if attention_mask is not None and attention_mask.dtype == torch.bool:
            mask = mask & attention_mask[..., : k.shape[2]]
        scores = (query @ k.mT * scale).masked_fill(~mask, float("-inf"))
        if attention_mask is not None and attention_mask.dtype != torch.bool:
            scores = scores + attention_mask[..., : k.shape[2]]
        weights = change.weights(change.scores(scores, scale).softmax(-1))
        called[-1] = change.outputs(weights @ v)
        return called[-1].transpose(1, 2).contiguous(), None

    model.set_attn_implementation("sdpa")
    ALL_ATTENTION_FUNCTIONS["sdpa"] = kernel
    try:
        yield called
    finally:
        ALL_ATTENTION_FUNCTIONS["sdpa"] = function


def ready(family: str) -> tuple[huggingface.Model, nn.Module]:
    """A model as it is traced, with its tokenizer, and the same model of its own."""
    built = tiny.model(family)
    return huggingface.adopt(built, tiny.tokenizer(built)), tiny.model(family)


def edited(model: huggingface.Model, *changes: edits.Edit) -> tuple[mha.AttentionTrace, Tensor]:
    """The trace of a text with edits, and the output of the model while it was made."""
    outputs = []
    hook = model.module.register_forward_hook(lambda _, __, output: outputs.append(output))
    try:
        text, target = tiny.texts(LENGTH)
        target = target if model.has_target else None
        trace = huggingface.follow(model, text, target=target, edits=changes)
    finally:
        hook.remove()
    return trace, next(part for part in outputs[-1].values() if torch.is_tensor(part))


def by_hand(
    model: nn.Module, inputs: dict, at: int = -1, change: ByHand | None = None
) -> tuple[Tensor, list[Tensor | None]]:
    """The output of a model with a change in call `at`, and what `changed` has of its calls."""
    with torch.no_grad(), changed(model, at, change) as called:
        output = model(**inputs, return_dict=True)
    return next(part for part in output.values() if torch.is_tensor(part)), called


def assert_near(ours: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=0, atol=CLOSE * float(expected.abs().max()))


@pytest.fixture(autouse=True)
def _quiet():
    transformers.logging.set_verbosity_error()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_edit_is_what_torch_computes_with_the_same_change_by_hand(family):
    model, own = ready(family)
    trace, unedited = edited(model)
    inputs = tiny.inputs(model, trace, LENGTH)
    plain, called = by_hand(own, inputs)
    assert len(called) == len(trace.layers)
    assert_near(unedited, plain)
    seen = 0
    for at in {0, len(trace.layers) - 1}:
        layer = trace.layers[at]
        if layer.weights(HEAD)[ROW, KEY] == 0:
            continue
        for change in CHANGES.values():
            edit = change.edit(at, layer.n_key)
            ours, output = edited(model, edit)
            expected, called = by_hand(own, inputs, at, change)
            assert_near(output, expected)
            assert_near(torch.tensor(ours.layers[at].output()), called[at][0])
            assert ours.edits == (edit,)
            seen += not torch.allclose(expected, plain, atol=10 * CLOSE * float(plain.abs().max()))
        for identity in (edits.Scale(layer=at, factor=layer.scale), edits.Temperature(temperature=1.0)):
            assert torch.equal(edited(model, identity)[1], unedited)
    assert seen  # some of the changes are seen in the output


def test_threads_with_different_edits_of_one_model_mix_nothing():
    model, _ = ready("llama")
    changes = [edits.Hide(layer=n % 2, heads=n % 3, keys=n % 5, rows=ROW) for n in range(12)]
    alone = [edited_weights(model, change) for change in changes]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda change: edited_weights(model, change), changes * 6))
    for ours, expected in zip(together, alone * 6, strict=True):
        np.testing.assert_array_equal(ours, expected)
    assert not np.array_equal(alone[0], alone[1])


def edited_weights(model: huggingface.Model, *changes: edits.Edit) -> np.ndarray:
    trace = huggingface.follow(model, tiny.texts(LENGTH)[0], edits=changes)
    return np.stack([layer.weights() for layer in trace.layers])


def test_a_model_in_memory_is_edited_and_not_changed():
    built = tiny.model("gpt2")
    before = {name: tensor.clone() for name, tensor in built.state_dict().items()}
    door = {"source": built, "tokenizer": tiny.tokenizer(built)}
    text = tiny.texts(LENGTH)[0]
    plain = mha.trace(text, **door)
    trace = mha.trace(text, **door, edits=[edits.Output(layer=0, heads=HEAD)])
    assert not trace.layers[0].output(HEAD).any()
    assert np.array_equal(trace.layers[0].q, plain.layers[0].q)
    assert not np.array_equal(trace.layers[1].q, plain.layers[1].q)
    again = mha.trace(text, **door)
    assert np.array_equal(again.layers[1].q, plain.layers[1].q)
    assert all(torch.equal(tensor, before[name]) for name, tensor in built.state_dict().items())


def test_a_model_whose_attention_is_its_own_code_refuses_an_edit():
    model, _ = ready("codegen")
    assert model.route.name == "watch"
    with pytest.raises(MhaError, match="would change the picture and not the model"):
        edited(model, edits.Output(heads=0))


def test_kinds_and_texts_of_an_encoder_decoder():
    model, _ = ready("bart")
    trace, _ = edited(model, edits.Hide(kind="cross", keys=0))
    kinds = {layer.kind for layer in trace.layers if (layer.weights()[..., 0] == 0).all()}
    assert kinds == {"cross"}
    target_rows = LENGTH[1]
    cross = next(layer for layer in trace.layers if layer.kind == "cross")
    with pytest.raises(MhaError, match=rf"rows 0 to {cross.n_query - 1}; an edit asks for row {target_rows}"):
        edited(model, edits.Hide(kind="cross", rows=target_rows))
    with pytest.raises(MhaError, match="needs a target"):
        huggingface.follow(model, tiny.texts(LENGTH)[0], edits=[edits.Hide(keys=0)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_edits_in_half_precision(dtype):
    built = tiny.model("llama").to(dtype)
    model = huggingface.adopt(built, tiny.tokenizer(built))
    trace, _ = edited(model, edits.Weights(layer=0, rows=ROW), edits.Output(layer=1, values=0.25, heads=HEAD))
    n_visible = ROW + 1
    np.testing.assert_allclose(trace.layers[0].weights()[:, ROW, :n_visible], 1 / n_visible, rtol=1e-2)
    assert (trace.layers[1].output(HEAD) == 0.25).all()
