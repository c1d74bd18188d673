"""What the tests of the core share: seeded numbers, the settings that every trace is held to."""

import pytest
import torch

import mha_core as mha
from mha_core.embed import alibi

TEXT = "the old cat saw the new cat"  # 7 tokens, two of them twice
LENGTH = 7
PRIMES = {"d_model": 11, "h": 3, "d_k": 5, "d_v": 13}

DRAWN_MASK = torch.rand(LENGTH, LENGTH, generator=torch.Generator().manual_seed(3)) > 0.4
DRAWN_MASK[2] = False  # nobody is left for the third token to look at

SETTINGS = {
    "full": {},
    "causal": {"mask": "causal"},
    "window": {"mask": "window:1"},
    "prefix": {"mask": "prefix:2"},
    "padding": {"mask": "padding:2"},
    "drawn with an empty row": {"mask": DRAWN_MASK},
    "no position": {"position": "none"},
    "learned": {"position": "learned"},
    "rotary": {"position": "rotary", "d_k": 2},
    "alibi": {"position": "alibi"},
    "grouped": {"h": 6, "n_kv_heads": 2},
    "one key head": {"h": 5, "n_kv_heads": 1, "d_k": 3},
    "split evenly": {"d_model": 15, "d_k": None, "d_v": None},
    "three layers": {"layers": 3, "mask": "causal"},
    "no bias": {"bias": False},
    "one head": {"h": 1},
    "everything": {
        "h": 6,
        "n_kv_heads": 3,
        "layers": 3,
        "position": "alibi",
        "mask": DRAWN_MASK,
        "seed": 17,
    },
}


@pytest.fixture(scope="session", params=SETTINGS.values(), ids=SETTINGS)
def setting(request):
    """The arguments of `mha.trace`, one setting after another."""
    return {"text": TEXT, **PRIMES, **request.param}


@pytest.fixture(scope="session")
def trace(setting):
    return mha.trace(**setting)


@pytest.fixture(scope="session")
def make_layer(normal):
    """`make_layer(rule=…, dtype=…)`: a layer through `MultiHeadAttention`, for what `mha.trace` has no word.

    h 6, n_kv 3, d_model 11, d_k 5, d_v 13, 7 tokens.
    """

    def make(rule=mha.ScoreRule(), *, dtype=torch.float32, mask=None, seed=0):
        module = mha.MultiHeadAttention(mha.AttentionSpec(11, 6, n_kv_heads=3, d_k=5, d_v=13))
        own = module.projections()
        for index, name in enumerate("qkvo"):
            for part in (getattr(own, f"w_{name}").mT, getattr(own, f"b_{name}")):
                part.copy_(normal(*part.shape, seed=seed + 100 + 2 * index + (part.dim() == 1)) / 11**0.5)
        module = module.requires_grad_(False).to(dtype)
        x = normal(1, LENGTH, 11, seed=seed, dtype=dtype)
        attended = module(x, mask=mask, rule=rule)
        return mha.LayerTrace.of(attended, x=x, projections=module.projections())

    return make


RULES = {
    "scale": lambda normal: mha.ScoreRule(scale=0.3),
    "temperature": lambda normal: mha.ScoreRule(temperature=1.7, mask=DRAWN_MASK),
    "bias": lambda normal: mha.ScoreRule(bias=normal(6, LENGTH, LENGTH, seed=5), temperature=0.7),
    "bias shared by heads": lambda normal: mha.ScoreRule(bias=normal(1, LENGTH, LENGTH, seed=5)),
    "hidden by bias": lambda normal: mha.ScoreRule(
        bias=normal(6, LENGTH, LENGTH, seed=5).masked_fill(~DRAWN_MASK, float("-inf"))
    ),
    "mask of each head": lambda normal: mha.ScoreRule(mask=normal(6, LENGTH, LENGTH, seed=6) > -0.3),
    "both biases": lambda normal: mha.ScoreRule(
        bias=normal(6, LENGTH, LENGTH, seed=5), distance_bias=alibi(6, LENGTH, LENGTH)
    ),
    "soft cap": lambda normal: mha.ScoreRule(soft_cap=0.5, mask=DRAWN_MASK),
    "sinks": lambda normal: mha.ScoreRule(sinks=normal(6, seed=7), mask=DRAWN_MASK),
    "matrix": lambda normal: mha.ScoreRule(softmax="matrix", mask=DRAWN_MASK),
}


@pytest.fixture(scope="session", params=RULES.values(), ids=RULES)
def rule(request, normal):
    """Score rules that only a layer made by hand has."""
    return request.param(normal)
