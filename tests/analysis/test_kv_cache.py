"""What a layer keeps of each token, in numbers, and how much of its weights rests on special tokens."""

import pytest
import torch

from mha_core.analysis.kv_cache import cache_sizes, special_share
from mha_core.traces.facts import Facts, LatentProjection
from mha_core.traces.layer import LayerTrace

HEADS, KV, TOKENS, D_K, D_V = 6, 2, 9, 5, 7


def layer(latent=None, kv=KV):
    draw = torch.Generator().manual_seed(1)
    q = torch.randn(HEADS, TOKENS, D_K, generator=draw)
    k, v = (torch.randn(kv, TOKENS, width, generator=draw) for width in (D_K, D_V))
    return LayerTrace({"q": q, "k": k, "v": v}, about=Facts(latent=latent))


def test_heads_that_share_keys_keep_fewer_numbers():
    assert cache_sizes(layer()) == {"own": KV * 12, "all": HEADS * 12, "one": 12, "shared": KV * 12}
    assert cache_sizes(layer(kv=HEADS))["own"] == HEADS * 12


def test_latent_attention_keeps_its_short_vector_and_the_rotary_part():
    found = cache_sizes(layer(LatentProjection(kv_rank=8, rotary_width=3)))
    assert (found["own"], found["latent"]) == (11, 11)
    assert "shared" not in found


def test_of_weights_alone_nothing_is_known():
    assert cache_sizes(LayerTrace({"weights": torch.full((2, 3, 3), 1 / 3)})) is None


@pytest.mark.parametrize("special", [(0,), (0, 8), (3, 4)])
def test_the_share_of_special_tokens_is_the_mean_of_their_columns(special):
    given = layer()
    assert special_share(given, special) == pytest.approx(given.weights()[..., list(special)].sum(-1).mean())
    assert special_share(given, special, rows=3) == pytest.approx(
        given.weights()[:, ::3][..., list(special)].sum(-1).mean()
    )


def test_without_special_tokens_or_the_same_tokens_there_is_no_share():
    assert special_share(layer(), ()) is None
    cross = LayerTrace({"weights": torch.full((2, 3, 4), 1 / 4)})
    assert special_share(cross, (0,)) is None
