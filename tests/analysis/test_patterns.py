"""Measures and similarity of heads, by hand and by properties that hold for any weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.patterns import (
    ALIKE,
    EVEN,
    MEASURES,
    POSITIONS,
    VALUES_PER_CELL,
    collapse,
    leave_out,
    metrics,
    similarity,
    special_share,
)

L = 6
EYE = np.eye(L)


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


def shifted(by: int) -> np.ndarray:
    """A head that looks so far to the right with all its weight, and at itself where nothing is there."""
    key = np.arange(L) + by
    return EYE[np.where((key >= 0) & (key < L), key, np.arange(L))]


ONE_HOT = {
    "previous token": shifted(-1),
    "next token": shifted(1),
    "same token": EYE,
    "first token": np.tile(EYE[0], (L, 1)),
}
CAUSAL = np.tri(L, dtype=bool)
EMPTY_ROW = np.random.default_rng(1).random((L, L)) < 0.7
EMPTY_ROW[3] = False
MASKS = {"none": None, "causal": CAUSAL, "empty row": EMPTY_ROW}


@pytest.fixture(params=MASKS.values(), ids=MASKS)
def mask(request):
    return request.param


# Patterns


@pytest.mark.parametrize("name", POSITIONS)
def test_a_one_hot_head_gets_exactly_1_for_its_pattern_and_no_entropy(name):
    table = metrics(layer_of_weights(list(ONE_HOT.values())))
    head = POSITIONS.index(name)
    assert table.loc[head, name] == 1
    assert table.loc[head, "entropy"] == 0
    # Elsewhere it has weight only where the two patterns are one: from token 2 the first is the previous.
    expected = {("previous token", "first token"): 1 / 5, ("first token", "previous token"): 1 / 5}
    same = {"previous token": 1 / 6, "next token": 1 / 6, "first token": 1 / 6}
    for other in POSITIONS:
        if other != name:
            assert table.loc[head, other] == pytest.approx(
                same[name] if other == "same token" else expected.get((name, other), 0)
            )


def test_uniform_attention_has_entropy_1_wherever_at_least_two_keys_are_visible(mask):
    table = metrics(layer_of_weights(np.full((3, L, L), 1 / L), mask))
    assert table["entropy"].to_numpy() == pytest.approx(1, abs=1e-6)
    assert (table["entropy"] <= 1).all()


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


def test_empty_rows_and_rows_with_one_key_change_nothing():
    weights = random_weights(3, 5)
    wider = np.zeros((3, 7, 7))
    wider[:, :5, :5] = weights
    mask = np.zeros((7, 7), bool)
    mask[:5, :5] = True
    mask[6, 6] = True
    np.testing.assert_allclose(
        metrics(layer_of_weights(wider, mask)), metrics(layer_of_weights(weights)), rtol=1e-6
    )
    np.testing.assert_allclose(
        similarities(layer_of_weights(wider, mask)), similarities(layer_of_weights(weights)), rtol=1e-6
    )


def test_weight_on_a_sink_is_left_out_of_the_entropy():
    """Scores of 0 and a sink of log L: half of every row goes to the sink, the rest is uniform."""
    layer = layer_of_weights(np.ones((2, L, L)), sinks=torch.full((2,), float(np.log(L))))
    found = metrics(layer)
    assert found["same token"].to_numpy() == pytest.approx(0.5 / L)
    assert found["entropy"].to_numpy() == pytest.approx(1)
    assert similarities(layer) == pytest.approx(1)


def test_one_token_has_no_pattern():
    layer = mha.trace("hello", h=2, d_model=8).layers[0]
    assert metrics(layer).isna().all(axis=None)
    np.testing.assert_array_equal(similarities(layer), [[1, np.nan], [np.nan, 1]])


@pytest.mark.parametrize("settings", [{"h": 6, "n_kv_heads": 2}, {"mask": "causal", "layers": 2}, {"h": 1}])
def test_traces_of_any_source_have_patterns(settings):
    for layer in mha.trace("the old cat saw the new cat", **{"h": 4, "d_model": 24, **settings}).layers:
        table = metrics(layer)
        assert table.index.tolist() == list(range(layer.n_heads))
        assert table.index.name == "head"
        assert [*table] == [*MEASURES]
        np.testing.assert_allclose(table["first token"], layer.weights()[:, 1:, 0].mean(1), rtol=1e-5)
        assert similarities(layer).shape == (layer.n_heads, layer.n_heads)


# Likeness


def test_similarity_is_symmetric_bounded_and_1_with_itself(mask):
    alike = similarities(layer_of_weights(random_weights(12), mask))
    np.testing.assert_array_equal(alike, alike.T)
    np.testing.assert_array_equal(np.diag(alike), 1)
    assert alike.min() >= 0
    assert alike.max() <= 1


def test_heads_with_the_same_weights_are_1_and_heads_without_a_common_key_0():
    one, other = random_weights(2)
    apart = np.zeros((2, L, L))
    apart[0, :, :3], apart[1, :, 3:] = 1 / 3, 1 / 3
    assert similarities(layer_of_weights([one, other, one]))[0, 2] == 1
    assert similarities(layer_of_weights(apart))[0, 1] == pytest.approx(0, abs=1e-7)


def test_similarity_by_hand():
    """Row 0: (1, 0) and (½, ½), √(H(¾, ¼) − ½); row 1: equal."""
    alike = similarities(layer_of_weights([[[1, 0], [0.2, 0.8]], [[0.5, 0.5], [0.2, 0.8]]]))
    mixed = 0.75 * np.log2(4 / 3) + 0.25 * 2
    assert alike[0, 1] == pytest.approx(1 - np.sqrt(mixed - 0.5) / 2)


def test_similarity_is_the_same_in_blocks_of_rows(mask, monkeypatch):
    weights = random_weights(5)
    whole = similarities(layer_of_weights(weights, mask))
    for cells in (1, 70):
        monkeypatch.setattr("mha_core.attention.functional.CELLS", cells)
        np.testing.assert_allclose(similarities(layer_of_weights(weights, mask)), whole, rtol=1e-12)


def test_some_rows_of_a_text_are_compared_evenly_spaced():
    weights = random_weights(3, 9)
    some = similarities(layer_of_weights(weights), max_rows=3)
    np.testing.assert_allclose(
        some, similarities(layer_of_weights(np.concatenate([weights[:, [0, 4, 8]]] * 3, axis=1))), rtol=1e-12
    )
    assert not np.allclose(some, similarities(layer_of_weights(weights)))
    np.testing.assert_array_equal(
        similarities(layer_of_weights(weights), max_rows=9), similarities(layer_of_weights(weights))
    )


def test_similarity_of_a_long_text_needs_no_whole_matrix(monkeypatch):
    layer = mha.trace(" ".join(["a", "b", "c"] * 20), h=3, d_model=12).layers[0]
    seen, weights = [], mha.LayerTrace.weights
    monkeypatch.setattr("mha_core.attention.functional.CELLS", VALUES_PER_CELL * 3 * 60 * 7)

    def watched(self, head=None, *, rows=None, keys=None):
        found = weights(self, head, rows=rows, keys=keys)
        seen.append(found.shape)
        return found

    monkeypatch.setattr(mha.LayerTrace, "weights", watched)
    similarities(layer)
    assert seen == [(3, 7, 60)] * 8 + [(3, 4, 60)]


def test_heads_that_never_have_a_row_in_common_cannot_be_compared():
    mask = np.ones((2, L, L), bool)
    mask[0, :3] = mask[1, 3:] = False
    np.testing.assert_array_equal(
        similarities(layer_of_weights(random_weights(2), mask)), [[1, np.nan], [np.nan, 1]]
    )


# A whole trace, and some of its tokens


@pytest.fixture(scope="module")
def trace():
    return mha.trace("one two three two one", h=3, d_model=12, layers=2, mask="causal")


def test_a_trace_has_a_row_for_each_layer_and_head(trace):
    table = metrics(trace)
    assert table.index.names == ["layer", "head"]
    assert [*table.index] == [(layer, head) for layer in range(2) for head in range(3)]
    for at, layer in enumerate(trace.layers):
        np.testing.assert_array_equal(table.loc[at], metrics(layer))


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
    weights = layer.weights().astype(float)[:, [1, 2, 4]][:, :, [1, 2, 4]]
    expected = weights / weights.sum(-1, keepdims=True)
    for without in ([0, 3], [-2, 0], (3, -5), np.array([0, 3]), torch.tensor([0, 3]), iter([0, 3])):
        np.testing.assert_allclose(leave_out(layer, without).weights(), expected, atol=1e-6)
    np.testing.assert_array_equal(leave_out(layer, [0, 3]).v, layer.v[:, [1, 2, 4]])


def test_rescaling_works_with_weights_only_and_with_sinks():
    weights = random_weights(2, 4)
    weights[0, 1] = [0.5, 0, 0, 0.5]  # nothing is left to share out
    known = mha.from_weights(weights, "a b c d").layers[0]
    found = leave_out(known, [0, 3]).weights()
    rest = weights[:, 1:3, 1:3]
    np.testing.assert_allclose(found[1], rest[1] / rest[1].sum(-1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(found[0, 0], [0, 0])
    sinks = layer_of_weights(weights, sinks=torch.zeros(2))
    assert (leave_out(sinks, [0, 3]).weights().sum(-1) < 1).all()


def test_special_tokens_come_from_the_tokenizer_or_their_form():
    pieces = ("[CLS]", "a", "[MASK]", "b", "[SEP]", "[PAD]")
    spans = ((0, 0),) * 6
    weights = random_weights(2, 6)
    rest = [1, 2, 3]
    for special in ((), (0, 2, 4, 5)):  # a mask token stands for a word
        tokens = mha.Tokens("a b", pieces, spans, special=special)
        left = leave_out(mha.from_weights(weights, tokens), "special")
        assert left.tokens.pieces == ("a", "[MASK]", "b")
        np.testing.assert_array_equal(
            leave_out(mha.from_weights(weights, tokens).layers[0], "special").weights(),
            left.layers[0].weights(),
        )
        np.testing.assert_allclose(
            left.layers[0].weights()[0],
            weights[0][np.ix_(rest, rest)] / weights[0][np.ix_(rest, rest)].sum(-1, keepdims=True),
            rtol=1e-5,
        )
    tokens = mha.Tokens("a b", pieces, spans, special=(1,), unknown=(0, 3))
    left = leave_out(mha.from_weights(weights, tokens), "special").tokens
    assert left.pieces == (pieces[0], *pieces[2:])
    assert left.unknown == (0, 2)


def test_padding_distorts_the_measures_and_can_be_left_out():
    """Three words and two padding tokens that get no weight, against the three words alone."""
    q, k, v = (torch.from_numpy(random_weights(2, 5, seed)).float() for seed in range(3))
    mask = torch.tensor([True, True, True, False, False]).expand(5, 5)
    padded = mha.from_tensors(q=q, k=k, v=v, tokens=["a", "b", "c", "[PAD]", "[PAD]"], mask=mask)
    alone = mha.from_tensors(q=q[:, :3], k=k[:, :3], v=v[:, :3], tokens=["a", "b", "c"])
    assert not np.allclose(metrics(padded)["distance"], metrics(alone)["distance"])
    np.testing.assert_allclose(metrics(padded, without="special"), metrics(alone), rtol=1e-5)
    np.testing.assert_allclose(similarity(padded, without="special"), similarity(alone), rtol=1e-5)


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


@pytest.mark.parametrize(
    ("position", "mask"), [("sinusoidal", "full"), ("rotary", "full"), ("none", "causal")]
)
def test_layers_without_skip_connections_collapse_and_the_measure_is_that_of_the_trace(position, mask):
    trace = mha.trace(SENTENCE, h=4, d_model=64, layers=8, position=position, mask=mask)
    for layer in trace.layers:
        apart = np.linalg.norm(layer.x - layer.x.mean(0)) / np.linalg.norm(layer.x)
        even = metrics(layer)["entropy"].min()
        expected = apart if apart <= ALIKE and even >= EVEN else None
        assert collapse(layer) == (
            expected if expected is None else pytest.approx(expected, rel=1e-4, abs=1e-6)
        )
    assert collapse(trace.layers[0]) is None
    if mask == "full":
        assert collapse(trace.layers[7]) is not None


def test_a_selective_head_prevents_collapse():
    alibi = mha.trace(SENTENCE, h=4, d_model=64, layers=8, position="alibi").layers[7]
    assert np.linalg.norm(alibi.x - alibi.x.mean(0)) / np.linalg.norm(alibi.x) < ALIKE
    assert metrics(alibi)["entropy"].max() > EVEN > metrics(alibi)["entropy"].min()
    assert collapse(alibi) is None


def test_one_token_does_not_collapse():
    assert collapse(mha.trace("word", h=1, d_model=4, layers=3).layers[2]) is None


# Two texts: 7 tokens look at 11 others


def test_positions_of_two_texts_are_not_compared(cross_trace):
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


def test_texts_of_the_same_length_are_still_two(normal):
    layer = mha.LayerTrace({"weights": torch.softmax(normal(2, 7, 7), -1)}, kind="cross")
    assert not layer.sides.same
    assert metrics(layer)["previous token"].isna().all()
    assert metrics(replace(layer, kind="self", sides=None))["previous token"].notna().all()


@pytest.mark.parametrize("measure", [mha.metrics, mha.similarity, mha.overview, mha.rollout])
def test_a_trace_without_layers_has_nothing_to_measure(measure, refused):
    empty = replace(mha.trace("a b c", h=2, d_model=8), layers=())
    assert "no layer with attention weights" in str(refused(measure, empty))


# Special tokens


@pytest.mark.parametrize("special", [(0,), (0, 8), (3, 4)])
def test_the_share_of_special_tokens_is_the_mean_of_their_columns(special):
    given = layer_of_weights(random_weights(6, 9))
    assert special_share(given, special) == pytest.approx(given.weights()[..., list(special)].sum(-1).mean())
    assert special_share(given, special, rows=3) == pytest.approx(
        given.weights()[:, ::3][..., list(special)].sum(-1).mean()
    )


def test_without_special_tokens_there_is_no_share():
    assert special_share(layer_of_weights(random_weights()), ()) is None
    cross = mha.LayerTrace({"weights": torch.full((2, 3, 4), 1 / 4)})
    assert special_share(cross, (0,)) is None
