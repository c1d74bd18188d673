"""A call as a layer: what it keeps depends on whose tokens look at whose."""

from types import SimpleNamespace

import pytest
import torch

from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.call import Call, Index
from mha_core.capture.masks import Choice
from mha_core.capture.rotary import RotaryCode
from mha_core.traces.facts import Facts, LatentProjection, Rotary
from mha_core.traces.tensors import shared


def call(**known) -> Call:
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 3, 4, 6) for _ in range(3))
    return Call("a", known.pop("module", None), q, k, v, ScoreRule(), True, **known)


def test_extra_keys_are_not_another_text():
    matrices = {name: torch.randn(7, 18) for name in ("w_q", "w_k", "w_v")}
    made = call(projections=matrices, tensors={"x": torch.randn(4, 7), "x_v": torch.randn(4, 7)})
    cross, own = (made.layer(kind, {}) for kind in ("cross", "self"))
    assert cross.knows("x_v")
    assert cross.projections.w_v is not None
    assert not own.knows("x_v")
    assert own.projections.w_v is None


def test_layers_with_equal_codes_share_them():
    angle = torch.randn(4, 6)
    one, other = (call(code=RotaryCode("half", angle.cos(), angle.sin(), 2)) for _ in range(2))
    common: dict = {}
    layers = [made.layer("self", common) for made in (one, other)]
    assert layers[0].about == Facts(rotary=Rotary("half", 6, 2))
    assert shared(layers[0].tensors)["cos"] is shared(layers[1].tensors)["cos"]
    assert shared(layers[0].tensors)["cos"].data_ptr() != one.code.cos.data_ptr()
    third = call(code=RotaryCode("half", angle.sin(), angle.cos(), 2)).layer("self", common)
    assert torch.equal(third.tensors["cos"], angle.sin())


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ({"kv_lora_rank": 8, "q_lora_rank": None, "v_head_dim": 5}, LatentProjection(8, value_width=5)),
        ({"qk_rope_head_dim": 4}, None),
    ],
)
def test_the_sizes_of_a_latent_attention_are_those_that_it_has(said, known):
    assert call(module=SimpleNamespace(**said)).layer("self", {}).about.latent == known


def test_scores_of_an_index_are_infinite_where_a_query_may_not_look():
    scores = torch.tensor([[[1.0, 2.0], [torch.finfo(torch.float32).min, 4.0]]])
    index = Index(Choice(torch.tensor([[[0], [1]]])), scores, torch.ones(1, 1, 2, 2).tril().bool())
    never = float("-inf")
    assert index.tensors()["index_scores"].tolist() == [[[1.0, never], [never, 4.0]]]
