"""Edits of third-party models; `tests.parity` compares each kind with the same change written by hand."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

import mha_core as mha
from mha_core import MhaError, edits
from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny
from tests.parity.by_hand import CHANGES, HEAD, ROW, by_hand
from tests.parity.compare import traced

LENGTH = (13, 11)  # tokens of the text and of the target
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # many models


def model_and_copy(family: str) -> tuple[huggingface.Model, nn.Module]:
    """A model as it is traced, with its tokenizer, and the same model of its own."""
    built = tiny.model(family)
    return huggingface.model_of(built, tokenizer=tiny.tokenizer(built)), tiny.model(family)


def edited(model: huggingface.Model, *changes: edits.Edit) -> tuple[mha.AttentionTrace, Tensor]:
    """The trace of a text with edits, and the output of the model while it was made."""
    trace, output = traced(model, LENGTH, changes)
    return trace, next(part for part in output.values() if torch.is_tensor(part))


@pytest.fixture(autouse=True)
def _quiet():
    transformers.logging.set_verbosity_error()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_an_edited_layer_shows_what_torch_computes_with_the_same_change_by_hand():
    model, own = model_and_copy("llama")
    trace, _ = edited(model)
    inputs = tiny.inputs(model, trace, LENGTH)
    for change in CHANGES.values():
        edit = change.edit(0, trace.layers[0].n_key)
        ours, output = edited(model, edit)
        expected, called = by_hand(own, inputs, 0, change)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
        np.testing.assert_allclose(ours.layers[0].output(), called[0][0], atol=1e-5)
        assert ours.edits == (edit,)


def test_threads_with_different_edits_of_one_model_are_independent():
    model, _ = model_and_copy("llama")
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
    model, _ = model_and_copy("codegen")
    assert model.route.name == "watch"
    with pytest.raises(MhaError, match="would change the picture and not the model"):
        edited(model, edits.Output(heads=0))
    for change in (edits.Concatenation(layer=0), edits.Position(code="none")):
        with pytest.raises(MhaError, match="changes what stands around attention"):
            edited(model_and_copy("gpt2")[0], change)


def test_kinds_and_texts_of_an_encoder_decoder():
    model, _ = model_and_copy("bart")
    trace, _ = edited(model, edits.Hide(kind="cross", keys=0))
    kinds = {layer.kind for layer in trace.layers if (layer.weights()[..., 0] == 0).all()}
    assert kinds == {"cross"}
    target_rows = LENGTH[1]
    cross = next(layer for layer in trace.layers if layer.kind == "cross")
    with pytest.raises(MhaError, match=rf"rows that are not there: there are {cross.n_query}, counted"):
        edited(model, edits.Hide(kind="cross", rows=target_rows))
    with pytest.raises(MhaError, match="needs a target"):
        huggingface.follow(model, tiny.texts(LENGTH)[0], edits=[edits.Hide(keys=0)])
