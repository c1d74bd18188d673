"""A user's own arrays become exact traces, or are refused with what would work."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import mha_core as mha

TOKENS = ["the", "old", "cat", "saw", "the", "new", "cat"]  # 7
KEYS = ["die", "Katze", "sah", "sie", "nie"]  # 5
H, KV, D_K, D_V, LAYERS = 6, 2, 11, 13, 3


@pytest.fixture
def arrays(normal):
    """`arrays(n_key)`: q, k and v of one layer, all sizes different."""

    def make(n_key=7, seed=0, dtype=torch.float32):
        return {
            "q": normal(H, 7, D_K, seed=seed, dtype=dtype),
            "k": normal(KV, n_key, D_K, seed=seed + 1, dtype=dtype),
            "v": normal(KV, n_key, D_V, seed=seed + 2, dtype=dtype),
        }

    return make


def torch_results(q, k, v, **options):
    """Torch's outputs and weights for these arrays."""
    unit = torch.eye(k.shape[-2], dtype=v.dtype).expand(KV, -1, -1)
    return (
        F.scaled_dot_product_attention(q[None], k[None], x[None].contiguous(), enable_gqa=True, **options)[0]
        for x in (v, unit)
    )


# Queries, keys and values


@pytest.mark.parametrize("n_key", [7, 5])
def test_weights_and_outputs_are_those_of_torch(arrays, n_key):
    given = arrays(n_key)
    trace = mha.from_tensors(**given, tokens=TOKENS, keys=KEYS if n_key == 5 else None)
    [layer] = trace.layers
    output, weights = torch_results(**given)
    np.testing.assert_allclose(layer.output(), output, atol=1e-6)
    np.testing.assert_allclose(layer.weights(), weights, atol=1e-6)
    assert trace.tokens is layer.sides.queries
    assert layer.sides.queries.pieces == tuple(TOKENS)
    assert layer.sides.keys.pieces == tuple(KEYS if n_key == 5 else TOKENS)
    assert layer.sides.same == (n_key == 7)
    assert layer.kind == ("cross" if n_key == 5 else "self")
    assert mha.against_torch(layer).passed


def test_scale_mask_and_bias_are_part_of_the_rule(arrays, normal):
    given, bias, mask = arrays(), normal(H, 7, 7, seed=9), torch.ones(7, 7, dtype=torch.bool).tril()
    [layer] = mha.from_tensors(**given, tokens=TOKENS, scale=0.3, mask=mask, bias=bias).layers
    _, weights = torch_results(**given, scale=0.3, attn_mask=bias[None].masked_fill(~mask, float("-inf")))
    np.testing.assert_allclose(layer.weights(), weights, atol=1e-6)
    rule = mha.ScoreRule(scale=0.3, mask=mask, bias=bias)
    [again] = mha.from_tensors(**given, tokens=TOKENS, rule=rule).layers
    np.testing.assert_array_equal(again.weights(), layer.weights())


def test_several_layers_come_as_a_list_or_as_one_array(arrays):
    each = [arrays(seed=10 * number) for number in range(LAYERS)]
    as_list = {name: [layer[name][None].numpy() for layer in each] for name in "qkv"}
    as_array = {name: torch.stack([layer[name] for layer in each]) for name in "qkv"}
    for given in (as_list, as_array):
        trace = mha.from_tensors(**given, tokens=TOKENS)
        for layer, own in zip(trace.layers, each, strict=True):
            np.testing.assert_array_equal(layer.q, own["q"])
            np.testing.assert_array_equal(layer.v, own["v"])


def test_with_w_o_the_parts_of_the_heads_sum_to_the_result(arrays, normal):
    given, w_o = arrays(), normal(H * D_V, 17, seed=8)
    [layer] = mha.from_tensors(**given, tokens=TOKENS, w_o=w_o).layers
    output, _ = torch_results(**given)
    expected = output.transpose(0, 1).flatten(1) @ w_o
    np.testing.assert_allclose(layer.result(), expected, atol=1e-4)
    np.testing.assert_allclose(layer.contribution().sum(0), expected, atol=1e-4)
    assert layer.d_model == 17


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens": TOKENS[:-1]}, "q (h, 6, d_k)"),
        ({"keys": KEYS}, "7 tokens that look at 5"),
        ({"k": torch.zeros(KV, 7, D_K + 1)}, "do not fit"),
        ({"k": torch.zeros(4, 7, D_K), "v": torch.zeros(4, 7, D_V)}, "do not fit"),
        ({"v": torch.zeros(KV, 6, D_V)}, "do not fit"),
        (
            {"k": torch.zeros(LAYERS, KV, 7, D_K)},
            "1, 3, 1 layers; all need as many. A leading axis counts layers; of a batch give one item",
        ),
        ({"q": torch.zeros(7, D_K)}, "expected (head, row, column)"),
        ({"q": [torch.zeros(2, H, 7, D_K)]}, "has to be chosen"),
        ({"q": torch.full((H, 7, D_K), torch.nan)}, "not finite"),
        ({"q": "no array"}, "give an array"),
        ({"q": []}, "no layer"),
        ({"q": torch.zeros(H, 7, D_K, dtype=torch.complex64)}, "complex"),
        ({"mask": torch.ones(7, 7)}, "a mask is boolean"),
        ({"mask": torch.ones(7, 7).int()}, "The mask has dtype torch.int32"),
        ({"mask": torch.ones(6, 7, dtype=torch.bool)}, "mask of layer 0 has shape (6, 7)"),
        ({"bias": torch.ones(5, 7, 7)}, "bias of layer 0 has shape (5, 7, 7)"),
        ({"bias": torch.ones(7)}, "expected ([head,] query, key)"),
        ({"bias": torch.full((7, 7), torch.inf)}, "at most −∞"),
        (
            {"q": torch.full((H, 7, D_K), 1e20), "k": torch.full((KV, 7, D_K), 1e20)},
            "scores can reach 1.1e+41",
        ),
        ({"q": torch.zeros(H, 7, D_K).to(torch.float8_e4m3fn)}, "16 bits or more"),
        ({"q": torch.zeros(H, 7, D_K).to_sparse()}, "give a dense array"),
        ({"w_o": torch.full((H * D_V, 17), torch.nan)}, "w_o has numbers that are not finite"),
        ({"w_o": torch.full((H * D_V, 17), 3e17)}, "v times w_o of layer 0 can be too large"),
        ({"v": torch.full((KV, 7, D_V), 3e38)}, "v of layer 0 can be too large"),
        ({"rule": "causal"}, "rule is a ScoreRule"),
        ({"rule": mha.ScoreRule(sinks=torch.full((H,), torch.nan))}, "sinks of layer 0 has numbers"),
        ({"rule": mha.ScoreRule(sinks=torch.zeros(H + 1))}, "sinks of layer 0 has shape (7,)"),
        ({"rule": mha.ScoreRule(distance_bias=torch.zeros(1, 13))}, "distance_bias of layer 0 has shape"),
        ({"rule": mha.ScoreRule(), "scale": 1.0}, "leave these out, or rule"),
        ({"w_o": torch.ones(17, H * D_V)}, "give its .T"),
        ({"w_o": torch.ones(H * D_V, 0)}, f"has shape ({H * D_V}, 0); expected ({H * D_V}, d_model)"),
        ({"w_o": [torch.ones(H * D_V, 17)] * 2}, "w_o is of 2 layers"),
        ({"tokens": [1, 2, 3]}, "a list of strings; got [1, 2, 3]"),
        ({"tokens": []}, "list of strings"),
        ({"tokens": 7}, "list of strings; got 7"),
        ({"q": torch.full((H, 7, D_K), 2**24 + 1)}, "q has whole numbers above 2^24, which float32 rounds"),
        ({"tokens": ["a"] * 32_769}, "the limit is 32,768"),
        ({"source": 5}, "source is a name"),
        ({"source": {"name": "x", "loss": torch.nan}}, "finite numbers"),
        ({"source": {"step": 3}}, "a mapping with a 'name'"),
        ({"source": {"name": "x", "model": object()}}, "simple values"),
    ],
)
def test_misfits_are_refused_with_what_would_fit(arrays, refused, change, said):
    assert said in str(refused(mha.from_tensors, **(arrays() | {"tokens": TOKENS} | change)))


# Tokens


def test_tokens_are_pieces_a_text_or_tokens(arrays):
    given = arrays()
    for tokens in (TOKENS, tuple(TOKENS), " ".join(TOKENS), mha.words(" ".join(TOKENS))):
        trace = mha.from_tensors(**given, tokens=tokens)
        assert trace.tokens.pieces == tuple(TOKENS)
        assert trace.tokens.labels[4] == "the\u2009₂"
        assert [trace.tokens.text[slice(*span)] for span in trace.tokens.spans] == TOKENS


def test_two_texts_stay_two_where_both_are_one_object(arrays):
    """Whoever names the keys means a second text, however equal: its positions are not compared."""
    tokens = mha.words(" ".join(TOKENS))
    for keys, kind in ((None, "self"), (tokens, "cross"), (TOKENS, "cross")):
        [layer] = mha.from_tensors(**arrays(), tokens=tokens, keys=keys).layers
        assert (layer.kind, layer.sides.same) == (kind, kind == "self")
        assert layer.sides.keys.pieces == tokens.pieces


def test_a_piece_of_white_space_can_be_seen(arrays):
    trace = mha.from_tensors(**arrays(), tokens=["<s>", "##ing", " ", "", "動", "\n", "</s>"])
    assert trace.tokens.pieces == ("<s>", "##ing", "␣", "␣", "動", "␣", "</s>")


# Weights alone


def test_given_weights_are_kept_unchanged(normal):
    weights = torch.softmax(normal(LAYERS, H, 7, 7), -1)
    for given in (weights, weights.numpy(), [*weights], tuple(layer[None] for layer in weights)):
        trace = mha.from_weights(given, TOKENS)
        assert len(trace.layers) == LAYERS
        for layer, own in zip(trace.layers, weights, strict=True):
            np.testing.assert_array_equal(layer.weights(), own)
            assert not layer.knows("q")
    cross = mha.from_weights(torch.softmax(normal(H, 7, 5), -1), TOKENS, KEYS)
    assert list(cross.frame("weights", head=2).columns) == KEYS


def test_rows_may_sum_to_less_than_one_and_a_little_more(normal):
    causal = torch.softmax(normal(2, 7, 7).masked_fill(~torch.ones(7, 7).tril().bool(), -torch.inf), -1)
    sinks = causal * 0.3
    hidden = causal.clone()
    hidden[:, 0] = 0
    for given in (causal, sinks, hidden, causal * 1.0009, causal.bfloat16(), causal.half()):
        mha.from_weights(given, TOKENS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w * 1.002, "a row sums to up to 1.002"),
        (lambda w: w - 0.5, "the smallest is -0.4"),
        (lambda w: w.mT / w.sum(-2)[..., None] * 3, "no attention weights"),
        (lambda w: w > 0.1, "no attention weights"),
        (lambda w: w * torch.nan, "give torch.nan_to_num(weights)"),
        (lambda w: w * 1.3, "model.eval() does not"),
        (lambda w: None, 'attn_implementation="eager"'),
        (lambda w: (None, None), "mha.trace(text, source=model) needs neither"),
        (lambda w: (), "The model returned no weights"),
        (lambda w: ((w[None],), (w[None, :, -1:],)), "choose one, as in weights[0]"),
        (lambda w: SimpleNamespace(attentions=(w,)), "as in outputs.attentions"),
        (lambda w: w[:, :6], "(head, 7, 7)"),
        (lambda w: w[0], "expected (head, row, column)"),
        (lambda w: [w, w[..., :5]], "weights of layer 1"),
    ],
)
def test_invalid_weights_are_refused(normal, refused, change, said):
    weights = torch.softmax(normal(H, 7, 7), -1)
    assert said in str(refused(mha.from_weights, change(weights), TOKENS))


# Kinds of numbers


class Only:
    """An array of another library, which numpy understands by one of the two protocols."""

    def __init__(self, values: np.ndarray, protocol: str):
        setattr(self, protocol, getattr(values, protocol))
        self.values = values  # which owns the memory


class Copied(Only):
    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self.values


@pytest.mark.parametrize(
    "of",
    [
        lambda w: w.astype(">f4"),
        lambda w: Copied(w, "shape"),
        lambda w: Only(w, "__array_interface__"),
        lambda w: np.ma.masked_array(w),
        lambda w: [one.astype(">f8") for one in (w, w)],
    ],
)
def test_every_array_that_numpy_understands_is_read(normal, of):
    weights = torch.softmax(normal(H, 7, 7), -1).numpy()
    np.testing.assert_array_equal(mha.from_weights(of(weights), TOKENS).layers[-1].weights(), weights)


@pytest.mark.parametrize("odd", ["k", "v", "w_o"])
@pytest.mark.parametrize("kind", ["float64", "float16"])
def test_arrays_of_several_kinds_of_numbers_are_refused_at_once(refused, odd, kind):
    given = {name: np.ones((4, 5, 8), np.float32) for name in "qkv"} | {"w_o": np.ones((32, 6), np.float32)}
    mha.from_tensors(**given, tokens="a b c d e")
    said = str(refused(mha.from_tensors, **given | {odd: given[odd].astype(kind)}, tokens="a b c d e"))
    assert f"{odd} {kind}" in said
    assert "k.astype('float32')" in said


@pytest.mark.parametrize("scale", [0, 0.0, float("inf"), float("nan"), "1", [1.0], True, 10**400])
def test_an_invalid_scale_is_refused(refused, scale):
    given = dict.fromkeys("qkv", np.ones((4, 5, 8), np.float32))
    assert repr(scale) in str(refused(mha.from_tensors, **given, tokens="a b c d e", scale=scale))
