"""What the trial showed is used, and shown again; what a model writes later changes nothing."""

import numpy as np
import pytest
import torch

from mha_core.capture import collector, wiring
from mha_core.sources.huggingface import model as huggingface
from tests.sources.tiny import module

IDS = {"input_ids": torch.arange(3, 16)[None]}


def _doubled(x: torch.Tensor) -> None:
    x.mul_(2.0)


def layers(model: huggingface.Model):
    return huggingface.flow(model, IDS)[0]


def same(ours, theirs) -> bool:
    """Have two layers the same numbers in all that was recorded of them?"""
    names = set(theirs.tensors)
    return set(ours.tensors) == names and all(torch.equal(ours.tensors[n], theirs.tensors[n]) for n in names)


@pytest.mark.parametrize(
    "of", ["input_layernorm", "self_attn.k_proj", "self_attn.q_proj", "self_attn.v_proj"]
)
def test_a_place_that_every_layer_writes_into_is_copied_before_it_is_written_again(of):
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
        assert same(ours, theirs)
        assert ours.projections.w_q is not None
    place.fill_(7.0)
    assert all(same(ours, theirs) for ours, theirs in zip(kept, plain, strict=True))


def test_an_input_that_is_changed_before_attention_reads_it_is_not_called_the_input():
    made = module("deepseek_v3")  # whose X is what its attention is handed, since no matrix makes q of it
    plain = layers(huggingface.adopt(module("deepseek_v3")))
    assert plain[0].x is not None
    last = made.layers[0].self_attn
    last.kv_a_proj_with_mqa.register_forward_hook(lambda _, given, __: _doubled(given[0]))
    changed = layers(huggingface.adopt(made))
    assert changed[0].x is None
    assert changed[1].x is not None


def test_nothing_that_a_trace_keeps_lies_where_the_model_can_write():
    made, seen = module("qwen3"), []
    for part in made.modules():
        part.register_forward_hook(lambda _, given, out: seen.extend((*given, out)))
    [*kept] = layers(huggingface.adopt(made))
    theirs = {t.untyped_storage().data_ptr() for t in seen if isinstance(t, torch.Tensor)}
    ours = {tensor.untyped_storage().data_ptr() for layer in kept for tensor in layer.tensors.values()}
    assert theirs
    assert not ours & theirs
    # And no copy holds on to more than itself.
    for layer in kept:
        assert all(t.untyped_storage().nbytes() == t.nbytes for t in layer.tensors.values())


def test_modules_that_were_of_no_use_in_the_trial_are_left_alone_afterwards():
    made = huggingface.adopt(module("bert")).module
    block = made.encoder.layer[1]
    used = (block.attention.self.query, block.attention.self.value, block.attention.output.dense)
    unused = (block.intermediate.dense, block.output.dense, block.attention.output.LayerNorm)
    assert all(part._forward_hooks for part in used)
    assert not any(part._forward_hooks for part in unused)
    # What they are handed says nothing that the three matrices of a plain layer do not.
    around = (block.attention, block.attention.self, block.attention.output)
    assert not any(part._forward_pre_hooks for part in around)


def test_of_what_was_handed_on_the_way_to_an_attention_only_what_is_around_it_is_watched():
    made = module("bert")
    # No matrix made this q.
    made.encoder.layer[1].attention.self.query.register_forward_hook(lambda _, __, output: output * 1.5)
    made = huggingface.adopt(made).module
    first, second = (block.attention for block in made.encoder.layer)
    assert all(part._forward_pre_hooks for part in (second, second.self))
    assert not any(part._forward_pre_hooks for part in (first.output, second.output))  # attention is over


def test_an_attention_that_needs_what_it_was_handed_is_still_watched_afterwards():
    turned = huggingface.adopt(module("llama")).module  # by the codes that it is handed
    assert turned.layers[1].self_attn._forward_pre_hooks
    both = huggingface.adopt(module("bart")).module
    block = both.model.decoder.layers[0]
    assert block.encoder_attn._forward_pre_hooks  # whose keys are another text's
    assert not block.self_attn._forward_pre_hooks


def test_what_lies_where_it_lay_is_not_looked_for(monkeypatch):
    model = huggingface.adopt(module("bert"))
    at_first = layers(model)
    monkeypatch.setattr(collector, "plain", lambda *_: None)
    by_looking = layers(model)
    monkeypatch.undo()
    monkeypatch.setattr(wiring, "chain", None)
    for before, ours, theirs in zip(at_first, layers(model), by_looking, strict=True):
        assert same(ours, theirs)
        assert same(ours, before)
        assert "x" in ours.tensors
        for one, other in zip(ours.projections, theirs.projections, strict=True):
            assert one.data_ptr() == other.data_ptr()
            assert one.stride() == other.stride()


def test_what_was_learned_is_asked_again_and_given_up_where_it_is_no_longer_so():
    model = huggingface.adopt(module("bert"))
    inner = model.module.encoder.layer[0].attention.self
    before = layers(model)[0]
    inner.query, inner.key = inner.key, inner.query
    after = layers(model)[0]
    assert torch.equal(after.projections.w_q, before.projections.w_k)
    assert torch.equal(after.projections.w_k, before.projections.w_q)
    np.testing.assert_array_equal(after.q, before.k)
    asked = after.tensors["x"] @ after.projections.w_q + after.projections.b_q
    torch.testing.assert_close(asked.unflatten(1, (3, -1)).transpose(0, 1), after.tensors["q"])


def test_the_matrices_are_those_that_the_model_has_now():
    made = module("gpt2")  # whose matrices stand as in the formula; a Linear's are turned
    model = huggingface.adopt(made)
    before = layers(model)[0].projections
    made.to(torch.float64)
    after = layers(model)[0].projections
    for one, other in zip(before, after, strict=True):
        assert other.dtype == torch.float64
        torch.testing.assert_close(one.double(), other)


def test_what_is_learned_of_a_model_goes_with_it():
    import gc

    from mha_core.capture import learned

    gc.collect()
    before = len(learned._ways), len(learned._used), len(learned._hooks)
    model = huggingface.adopt(module("gpt2"))
    assert len(learned._ways) == before[0] + 2
    del model
    gc.collect()
    assert (len(learned._ways), len(learned._used), len(learned._hooks)) <= before
