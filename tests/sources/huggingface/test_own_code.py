"""Models of transformers whose attention is their own code, outside the common interface."""

from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

import mha_core as mha
from mha_core.capture.collector import watch
from mha_core.capture.own_code.scores import Scores
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface import own_code
from mha_core.sources.huggingface.forward_pass import ModelPass, returned
from mha_core.traces.facts import Rotary
from tests.parity import tiny
from tests.sources.tiny import state

TEXT = tiny.texts((11, 7))[0]
IDS = {"input_ids": torch.tensor([[5, 17, 8, 41, 29, 3, 17, 11, 23, 2, 37]])}


@pytest.fixture(scope="module")
def adopted():
    """`adopted("bloom")`: such a model, made ours once, and its layers for `IDS`."""

    @cache
    def make(family: str):
        built = tiny.model(family)
        model = huggingface.model_of(built, tokenizer=tiny.tokenizer(built))
        return model, *huggingface.flow(model, IDS)[:2]

    return make


def test_adjustments_that_are_found_are_in_the_rule(adopted):
    def rules(family):
        return [layer.rule for layer in adopted(family)[1]]

    n = IDS["input_ids"].shape[1]
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    for family in ("bloom", "falcon", "gptj", "mpt", "openai-gpt"):
        for rule in rules(family):
            assert torch.equal(rule.mask.expand(1, n, n)[0], causal)
        one, other = ([t.data_ptr() for t in rule.tensors().values()] for rule in rules(family))
        assert one == other  # layers share masks and biases
    assert {adopted(family)[0].route.name for family in ("falcon", "mpnet", "xlm")} == {"watch"}
    assert adopted("falcon")[1][0].n_kv_heads == 1
    assert [layer.name for layer in adopted("xlm")[1]] == [
        "transformer.attentions.0",
        "transformer.attentions.1",
    ]
    assert adopted("gptj")[1][0].about.rotary == Rotary("pairs", 4)  # which no argument has
    assert rules("bloom")[0].bias.shape == (6, 1, n)  # ALiBi as it is written there: by the key's place alone
    assert rules("mpnet")[0].distance_bias.shape == (6, 2 * n - 1)
    assert rules("gpt_neo")[0].scale == 1.0
    assert int(rules("gpt_neo")[1].mask.sum(-1).max()) == 5
    assert rules("xlm")[0].scale == pytest.approx(8**-0.5)  # its queries are scaled before
    assert rules("deberta-v2")[0].scale == pytest.approx((8 * 3) ** -0.5)


# Where it is not understood


def flipped(*layers: int, beyond: int = 0) -> torch.nn.Module:
    """A Bloom in which heads take each other's weights: nothing that the rule has a place for."""
    module = tiny.model("bloom")
    for at in layers:
        module.transformer.h[at].self_attention.attention_dropout.register_forward_hook(
            lambda _, __, weights: weights.flip(1) if weights.shape[-1] > beyond else weights
        )
    return module


def test_an_architecture_that_is_not_understood_is_shown_with_less_and_says_so():
    module = flipped(0, 1)
    model = huggingface.model_of(module, tokenizer=tiny.tokenizer(module))
    trace = huggingface.follow(model, TEXT)
    layer = trace.layers[0]
    assert not layer.knows("q")
    assert "queries, keys and values are not known" in layer.about.missing
    assert model.route.missing == layer.about.missing
    assert trace.source.route == "weights"
    assert huggingface.adopt(flipped(1)).route.name == "weights"  # a part would look like the whole


def test_returned_weights_are_not_cut_to_the_text_where_a_token_looks_beyond_it(refused):
    module = flipped(0, 1)
    for block in module.transformer.h:
        block.self_attention.register_forward_hook(
            lambda _, __, out: (out[0], pad(out[1] / 2, (0, 1, 0, 1), value=0.1))
        )
    model = huggingface.model_of(module, tokenizer=tiny.tokenizer(module))
    assert "its weights are not those of token to token" in str(refused(huggingface.follow, model, TEXT))


def test_an_attention_that_was_seen_and_not_understood_counts_if_nothing_is_returned_of_it():
    ids = {"input_ids": IDS["input_ids"][:, :7]}
    module, part = tiny.model("bloom"), flipped(1)
    found = own_code.try_own_code(ModelPass(module, watch(module), ids), [])
    assert found.calls == tuple(f"transformer.h.{n}.self_attention" for n in (0, 1))
    assert own_code.try_own_code(ModelPass(part, watch(part), ids), []) is None


def test_weights_that_differ_from_the_models_are_rejected():
    """If what flowed differs from what is returned, it is not known which is right."""
    module = tiny.model("mpt")
    for block in module.transformer.blocks:
        block.attn.register_forward_hook(lambda _, __, out: (out[0], out[1].flip(-1)))
    assert huggingface.adopt(module).route.name == "weights"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n", [40, 41])  # the last is no multiple of the block: the model fills it up
@pytest.mark.parametrize("family", ["big_bird", "bigbird_pegasus"])
def test_a_model_that_a_short_text_changes_for_good_reads_a_long_one_as_if_it_were_new(family, n):
    """BigBird looks at blocks of a long text, and at all of a short one and of any that comes after it."""
    built = tiny.model(family)
    before = state(built)
    model = huggingface.adopt(built)
    long = {"input_ids": torch.arange(n)[None] % 53 + 3}
    if model.has_target:
        long["decoder_input_ids"] = long["input_ids"][:, :5]
    short = long | {"input_ids": long["input_ids"][:, :9]}
    [first, *_], *_ = huggingface.flow(model, short)
    layers, skipped, _ = huggingface.flow(model, long)
    [again, *_], *_ = huggingface.flow(model, short)
    assert state(built) == before
    fresh = tiny.model(family)
    with torch.no_grad():
        theirs = returned(fresh, fresh(**long, output_attentions=True))
    assert model.route.name == "watch"
    assert first.knows("q")
    assert np.array_equal(first.weights(), again.weights())
    assert skipped == ()
    for layer, (kind, weights) in zip(layers, theirs, strict=True):
        assert layer.kind == kind
        assert "in another way than for short ones" in layer.about.missing
        n_query, n_key = layer.weights().shape[1:]
        assert np.abs(layer.weights() - weights[0, :, :n_query, :n_key].numpy()).max() <= 1e-6
    assert (layers[0].weights() == 0).any()  # blocks that are not looked at


def test_a_longer_text_that_other_code_reads_is_shown_with_less_and_says_so():
    module = flipped(0, 1, beyond=9)
    model = huggingface.model_of(module, tokenizer=tiny.tokenizer(module))
    assert model.route.name == "watch"
    assert huggingface.follow(model, "w5 w6").source.route == "watch"
    trace = huggingface.follow(model, TEXT)
    assert trace.source.route == "weights"
    assert len(trace.layers) == 2
    for layer in trace.layers:
        assert not layer.knows("q")
        assert "in another way than for short ones" in layer.about.missing


def test_scores_that_are_returned_as_weights_are_not_shown_as_weights(refused):
    """SqueezeBERT does this. What flowed is shown, or nothing if it was not followed."""
    module = tiny.model("squeezebert").base_model
    returned = module(**IDS, output_attentions=True).attentions[0]
    [layer, _], *_ = huggingface.flow(huggingface.adopt(module), IDS)
    assert np.abs(layer.weights() - returned[0].softmax(-1).detach().numpy()).max() < 1e-5
    for block in module.encoder.layers:
        block.attention.softmax.register_forward_hook(lambda _, __, weights: weights.flip(1))
    message = str(refused(huggingface.flow, huggingface.adopt(module), IDS))
    assert "what the model returns by the name of weights are none" in message


def test_a_trace_keeps_what_it_says_of_its_bias(adopted, tmp_path):
    model, layers, _ = adopted("xlnet")
    assert [layer.about.bias for layer in layers] == [own_code.BY_WORDS] * 2
    assert adopted("gptj")[1][0].about.bias == ""
    trace = huggingface.follow(model, TEXT)
    assert (trace.source.route, trace.source.notes) == ("watch", ())
    trace.save(tmp_path / "t.safetensors")
    again = mha.load(tmp_path / "t.safetensors")
    assert again.layers[1].about.bias == own_code.BY_WORDS
    assert np.array_equal(again.layers[1].weights(), trace.layers[1].weights())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_follower_that_reads_a_wrong_scale_is_not_believed(monkeypatch, dtype):
    times = Scores.times
    monkeypatch.setattr(Scores, "times", lambda self, factor: times(self, 1.02 * factor))
    assert huggingface.adopt(tiny.model("mpt").to(dtype)).route.name == "weights"


class Further(torch.nn.Module):
    """A layer of Bloom with another attention for texts of more than eight tokens."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, hidden_states, residual, **more):
        out, weights = self.inner(hidden_states, residual, **more)
        if hidden_states.shape[1] > 8:
            scores = hidden_states @ hidden_states.mT
            gate = hidden_states.mean(-1, keepdim=True).sigmoid()
            out = out + (scores.softmax(-1) * gate) @ hidden_states
        return out, weights


def test_attention_that_only_longer_texts_have_is_named():
    module = tiny.model("bloom")
    module.transformer.h[1].self_attention = Further(module.transformer.h[1].self_attention)
    model = huggingface.adopt(module)
    assert model.route.name == "watch"
    short = {"input_ids": IDS["input_ids"][:, :8]}
    assert huggingface.flow(model, short)[1] == ()
    layers, skipped, _ = huggingface.flow(model, IDS)
    assert len(layers) == 2
    assert skipped == ("softmaxes that short texts do not have: 1, which could not be followed",)
