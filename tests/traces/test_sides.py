"""Layers whose queries and keys belong to different texts, and layers of which only the weights are known."""

import json
import struct
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis import overview, patterns, token
from mha_core.analysis.frames import picture
from mha_core.export.payload import Panel, fitting, pack, size
from mha_core.traces.facts import Facts, LatentProjection, Rotary

TEXT = replace(mha.words("die alte Katze sah den neuen Hund"), words=(0, 0, 1, 2, 3, 4, 5), special=(0, 6))
TARGET = mha.words("the old cat saw it")
SIDES = {
    "encoder": mha.Sides(TEXT, TEXT),
    "decoder": mha.Sides(TARGET, TARGET),
    "cross": mha.Sides(TARGET, TEXT),
}
HEADS, D_K, D_V = 3, 11, 13


@pytest.fixture(scope="session")
def by_kind(normal):
    """`by_kind(kind)`: a layer of that kind, every size another prime."""

    def make(kind: str, seed: int = 0, **described) -> mha.LayerTrace:
        n_query, n_key = len(SIDES[kind].queries), len(SIDES[kind].keys)
        tensors = {
            "q": normal(HEADS, n_query, D_K, seed=seed),
            "k": normal(HEADS, n_key, D_K, seed=seed + 1),
            "v": normal(HEADS, n_key, D_V, seed=seed + 2),
        }
        return mha.LayerTrace(MappingProxyType(tensors), kind=kind, sides=SIDES[kind], **described)

    return make


@pytest.fixture(scope="session")
def translation(by_kind):
    """Two encoder layers, then a decoder and a cross layer, as an encoder–decoder calls them."""
    layers = (
        by_kind("encoder", 0, name="encoder.0"),
        by_kind("encoder", 10, name="encoder.1", about=Facts(rotary=Rotary("half", 6))),
        by_kind("decoder", 20, name="decoder.0.self"),
        by_kind("cross", 30, name="decoder.0.cross", about=Facts(latent=LatentProjection(17))),
    )
    return mha.AttentionTrace(TEXT, layers, {"name": "by hand"})


@pytest.fixture(scope="session")
def weights(normal):
    return torch.softmax(normal(HEADS, 7, 7, seed=40), -1)


@pytest.fixture(scope="session")
def known_by_weights(weights):
    """A trace of which nothing is known but the weights of one layer."""
    layer = mha.LayerTrace(MappingProxyType({"weights": weights}))
    return mha.AttentionTrace(TEXT, (layer,), {"name": "by hand"})


# Whose tokens


def test_each_kind_has_the_tokens_that_look_and_those_that_are_looked_at(translation):
    assert {layer.kind: layer.sides for layer in translation.layers} == SIDES
    assert [layer.sides.same for layer in translation.layers] == [True, True, True, False]
    assert translation.sides == SIDES["encoder"]
    assert translation.kinds == ("encoder", "decoder", "cross")


def test_a_frame_of_a_cross_layer_has_both_texts_on_its_axes(translation):
    frame = translation.frame("weights", layer=3, head=1)
    assert list(frame.index) == list(TARGET.labels)
    assert list(frame.columns) == list(TEXT.labels)
    np.testing.assert_array_equal(frame.to_numpy(), translation.layers[3].weights(1))
    assert list(translation.frame("q", layer=3, head=0).index) == list(TARGET.labels)
    assert list(translation.frame("v", layer=3, head=0).index) == list(TEXT.labels)
    assert picture(translation, "scores", layer=3, head=2).frame.shape == (5, 7)


@pytest.mark.parametrize("kind", SIDES)
def test_a_part_has_the_layers_of_its_kind_and_their_tokens(translation, kind):
    part = translation.part(kind)
    assert [layer.name for layer in part.layers] == [
        layer.name for layer in translation.layers if layer.kind == kind
    ]
    assert part.sides == SIDES[kind]
    assert part.kinds == (("cross",) if kind == "cross" else ("self",))
    assert part.tokens is part.sides.queries


def test_the_part_of_the_only_kind_is_the_trace_itself(known_by_weights):
    assert known_by_weights.part("self") is known_by_weights


def test_answers_stay_with_the_text_that_they_are_about(by_kind):
    answers = ((("cat", 0.9),),) + (None,) * 6
    layers = (by_kind("encoder"), by_kind("decoder"), by_kind("cross"))
    trace = mha.AttentionTrace(TEXT, layers, {"name": "by hand"}, answers)
    assert trace.part("encoder").answers == answers
    assert trace.part("decoder").answers == ()
    assert trace.part("cross").answers == ()


def test_what_does_not_fit_is_refused(by_kind, translation, refused):
    cross = by_kind("cross")

    def told(**changed) -> str:
        return str(refused(mha.AttentionTrace, TEXT, (replace(cross, **changed),), "by hand"))

    assert "sides=Sides(queries, keys)" in told(sides=None)
    assert "7 tokens that look at 5" in told(sides=mha.Sides(TEXT, TARGET))
    assert "kind cross has one text" in told(sides=SIDES["encoder"])
    assert "kind encoder has two texts" in told(kind="encoder")
    assert "sideways" in told(kind="sideways")
    assert "cross" in told(kind="sideways")
    assert "encoder" in str(refused(translation.part, "self"))


# On disk


def test_sides_kinds_names_and_what_is_known_come_back(translation, tmp_path):
    translation.save(tmp_path / "t.safetensors")
    loaded = mha.load(tmp_path / "t.safetensors")
    assert loaded.tokens == TEXT
    assert [layer.sides for layer in loaded.layers] == [layer.sides for layer in translation.layers]
    assert (loaded.tokens.words, loaded.tokens.special) == (TEXT.words, TEXT.special)
    for ours, theirs in zip(translation.layers, loaded.layers, strict=True):
        assert (ours.kind, ours.name, ours.about) == (theirs.kind, theirs.name, theirs.about)
        np.testing.assert_array_equal(ours.weights(), theirs.weights())


def edited(path, change) -> None:
    """Change the header of a saved trace in place."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    outer = json.loads(content[8 : 8 + length])
    header = json.loads(outer["__metadata__"]["headscope_trace"])
    change(header)
    outer["__metadata__"]["headscope_trace"] = json.dumps(header)
    written = json.dumps(outer).encode()
    path.write_bytes(struct.pack("<Q", len(written)) + written + content[8 + length :])


def test_a_file_from_before_there_were_sides_still_loads(tmp_path, refused):
    path = tmp_path / "old.safetensors"
    trace = mha.trace("How are you?", h=3, d_model=15)
    trace.save(path)

    def age(header):
        text = header.pop("texts")[0]
        header.update({name: text[name] for name in ("text", "pieces", "spans")}, version=1)
        for layer in header["layers"]:
            for name in ("kind", "name", "about", "sides"):
                layer.pop(name)
            layer["rule"]["softmax"] = "row"

    edited(path, age)
    loaded = mha.load(path)
    assert loaded.sides.same
    assert loaded.kinds == ("self",)
    assert loaded.tokens == trace.tokens
    assert loaded.layers[0].weights().tobytes() == trace.layers[0].weights().tobytes()
    edited(path, lambda header: header["layers"][0]["rule"].update(softmax="matrix"))
    assert "normalised over a whole matrix" in str(refused(mha.load, path))


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["texts"][0]["pieces"].__setitem__(0, 5),
        lambda header: header["texts"][0]["spans"].pop(),
        lambda header: header["texts"][0]["words"].pop(),
        lambda header: header["texts"][0]["special"].append(7),
        lambda header: header["texts"][1]["pieces"].pop(),
        lambda header: header["layers"][0].update(kind="sideways"),
        lambda header: header["layers"][0].update(kind="cross"),
        lambda header: header["layers"][0].update(sides=[0, 1]),
        lambda header: header["layers"][0].update(sides=[0, 2]),
        lambda header: header["layers"][0].update(sides=[0]),
    ],
)
def test_a_file_whose_sides_do_not_fit_is_damaged(translation, tmp_path, refused, change):
    path = tmp_path / "t.safetensors"
    translation.save(path)
    edited(path, change)
    assert "is damaged" in str(refused(mha.load, path))


def test_a_layer_known_by_its_weights_comes_back(known_by_weights, weights, tmp_path):
    known_by_weights.save(tmp_path / "t.safetensors")
    [layer] = mha.load(tmp_path / "t.safetensors").layers
    assert set(layer.tensors) == {"weights"}
    assert torch.equal(layer.tensors["weights"], weights)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.25])
def test_a_file_with_weights_that_are_none_is_damaged(weights, tmp_path, refused, wrong):
    spoilt = weights.clone()
    spoilt[1, 2, 3] = wrong
    layer = mha.LayerTrace(MappingProxyType({"weights": spoilt}))
    mha.AttentionTrace(TEXT, (layer,), "by hand").save(tmp_path / "t.safetensors")
    assert "is damaged" in str(refused(mha.load, tmp_path / "t.safetensors"))


# Weights alone


def test_a_layer_known_by_its_weights_has_sizes_and_weights(known_by_weights, weights):
    [layer] = known_by_weights.layers
    assert (layer.n_heads, layer.n_kv_heads, layer.n_query, layer.n_key) == (3, 3, 7, 7)
    assert layer.d_model is None
    np.testing.assert_array_equal(layer.weights(), weights)
    np.testing.assert_array_equal(layer.weights(2, rows=[1, 4], keys=[6]), weights[2, [1, 4]][:, [6]])
    assert layer.allowed().all()
    assert known_by_weights.frame("weights", head=1).shape == (7, 7)


def test_what_is_not_known_is_refused_and_says_what_is(known_by_weights, refused):
    [layer] = known_by_weights.layers
    for name in ("scores", "scaled", "masked", "output", "concat", "contribution", "result"):
        assert "not known" in str(refused(getattr(layer, name))), name
    for name in ("q", "k", "v", "d_k", "d_v", "scale"):
        assert "ask for its weights" in str(refused(getattr, layer, name)), name
    for name in ("q", "k", "v", "scores", "output"):
        assert "not known" in str(refused(known_by_weights.frame, name, head=0)), name
    assert "not known" in str(refused(layer.log_sum_exp))
    assert "not known" in str(refused(token.against_keys, known_by_weights, 0, layer=0, head=0))
    assert "not known" in str(refused(token.mixture, known_by_weights, 0, layer=0, head=0))


def test_what_weights_suffice_for_is_what_it_is_with_q_and_k(by_kind):
    full = mha.AttentionTrace(TEXT, (by_kind("encoder"),), {"name": "by hand"}).part("encoder")
    own = mha.LayerTrace(MappingProxyType({"weights": torch.from_numpy(full.layers[0].weights().copy())}))
    bare = mha.AttentionTrace(TEXT, (own,), {"name": "by hand"})
    for at in range(7):
        np.testing.assert_allclose(own.column(at), full.layers[0].column(at), atol=1e-6)
        for see in (token.row_of, token.column_of):
            np.testing.assert_allclose(
                see(bare, at, layer=0).weights, see(full, at, layer=0).weights, atol=1e-6
            )
    np.testing.assert_allclose(patterns.metrics(own), patterns.metrics(full.layers[0]), atol=1e-6)
    np.testing.assert_allclose(patterns.similarity(own), patterns.similarity(full.layers[0]), atol=1e-3)
    ours, theirs = overview.overview(bare), overview.overview(full)
    np.testing.assert_array_equal(ours.thumbs[0], theirs.thumbs[0])
    together = np.concatenate([block.weights for block in patterns.blocks(own)], axis=1)
    np.testing.assert_array_equal(together, own.weights())
    # Short texts travel as their weights, whatever else is known.
    assert pack([Panel("", TEXT.labels, {0: own})]) == pack([Panel("", TEXT.labels, {0: full.layers[0]})])


def test_weights_of_a_long_text_travel_as_weights(normal):
    layer = mha.LayerTrace(MappingProxyType({"weights": torch.softmax(normal(1, 199, 199), -1)}))
    assert size(layer) == 2 * 199 * 199
    assert fitting([layer], 0, 0) == ([0], None)
    assert b'"weights"' in pack([Panel("", ["a"] * 199, {0: layer})])


def test_torch_is_not_asked_about_weights_alone(known_by_weights):
    check = mha.against_torch(known_by_weights.layers[0], rows=slice(0, 3))
    assert (check.difference, check.passed) == (None, False)
    assert "only the weights" in check.reason
