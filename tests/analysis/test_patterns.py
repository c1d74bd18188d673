"""Measures and similarity of heads, by hand and by properties that hold for any weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.patterns import (
    ALIKE,
    EVEN,
    POSITIONS,
    VALUES_PER_CELL,
    collapse,
    leave_out,
    metrics,
    similarity,
    special_share,
)

L = 6


def layer_of_weights(weights, mask=None, **rule) -> mha.LayerTrace:
    """A layer with these weights, (head, query, key): all scores are 0, and the rule sets the weights."""
    weights = torch.tensor(np.array(weights), dtype=torch.float32)
    bias = weights.log().clamp(min=-1e4)  # exp(−1e4) is 0; −∞ would be a mask
    zeros = torch.zeros(*weights.shape[:2], 1)
    mask = None if mask is None else torch.as_tensor(np.asarray(mask))
    return mha.LayerTrace({"q": zeros, "k": zeros, "v": zeros}, mha.ScoreRule(bias=bias, mask=mask, **rule))


def similarities(traced, **options) -> np.ndarray:
    return similarity(traced, **options).to_numpy()


def random_weights(n_heads=4, size=L, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(size, 0.3), (n_heads, size))


CAUSAL = np.tri(L, dtype=bool)
EMPTY_ROW = np.random.default_rng(1).random((L, L)) < 0.7
EMPTY_ROW[3] = False
MASKS = {"none": None, "causal": CAUSAL, "empty row": EMPTY_ROW}


@pytest.fixture(params=MASKS.values(), ids=MASKS)
def mask(request):
    return request.param


# Patterns


def test_a_causal_head_by_hand():
    """Row 0 sees only itself and does not count; no row sees the next token."""
    weights = [[[1, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]]]
    found = metrics(layer_of_weights(weights, np.tri(3, dtype=bool))).loc[0]
    assert found["previous token"] == pytest.approx((0.25 + 0.25) / 2)
    assert np.isnan(found["next token"])
    assert found["same token"] == pytest.approx((0.75 + 0.25) / 2)
    assert found["first token"] == pytest.approx((0.25 + 0.5) / 2)
    entropies = [0.25 * 2 + 0.75 * np.log2(4 / 3), 1.5 / np.log2(3)]
    assert found["entropy"] == pytest.approx(np.mean(entropies))
    assert found["distance"] == pytest.approx((0.25 + (0.5 * 2 + 0.25)) / 2)


# Likeness


def test_similarity_is_symmetric_bounded_1_with_itself_and_the_same_in_blocks(mask, monkeypatch):
    weights = random_weights(12)
    alike = similarities(layer_of_weights([*weights[:11], weights[0]], mask))
    np.testing.assert_array_equal(alike, alike.T)
    np.testing.assert_array_equal(np.diag(alike), 1)
    assert alike[0, 11] == 1
    assert 0 <= alike.min() <= alike.max() <= 1
    for cells in (1, 70):
        monkeypatch.setattr("mha_core.attention.functional.CELLS", cells)
        again = similarities(layer_of_weights([*weights[:11], weights[0]], mask))
        np.testing.assert_allclose(again, alike, rtol=1e-12)


def test_similarity_of_a_long_text_needs_no_whole_matrix(monkeypatch):
    layer = mha.trace(" ".join(["a", "b", "c"] * 20), h=3, d_model=12).layers[0]
    seen, visible = [], mha.LayerTrace.visible
    monkeypatch.setattr("mha_core.attention.functional.CELLS", VALUES_PER_CELL * 3 * 60 * 7)

    def watched(*args, **named):
        found = visible(*args, **named)
        seen.append(found.weights.shape)
        return found

    monkeypatch.setattr(mha.LayerTrace, "visible", watched)
    similarities(layer)
    assert seen == [(3, 7, 60)] * 8 + [(3, 4, 60)]


def test_heads_that_have_no_row_in_common_cannot_be_compared():
    mask = np.ones((2, L, L), bool)
    mask[0, :3] = mask[1, 3:] = False
    word = mha.trace("hello", h=2, d_model=8, layers=3).layers[2]
    assert metrics(word).isna().all(axis=None)
    for layer in (layer_of_weights(random_weights(2), mask), word):
        np.testing.assert_array_equal(similarities(layer), [[1, np.nan], [np.nan, 1]])
    assert collapse(word) is None


def test_similarity_by_hand():
    """Row 0: (1, 0) and (½, ½), √(H(¾, ¼) − ½); row 1: equal."""
    alike = similarities(layer_of_weights([[[1, 0], [0.2, 0.8]], [[0.5, 0.5], [0.2, 0.8]]]))
    mixed = 0.75 * np.log2(4 / 3) + 0.25 * 2
    assert alike[0, 1] == pytest.approx(1 - np.sqrt(mixed - 0.5) / 2)


def test_some_rows_of_a_text_are_compared_evenly_spaced():
    weights = random_weights(3, 9)
    whole = layer_of_weights(weights)
    some = similarities(whole, max_rows=3)
    chosen = layer_of_weights(np.concatenate([weights[:, [0, 4, 8]]] * 3, axis=1))
    np.testing.assert_allclose(some, similarities(chosen), rtol=1e-12)
    assert not np.allclose(some, similarities(whole))
    np.testing.assert_array_equal(similarities(whole, max_rows=9), similarities(whole))


# A whole trace, and some of its tokens


@pytest.fixture(scope="module")
def trace():
    return mha.trace("one two three two one", h=3, d_model=12, layers=2, mask="causal")


def test_all_heads_of_a_trace_are_compared_within_and_between_layers(trace):
    alike = similarity(trace)
    assert alike.index.equals(alike.columns)
    assert [*alike.index] == [*metrics(trace).index]
    np.testing.assert_allclose(alike.loc[1][1], similarity(trace.layers[1]), rtol=1e-12)
    pair = layer_of_weights([trace.layers[0].weights(2), trace.layers[1].weights(1)], np.tri(5, dtype=bool))
    assert alike.loc[(0, 2), (1, 1)] == pytest.approx(similarities(pair)[0, 1], abs=1e-5)


def test_layers_between_other_tokens_are_not_compared():
    q = np.ones((2, 3, 4), np.float32)
    encoder = mha.from_tensors(q=q, k=q, v=q, tokens="a b c").layers[0]
    mixed = mha.AttentionTrace(
        mha.words("a b c"),
        (replace(encoder, kind="encoder"), replace(leave_out(encoder, [0]), kind="decoder")),
        {"name": "given"},
    )
    with pytest.raises(mha.MhaError, match=r"kinds encoder, decoder.*trace\.part\('decoder'\)"):
        similarity(mixed)
    assert len(metrics(mixed)) == 4


@pytest.mark.parametrize(
    "settings", [{}, {"mask": "causal", "position": "alibi"}, {"n_kv_heads": 2, "position": "rotary"}]
)
def test_the_weight_of_a_left_out_token_is_rescaled_to_the_others(settings):
    layer = mha.trace("one two three four five", h=4, d_model=16, **settings).layers[0]
    weights = layer.weights().astype(float)
    expected = rescaled(weights, [1, 2, 4])
    for without in ([0, 3], [-2, 0], (3, -5), np.array([0, 3]), torch.tensor([0, 3]), iter([0, 3])):
        np.testing.assert_allclose(leave_out(layer, without).weights(), expected, atol=1e-6)
    np.testing.assert_array_equal(leave_out(layer, [0, 3]).v, layer.v[:, [1, 2, 4]])
    weights[0, 1] = [0.5, 0, 0, 0.5, 0]  # nothing is left to share out
    found = leave_out(mha.from_weights(weights, "a b c d e").layers[0], [0, 3]).weights()
    np.testing.assert_array_equal(found[0, 0], [0, 0, 0])
    np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-5)
    sinks = layer_of_weights(weights, sinks=torch.zeros(4))
    assert (leave_out(sinks, [0, 3]).weights().sum(-1) < 1).all()


def rescaled(weights: np.ndarray, kept: list[int]) -> np.ndarray:
    """The weights between the kept tokens, with rows that sum to 1."""
    rest = weights[:, kept][:, :, kept]
    return rest / rest.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("special", "unknown", "kept", "still_unknown"),
    [
        ((), (), [1, 2, 3], ()),  # a mask token stands for a word
        ((0, 2, 4, 5), (), [1, 2, 3], ()),
        ((1,), (0, 3), [0, 2, 3, 4, 5], (0, 2)),
    ],
)
def test_special_tokens_come_from_the_tokenizer_or_their_form(special, unknown, kept, still_unknown):
    pieces, weights = ("[CLS]", "a", "[MASK]", "b", "[SEP]", "[PAD]"), random_weights(2, 6)
    tokens = mha.Tokens("a b", pieces, ((0, 0),) * 6, special=special, unknown=unknown)
    trace = mha.from_weights(weights, tokens)
    left = leave_out(trace, "special")
    assert left.tokens.pieces == tuple(pieces[at] for at in kept)
    assert left.tokens.unknown == still_unknown
    np.testing.assert_allclose(left.layers[0].weights(), rescaled(weights, kept), rtol=1e-5)
    alone = leave_out(trace.layers[0], "special").weights()
    np.testing.assert_array_equal(alone, left.layers[0].weights())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda trace: metrics("a text"), "got a str"),
        (lambda trace: metrics(None), "got None"),
        (lambda trace: metrics(trace, without="padding"), "'special' or a list of positions; got 'padding'"),
        (lambda trace: metrics(trace, without=np.array(1)), "a list of positions; got array"),
        (
            lambda trace: similarity(trace, max_rows=True),
            "max_rows is a number of rows, at least 1; got True",
        ),
        (lambda trace: metrics(trace, without=[5]), "tokens 0 to 4; token 5 was asked for"),
        (lambda trace: metrics(trace, without=[-6]), "token -6"),
        (lambda trace: metrics(trace, without=range(5)), "All 5 tokens would be left out"),
        (
            lambda trace: metrics(replace(trace.layers[0], sides=None), without="special"),
            "A layer by itself does not know its tokens",
        ),
    ],
)
def test_tokens_that_cannot_be_left_out_are_named(trace, asked, message):
    with pytest.raises(mha.MhaError, match=message):
        asked(trace)


# Rank collapse

SENTENCE = "The animal didn't cross the street because it was too tired."


@pytest.mark.parametrize(("position", "mask"), [("rotary", "full"), ("none", "causal"), ("alibi", "full")])
def test_layers_without_skip_connections_collapse_and_the_measure_is_that_of_the_trace(position, mask):
    trace = mha.trace(SENTENCE, h=4, d_model=64, layers=8, position=position, mask=mask)
    for layer in trace.layers:
        apart = np.linalg.norm(layer.x - layer.x.mean(0)) / np.linalg.norm(layer.x)
        even = metrics(layer)["entropy"].min()
        expected = pytest.approx(apart, rel=1e-4, abs=1e-6) if apart <= ALIKE and even >= EVEN else None
        assert collapse(layer) == expected
    assert collapse(trace.layers[0]) is None
    if position == "alibi":  # a selective head prevents it
        assert apart < ALIKE
        assert metrics(layer)["entropy"].max() > EVEN > even
    elif mask == "full":
        assert collapse(trace.layers[7]) is not None


# Two texts: 7 tokens look at 11 others


def test_positions_of_two_texts_are_not_compared(cross_trace, normal):
    layer = cross_trace.layers[0]
    found = metrics(layer)
    assert found[[*POSITIONS, "distance"]].isna().all(axis=None)
    weights = layer.weights().astype(np.float64)
    entropy = -(weights * np.log(weights)).sum(-1).mean(-1) / np.log(11)
    np.testing.assert_allclose(found["entropy"], entropy, rtol=1e-5)
    alike = similarity(layer)
    assert alike.shape == (6, 6)
    assert np.isfinite(alike).all(axis=None)
    assert collapse(layer) is None
    assert special_share(layer, (0,)) is None
    square = mha.LayerTrace({"weights": torch.softmax(normal(2, 7, 7), -1)}, kind="cross")
    assert metrics(square)["previous token"].isna().all()  # texts of the same length are still two
    assert metrics(replace(square, kind="self", sides=None))["previous token"].notna().all()


@pytest.mark.parametrize("measure", [mha.metrics, mha.similarity, mha.overview, mha.rollout])
def test_a_trace_without_layers_has_nothing_to_measure(measure, refused):
    empty = replace(mha.trace("a b c", h=2, d_model=8), layers=())
    assert "no layer with attention weights" in str(refused(measure, empty))


# Special tokens


@pytest.mark.parametrize("special", [(0,), (0, 8), (3, 4)])
def test_the_share_of_special_tokens_is_the_mean_of_their_columns(special, monkeypatch):
    given = layer_of_weights(random_weights(6, 9))
    shares = given.weights()[..., list(special)].sum(-1)
    assert special_share(given, special) == pytest.approx(shares.mean())
    assert special_share(given, ()) is None
    monkeypatch.setattr("mha_core.analysis.patterns.MAX_SAMPLED_ROWS", 3)
    assert special_share(given, special) == pytest.approx(shares[:, ::3].mean())
