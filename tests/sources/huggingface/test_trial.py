"""The trial that decides how a model is traced."""

import numpy as np
import pytest
import torch
import transformers
from transformers.models.llama import modeling_llama

import mha_core as mha
from mha_core.sources.huggingface import memory, trial
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface.batches import outcomes
from mha_core.sources.huggingface.forward_pass import forward, output
from mha_core.sources.huggingface.twin import in_float32
from mha_core.traces.tensors import shared
from tests.parity import tiny

# What is handed to our function in another way than to the model's own

LONGER = torch.randint(5, 90, (1, 23), generator=torch.Generator().manual_seed(1))


# Of a learned index, which chooses more keys than a trial has.
INDEX = {"index_topk": 8, "index_block_size": 3, "index_topk_blocks": 3}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["deepseek_v32", "minimax_m3_vl_text"])
def test_a_learned_index_is_kept_with_its_scores_and_what_it_chose(family):
    """Equal to what the model's own indexer returns, and to the highest of its scores."""
    module, returned = tiny.model(family, **INDEX), {}
    for name, part in module.named_modules():
        if name.endswith(".indexer"):
            part.register_forward_hook(lambda _, __, out, name=name: returned.update({name: out[0]}))
    with torch.no_grad():
        module(LONGER, use_cache=False)
    layers = [layer for layer in mha.trace(LONGER, source=module).layers if layer.index is not None]
    assert [f"{layer.name}.indexer" for layer in layers] == list(returned)
    for layer, blocks in zip(layers, returned.values(), strict=True):
        index, last = layer.index, torch.from_numpy(layer.index.scores[:, -1].copy())
        assert np.array_equal(layer.tensors["index_choice"], blocks if blocks.dim() == 3 else blocks[None])
        best = last.topk(index.budget).indices.sort().values
        assert torch.equal(best, layer.tensors["index_choice"][:, -1].sort().values)
        assert np.isneginf(index.scores[:, 0, 1:]).all()
        assert np.array_equal(index.chosen.repeat(layer.n_heads // index.n_heads, axis=0), layer.allowed())
        dense = layer.scaled() + np.where(np.tri(LONGER.shape[1]), 0.0, -np.inf)
        dense = torch.from_numpy(dense).softmax(-1).numpy()
        kept = np.where(layer.allowed(), dense, 0.0).sum(-1)
        np.testing.assert_allclose(index.share(), kept, atol=1e-6)
        assert index.share().min() < 0.9


@pytest.mark.filterwarnings("ignore")
def test_layers_that_share_an_index_share_its_tensors():
    module = tiny.model("glm_moe_dsa", **INDEX, indexer_types=["full", "shared"])
    one, other = mha.trace(LONGER, source=module).layers
    names = ("index_scores", "index_choice", "dense_mask")
    held = [[shared(layer.tensors)[name].data_ptr() for name in names] for layer in (one, other)]
    assert held[0] == held[1]


@pytest.mark.filterwarnings("ignore")
def test_texts_with_a_learned_index_are_traced_one_by_one():
    """Among keys with equal scores it chooses others in a padded text: half of its scores are 0."""
    model = huggingface.adopt(tiny.model("deepseek_v32", **INDEX))
    texts = [LONGER[0].tolist(), LONGER[0, 3:15].tolist()]
    for text, trace in zip(texts, outcomes(model, texts, batch=2), strict=True):
        alone = huggingface.follow(model, text)
        assert all(
            np.array_equal(a.weights(), b.weights()) for a, b in zip(trace.layers, alone.layers, strict=True)
        )


def handing(**more: object) -> transformers.LlamaModel:
    """A model that passes an extra argument to its attention."""
    module = tiny.model("llama")
    for block in module.model.layers:
        block.self_attn.register_forward_pre_hook(
            lambda _, args, kwargs: (args, kwargs | more), with_kwargs=True
        )
    return module


@pytest.mark.parametrize("value", [torch.ones(2), True])
def test_an_argument_that_nobody_knows_refuses_the_route_by_name(value):
    trace = mha.trace(LONGER, source=handing(colour=value))
    assert trace.source.route == "watch"
    assert trace.source.notes == ("LlamaAttention hands its attention colour=, which is not understood.",)


@pytest.mark.parametrize("more", [{"colour": None}, {"position_ids": LONGER, "sliding_window": 5}])
def test_an_argument_without_a_value_and_a_harmless_one_are_no_reason(more):
    assert mha.trace(LONGER, source=handing(**more)).source.route == "attend"


def test_an_argument_that_only_longer_texts_have_refuses_them(refused):
    module = tiny.model("llama")
    for block in module.model.layers:
        block.self_attn.register_forward_pre_hook(
            lambda _, args, kwargs: (
                args,
                kwargs | {"colour": args or kwargs["hidden_states"].shape[1] > 9 or None},
            ),
            with_kwargs=True,
        )
    assert mha.trace(LONGER[:, :9], source=module).source.route == "attend"
    assert "hands its attention colour=" in str(refused(mha.trace, LONGER, source=module))


class ShortSighted(modeling_llama.LlamaAttention):
    """An attention that looks back at few keys if it is called by a name that it knows."""

    key_budget: int

    def forward(self, hidden_states, attention_mask=None, **kwargs):
        if self.config._attn_implementation == "eager":
            places = torch.arange(hidden_states.shape[1])
            far = places[:, None] - places >= self.key_budget
            attention_mask = attention_mask.masked_fill(far, torch.finfo(attention_mask.dtype).min)
        return super().forward(hidden_states, attention_mask=attention_mask, **kwargs)


@pytest.mark.parametrize("budget", [9, 50])
def test_what_a_model_does_for_names_that_it_knows_is_proven_beyond_its_budget(budget):
    """Our function does not see it: a text of a few tokens is the same by any name."""
    module = tiny.model("llama")
    for block in module.model.layers:
        block.self_attn.__class__, block.self_attn.key_budget = ShortSighted, budget
    text = torch.randint(5, 90, (1, budget + 7), generator=torch.Generator().manual_seed(1))
    trace = mha.trace(text, source=module)
    with torch.no_grad():
        theirs = module(text, output_attentions=True).attentions
    assert trace.source.route == "watch"
    assert "treats attention functions differently by their names" in trace.source.notes[0]
    for layer, weights in zip(trace.layers, theirs, strict=True):
        assert np.abs(layer.weights() - weights[0].numpy()).max() <= 1e-5
    assert module.model.layers[0].self_attn.key_budget == budget


# Half precision: the trial runs in fp32 all the same


@pytest.fixture
def wrong_scale(monkeypatch):
    """A Llama whose own attention multiplies scores by 1.02 more than the scale it passes on."""
    own = modeling_llama.eager_attention_forward
    monkeypatch.setattr(
        modeling_llama,
        "eager_attention_forward",
        lambda *args, scaling, **more: own(*args, scaling=1.02 * scaling, **more),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_scale_that_is_wrong_by_two_percent_passes_in_no_precision(wrong_scale, dtype):
    model = huggingface.adopt(tiny.model("llama").to(dtype))
    assert model.route.name == "watch"  # which reads the scale that was used
    layers, *_ = huggingface.flow(model, {"input_ids": LONGER})
    assert [layer.rule.scale for layer in layers] == pytest.approx([1.02 * 8**-0.5] * 2)


def test_a_right_scale_passes_in_half_precision_and_the_model_stays_in_it():
    dtype = torch.bfloat16
    module = tiny.model("llama").to(dtype)
    model = huggingface.adopt(module)
    assert (model.route.name, model.route.notes) == ("attend", ())
    assert model.route.difference < 1e-5
    assert {weight.dtype for weight in (*module.parameters(), *model.module.parameters())} == {dtype}
    layers, *_ = huggingface.flow(model, {"input_ids": LONGER})
    assert layers[0].tensors["q"].dtype == dtype


@pytest.fixture
def little_room(monkeypatch):
    """Room in fp32 for all but half of a layer."""
    module = tiny.model("llama")
    layer = sum(weight.numel() for weight in module.model.layers[1].parameters())
    numbers = sum(weight.numel() for weight in module.parameters()) - layer // 2
    monkeypatch.setattr(memory, "free_bytes", lambda device: 4 * numbers * memory.PASS_FACTOR)


def test_with_room_for_one_layer_each_is_tried_in_float32(little_room, wrong_scale):
    module = tiny.model("llama").to(torch.float16)
    assert in_float32(module) is not None
    model = huggingface.adopt(module)
    assert (model.route.name, model.route.notes) == ("watch", ())
    assert model.route.difference < 1e-5


def test_layers_that_were_tried_one_by_one_are_in_half_precision_afterwards(little_room):
    module = tiny.model("llama").to(torch.bfloat16)
    copied = in_float32(module)
    weight = copied.model.layers[1].mlp.up_proj.weight
    assert output(forward(copied, {"input_ids": LONGER})).dtype == torch.float32
    assert copied.model.layers[1].mlp.up_proj.weight is weight
    assert weight.data_ptr() == module.model.layers[1].mlp.up_proj.weight.data_ptr()
    model = huggingface.adopt(module)
    assert (model.route.name, model.route.notes) == ("attend", ())
    assert model.route.difference < 1e-5


def test_without_room_for_a_copy_the_trial_says_in_what_it_ran(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    trace = mha.trace(LONGER, source=tiny.model("llama").to(torch.bfloat16))
    assert trace.source.route == "attend"
    (note,) = trace.source.notes
    assert "so the trial ran in bfloat16: small differences" in note


class Otherwise(modeling_llama.LlamaAttention):
    """An attention that differs for more than nine tokens."""

    def forward(self, hidden_states, **kwargs):
        if hidden_states.shape[1] > 9:
            return hidden_states.cumsum(1), None
        return super().forward(hidden_states, **kwargs)


def test_a_layer_that_does_not_attend_in_a_longer_text_is_named():
    module = tiny.model("llama")
    module.model.layers[1].self_attn.__class__ = Otherwise
    short = mha.trace(LONGER[:, :9], source=module)
    assert (len(short.layers), short.source.skipped) == (2, ())
    long = mha.trace(LONGER, source=module)
    assert [layer.name for layer in long.layers] == ["model.layers.0.self_attn"]
    assert long.source.skipped == (f"model.layers.1.self_attn: {trial.ABSENT}",)
