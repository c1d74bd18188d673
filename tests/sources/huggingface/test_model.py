"""Traces of many architectures: weights and output are those of their own eager attention."""

import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import transformers

import mha_core as mha
from mha_core.attention.functional import attend
from mha_core.capture.rotary import RotaryCode
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface import trial
from mha_core.traces.facts import LatentProjection
from mha_core.traces.source import ModelSource
from mha_core.traces.tensors import shared
from tests.parity import tiny
from tests.sources.tiny import CONFIGS, TEXT, fast, forget, module, state

TARGET = "Das Tier ging nicht."
WRITERS = ("t5", "bart")
IDS = torch.arange(3, 16)[None]
ROTARY = {
    "llama": ("half", 14, 0),
    "gpt_neox": ("half", 6, 0),
    "cohere": ("pairs", 14, 0),
    "glm": ("pairs", 6, 0),
    "deepseek_v3": ("half", 10, 13),  # behind 13 that are not turned
}


@pytest.fixture(scope="module")
def traced(folder):
    """A model as it was loaded and its trace, made once."""

    @cache
    def make(family: str):
        model = huggingface.load(str(folder(family)))
        return model, huggingface.follow(model, TEXT, target=TARGET if family in WRITERS else None)

    return make


@pytest.fixture
def kernel(kernel, monkeypatch):
    """A stand-in for torch's own kernel."""
    monkeypatch.setattr(trial, "foreign_functions", lambda *_: [])
    return kernel


def test_a_wrong_kernel_is_not_used_for_traces(kernel):
    asked = kernel(off=1e-3)
    model = huggingface.adopt(module("bert"))
    tried = len(asked)
    layers, *_ = huggingface.flow(model, {"input_ids": torch.tensor([[5, 6, 7]])})
    assert tried == len(asked) > 0
    assert (model.route.name, model.route.by) == ("attend", attend)
    assert model.route.difference < 1e-6
    assert len(layers) == 2


@pytest.mark.parametrize("family", ["bert", *ROTARY])
def test_queries_and_keys_are_known_before_and_after_their_rotation(traced, family):
    _, trace = traced(family)
    for layer in trace.layers:
        rotary = layer.about.rotary
        assert (rotary and (rotary.form, rotary.width, rotary.start)) == ROTARY.get(family)
        assert (rotary is None) == ("q_raw" not in layer.tensors)
        if rotary is None:
            continue
        code = RotaryCode(rotary.form, layer.tensors["cos"], layer.tensors["sin"], rotary.start)
        for name in "qk":
            raw, turned = layer.tensors[f"{name}_raw"], layer.tensors[name]
            torch.testing.assert_close(code.rotate(raw), turned, atol=1e-4, rtol=0)
            assert (raw[:, 1:] - turned[:, 1:]).abs().max() > 0.1
    if family in ROTARY:  # all layers share one code
        assert len({shared(layer.tensors)["cos"].data_ptr() for layer in trace.layers}) == 1


def test_steps_between_scores_and_weights_are_in_the_rule(traced):
    def rule(family, layer=0):
        return traced(family)[1].layers[layer].rule

    assert rule("gemma2").soft_cap == 3.0
    assert rule("gemma2").scale == pytest.approx(23**-0.5)
    # A window of five tokens in Gemma's first layer, all of them in its second; in Mistral everywhere.
    for family, layer, most in (("gemma2", 0, 5), ("gemma2", 1, None), ("mistral", 1, 5), ("llama", 0, None)):
        mask = rule(family, layer).mask[0]
        assert int(mask.sum(-1).max()) == (most or mask.shape[-1])
        assert not mask.triu(1).any()
    assert traced("llama")[1].layers[0].k.shape[0] == 3  # keys stay shared
    assert rule("gpt_oss").sinks.shape == (6,)
    assert traced("gpt_oss")[1].layers[0].weights().sum(-1).min() < 0.9
    assert rule("t5").scale == 1.0
    assert rule("t5").bias is None
    n = len(traced("t5")[1].tokens)
    assert rule("t5").distance_bias.shape == (3, 2 * n - 1)
    assert rule("bert").tensors() == {}
    assert traced("deepseek_v3")[1].layers[0].about.latent == LatentProjection(
        kv_rank=23, q_rank=19, rotary_width=10, plain_width=13, value_width=17
    )
    assert traced("deepseek_v3")[1].layers[0].d_v == 17


def test_an_internal_error_in_a_trial_excludes_a_route_with_a_warning(monkeypatch):
    monkeypatch.setattr("mha_core.capture.projections.provenance", None)
    with pytest.warns(UserWarning, match="error of ours: TypeError"):
        route = huggingface.adopt(module("bert")).route
    assert route.name == "weights"


def test_an_error_of_the_model_in_a_trial_excludes_only_that_route(monkeypatch):
    bert = module("bert")

    def fails(attention, *args, **kwargs):
        if attention.self.config._attn_implementation == trial.NAME:
            raise ValueError("not in this way")
        return inner(attention, *args, **kwargs)

    attention = type(bert.encoder.layer[0].attention)
    inner = attention.forward
    monkeypatch.setattr(attention, "forward", fails)
    assert huggingface.adopt(bert).route.name == "watch"


@pytest.mark.filterwarnings("ignore")
def test_layers_without_attention_are_named_beside_those_that_are_shown():
    model, ids = huggingface.adopt(tiny.model("qwen3_next").base_model), {"input_ids": IDS}
    layers, skipped, mixers = huggingface.flow(model, ids)
    assert [layer.name for layer in layers] == ["layers.1.self_attn"]
    assert [mixer.name for mixer in mixers] == ["layers.0.linear_attn"]
    assert skipped == ()
    _, skipped, mixers = huggingface.flow(replace(model, mixers={}), ids)
    assert mixers == ()
    assert skipped == (
        "layers.0.linear_attn: Qwen3NextGatedDeltaNet mixes tokens by other means than attention",
    )


ROPES = {
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "longrope": {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 16}
    | {"short_factor": [1.0] * 7, "long_factor": [float(n) for n in range(1, 8)]},
}
LENGTHS = (41, 11, 37, 23, 17, 29, 13, 31)  # beyond 16 tokens the codes are other ones


def model_with_codes(rope: str) -> transformers.PreTrainedModel:
    codes = {"rope_theta": 1e4, **ROPES[rope]}
    positions = 16 if rope == "dynamic" else 64
    return module("llama", vocab_size=97, rope_parameters=codes, max_position_embeddings=positions)


def passes(model: huggingface.Model, n: int) -> list:
    layers, *_ = huggingface.flow(model, {"input_ids": torch.arange(5, 5 + n)[None]})
    return [matrix for layer in layers for matrix in (layer.q, layer.k, layer.weights())]


@pytest.mark.parametrize("rope", ROPES)
def test_a_rotary_encoding_does_not_depend_on_earlier_texts(rope):
    own = model_with_codes(rope)
    fresh = {n: passes(huggingface.adopt(model_with_codes(rope)), n) for n in LENGTHS}
    with torch.no_grad():
        own(input_ids=torch.arange(5, 60)[None])
    before = {name: buffer.clone() for name, buffer in own.named_buffers()}
    model = huggingface.adopt(own)
    for n in LENGTHS:
        assert all(map(np.array_equal, passes(model, n), fresh[n]))
    assert all(torch.equal(buffer, before[name]) for name, buffer in own.named_buffers())
    assert not np.allclose(fresh[41][0][:, :11], fresh[11][0], atol=1e-3)  # else nothing is shown by this


@pytest.mark.slow
def test_eight_threads_can_trace_one_model():
    model = huggingface.adopt(model_with_codes("dynamic"))
    alone = {n: passes(huggingface.adopt(model_with_codes("dynamic")), n) for n in LENGTHS}

    def often(number: int) -> int:
        lengths = (LENGTHS[number:] + LENGTHS[:number]) * 2
        return sum(not all(map(np.array_equal, passes(model, n), alone[n])) for n in lengths)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(often, range(8))) == 0


def halved_in_place(module: torch.nn.Module) -> None:
    """The output of a matrix is changed afterwards, as some models do to save memory."""
    inner = module.forward
    module.forward = lambda x: inner(x).mul_(0.5)


CHANGED = {
    "in place": ("self.query", halved_in_place, "w_o"),
    "behind": ("self.query", lambda m: m.register_forward_hook(lambda _, __, out: out * 1.5), "w_o"),
    "behind W^O": ("output.dense", lambda m: m.register_forward_hook(lambda _, __, out: out + 1.0), "w_q"),
    "before": ("output.dense", lambda m: m.register_forward_pre_hook(lambda _, x: (x[0].mul_(0.5),)), "w_q"),
}


def test_a_matrix_whose_numbers_are_changed_is_unknown(subtests):
    for where, (place, change, known) in CHANGED.items():
        with subtests.test(where):
            made = module("bert")
            change(made.encoder.layer[0].attention.get_submodule(place))
            model = huggingface.adopt(made)
            [first, second], *_ = huggingface.flow(model, {"input_ids": IDS})
            assert [first.knows(name) for name in ("w_q", "w_o")] == [known == "w_q", known == "w_o"]
            assert [second.knows(name) for name in ("w_q", "w_o")] == [True, True]


def test_traces_are_the_same_in_inference_mode(traced):
    model, trace = traced("llama")
    with torch.inference_mode():
        again = huggingface.follow(model, TEXT)
    assert np.array_equal(again.layers[1].q, trace.layers[1].q)
    assert again.layers[1].projections.w_q is not None


PEAK = """
import resource, torch, transformers
from mha_core.sources.huggingface import model as huggingface
torch.set_num_threads(1)
config = transformers.GPT2Config(
    vocab_size=61, n_embd=24, n_head=12, n_layer=3, n_positions=2048, bos_token_id=0, eos_token_id=0
)
model = huggingface.adopt(transformers.GPT2Model(config))
ids = {"input_ids": torch.arange(2048)[None] % 61}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
layers, *_ = huggingface.flow(model, ids)
assert (len(layers), layers[0].n_heads, layers[0].n_query) == (3, 12, 2048)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units there")
def test_a_long_text_never_needs_all_weights_at_once():
    run = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    one_layer = 12 * 2048**2 * 4  # the weights of all heads of one of three layers, 201 MB
    # The model's own mask and ours are L × L; of h × L² there is nothing, let alone in each layer.
    assert int(run.stdout) < one_layer / 2


@pytest.mark.slow
def test_a_model_is_kept_for_the_next_text_and_dropped_later(folder, monkeypatch):
    forget()
    loads = []
    load = huggingface.load
    monkeypatch.setattr(huggingface, "load", lambda *a, **k: loads.append(a[0]) or load(*a, **k))
    paths = [str(folder(family)) for family in ("gpt2", "llama", "bert")]
    mha.trace("One.", source=paths[0])
    mha.trace("Two.", source=paths[0])
    assert loads == paths[:1]
    gone = weakref.ref(huggingface.model_of(paths[0]).module)
    mha.trace("Three.", source=paths[1])
    assert gone() is not None
    mha.trace("Four.", source=paths[2])
    assert gone() is None
    mha.trace("Five.", source=paths[1])
    assert loads == paths
    forget()


@pytest.mark.slow
def test_a_folder_that_was_saved_again_is_loaded_again(tmp_path):
    """The loop of a notebook: train, save, look."""
    forget()  # what other tests have loaded
    model = module("gpt2")
    fast().save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    before = mha.trace(TEXT, source=tmp_path)
    assert np.array_equal(mha.trace(TEXT, source=tmp_path).layers[0].q, before.layers[0].q)
    with torch.no_grad():
        model.h[0].attn.c_attn.weight.mul_(1.5)
    model.save_pretrained(tmp_path)
    after = mha.trace(TEXT, source=tmp_path)
    expected = mha.trace(TEXT, source=model, tokenizer=fast())
    assert np.array_equal(after.layers[0].q, expected.layers[0].q)
    assert not np.allclose(after.layers[0].q, before.layers[0].q)
    tokenizer = fast("word_piece")
    tokenizer.save_pretrained(tmp_path)
    assert mha.trace(TEXT, source=tmp_path).tokens.pieces[0] == "[CLS]"
    forget()


def test_a_trace_names_its_source_and_can_be_saved(traced, folder, tmp_path):
    model, trace = traced("llama")
    assert trace.source == ModelSource(
        name=str(folder("llama")),
        revision=None,
        architecture="LlamaModel",
        family="llama",
        route="attend",
        difference=model.route.difference,
        dtype="float32",
        device=model.device,
        torch=str(torch.__version__),
        transformers=transformers.__version__,
        **{name: tuple(row) for name, row in huggingface.read(model, TEXT, 99)[1].items()},
    )
    assert model.route.difference <= 1e-5
    trace.save(tmp_path / "t.safetensors")
    assert mha.load(tmp_path / "t.safetensors").source == trace.source


@pytest.mark.parametrize("family", WRITERS)
def test_a_target_is_given_or_generated(traced, family):
    model, trace = traced(family)
    assert trace.kinds == ("encoder", "decoder", "cross")
    cross = trace.part("cross").layers[0]
    target = trace.part("decoder").tokens
    assert cross.sides == mha.Sides(target, trace.tokens)
    assert cross.weights().shape[1:] == (len(target), len(trace.tokens))
    assert target.text == TARGET
    assert target.special == (0,)
    assert "Tier" in "".join(target.pieces)
    written = huggingface.follow(model, TEXT)
    assert written.part("cross").layers[0].n_query == len(written.part("decoder").tokens)


def test_a_target_is_what_the_decoder_reads_in_training():
    """mBART's tokenizer writes the language last, its decoder reads it first."""
    words = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -9.0)]
    words += [(f"▁{word}", -1.0) for word in ("a", "b", "tier")]
    tokenizer = transformers.MBartTokenizer(vocab=words, src_lang="en_XX", tgt_lang="de_DE")
    sizes = CONFIGS["bart"][1] | {"decoder_start_token_id": None, "vocab_size": len(tokenizer)}
    model = transformers.MBartForConditionalGeneration(transformers.MBartConfig(**sizes)).eval()
    labels = tokenizer(text_target="a b tier")["input_ids"]
    for target in ("a b tier", labels):
        trace = mha.trace("a b", source=model, tokenizer=tokenizer, target=target)
        assert trace.part("decoder").tokens.pieces == ("de_DE", "a", "b", "tier", "</s>")
    read = []
    model.get_decoder().register_forward_pre_hook(
        lambda _, args, named: read.append(named["input_ids"]), with_kwargs=True
    )
    with torch.no_grad():
        model(input_ids=torch.tensor([tokenizer("a b")["input_ids"]]), labels=torch.tensor([labels]))
    assert tokenizer.convert_ids_to_tokens(read[0][0].tolist()) == ["de_DE", "▁a", "▁b", "▁tier", "</s>"]


def test_the_start_token_may_be_only_in_the_generation_config(refused):
    model = module("t5", decoder_start_token_id=None)
    message = str(refused(mha.trace, TEXT, source=model, tokenizer=fast(), target=TARGET))
    assert message == (
        "It is not known with which token a target of T5ForConditionalGeneration begins: neither its config "
        "nor its generation config has a decoder_start_token_id. Set it there."
    )
    model.generation_config.decoder_start_token_id = 11
    for target in (TARGET, fast()(TARGET)["input_ids"]):
        trace = mha.trace(TEXT, source=model, tokenizer=fast(), target=target)
        pieces = trace.part("decoder").tokens.pieces
        assert pieces[0] == fast().convert_ids_to_tokens(11)
        assert "Tier" in "".join(pieces[1:])


@pytest.mark.slow
def test_a_target_is_not_written_with_weights_that_were_never_trained(tmp_path, refused):
    config = module("t5").config
    config.tie_word_embeddings = False
    fast().save_pretrained(tmp_path)
    transformers.T5Model(config).save_pretrained(tmp_path)
    message = str(refused(mha.trace, TEXT, source=tmp_path))
    assert message == (
        f"{tmp_path} has no trained weights to write a target with (lm_head.weight is missing from its "
        f"files); type one."
    )
    assert mha.trace(TEXT, source=tmp_path, target=TARGET).part("decoder").tokens.text == TARGET
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    assert mha.trace(TEXT, source=tmp_path).kinds == ("encoder", "decoder", "cross")
    forget()


def test_a_target_has_the_limit_of_the_decoder(refused):
    model = module("bart")
    model.config.max_encoder_position_embeddings, model.config.max_decoder_position_embeddings = 9, 4
    trace = mha.trace([5] * 9, source=model, target=[7] * 3)
    assert (len(trace.tokens), len(trace.part("decoder").tokens)) == (9, 4)
    message = str(refused(mha.trace, [5] * 9, source=model, target=[7] * 4))
    assert message == "The target has 5 tokens and BartForConditionalGeneration takes 4."


@pytest.mark.parametrize("family", ["canine", "longt5", "whisper"])
def test_at_the_edges_of_its_length_a_model_is_traced_or_refused(family, refused):
    """Texts and targets of 1 and 2 tokens, of as many as it takes, one less and one more."""
    model, tokenizer = tiny.model(family), fast("word_piece")
    tokenizer.model_max_length = 70  # of a family whose positions have no end
    before = state(model)
    adopted = huggingface.model_of(model, tokenizer=tokenizer)
    short = [7, 8, 9]
    for n in (1, 2, adopted.limit - 1, adopted.limit, adopted.limit + 1):
        ids = [7 + i % 80 for i in range(n)]
        given = {"source": model, "tokenizer": tokenizer} | ({"target": short} if adopted.has_target else {})
        if n <= adopted.limit:
            with suppress(mha.MhaError) if n < 3 else nullcontext():  # Canine reads no text so short
                assert len(mha.trace(ids, **given).tokens) == n
        else:
            said = str(refused(mha.trace, ids, **given))
            assert f"The text has {n} tokens and {adopted.architecture} takes {n - 1}." in said
        if adopted.has_target:
            with suppress(mha.MhaError) if n > 2 else nullcontext():  # a decoder has a limit of its own
                mha.trace(short, **given | {"target": ids})
    mha.trace("the animal", **given | ({"target": "the street"} if adopted.has_target else {}))
    assert state(model) == before


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_invalid_texts_are_refused(traced, refused, family):
    model, _ = traced(family)
    assert str(refused(huggingface.follow, model, " \n")) == (
        "There is no text to look at; type at least one word."
    )
    long = refused(huggingface.follow, model, "street " * 9, limit=5)
    assert "The text has 12 tokens and the limit is 5;" in str(long)
    ids = str(refused(huggingface.follow, model, [7] * 6, limit=5))
    assert ids == f"The text has 6 tokens and the limit is 5; {model.name} reads it with limit=6."
    [fix] = long.fixes
    target = "a" if family == "t5" else None
    assert len(huggingface.follow(model, fix["text"], limit=5, target=target).tokens) == 5
    if family == "bert":
        assert str(refused(huggingface.follow, model, "a", target="b")).endswith(
            "reads one text and writes no other; leave the target out."
        )
    else:
        assert "target is empty" in str(refused(huggingface.follow, model, "a", target=" "))


@pytest.mark.parametrize(
    ("family", "settings", "named"),
    [
        (
            "convbert",
            {"conv_kernel_size": 3, "num_hidden_layers": 1},
            "encoder.layer.0.attention.self.key_conv",
        ),
        ("deberta-v2", {"conv_kernel_size": 3}, "encoder.conv.conv"),
        ("squeezebert", {}, None),  # its convolutions look at one token each
    ],
)
def test_convolutions_over_the_tokens_of_a_text_are_named(family, settings, named):
    made = tiny.model(family, **settings).base_model
    skipped = mha.trace([7, 8, 9, 10, 11, 12, 13, 14], source=made).source.skipped
    skipped = [reason for reason in skipped if reason.endswith("mixes neighbouring tokens")]
    assert [reason.startswith(named) for reason in skipped] == [True] * bool(named)
