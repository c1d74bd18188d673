"""The cone of a change: tokens outside it keep their output, tokens inside it can change."""

import numpy as np
import pytest

import mha_core as mha
from mha_core import edits
from mha_core.analysis.cone import cone
from tests.parity import tiny

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    "change",
    [
        edits.Output(layer=0, heads=1, rows=3),
        edits.Hide(layer=1, rows=5, keys=2),
        edits.Hide(layer=0, keys=2),
        edits.Hide(layer=0, keys=5, rows=2),  # hidden by the causal mask already
        edits.Mask(layer=0, mask="causal"),
        edits.Mask(layer=1, mask="window:2", heads=1),
        edits.Weights(layer=0, heads=0, rows=3),
        edits.Temperature(layer=1, temperature=3.0),
    ],
)
@pytest.mark.parametrize("mask", ["causal", "window", "full"])
def test_outputs_outside_the_cone_stay_and_inside_it_can_change(mask, change):
    settings = {"h": 2, "d_model": 16, "layers": 3, "mask": mask}
    text = "a cat sat on the mat today"
    plain = mha.trace(text, **settings)
    changed = mha.trace(text, **settings, edits=[change])
    for one, other, reached in zip(plain.layers, changed.layers, cone(plain, [change]), strict=True):
        moved = np.abs(one.concat() - other.concat()).max(-1) > 0
        assert not (moved & ~reached).any()
        alone = one.allowed().any(0).sum(-1) == 1  # a softmax over one key is 1, whatever its score
        kept = alone if isinstance(change, edits.Temperature | edits.Weights) else np.zeros_like(alone)
        assert (moved | kept | ~reached).all()


@pytest.mark.parametrize("mask", ["causal", "window", "full"])
def test_a_changed_word_reaches_the_tokens_that_may_look_at_it(mask):
    settings = {"h": 2, "d_model": 16, "layers": 3, "mask": mask}
    plain, other = (mha.trace(f"a cat sat {word} the mat today", **settings) for word in ("on", "under"))
    for one, two, reached in zip(plain.layers, other.layers, cone(plain, [], changed=[3]), strict=True):
        np.testing.assert_array_equal(np.abs(one.concat() - two.concat()).max(-1) > 0, reached)


@pytest.mark.parametrize("family", ["mistral", "marian"])
def test_the_cone_holds_for_real_architectures(family):
    built = tiny.model(family)
    text, target = tiny.texts((13, 11))
    door = {"source": built, "tokenizer": tiny.tokenizer(built)}
    door |= {"target": target} if family == "marian" else {}
    kind = "decoder" if family == "marian" else "self"
    change = edits.Output(layer=0, kind=kind, rows=4)
    plain, changed = mha.trace(text, **door), mha.trace(text, **door, edits=[change])
    reached = cone(plain, [change])
    for one, other, rows in zip(plain.layers, changed.layers, reached, strict=True):
        # A layer with an edit is computed by another kernel than one without.
        moved = np.abs(one.q - other.q).max((0, -1)) > 1e-5
        assert not (moved & ~rows).any()
        if one.kind == "encoder":
            assert not rows.any()
    assert not reached[-1][:4].any()
    if family != "mistral":  # its window ends before the last tokens
        assert reached[-1][4:].all()


def test_a_model_that_mixes_tokens_in_other_ways_is_refused(refused):
    built = tiny.model("falcon_h1")
    trace = mha.trace(tiny.texts((13, 11))[0], source=built, tokenizer=tiny.tokenizer(built))
    assert "mix tokens by other means" in str(refused(cone, trace, [edits.Output(layer=0)]))
