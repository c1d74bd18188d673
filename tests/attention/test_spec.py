"""Sizes are checked once, and a refusal names values that work."""

import pytest

from mha_core import AttentionSpec
from mha_core.attention.module import MAX_D_MODEL, MAX_HEADS
from mha_core.errors import in_range, listed, one_of


@pytest.mark.parametrize(
    ("h", "d_k"), [(1, 512), (2, 256), (4, 128), (8, 64), (16, 32), (32, 16), (64, 8), (128, 4)]
)
def test_d_model_is_split_over_the_heads(h, d_k):
    spec = AttentionSpec(512, h)
    assert (spec.d_k, spec.d_v, spec.n_kv_heads, spec.bias) == (d_k, d_k, h, True)


def test_what_is_given_is_kept():
    assert AttentionSpec(11, 6, n_kv_heads=2, d_k=5, d_v=13, bias=False).__dict__ == {
        "d_model": 11,
        "n_heads": 6,
        "n_kv_heads": 2,
        "d_k": 5,
        "d_v": 13,
        "bias": False,
    }
    assert AttentionSpec(11, 3, d_k=5).d_v == 5
    assert AttentionSpec(15, 3, d_v=7).d_k == 5


def test_a_spec_is_a_value():
    assert AttentionSpec(15, 3) == AttentionSpec(15, 3, n_kv_heads=3, d_k=5, d_v=5, bias=True)
    assert AttentionSpec(15, 3) != AttentionSpec(15, 5)
    assert len({AttentionSpec(15, 3), AttentionSpec(15, 3, d_k=5)}) == 1
    with pytest.raises(AttributeError):
        AttentionSpec(15, 3).d_model = 30


@pytest.mark.parametrize(
    ("sizes", "message", "fixes"),
    [
        ((0, 1), "d_model 0 is out of range; 1 to 4096 work.", ({"d_model": 1},)),
        ((4097, 1), "d_model 4097 is out of range; 1 to 4096 work.", ({"d_model": 4096},)),
        ((512, 0), "h 0 is out of range; 1 to 128 work.", ({"h": 1},)),
        ((512, 129), "h 129 is out of range; 1 to 128 work.", ({"h": 128},)),
        ((512, 8, None, 0), "d_k 0 is out of range; 1 to 4096 work.", ({"d_k": 1},)),
        ((512, 8, None, 64, 5000), "d_v 5000 is out of range; 1 to 4096 work.", ({"d_v": 4096},)),
        ((512, 8, 0), "n_kv_heads 0 is out of range; 1 to 128 work.", ({"n_kv_heads": 1},)),
        ((512, True), "h must be a whole number from 1 to 128; got True.", ()),
        ((512.0, 8), "d_model must be a whole number from 1 to 4096; got 512.0.", ()),
        (("512", 8), "d_model must be a whole number from 1 to 4096; got '512'.", ()),
        ((512, 8, None, 2.5), "d_k must be a whole number from 1 to 4096; got 2.5.", ()),
        (
            (512, 8, 3),
            "8 query heads cannot share 3 key/value heads evenly; 1, 2, 4 or 8 can.",
            ({"n_kv_heads": 1}, {"n_kv_heads": 2}, {"n_kv_heads": 4}, {"n_kv_heads": 8}),
        ),
        (
            (7, 7, 11),
            "7 query heads cannot share 11 key/value heads evenly; 1 or 7 can.",
            ({"n_kv_heads": 1}, {"n_kv_heads": 7}),
        ),
        (
            (30, 4),
            "d_model 30 cannot be split into 4 heads; 28 or 32 can. With d_model 30, 3 or 5 heads work.",
            ({"d_model": 28}, {"d_model": 32}, {"h": 3}, {"h": 5}),
        ),
        (
            (1, 2),
            "d_model 1 cannot be split into 2 heads; 2 can. With d_model 1, 1 head works.",
            ({"d_model": 2}, {"h": 1}),
        ),
        (
            (4096, 3),
            "d_model 4096 cannot be split into 3 heads; 4095 can. With d_model 4096, 2 or 4 heads work.",
            ({"d_model": 4095}, {"h": 2}, {"h": 4}),
        ),
        (
            (13, 5),
            "d_model 13 cannot be split into 5 heads; 10 or 15 can. With d_model 13, 1 or 13 heads work.",
            ({"d_model": 10}, {"d_model": 15}, {"h": 1}, {"h": 13}),
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, message, fixes, refused):
    error = refused(AttentionSpec, *sizes)
    assert str(error) == message
    assert error.fixes == fixes


def test_the_limits_themselves_are_accepted():
    assert AttentionSpec(MAX_D_MODEL, MAX_HEADS).d_k == 32
    assert AttentionSpec(1, 1).d_k == 1
    assert in_range("seed", 0, 0, 7) == 0
    assert in_range("seed", 7, 0, 7) == 7


def test_a_number_without_a_fraction_is_still_no_whole_number(refused):
    assert str(refused(in_range, "seed", 3.0, 0, 7)) == "seed must be a whole number from 0 to 7; got 3.0."
    assert (
        str(refused(in_range, "seed", False, 0, 7)) == "seed must be a whole number from 0 to 7; got False."
    )


@pytest.mark.parametrize(
    ("values", "text"), [([1], "1"), ([1, 2], "1 or 2"), ([1, 2, 3], "1, 2 or 3"), (("a", "b"), "a or b")]
)
def test_a_list_is_read_out(values, text):
    assert listed(values, "or") == text
    assert listed(iter(values), "and") == text.replace("or", "and")


def test_a_name_is_known_or_the_known_ones_are_told(refused):
    assert one_of("mask", "causal", {"full": 1, "causal": 2}) == "causal"
    error = refused(one_of, "mask", "casual", iter(["full", "causal"]))
    assert str(error) == "There is no mask called 'casual'; full or causal can be used."
    assert error.fixes == ({"mask": "full"}, {"mask": "causal"})
