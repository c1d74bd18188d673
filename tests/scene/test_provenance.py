"""A view has the link that opens the same picture; a trace that no link can reproduce is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mha_core as mha
from mha_core.attention.positions import POSITIONS
from mha_core.scene.scene import Scene
from mha_core.training import checkpoints

TEXT = "The cat saw the dog."


def assert_same(link: str, trace: mha.AttentionTrace) -> None:
    scene, refused = Scene.of_link(link)
    assert refused == ()
    again = scene.trace()
    assert again.tokens == trace.tokens
    assert again.edits == trace.edits
    for one, other in zip(again.layers, trace.layers, strict=True):
        for name in ("q", "k", "v"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(one.weights(), other.weights())


@settings(max_examples=30)
@given(
    st.sampled_from([(3, None, 12), (2, 1, 10), (4, 2, 12), (5, None, 7)]),
    st.sampled_from([None, 2, 3, 5]),
    st.sampled_from([None, 3, 7]),
    st.integers(1, 3),
    st.sampled_from(POSITIONS),
    st.sampled_from(["full", "causal", "window"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_a_view_of_random_weights_has_a_link_to_the_same_numbers(
    sizes, d_k, d_v, layers, position, mask, bias, seed
):
    h, n_kv_heads, d_model = sizes
    d_k = 4 if d_k is None and (d_model % h or position == "rotary") else d_k
    if position == "rotary" and d_k and d_k % 2:
        d_k += 1
    asked = {"h": h, "d_model": d_model, "n_kv_heads": n_kv_heads, "d_k": d_k, "d_v": d_v, "layers": layers}
    trace = mha.trace(TEXT, **asked, position=position, mask=mask, bias=bias, seed=seed)
    assert_same(trace.view(layer=layers - 1, head=h - 1).link(), trace)


@pytest.mark.parametrize(("architecture", "h"), [("glass-box", 8), ("standard", 4), ("multi-query", 4)])
def test_a_view_of_a_small_model_has_its_link(architecture, h):
    trace = mha.trace(TEXT, source="mini", h=h, architecture=architecture)
    assert_same(trace.view().link(), trace)


def test_the_link_of_a_view_has_its_place():
    view = mha.trace("the cat the dog", source="mini").view(layer=0, head=2, token=3, heads=[2, 0])
    focus = Scene.of_link(view.link()).scene.focus
    assert (focus.layer, focus.head, focus.token, focus.heads) == (1, 3, "the~2", "3,1")


@pytest.mark.parametrize(
    "edits",
    [
        [mha.edits.Hide(rows="saw", keys="cat")],
        [mha.edits.Hide(rows=-1, keys=0, heads=1), mha.edits.Output(layer=1, heads=0)],
        [mha.edits.Temperature(temperature=2.5), mha.edits.Mask(mask="window:2")],
    ],
)
def test_a_view_with_edits_opens_on_what_if_with_the_same_numbers(edits):
    trace = mha.trace(TEXT, source="mini", edits=edits)
    scene = Scene.of_link(trace.view().link()).scene
    assert scene.page.name == "what-if"
    for one, other in zip(scene.trace().layers, trace.layers, strict=True):
        np.testing.assert_array_equal(one.weights(), other.weights())


def test_two_sentences_of_one_source_are_two_sentences_of_a_link():
    one, other = (mha.trace(text, source="mini") for text in (TEXT, "The dog saw the cat."))
    scene = Scene.of_link(one.view(beside=other).link()).scene
    assert (scene.text, scene.twin) == (TEXT, "The dog saw the cat.")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"mask": torch.ones(6, 6).bool().tril()}, "No link can be read off this trace of 'random weights'"),
        ({"source": "mini", "trained": False}, "No link can be read off this trace of 'small trained model'"),
        ({"edits": [mha.edits.Hide(rows=[0, 2], keys=1)]}, "No link can say 'hide: rows 1, 3, key 2'"),
        ({"edits": [mha.edits.Bias(values=1.0, rows=2)]}, "What if has no such change"),
    ],
)
def test_a_trace_that_no_link_can_reproduce_is_refused(asked, said, refused):
    assert said in str(refused(mha.trace(TEXT, **asked).view().link))


def test_two_sources_have_no_link_and_arrays_have_none(refused):
    two = mha.trace(TEXT).view(beside=mha.trace(TEXT, seed=1))
    assert "two traces with different sources" in str(refused(two.link))
    arrays = mha.from_weights(np.full((1, 2, 2, 2), 0.5, np.float32), ["a", "b"])
    assert "No link" in str(refused(arrays.view().link))


def test_a_saved_trace_has_its_link_as_long_as_the_weights_are_the_same(tmp_path, refused):
    trace = mha.trace(TEXT, source="mini")
    trace.save(tmp_path / "saved.safetensors")
    assert_same(mha.load(tmp_path / "saved.safetensors").view().link(), trace)
    first, last = trace.layers
    older = replace(
        trace, layers=(replace(first, tensors=first.tensors | {"q": first.tensors["q"] + 0.1}), last)
    )
    assert "trained anew" in str(refused(older.view().link))


def test_a_scene_shows_itself_with_its_own_link():
    link = "text=The+dog+saw+it.&h=8&edits=cut%2Cfrom%3D5%2Cto%3D3&head=3&token=dog"
    link += f"&weights={checkpoints.edition()}"
    view = Scene.of_link(link).scene.view()
    assert view.link() == link
    assert (view.header["head"], view.header["layer"]) == (2, 1)
