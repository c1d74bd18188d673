"""What flows through a model is collected: as it was then, by hooks on the modules that matter."""

import pytest
import torch

from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.tensors import shared
from tests.sources.tiny import module

IDS = {"input_ids": torch.arange(3, 16)[None]}


def _doubled(x: torch.Tensor) -> None:
    x.mul_(2.0)


def layers(model: huggingface.Model):
    return huggingface.flow(model, IDS)[0]


def equal_tensors(ours, theirs) -> bool:
    """Whether two layers have the same numbers in all recorded tensors."""
    names = set(theirs.tensors)
    return set(ours.tensors) == names and all(torch.equal(ours.tensors[n], theirs.tensors[n]) for n in names)


@pytest.mark.parametrize("of", ["input_layernorm", "self_attn.k_proj"])
def test_a_reused_buffer_is_copied_before_it_is_overwritten(of):
    """As a cache of keys, or a residual stream that is kept: the same memory for all layers."""
    plain = layers(huggingface.adopt(module("llama")))
    reused, places = module("llama"), {}

    def into_one_place(_, __, output):
        place = places.setdefault(output.shape, torch.empty_like(output))
        return place.copy_(output)

    for block in reused.layers:
        block.get_submodule(of).register_forward_hook(into_one_place)
    model = huggingface.adopt(reused)
    kept = layers(model)
    [place] = [place for shape, place in places.items() if shape[1] == 13]
    for ours, theirs in zip(kept, plain, strict=True):
        assert equal_tensors(ours, theirs)
        assert ours.projections.w_q is not None
    place.fill_(7.0)
    assert all(equal_tensors(ours, theirs) for ours, theirs in zip(kept, plain, strict=True))


def test_an_input_that_is_changed_before_attention_reads_it_is_not_called_the_input():
    made = module("deepseek_v3")  # whose X is what its attention is handed, since no matrix makes q of it
    plain = layers(huggingface.adopt(module("deepseek_v3")))
    assert plain[0].x is not None
    last = made.layers[0].self_attn
    last.kv_a_proj_with_mqa.register_forward_hook(lambda _, given, __: _doubled(given[0]))
    changed = layers(huggingface.adopt(made))
    assert changed[0].x is None
    assert changed[1].x is not None


def test_a_trace_shares_no_memory_with_the_model():
    made, seen = module("qwen3"), []
    for part in made.modules():
        part.register_forward_hook(lambda _, given, out: seen.extend((*given, out)))
    [*kept] = layers(huggingface.adopt(made))
    theirs = {t.untyped_storage().data_ptr() for t in seen if isinstance(t, torch.Tensor)}
    ours = {
        tensor.untyped_storage().data_ptr() for layer in kept for tensor in shared(layer.tensors).values()
    }
    assert theirs
    assert not ours & theirs
    # And no copy holds on to more than itself.
    for layer in kept:
        assert all(t.untyped_storage().nbytes() == t.nbytes for t in shared(layer.tensors).values())


def test_the_input_of_an_inner_module_is_not_that_of_attention():
    """For example a convolution after K, or its own softmax: X is the input of the attention."""
    made = module("deepseek_v3")  # whose X is what its attention is handed, since no matrix makes q of it
    plain = layers(huggingface.adopt(module("deepseek_v3")))

    class Inside(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, hidden_states):
            return self.inner(hidden_states)

    for block in made.layers:
        block.self_attn.kv_b_proj = Inside(block.self_attn.kv_b_proj)
    for ours, theirs in zip(layers(huggingface.adopt(made)), plain, strict=True):
        assert torch.equal(ours.tensors["x"], theirs.tensors["x"])


def test_modules_that_changed_places_are_not_mismistaken_for_each_other():
    model = huggingface.adopt(module("bert"))
    inner = model.module.encoder.layer[0].attention.self
    assert layers(model)[0].projections.w_q is not None
    inner.query, inner.key = inner.key, inner.query
    after = layers(model)
    assert after[0].projections.w_q is None
    assert after[0].projections.w_o is not None
    assert after[1].projections.w_q is not None


@pytest.mark.parametrize("family", ["glm", "qwen3"])
def test_of_one_token_alone_the_rotation_is_that_of_longer_texts(family):
    """The first token is turned by nothing, so that the numbers would fit any code, or none."""
    model = huggingface.adopt(module(family))
    [one, *_], *_ = huggingface.flow(model, {"input_ids": IDS["input_ids"][:, :1]})
    several = layers(model)[0]
    assert one.about == several.about
    assert set(one.tensors) == set(several.tensors)
    assert one.projections.known == several.projections.known
