"""A layer without softmax: its matrix is checked, saved, and never shown as weights."""

import copy
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import mha_core as mha
from mha_core.traces import mixer as module
from mha_core.traces import storage
from mha_core.traces.mixer import MixerTrace

TEXT = "the old cat saw the new cat"
HEADS, TOKENS, WIDTH = 3, 7, 5


def make_mixer(**changed) -> MixerTrace:
    """Three heads with signed, causal matrices, a gate and a bias."""
    draw = torch.Generator().manual_seed(4)
    mixing = torch.randn(HEADS, TOKENS, TOKENS, generator=draw).tril()
    v = torch.randn(HEADS, TOKENS, WIDTH, generator=draw)
    gate = torch.rand(HEADS, TOKENS, WIDTH, generator=draw)
    bias = torch.randn(HEADS, 1, WIDTH, generator=draw)
    tensors = {"v": v, "output": gate * (mixing @ v) + bias, "gate": gate, "bias": bias}
    settings = {"rule": "gated delta rule", "name": "layers.0", "convolution": 4}
    settings |= {"matrices": lambda heads: mixing[list(heads)]}
    return MixerTrace(MappingProxyType(tensors), **settings | changed)


@pytest.fixture
def trace():
    return replace(
        mha.trace(TEXT, h=3, d_model=15, layers=2), mixers=(make_mixer(), make_mixer(name="layers.2"))
    )


def test_the_matrix_of_one_head_is_one_of_all():
    layer = make_mixer()
    assert layer.mixing().shape == (3, 7, 7)
    for head in range(3):
        np.testing.assert_array_equal(layer.mixing(head), layer.mixing()[head])
    np.testing.assert_array_equal(layer.mixing(-1), layer.mixing(2))
    assert (layer.mixing() < 0).any()
    assert not layer.mixing(0).flags.writeable


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda layer: layer.mixing(3), "This layer has heads 0 to 2; head 3 was asked for."),
        (
            lambda layer: layer.weights(1, rows=[0]),
            "layers.0 is no softmax attention (gated delta rule), so it has no weights that sum to 1; "
            "mixing(head=1) is the signed matrix by which it mixes the tokens.",
        ),
        (
            lambda _: make_mixer(unit="token"),
            "There is no unit called 'token'; head, channel or component can be used.",
        ),
    ],
)
def test_matrices_that_a_mixer_lacks_are_refused(wrong, message):
    with pytest.raises(mha.MhaError) as error:
        wrong(make_mixer())
    assert str(error.value) == message


@pytest.mark.parametrize("part", ["v", "gate", "bias", "output"])
def test_a_matrix_that_does_not_make_the_output_is_refused(part):
    layer = make_mixer()
    tensors = dict(layer.tensors)
    tensors[part] = tensors[part] + 0.001 * torch.ones_like(tensors[part])
    with pytest.raises(mha.MhaError, match=r"layers.0 \(gated delta rule\) is not linear in its values"):
        replace(layer, tensors=tensors).mixing(1)


def test_too_many_matrices_at_once_are_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_NUMBERS", 2 * TOKENS**2)
    layer = make_mixer()
    with pytest.raises(mha.MhaError, match=r"all 3 heads have 147 numbers.*ask for one, as in head=0"):
        layer.mixing()
    assert layer.mixing(2).shape == (7, 7)


def test_mixers_are_not_among_the_layers(trace):
    assert len(trace.layers) == len(trace.mixers) == 2
    assert trace.mixer(-1).name == "layers.2"
    assert trace.part("self").mixers == trace.mixers
    assert "2 layers (3 heads), 2 mixers" in repr(trace)
    assert "2 layers, 2 without softmax" in trace._repr_html_()
    alone = replace(trace, layers=())
    for wrong in (lambda: alone.frame("weights", head=0), alone.view):
        with pytest.raises(mha.MhaError, match="has no layers"):
            wrong()
    with pytest.raises(mha.MhaError, match="7 tokens cannot go with a mixer of 6"):
        replace(trace, mixers=(replace(make_mixer(), tensors={"v": torch.ones(3, 6, 5)}),))


def test_a_saved_mixer_loads_with_its_matrices(trace, tmp_path):
    path = tmp_path / "t.safetensors"
    trace.save(path)
    for back in (mha.load(path), copy.deepcopy(trace), copy.deepcopy(mha.load(path))):
        for ours, theirs in zip(trace.mixers, back.mixers, strict=True):
            assert theirs.matrices is None
            for name in ("rule", "unit", "name", "convolution"):
                assert getattr(ours, name) == getattr(theirs, name)
            for name, tensor in ours.tensors.items():
                assert torch.equal(tensor, theirs.tensors[name])
            np.testing.assert_array_equal(ours.mixing(), theirs.mixing())


def test_matrices_too_large_for_a_file_are_refused_or_left_out(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "MAX_MIXING", 100)
    with pytest.raises(mha.MhaError, match=r"2 layers without softmax \(gated delta rule\) have 294 numbers"):
        trace.save(tmp_path / "t.safetensors")
    assert not list(tmp_path.iterdir())
    trace.save(tmp_path / "t.safetensors", mixers=False)
    assert mha.load(tmp_path / "t.safetensors").mixers == ()


def test_a_file_with_another_shape_of_matrices_is_damaged(trace, tmp_path):
    path = tmp_path / "t.safetensors"
    trace.save(path)
    with safe_open(path, framework="pt") as file:
        tensors, header = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    tensors["mixer1.mixing"] = tensors["mixer1.mixing"][:, :-1].contiguous()
    save_file(tensors, path, metadata=header)
    with pytest.raises(mha.MhaError, match="is damaged"):
        mha.load(path)
