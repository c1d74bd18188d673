"""Decoding with a cache: every cached run against the full one, and a cache touched by hand against edits."""

import pytest
import torch

import mha_core as mha
from mha_core import MhaError, edits
from mha_core.analysis.cost import cost, spec_of
from mha_core.attention.positions import alibi
from mha_core.sources import decoding, mini
from mha_core.training import checkpoints

TEXT = "the cat saw it because the dog ran to us"
SENTENCES = {
    "en": "The animal didn't cross the street because it was too tired. The dog",
    "zh": "动物没有过马路，因为它太累了。狗",
}
DECODERS = [plan for plan in checkpoints.PLANS if plan.is_decoder and checkpoints.path(plan).exists()]
TOUCHED = {
    "untouched": [],
    "a row dropped": [edits.Evict(keys=[2], since=5)],
    "rows dropped one after the other": [edits.Evict(keys=[0], since=4), edits.Evict(keys=[5, 6], since=8)],
    "two rows exchanged": [edits.Exchange(one=1, other=3, since=5)],
    "exchanged twice": [edits.Exchange(one=1, other=3, since=5), edits.Exchange(one=3, other=4, since=7)],
    "a window": [edits.Mask(mask="window:3")],
    "sinks and a window": [edits.Mask(mask="streaming:2"), edits.Exchange(one=4, other=2, since=6)],
}
RANDOM = {
    "sinusoidal": {"h": 4, "d_model": 32, "layers": 3},
    "rotary, shared keys": {"h": 4, "d_model": 32, "layers": 2, "n_kv_heads": 2, "position": "rotary"},
    "ALiBi, wide values": {"h": 3, "d_model": 30, "layers": 2, "d_v": 7, "position": "alibi"},
}


def by_hand(trace, touched, slope):
    """The weights of each query, (layer, query, head, key), from a list of places that is changed by hand.

    A place holds the number of a token, or nothing once its row was dropped.
    """
    count, places = len(trace.tokens), []
    weights = torch.zeros(len(trace.layers), count, trace.layers[0].n_heads, count)
    for at in range(count):
        places.append(at)
        for edit in touched:
            if isinstance(edit, edits.Evict) and edit.since == at:
                places = [None if token in edit.keys else token for token in places]
            if isinstance(edit, edits.Exchange) and edit.since == at:
                swapped = {edit.one: edit.other, edit.other: edit.one}
                places = [swapped.get(token, token) for token in places]
            if isinstance(edit, edits.Mask):
                name, _, reach = edit.mask.partition(":")
                first = 0 if name == "streaming" else None
                places = [
                    token if token == first or at - (token or 0) <= int(reach) else None for token in places
                ]
        held = [(place, token) for place, token in enumerate(places) if token is not None]
        for number, layer in enumerate(trace.layers):
            for head in range(layer.n_heads):
                keys = layer.k[layer.kv_head(head), [token for _, token in held]]
                scores = torch.tensor(keys @ layer.q[head, at]) * layer.d_k**-0.5
                scores -= slope[head] * torch.tensor([at - place for place, _ in held])
                weights[number, at, head, [token for _, token in held]] = scores.softmax(-1)
    return weights


@pytest.mark.parametrize("touched", TOUCHED.values(), ids=TOUCHED)
@pytest.mark.parametrize("settings", RANDOM.values(), ids=RANDOM)
def test_a_cache_touched_by_hand_is_the_edited_run_and_the_cached_one(settings, touched):
    trace, words, check = mha.decode(TEXT, source="random", steps=0, edits=touched, **settings)
    assert words == ()
    assert check.passed
    assert check.weights <= 1e-6
    assert check.numbers == 10 * sum(cost(spec_of(layer), 1).cache for layer in trace.layers)
    has_slope = settings.get("position") == "alibi"
    slope = -alibi(settings["h"], 1, 2)[:, 1] if has_slope else torch.zeros(settings["h"])
    expected = by_hand(trace, touched, slope)
    for layer, weights in zip(trace.layers, expected, strict=True):
        assert torch.allclose(torch.tensor(layer.weights()).transpose(0, 1), weights, atol=1e-6)
    same = mha.trace(TEXT, mask="causal", **settings).layers[-1].weights()
    unmoved = all(isinstance(edit, edits.Exchange) for edit in touched) and not (touched and has_slope)
    assert (abs(trace.layers[-1].weights() - same).max() == 0) == unmoved  # a cache has no order


@pytest.mark.parametrize("plan", DECODERS, ids=lambda plan: checkpoints.name(plan))
def test_a_shipped_decoder_writes_the_same_with_a_cache(plan):
    text = SENTENCES[plan.language]
    settings = {"source": "mini", "architecture": plan.architecture, "h": plan.h, "d_model": plan.d_model}
    trace, words, check = mha.decode(text, steps=3, **settings)
    assert trace.tokens.labels[-3:] == words
    assert trace.tokens.pieces[:-3] == mha.trace(text, **settings).tokens.pieces
    assert check.passed
    assert check.weights <= 2e-6
    assert check.numbers == len(trace.tokens) * sum(cost(spec_of(layer), 1).cache for layer in trace.layers)
    touched = [edits.Mask(mask="streaming:2"), edits.Exchange(one=1, other=2, since=4)]
    edited = mha.decode(trace.tokens.text, steps=0, edits=touched, **settings)
    assert edited.check.passed
    loaded = mini.model(plan)
    assert not decoding.cached(trace, loaded).check(edited.trace).passed  # of another run


def test_who_has_no_cache_is_told_so():
    with pytest.raises(MhaError, match="write none") as refused:
        mha.decode(TEXT, source="random")
    assert refused.value.fixes == ({"steps": 0},)
    with pytest.raises(MhaError, match="nothing that a cache could keep") as refused:
        mha.decode(TEXT, source="mini", architecture="glass-box")
    assert refused.value.fixes == ({"architecture": "decoder"},)
    with pytest.raises(MhaError, match="nothing that a cache could keep"):
        mha.decode(TEXT, source="random", steps=0, mask="full")
    with pytest.raises(MhaError, match="both are there"):
        edits.Exchange(one=1, other=4, since=4)
    around = mha.decode(TEXT, source="random", steps=0, h=4, d_model=32, edits=[edits.Position(code="none")])
    assert around.check.weights is None
    assert "around attention" in around.check.reason
