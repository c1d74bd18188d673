"""A model in memory is traced as it is, and is unchanged afterwards."""

import copy
import functools
import threading
import weakref
from array import array

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import mha_core as mha
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface import trial
from mha_core.sources.huggingface.batches import same_layer
from tests.parity import tiny
from tests.sources.tiny import TEXT, fast, forget, module, own_weights, state

TARGET = {"t5": "Das Tier ging nicht."}


@pytest.fixture(autouse=True, scope="module")
def _forgotten():
    yield
    forget()


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "t5", "bloom"])
def test_a_model_in_memory_is_traced_exactly_and_unchanged(family):
    model, tokenizer = module(family).train(), fast()
    model.config.use_cache = True
    next(model.parameters()).requires_grad_(False)
    before = state(model)
    trace = mha.trace(
        TEXT, source=model, tokenizer=tokenizer, **({"target": TARGET[family]} if family in TARGET else {})
    )
    assert state(model) == before
    inputs = {"input_ids": tokenizer(TEXT)["input_ids"]}
    if family in TARGET:
        inputs["decoder_input_ids"] = [0, *tokenizer(TARGET[family])["input_ids"]]
    for kind in trace.kinds:
        theirs = own_weights(model, **inputs)[kind]
        ours = [layer for layer in trace.layers if layer.kind == kind]
        for layer, weights in zip(ours, theirs, strict=True):
            assert np.abs(layer.weights() - weights).max() <= 1e-5
            assert weights.std() > 0.01
            assert layer.knows("q")
            assert not any(tensor.requires_grad for tensor in layer.tensors.values())
            assert not any(tensor.requires_grad for tensor in layer.rule.tensors().values())


def test_an_error_inside_names_the_model_and_leaves_it_unchanged(refused):
    """In the trial, or after it in a longer text."""
    for longest in (0, 9):
        model = module("bert")

        def fails(part, args, longest=longest):
            if args[0].shape[1] > longest:
                raise ValueError("too long for me")

        model.encoder.layer[1].register_forward_pre_hook(fails)
        before = state(model)
        error = refused(mha.trace, TEXT, source=model, tokenizer=fast())
        assert "ValueError: too long for me" in str(error)
        assert state(model) == before
    inside = "BertModel cannot be traced on this text: inside it an error was raised"
    assert str(error) == f"{inside} (ValueError: too long for me)."
    assert isinstance(error.__cause__, ValueError)
    texts = mha.trace_many([[3, 4, 5], [6, 7], TEXT, [8, 9]], source=model, tokenizer=fast(), batch=2)
    assert [len(next(texts).tokens) for _ in range(2)] == [3, 2]
    assert str(refused(next, texts)).startswith(f"Text 3: {inside}")
    assert state(model) == before
    assert len(mha.trace([3, 4, 5], source=model).layers) == 2


def doubled(module, query, key, value, attention_mask, scaling=None, **settings):
    """Attention with scores of twice the scale, as a user registers it."""
    groups = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    scores = 2 * (scaling or query.shape[-1] ** -0.5) * query @ key.mT
    weights = torch.softmax(scores + (0 if attention_mask is None else attention_mask), dim=-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def as_it_is(module, *args, **settings):
    return transformers.integrations.sdpa_attention.sdpa_attention_forward(module, *args, **settings)


@pytest.mark.parametrize(("family", "dtype"), [("llama", torch.float32), ("bert", torch.bfloat16)])
def test_a_function_that_the_user_has_registered_is_refused_where_it_computes_another_thing(
    family, dtype, monkeypatch, refused
):
    model = copy.deepcopy(module(family)).eval().to(dtype)
    eager = mha.trace([7, 8, 9, 10], source=model).layers[0].weights()
    functions = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    masks = transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    for name, function, mask in (("doubled", doubled, "eager"), ("as_it_is", as_it_is, "sdpa")):
        monkeypatch.setitem(functions._global_mapping, name, function)
        monkeypatch.setitem(masks._global_mapping, name, masks[mask])
    model.set_attn_implementation("doubled")
    before = state(model)
    assert "attends by 'doubled', a function of your own" in str(
        refused(mha.trace, [7, 8, 9, 10], source=model)
    )
    assert state(model) == before
    model.set_attn_implementation("as_it_is")
    np.testing.assert_array_equal(mha.trace([7, 8, 9, 10], source=model).layers[0].weights(), eager)


SHORT, LONG = list(range(5, 11)), [5 + n % 60 for n in range(60)]


def look_through_windows(by: str, monkeypatch) -> None:
    """Replace an attention function by one with a window of 32 tokens, which a short text does not show."""
    modeling = transformers.models.llama.modeling_llama
    eager, fused = modeling.eager_attention_forward, torch.nn.functional.scaled_dot_product_attention

    def windowed(mask, query, key):
        far = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril(-32)
        return torch.zeros(far.shape).masked_fill(far | far.T, -torch.inf) + (0 if mask is None else mask)

    @functools.wraps(eager)
    def eager_windowed(module, query, key, value, attention_mask, *others, **settings):
        mask = windowed(attention_mask, query, key)
        return eager(module, query, key, value, mask, *others, **settings)

    def fused_windowed(query, key, value, attn_mask=None, is_causal=False, **settings):
        causal = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).triu(1)
        mask = torch.zeros(causal.shape).masked_fill(causal, -torch.inf) if is_causal else attn_mask
        return fused(query, key, value, attn_mask=windowed(mask, query, key), **settings)

    if by == "eager":
        monkeypatch.setattr(modeling, "eager_attention_forward", eager_windowed)
    else:
        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", fused_windowed)


@pytest.mark.parametrize("by", ["eager", "sdpa", "folder"])
def test_an_attention_function_that_was_replaced_by_hand_is_noticed_at_any_length(
    by, folder, monkeypatch, refused
):
    model = transformers.LlamaForCausalLM(module("llama").config).eval()
    if by == "folder":
        model, by = str(folder("llama")), "eager"
    else:
        model.set_attn_implementation(by)
    expected = mha.trace(LONG, source=model).layers[0].weights()
    look_through_windows(by, monkeypatch)
    traced = mha.trace(SHORT, source=model)
    assert mha.against_torch(traced.layers[0]).passed
    for read in (lambda: mha.trace(LONG, source=model), lambda: list(mha.trace_many([LONG], source=model))):
        assert "a function of your own" in str(refused(read))
    monkeypatch.undo()
    np.testing.assert_array_equal(mha.trace(LONG, source=model).layers[0].weights(), expected)


def test_another_thread_can_use_the_model_meanwhile():
    model, ids = module("bert"), torch.arange(3, 16)[None]
    with torch.no_grad():
        wanted = model(ids).last_hidden_state
    over, noticed = threading.Event(), []

    def use():
        while not over.is_set():
            with torch.no_grad():
                same = torch.equal(model(ids).last_hidden_state, wanted)
            if not same or model.config._attn_implementation != "sdpa":
                noticed.append(model.config._attn_implementation)

    user = threading.Thread(target=use)
    user.start()
    for n in range(8):
        trace = mha.trace(ids[:, : 5 + n], source=model)
        alone = mha.trace(ids[:, : 5 + n], source=copy.deepcopy(model))
        assert all(map(same_layer, trace.layers, alone.layers))
    over.set()
    user.join()
    assert noticed == []


class LoraLinear(nn.Module):
    """What PEFT replaces a matrix with."""

    def __init__(self, inner: nn.Linear, rank: int = 2):
        super().__init__()
        self.base_layer, self.active_adapters = inner, ["default"]
        self.a = nn.Linear(inner.in_features, rank, bias=False)
        self.b = nn.Linear(rank, inner.out_features, bias=False)

    def forward(self, x):
        return self.base_layer(x) + (self.b(self.a(x)) if self.active_adapters else 0.0)


class Wrapped(nn.Module):
    """A wrapper like PEFT's."""

    def __init__(self, inner: nn.Module, **described: object):
        super().__init__()
        self.base_model = inner
        self.peft_config = {"default": type("Config", (), described)()}

    def get_base_model(self) -> nn.Module:
        return self.base_model


def with_lora() -> transformers.PreTrainedModel:
    model = module("llama")
    for block in model.layers:
        block.self_attn.q_proj = LoraLinear(block.self_attn.q_proj)
    return model


def test_a_wrapped_model_is_traced_with_what_the_adapter_adds():
    model = with_lora()
    for wrapped in (Wrapped(model), nn.DataParallel(Wrapped(model))):
        before = state(model)
        trace = mha.trace(TEXT, source=wrapped, tokenizer=fast())
        assert state(model) == before
        theirs = own_weights(model, input_ids=torch.tensor([fast()(TEXT)["input_ids"]]))["self"]
        for layer, weights in zip(trace.layers, theirs, strict=True):
            assert np.abs(layer.weights() - weights).max() <= 1e-5
            assert layer.projections.w_q is None  # the sum of two is no matrix of the model's
            assert layer.projections.w_o is not None


def test_an_adapter_that_adds_tokens_is_refused(refused):
    wrapped = Wrapped(module("llama"), is_prompt_learning=True)
    assert "prompt learning" in str(refused(mha.trace, TEXT, source=wrapped, tokenizer=fast()))


CHANGES = {
    "switched off": lambda model: model.layers[0].self_attn.q_proj.active_adapters.clear(),
    "trained": torch.no_grad()(lambda model: model.layers[0].self_attn.q_proj.base_layer.weight.mul_(1.5)),
    "replaced": lambda model: setattr(
        model.layers[0].self_attn, "q_proj", module("llama", 8).layers[0].self_attn.q_proj
    ),
    "configured": lambda model: setattr(model.layers[0].self_attn, "scaling", 0.01),
    "hooked": lambda model: model.layers[0].self_attn.q_proj.register_forward_hook(
        lambda _, __, out: out * 1.5
    ),
    "converted": lambda model: model.to(torch.float64),
}


@pytest.mark.slow
def test_a_model_that_has_changed_since_is_traced_as_it_is_now(subtests):
    for name, change in CHANGES.items():
        with subtests.test(name):
            model, ids = with_lora(), list(range(3, 16))
            before = mha.trace(ids, source=model)
            change(model)
            after = mha.trace(ids, source=model)
            [theirs, _] = own_weights(model, input_ids=torch.tensor([ids]))["self"]
            assert np.abs(after.layers[0].weights() - theirs).max() <= 1e-5
            if name != "converted":
                assert np.abs(after.layers[0].weights() - before.layers[0].weights()).max() > 1e-3


def test_a_model_is_tried_once_and_freed_with_its_owner(monkeypatch):
    tried, choose = [], trial.choose
    monkeypatch.setattr(trial, "choose", lambda *args: tried.append(1) or choose(*args))
    model = module("gpt2")
    for text in ("One.", "Two."):
        mha.trace(text, source=model, tokenizer=fast())
    assert len(tried) == 1
    model.train()
    mha.trace("Three.", source=model, tokenizer=fast())
    assert len(tried) == 1
    gone = weakref.ref(next(model.parameters()))
    del model
    huggingface.free()
    assert gone() is None


@pytest.mark.parametrize("train", [True, False])
def test_a_model_that_divides_its_weights_for_inference_keeps_them(train):
    ids, model = torch.arange(3, 9)[None], tiny.model("rwkv", rescale_every=1, layer_norm_epsilon=1e-12)
    model = model.base_model
    with torch.no_grad():
        expected = copy.deepcopy(model).eval()(ids).last_hidden_state
        model.train(train)
        before = state(model)
        trace = mha.trace(ids, source=model)
        assert state(model) == before
        assert torch.equal(model.eval()(ids).last_hidden_state, expected)
        again = mha.trace(ids, source=model)  # its weights are divided now
    for one, other in zip(trace.mixers, again.mixers, strict=True):
        np.testing.assert_allclose(one.mixing(), other.mixing(), atol=1e-6)


def test_a_model_that_keeps_torchs_fused_attention_is_followed_in_it(tmp_path):
    """With ALiBi its own eager attention computes something else."""
    model = module("falcon", alibi=True)
    model.save_pretrained(tmp_path)
    fast().save_pretrained(tmp_path)
    before, ids, seen = state(model), list(range(3, 16)), []
    traces = [mha.trace(ids, source=source) for source in (model, tmp_path)]
    assert state(model) == before
    for block in model.h:
        block.self_attention.dense.register_forward_pre_hook(lambda _, given: seen.append(given[0][0]))
    with torch.no_grad():
        model(torch.tensor([ids]))
    for trace in traces:
        assert (trace.source.route, trace.source.skipped) == ("watch", ())
        for layer, theirs in zip(trace.layers, seen, strict=True):
            assert np.abs(layer.concat() - theirs.numpy()).max() <= 1e-5


# Ids instead of a text


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, np.array, lambda ids: torch.tensor([ids])])
def test_ids_are_traced_as_the_text_is(kind):
    model, tokenizer = module("bert"), fast("word_piece")
    ids = tokenizer(TEXT)["input_ids"]
    typed = mha.trace(TEXT, source=model, tokenizer=tokenizer)
    given = mha.trace(kind(ids), source=model, tokenizer=tokenizer)
    assert given.tokens.pieces == typed.tokens.pieces
    assert given.tokens.special == typed.tokens.special
    for one, other in zip(typed.layers, given.layers, strict=True):
        np.testing.assert_allclose(one.weights(), other.weights(), atol=1e-6)
    pieces = mha.trace(tokenizer.convert_ids_to_tokens(ids), source=model, tokenizer=tokenizer)
    assert pieces.tokens.pieces == typed.tokens.pieces
    bare = mha.trace(kind(ids), source=model)
    assert bare.tokens.pieces == tuple(map(str, ids))
    assert [bare.tokens.text[start:end] for start, end in bare.tokens.spans] == list(bare.tokens.pieces)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "There are no tokens to look at; give at least one."),
        ([3, 1.5], "1.5 is no id of a token; ids are whole numbers from 0 to 2,147,483,647."),
        ([True], "True is no id of a token"),
        ([3, -1], "-1 is no id of a token"),
        (torch.zeros(2, 3, dtype=torch.long), "Ids of the shape (2, 3) are no single text"),
        (torch.tensor(3), "Ids of the shape () are no single text"),
        (torch.zeros(3), "0.0 is no id of a token"),
        (["zzz"], "The tokenizer has no piece 'zzz'; a text is given as one string."),
        ([3, 700], "BertModel has no vector for the token 700: it has 557, from 0 on."),
        (b"the animal", "A text is a string, or the ids of its tokens, and this is of the type bytes."),
        (array("d", [3.0]), "3.0 is no id of a token"),
        ([10**30], "000 is no id of a token; ids are whole numbers from 0 to 2,147,483,647."),
        (None, "A text is a string, or the ids of its tokens, and this is of the type NoneType."),
        ([3] * 600, "The text has 600 tokens and BertModel takes 512."),
    ],
)
def test_a_value_that_is_neither_text_nor_ids_is_refused(refused, given, said):
    message = str(refused(huggingface.trace, given, source=module("bert"), tokenizer=fast()))
    assert said in message


def test_a_value_that_is_not_a_source_is_refused(refused):
    model = module("bert")
    assert "BertModel has no tokenizer" in str(refused(mha.trace, TEXT, source=model))
    wrong = str(refused(huggingface.trace, TEXT, source=model, tokenizer="gpt2"))
    assert wrong.startswith("tokenizer is of the type str")
    other = str(refused(huggingface.trace, TEXT, source=nn.Linear(2, 2), tokenizer=fast()))
    assert other.startswith("source is of the type Linear, which is no transformers model.")
    assert "with mha.record(tokens=…)" in other
    assert "leave revision, device and dtype out" in str(
        refused(huggingface.trace, TEXT, source=model, tokenizer=fast(), dtype="bfloat16")
    )
    assert "has its own tokenizer" in str(refused(huggingface.trace, TEXT, source="gpt2", tokenizer=fast()))
    with torch.device("meta"):
        empty = transformers.BertModel(model.config)
    assert "not in memory (device “meta”)" in str(refused(huggingface.trace, [3], source=empty))
    seeing = transformers.ViTModel(
        transformers.ViTConfig(
            hidden_size=12, num_attention_heads=2, num_hidden_layers=1, intermediate_size=7
        )
    )
    assert "reads pixel_values and no text" in str(refused(huggingface.trace, [3], source=seeing))
    model.lock = threading.Lock()
    assert "holds something that cannot be copied (TypeError" in str(
        refused(huggingface.trace, [3], source=model)
    )
