"""Edits of our own sources: they act inside the computation, change the answer, and are part of the trace."""

import copy

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core import MhaError, edits

TIRED = "The animal didn't cross the street because it was too tired."
WIDE = TIRED.replace("tired", "wide")


def answer(trace: mha.AttentionTrace, word: str = "it") -> str:
    return trace.answers[trace.tokens.index(word)][0][0]


def test_an_edit_changes_the_answer():
    trace = mha.trace(TIRED, source="mini")
    assert answer(trace) == "animal"
    cut = [edits.Hide(layer=-1, rows="it", keys="animal")]
    assert answer(mha.trace(TIRED, source="mini", edits=cut)) != "animal"
    row = mha.trace(WIDE, source="mini").layers[-1].weights(rows=[trace.tokens.index("it")])
    patched = [edits.Weights(layer=-1, rows="it", values=row)]
    assert answer(mha.trace(TIRED, source="mini", edits=patched)) == "street"


def test_an_edit_that_changes_nothing_gives_the_same_bits():
    plain = mha.trace(TIRED, source="mini")
    same = mha.trace(TIRED, source="mini", edits=[edits.Temperature(temperature=1.0), edits.Bias(values=0.0)])
    assert same.answers == plain.answers
    for ours, theirs in zip(same.layers, plain.layers, strict=True):
        np.testing.assert_array_equal(ours.q, theirs.q)
        np.testing.assert_array_equal(ours.result(), theirs.result())


@pytest.mark.parametrize("edit", [edits.Output(layer=0, heads=1), edits.Hide(layer=0, keys="cat")])
def test_later_layers_of_random_weights_follow_from_an_edit(edit):
    settings = {"h": 3, "d_model": 33, "layers": 2}
    plain = mha.trace("a cat sat", **settings)
    trace = mha.trace("a cat sat", **settings, edits=[edit])
    first, second = trace.layers
    np.testing.assert_array_equal(first.q, plain.layers[0].q)
    np.testing.assert_allclose(second.x, first.result(), atol=1e-5)
    assert np.abs(second.x - plain.layers[1].x).max() > 1e-2
    assert all(mha.against_torch(layer).passed for layer in trace.layers)


def test_one_head_without_w_o_is_plain_self_attention():
    settings = {"h": 1, "d_model": 12, "layers": 2}
    plain = mha.trace("a cat sat", **settings)
    trace = mha.trace("a cat sat", **settings, edits=[edits.Concatenation(layer=0)])
    first, second = trace.layers
    np.testing.assert_array_equal(first.result(), first.output(0))
    np.testing.assert_array_equal(second.x, first.output(0))
    np.testing.assert_array_equal(first.output(0), plain.layers[0].output(0))
    assert np.abs(second.result() - plain.layers[1].result()).max() > 1e-2
    assert all(mha.against_torch(layer).passed for layer in trace.layers)
    assert "W^O = I: layer 1" in repr(trace)


@pytest.mark.parametrize(
    "settings",
    [
        {"h": 4, "d_model": 12, "n_kv_heads": 2},
        {"source": "mini"},
        {"source": "mini", "architecture": "latent"},
    ],
)
def test_heads_with_the_same_w_are_one_head(settings):
    plain = mha.trace(TIRED, **settings).layers[0]
    trace = mha.trace(TIRED, **settings, edits=[edits.SameHeads(layer=0)])
    first = trace.layers[0]
    for head in range(first.n_heads):
        np.testing.assert_array_equal(first.weights(head), plain.weights(0))
        np.testing.assert_array_equal(first.output(head), plain.output(0))
    assert np.abs(plain.output(3) - plain.output(0)).max() > 0.1  # and the model itself stays as it was
    assert mha.against_torch(first).passed


@pytest.mark.parametrize("code", ["none", "learned", "rotary", "alibi"])
def test_another_position_encoding_is_that_of_a_trace_with_it(code, tmp_path):
    settings = {"h": 2, "d_model": 8, "layers": 2}
    trace = mha.trace("a cat sat", **settings, edits=[edits.Position(code=code)])
    expected = mha.trace("a cat sat", **settings, position=code)
    for ours, theirs in zip(trace.layers, expected.layers, strict=True):
        np.testing.assert_array_equal(ours.q, theirs.q)
        np.testing.assert_array_equal(ours.weights(), theirs.weights())
    trace.save(tmp_path / "trace.safetensors")
    loaded = mha.load(tmp_path / "trace.safetensors")
    assert loaded.edits == (edits.Position(code=code),)
    assert loaded.source.origin.position == "sinusoidal"


@pytest.mark.parametrize("architecture", ["glass-box", "standard"])
def test_a_small_model_without_w_o_joins_its_heads_as_they_are(architecture):
    settings = {"source": "mini", "architecture": architecture}
    plain = mha.trace(TIRED, **settings)
    trace = mha.trace(TIRED, **settings, edits=[edits.Concatenation(layer=-1)])
    first, last = trace.layers
    np.testing.assert_array_equal(first.result(), plain.layers[0].result())
    np.testing.assert_array_equal(last.result(), last.concat())
    np.testing.assert_array_equal(last.concat(), plain.layers[-1].concat())
    assert all(mha.against_torch(layer).passed for layer in trace.layers)
    assert trace.answers != plain.answers
    assert mha.trace(TIRED, **settings).answers == plain.answers  # the model itself stays as it was


def test_a_small_model_without_positions_ignores_word_order():
    """Without a code, words that change places change places in the first layer's output, and no more."""
    text, other = "the dog saw the cat .", "the cat saw the dog ."
    order = [0, 1, 5, 3, 4, 2, 6]  # behind [CLS]
    for code in ("none", "alibi"):
        change = [edits.Position(code=code)]
        first, second = (mha.trace(one, source="mini", edits=change) for one in (text, other))
        assert [second.tokens.pieces[at] for at in order] == list(first.tokens.pieces)
        outputs = [trace.layers[0].result() for trace in (first, second)]
        assert np.allclose(outputs[0], outputs[1][order], atol=1e-5) == (code == "none")
        assert all(mha.against_torch(layer).passed for layer in first.layers)


def test_the_learned_code_is_the_one_that_a_small_model_has(refused):
    plain = mha.trace(TIRED, source="mini")
    same = mha.trace(TIRED, source="mini", edits=[edits.Position(code="learned")])
    np.testing.assert_array_equal(same.layers[1].weights(), plain.layers[1].weights())
    drawn = mha.trace(TIRED, source="mini", trained=False)
    start = mha.trace(TIRED, source="mini", trained=False, edits=[edits.Position(code="sinusoidal")])
    np.testing.assert_array_equal(start.layers[0].q, drawn.layers[0].q)  # training starts from that code
    error = refused(mha.trace, TIRED, source="mini", edits=[edits.Position(code="rotary")])
    assert "not rotated" in str(error)
    assert error.fixes == ({"source": "random"},)


def test_w_o_is_left_out_where_the_heads_are_as_wide_as_x(refused):
    error = refused(mha.trace, "a b", h=2, d_model=8, d_v=3, edits=[edits.Concatenation()])
    assert "h · d_v = d_model; here they are 6 and 8" in str(error)
    assert error.fixes == ({"d_v": None},)
    refused(edits.Position, code="sideways")
    refused(edits.Position, code="alibi", layer=0)


def test_a_trace_carries_its_edits_into_captions_files_and_copies(tmp_path):
    changes = (edits.Output(layer=0, heads=2), edits.Weights(layer=1, rows="it"))
    trace = mha.trace(TIRED, source="mini", edits=list(changes))
    assert trace.edits == changes
    assert "off: layer 1, head 3; uniform weights: layer 2, row it" in repr(trace)
    assert "off: layer 1, head 3" in trace.figure("weights", head=0).layout.title.text
    trace.save(tmp_path / "edited.safetensors")
    for again in (mha.load(tmp_path / "edited.safetensors"), copy.deepcopy(trace)):
        assert again.edits == changes
        np.testing.assert_array_equal(again.layers[1].weights(), trace.layers[1].weights())
        np.testing.assert_array_equal(again.layers[0].output(), trace.layers[0].output())
    assert mha.trace(TIRED, source="mini").edits == ()


def test_many_texts_have_the_same_edits():
    off = [edits.Hide(rows="it", keys="animal")]
    texts = [TIRED, "The animal saw that it was tired."]
    for text, trace in zip(texts, mha.trace_many(texts, source="mini", edits=off), strict=True):
        alone = mha.trace(text, source="mini", edits=off)
        assert (trace.edits, trace.answers) == (alone.edits, alone.answers)
    with pytest.raises(MhaError, match="Text 2: "):
        list(mha.trace_many([TIRED, "No pronoun."], source="mini", edits=off))


def test_sources_that_do_not_compute_refuse_edits():
    q = torch.randn(2, 3, 4)
    with pytest.raises(TypeError):
        mha.from_tensors(q, q, q, edits=[edits.Output()])
    with pytest.raises(MhaError, match="edits is a list"):
        mha.trace("a b", edits={"heads": 1})


def test_measures_without_some_tokens_are_of_the_patched_weights():
    trace = mha.trace("a cat sat down", h=2, d_model=16, edits=[edits.Weights(heads=0)])
    table = mha.metrics(trace, without=[0])
    assert table.xs(0, level="head")["entropy"].item() == pytest.approx(1.0)  # of three keys, as a share
    assert table.xs(0, level="head")["same token"].item() == pytest.approx(1 / 3)
