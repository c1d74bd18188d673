"""Any torch code is recorded exactly, computes the same as before, and threads are kept apart."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.utils.checkpoint import checkpoint

import mha_core as mha
from mha_core.traces.verify import split_difference

TOKENS = ["the", "old", "cat", "saw", "the", "new", "cat"]  # 7
SOURCE = ["die", "Katze", "sah", "sie", "nie"]  # 5
H, D_K, D = 3, 4, 12
EVEN = 4  # heads with which torch has a fused path


class Causal(nn.Module):
    """Attention in the manner of nanoGPT: one projection, heads split by view, causal."""

    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, H, D_K).transpose(1, 2) for part in self.c_attn(x).split(D, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, length, D))


class GPT(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.blocks = nn.ModuleList(Causal() for _ in range(layers))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(F.layer_norm(x, (D,)))
        return x


class ByHand(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.mT / D**0.5, dim=-1) @ x


class Vision(nn.Module):
    """Attention in the manner of timm: q, k and v unbound from one tensor, q and k normalised."""

    def __init__(self):
        super().__init__()
        self.qkv, self.norm = nn.Linear(D, 3 * D, bias=False), nn.LayerNorm(D_K)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, H, D_K).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(self.norm(q), self.norm(k), v, scale=0.3)
        return y.transpose(1, 2).reshape(batch, length, D)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def x(normal):
    return normal(2, 7, D)


def recorded(model, *inputs, tokens=TOKENS, **options):
    """The trace of a call, whose output must be unchanged to the bit."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        expected = model(*inputs)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    names = ("keys", "item", "kinds", "part")
    settings = {name: options.pop(name) for name in names if name in options}
    with mha.record(tokens=tokens, **settings) as rec:
        output = model(*inputs)
    for ours, theirs in zip(flat(output), flat(expected), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.backends.mha.get_fastpath_enabled() == before
    return rec.trace


def flat(output):
    return [part for part in output if part is not None] if isinstance(output, tuple) else [output]


def torch_weights(layer, **options):
    """The weights of torch's function for the recorded tensors."""
    unit = torch.eye(layer.n_key).expand(layer.n_heads, -1, -1)
    q, k = (torch.from_numpy(part.copy())[None] for part in (layer.q, layer.k))
    return F.scaled_dot_product_attention(q, k, unit[None], **options)[0]


# Whose code it is


def test_a_module_like_nanogpt(x):
    model = GPT()
    trace = recorded(model, x, item=1)
    assert len(trace.layers) == 2
    for layer in trace.layers:
        assert mha.against_torch(layer).passed
        np.testing.assert_allclose(layer.weights(), torch_weights(layer, is_causal=True), atol=1e-6)
    first = F.layer_norm(x, (D,))
    q, _, v = model.blocks[0].c_attn(first)[1].split(D, dim=1)
    np.testing.assert_array_equal(trace.layers[0].q[2], q[:, 2 * D_K :].detach())
    concat = torch.from_numpy(trace.layers[0].concat().copy())
    np.testing.assert_allclose(
        model.blocks[0].c_proj(concat).detach(), model.blocks[0](first)[1].detach(), atol=1e-6
    )
    masks = [layer.rule.mask.data_ptr() for layer in trace.layers]
    assert masks[0] == masks[1]  # one for all layers
    assert v.requires_grad


def test_a_block_of_a_vision_model(x):
    model = Vision()
    [layer] = recorded(model, x).layers
    assert layer.scale == 0.3
    np.testing.assert_allclose(layer.weights(), torch_weights(layer, scale=0.3), atol=1e-6)
    np.testing.assert_allclose(layer.concat(), model(x)[0].detach(), atol=1e-6)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_multihead_attention_of_torch(x, normal, need_weights, batch_first, bias):
    model = nn.MultiheadAttention(D, H, bias=bias, batch_first=batch_first)
    for part in model.parameters():
        part.data += 0.1  # a fresh bias is zero
    x = x if batch_first else x.transpose(0, 1)
    added = normal(7, 7).masked_fill(normal(7, 7, seed=1) > 1, -torch.inf)
    padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])

    def call(given, weights=need_weights):
        return model(given, given, given, attn_mask=added, key_padding_mask=padding.float() * -9,
                     need_weights=weights, average_attn_weights=False)  # fmt: skip

    trace = recorded(call, x, item=1)
    [layer] = trace.layers
    output, weights = call(x, weights=True)
    np.testing.assert_allclose(layer.weights(), weights[1].detach(), atol=1e-6)
    result = output[1] if batch_first else output[:, 1]
    np.testing.assert_allclose(layer.result(), result.detach(), atol=1e-6)
    np.testing.assert_array_equal(layer.x, x[1] if batch_first else x[:, 1])
    assert split_difference(layer) < 1e-6


def test_a_mask_of_yes_and_no_hides(x):
    model = nn.MultiheadAttention(D, H, batch_first=True)
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
    [layer] = recorded(lambda given: model(given, given, given, attn_mask=hidden), x).layers
    np.testing.assert_array_equal(layer.allowed(0), ~hidden)
    assert layer.rule.bias is None


def test_with_weights_wanted_the_mask_counts_and_not_the_hint_that_it_is_causal(x):
    model = nn.MultiheadAttention(D, H, batch_first=True)
    nobody = torch.zeros(7, 7, dtype=torch.bool)
    options = {"attn_mask": nobody, "is_causal": True, "average_attn_weights": False}
    [layer] = recorded(lambda given: model(given, given, given, **options), x).layers
    np.testing.assert_allclose(layer.weights(), model(x, x, x, **options)[1][0].detach(), atol=1e-6)


@pytest.mark.filterwarnings("ignore:Lower right causal bias")
@pytest.mark.parametrize("variant", [causal_upper_left, causal_lower_right])
@pytest.mark.parametrize(("tokens", "keys"), [(TOKENS, TOKENS), (SOURCE, TOKENS), (TOKENS, SOURCE)])
def test_a_causal_bias_hides_what_its_variant_says(normal, variant, tokens, keys):
    """It is a tensor with uninitialized memory."""
    q, k = normal(2, H, len(tokens), D_K), normal(2, H, len(keys), D_K, seed=1)
    bias = variant(len(tokens), len(keys))
    with mha.record(tokens=tokens, keys=None if keys is tokens else keys, item=1) as rec:
        output = F.scaled_dot_product_attention(q, k, k, attn_mask=bias)
    [layer] = rec.trace.layers
    offset = len(keys) - len(tokens) if variant is causal_lower_right else 0
    np.testing.assert_array_equal(layer.allowed(0), np.tri(len(tokens), len(keys), offset, dtype=bool))
    sees = layer.allowed(0).any(-1)
    np.testing.assert_allclose(layer.output()[:, sees], output[1][:, sees], atol=1e-6)


class Negated(torch.Tensor):
    """A mask of hidden cells, which is inverted for torch's function."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        plain = [arg.as_subclass(torch.Tensor) if isinstance(arg, cls) else arg for arg in args]
        if func is F.scaled_dot_product_attention:
            return func(*plain, **kwargs | {"attn_mask": ~kwargs["attn_mask"].as_subclass(torch.Tensor)})
        return func(*plain, **kwargs)


def test_a_call_with_another_result_is_named_and_not_shown(x, normal, monkeypatch):
    q, hidden = normal(2, H, 7, D_K), torch.ones(7, 7, dtype=torch.bool).triu(1)
    with mha.record(tokens=TOKENS, item=1) as rec:
        F.scaled_dot_product_attention(q, q, q, attn_mask=hidden.as_subclass(Negated))
        F.scaled_dot_product_attention(q, q, q, attn_mask=~hidden)
    assert len(rec.trace.layers) == 1
    assert "is not what its queries, keys, values and mask give" in rec.trace.source.skipped[0]
    np.testing.assert_array_equal(rec.trace.layers[0].allowed(0), ~hidden)

    def doubled(query, *others, **settings):
        return torch_s(2 * query, *others, **settings)

    torch_s, model = F.scaled_dot_product_attention, nn.MultiheadAttention(D, H, batch_first=True)
    with mha.record(tokens=TOKENS) as rec:
        model(x, x, x, need_weights=False)
        monkeypatch.setattr(F, "scaled_dot_product_attention", doubled)
        model(x, x, x, need_weights=False)
    [first, *_] = rec.traces[0].source.skipped
    assert sum(len(trace.layers) for trace in rec.traces) == 1
    assert "is not what its queries, keys, values and mask give" in first


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_rounding_is_no_difference_however_large_the_scores(normal, dtype, backend):
    length, scale = 97, 5
    q, k = (scale * normal(2, H, length, 16, seed=seed).to(dtype) for seed in (3, 4))
    v = 30 * normal(2, H, length, 16, seed=5).to(dtype)
    with mha.record(tokens=list(map(str, range(length)))) as rec, sdpa_kernel(backend):
        F.scaled_dot_product_attention(q, k, v, is_causal=True)
        F.scaled_dot_product_attention(q[:, :, :1], k, v)
    assert [layer.n_query for layer in rec.traces[0].layers] == [length]
    [reason] = rec.traces[0].source.skipped
    assert "1 queries and 97 keys" in reason


def test_a_sentence_without_a_batch(x):
    model = nn.MultiheadAttention(D, H)
    [layer] = recorded(lambda given: model(given, given, given, average_attn_weights=False), x[0]).layers
    np.testing.assert_allclose(
        layer.weights(), model(x[0], x[0], x[0], average_attn_weights=False)[1].detach(), atol=1e-6
    )
    np.testing.assert_array_equal(layer.x, x[0])


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_an_encoder_of_torch_whose_fused_path_calls_nothing(x, nested, training):
    block = nn.TransformerEncoderLayer(D, EVEN, 8, dropout=0, batch_first=True)
    model = nn.TransformerEncoder(block, 3, enable_nested_tensor=nested).train(training)
    padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])
    with torch.inference_mode():
        trace = recorded(lambda given: model(given, src_key_padding_mask=padding), x, item=1)
    assert len(trace.layers) == 3
    own = model.layers[0].self_attn
    _, weights = own(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    np.testing.assert_allclose(trace.layers[0].weights(), weights[1].detach(), atol=1e-6)
    assert trace.layers[0].weights()[:, :, 5:].max() == 0


def test_an_encoder_and_a_decoder_are_distinguished_by_their_lengths(normal):
    model = nn.Transformer(D, EVEN, 2, 2, 8, dropout=0, batch_first=True).eval()
    below = nn.Transformer.generate_square_subsequent_mask(7)
    trace = recorded(
        lambda source, target: model(source, target, tgt_mask=below, tgt_is_causal=True),
        normal(1, 5, D), normal(1, 7, D, seed=1), keys=SOURCE,
    )  # fmt: skip
    assert [layer.kind for layer in trace.layers] == [*["encoder"] * 2, *["decoder", "cross"] * 2]
    assert (trace.tokens.pieces, trace.sides.keys.pieces) == (tuple(TOKENS), tuple(SOURCE))
    assert all(mha.against_torch(layer).passed for layer in trace.layers)
    assert trace.layers[3].x is None  # two inputs, of which one would be told
    np.testing.assert_array_equal(trace.layers[2].allowed(0), np.tril(np.ones((7, 7), bool)))


# What the call says


def test_with_dropout_the_weights_are_those_before_it(x):
    model = nn.MultiheadAttention(D, H, dropout=0.5, batch_first=True)
    with mha.record(tokens=TOKENS) as rec:
        torch.manual_seed(3)
        output, _ = model(x, x, x)
    torch.manual_seed(3)
    assert torch.equal(output, model(x, x, x)[0])  # recording draws no random numbers
    [layer] = rec.trace.layers
    np.testing.assert_allclose(layer.weights().sum(-1), 1, atol=1e-6)
    assert layer.about.dropout == 0.5


def test_under_autocast_it_is_what_was_computed_with(x):
    model = Causal().eval()
    with torch.autocast("cpu", dtype=torch.bfloat16), mha.record(tokens=TOKENS) as rec:
        q = x.view(2, 7, H, D_K).transpose(1, 2)
        output = F.scaled_dot_product_attention(q, q, q)
        model(x)
    assert rec.trace.layers[0].tensors["q"].dtype == output.dtype == torch.bfloat16
    np.testing.assert_allclose(rec.trace.layers[0].output(), output[0].float(), atol=0.05)


def test_under_autocast_the_output_is_that_of_the_module_and_can_be_saved(x, tmp_path):
    """W^O is kept in float32 and multiplied in bfloat16."""
    model = nn.MultiheadAttention(D, H, batch_first=True).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16), mha.record(model, tokens=TOKENS) as rec:
        output, _ = model(x, x, x)
    rec.trace.save(tmp_path / "autocast.safetensors")
    for trace in (rec.trace, mha.load(tmp_path / "autocast.safetensors")):
        [layer] = trace.layers
        np.testing.assert_allclose(layer.result(), output[0].detach().float(), atol=0.01)
        whole = layer.contribution().sum(0) + layer.projections.b_o.float().numpy()
        np.testing.assert_allclose(whole, layer.result(), atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_autocast_leaves_float64_alone(normal, dtype):
    q, k, v = (normal(1, H, 7, D_K, seed=n).to(dtype) for n in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16), mha.record(tokens=TOKENS) as rec:
        output = F.scaled_dot_product_attention(q, k, v)
    [layer] = rec.trace.layers
    assert layer.tensors["q"].dtype == output.dtype
    atol = 1e-12 if dtype == torch.float64 else 0.02
    np.testing.assert_allclose(layer.output(), output[0].double(), atol=atol)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_recording_does_not_change_the_training_of_a_checkpointed_module(x, reentrant, inside):
    """Backward runs it again, which is no further call."""
    model, gradients = nn.MultiheadAttention(D, H, batch_first=True), []
    x.requires_grad_()

    def forward():
        return checkpoint(lambda given: model(given, given, given)[0], x, use_reentrant=reentrant).sum()

    for watched in (False, True):
        model.zero_grad()
        if not watched:
            forward().backward()
        else:
            with mha.record(tokens=TOKENS) as rec:
                loss = forward()
                if inside:
                    loss.backward()
            if not inside:
                loss.backward()
        gradients.append([part.grad.clone() for part in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    assert len(rec.trace.layers) == 1


def test_a_trace_stays_what_it_is_when_the_model_is_trained_further(x):
    model = nn.MultiheadAttention(D, H, batch_first=True)
    [layer] = recorded(lambda given: model(given, given, given), x).layers
    before = layer.result().copy()
    with torch.no_grad():
        for part in model.parameters():
            part.zero_()
    x.zero_()
    np.testing.assert_array_equal(layer.result(), before)


def test_a_recorded_trace_can_be_saved(x, tmp_path):
    trace = recorded(nn.TransformerEncoderLayer(D, EVEN, 8, batch_first=True).eval(), x)
    trace.save(tmp_path / "t.safetensors")
    loaded = mha.load(tmp_path / "t.safetensors")
    assert loaded.source.name == "recorded"
    np.testing.assert_array_equal(loaded.layers[0].result(), trace.layers[0].result())


# What cannot be recorded


def reason(refused, model, *inputs, tokens=TOKENS, **settings):
    """Why there is no trace; the model has computed all the same."""
    with mha.record(tokens=tokens, **settings) as rec:
        output = model(*inputs)
    assert output is not None
    return str(refused(lambda: rec.trace))


def test_without_attention_the_refusal_says_where_it_looked(x, refused):
    said = reason(refused, nn.Linear(D, D), x)
    assert "scaled_dot_product_attention and multi_head_attention_forward" in said
    assert "mha.from_tensors" in said


class Scripted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x)


SCRIPTED = """
import torch
import mha_core as mha

@torch.jit.script
def capped(scores, cap: float):
    return (scores / cap).tanh() * cap

q = torch.randn(7, 5)
with mha.record(tokens=list("abcdefg")) as rec:
    torch.softmax(capped(q @ q.mT, 3.0), -1) @ q
try:
    print(rec.trace.layers[0].rule.soft_cap)
except mha.MhaError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("jit", ["0", "1"])
def test_a_scripted_function_is_named_with_what_shows_it(jit, tmp_path):
    """As x-transformers caps its scores."""
    script = tmp_path / "scripted.py"
    script.write_text(SCRIPTED)
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(
        command, env=os.environ | {"PYTORCH_JIT": jit}, capture_output=True, text=True, check=True
    )
    if jit == "0":
        assert float(done.stdout) == pytest.approx(3.0)
    else:
        assert "torch.jit.script (with PYTORCH_JIT=0 in the environment these are shown)" in done.stdout


@pytest.mark.parametrize("n_texts", [2, None])
def test_heads_and_texts_in_one_axis_are_read_one_text_at_a_time(normal, n_texts, refused):
    q = normal(6, 7, D_K)

    def record(q, batch):
        with mha.record(tokens=TOKENS, batch=batch) as rec:
            F.scaled_dot_product_attention(q, q, q)
        return rec.trace

    assert "one text at a time, with batch=1" in str(refused(record, q, n_texts))
    [layer] = record(q[3:], 1).layers
    np.testing.assert_allclose(layer.weights(), torch.softmax(q[3:] @ q[3:].mT / D_K**0.5, -1), atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_is_refused(x, refused):
    assert "torch.jit" in reason(refused, torch.jit.script(Scripted()), x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "way", [torch.jit.script, lambda module: torch.jit.trace(module, torch.randn(1, 7, D))]
)
@pytest.mark.parametrize("named", [True, False])
def test_scripted_attention_beside_other_is_named(x, way, named):
    """Scripted modules without attention are not named."""
    parts = Scripted(), way(nn.Sequential(nn.Linear(D, D), Scripted())), way(nn.Linear(D, D))
    model = nn.Sequential(*parts)
    with mha.record(*[model] * named, tokens=TOKENS) as rec:
        output = model(x[:1])
    assert torch.equal(output, model(x[:1]))
    assert len(rec.trace.layers) == 1
    assert rec.trace.source.skipped == ("1: it is made by torch.jit, where nothing is seen.",)


def test_misfits_are_reported_on_access(x, normal, refused):
    model = GPT()
    assert "7 queries and 7 keys" in reason(refused, model, x, tokens=TOKENS[:6])
    assert "items 0 to 1; item 2" in reason(refused, model, x, item=2)
    same = nn.Transformer(D, EVEN, 1, 1, 8, batch_first=True).eval()
    said = reason(refused, same, x, x, keys=list("abcdefg"))
    assert "kinds=" in said
    assert "names 1 calls, and 3" in reason(refused, same, x, x, keys=list("abcdefg"), kinds=["cross"])
    cross = reason(refused, F.scaled_dot_product_attention, normal(1, 1, 7, 4), *[normal(1, 1, 5, 4)] * 2)
    assert "keys=" in cross
    assert "3 heads or texts" in reason(refused, F.scaled_dot_product_attention, *[normal(3, 7, 4)] * 3)


def test_modules_without_numbers_run_and_are_named(x, refused):
    """On the meta device there are only shapes."""
    q = torch.empty(1, H, 7, D_K, device="meta")
    shapes, model = nn.MultiheadAttention(D, H, batch_first=True, device="meta"), GPT(1)
    given = torch.empty(2, 7, D, device="meta")

    def attention(q):
        return torch.softmax(q @ q.mT, -1) @ q

    with mha.record(tokens=TOKENS) as rec:
        assert F.scaled_dot_product_attention(q, q, q).shape == attention(q).shape == q.shape
        assert shapes(given, given, given)[0].shape == given.shape
    assert "have no numbers (device “meta”)" in str(refused(lambda: rec.trace))
    with mha.record(tokens=TOKENS) as rec:
        model(x)
        shapes(given, given, given)
    assert len(rec.trace.layers) == 1
    [skipped] = rec.trace.source.skipped
    assert "(MultiheadAttention): Its tensors have no numbers" in skipped


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_followed_where_no_function_changes_scores(normal):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v = normal(2, 6, 7, D_K), normal(2, 2, 7, D_K, seed=1), normal(2, 2, 7, 5, seed=2)
    with torch.no_grad(), mha.record(tokens=TOKENS, item=1) as rec:
        output = flex.flex_attention(q, k, v, scale=0.3, enable_gqa=True)
        flex.flex_attention(q, k, v, score_mod=lambda score, *_: score * 2, enable_gqa=True)
        mask = flex.create_block_mask(lambda b, h, m, n: m >= n + b, 2, None, 7, 7, device="cpu")
        masked = flex.flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
    for layer, expected in zip(rec.trace.layers, (output, masked), strict=True):
        assert (layer.n_heads, layer.n_kv_heads) == (6, 2)
        np.testing.assert_allclose(layer.output(), expected[1], atol=1e-6)
    np.testing.assert_array_equal(layer.allowed(0), np.tri(7, 7, -1, dtype=bool))
    [reason] = rec.trace.source.skipped
    assert "test_recorder.py:" in reason
    assert "flex_attention with score_mod= is not followed" in reason


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused(normal, refused):
    rows = torch.nested.nested_tensor([normal(7, H, 4)] * 2, layout=torch.jagged).transpose(1, 2)
    assert "nested" in reason(refused, F.scaled_dot_product_attention, rows, rows, rows)


def test_kinds_can_be_given_if_lengths_are_equal(x):
    model = nn.Transformer(D, EVEN, 1, 1, 8, dropout=0, batch_first=True).eval()
    kinds = ["encoder", "decoder", "cross"]
    trace = recorded(model, x, x + 1, keys=list("abcdefg"), kinds=kinds)
    assert [layer.kind for layer in trace.layers] == kinds


def test_what_runs_outside_the_recorded_model_is_left_out_and_named(x):
    """For example a teacher beside its student, or an average of its weights."""
    student, teacher, by_hand = GPT(), GPT(3), ByHand()
    with mha.record(student, tokens=TOKENS, item=1) as rec:
        teacher(x)
        student(x)
        by_hand(x)
        F.scaled_dot_product_attention(x, x, x)
    assert [layer.name for layer in rec.trace.layers] == ["blocks.0", "blocks.1"]
    skipped = rec.trace.source.skipped
    assert [reason.partition(": ")[2] for reason in skipped] == [
        "it runs outside the model that is recorded. (3 times)",
        *["it runs outside the model that is recorded."] * 2,
    ]
    with mha.record(student.blocks[0], tokens=TOKENS, item=1) as rec:
        student.blocks[0].forward(x)
    assert len(rec.trace.layers) == 1
    with mha.record(tokens=TOKENS, item=1) as rec:  # a part of a model alone
        student.blocks[1](x)
    with mha.record(student, tokens=TOKENS, item=1) as of_part:
        student.blocks[1](x)
    np.testing.assert_array_equal(rec.trace.layers[0].q, of_part.trace.layers[0].q)


def test_keys_of_another_text_of_the_same_length_are_not_mismistaken_for_the_same(x):
    model = nn.Transformer(D, EVEN, 1, 1, 8, dropout=0, batch_first=True).eval()
    trace = recorded(model, x, x + 1, item=1)
    assert [layer.kind for layer in trace.layers] == ["self", "self"]
    [reason] = trace.source.skipped
    assert "its queries and its keys are of two texts" in reason
    model = nn.MultiheadAttention(D, H, batch_first=True)
    # A code of positions, which values do not have, makes no second text.
    assert len(recorded(lambda: model(x + 1, x + 1, x)).layers) == 1


@pytest.mark.parametrize("hidden", [True, False])
def test_unused_room_of_a_cache_is_left_out(normal, hidden, refused):
    """As in a static cache, which has keys for the longest text."""
    q, k, v = normal(1, H, 7, D_K), normal(1, H, 20, D_K, seed=1), normal(1, H, 20, 5, seed=2)
    sees = torch.ones(7, 20, dtype=torch.bool).tril()
    sees[6, 19] = not hidden
    with mha.record(tokens=TOKENS) as rec:
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=sees)
    if not hidden:
        assert "7 queries and 20 keys" in str(refused(lambda: rec.trace))
        return
    [layer] = rec.trace.layers
    np.testing.assert_array_equal(layer.allowed(0), np.tri(7, dtype=bool))
    np.testing.assert_allclose(layer.output(), output[0], atol=1e-6)


# Batches that a model folds


class Windows(nn.Module):
    """Seven tokens to a window, the windows of all pictures in one batch, as in Swin."""

    def __init__(self, n_windows):
        super().__init__()
        self.n_windows, self.attn = n_windows, nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, x):
        windows = x.reshape(len(x) * self.n_windows, 7, D)
        return self.attn(windows, windows, windows)[0].reshape(x.shape)


@pytest.mark.parametrize("part", [0, 3])
def test_one_part_of_an_item_is_shown_and_the_others_named(normal, part):
    model, x = Windows(4), normal(1, 28, D)
    trace = recorded(model, x, part=part)
    [layer] = trace.layers
    one = x[:, 7 * part : 7 * part + 7]
    expected = model.attn(one, one, one, average_attn_weights=False)[1][0]
    np.testing.assert_allclose(layer.weights(), expected.detach(), atol=1e-6)
    [reason] = trace.source.skipped
    assert f"it reads the item in 4 parts. Part {part}, from 0, is shown" in reason


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("part", [0, 3])
def test_parts_may_have_an_axis_of_their_own(normal, fused, part):
    """As in Nest, Twins and MobileViT: (text, window, head, token, width)."""

    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(D, 3 * D)

        def forward(self, x):
            q, k, v = self.heads = self.qkv(x).view(1, 4, 7, 3, H, D_K).permute(3, 0, 1, 4, 2, 5)
            if fused:
                return F.scaled_dot_product_attention(q, k, v)
            return torch.softmax(q @ k.mT / D_K**0.5, -1) @ v

    model = Folded()
    trace = recorded(model, normal(1, 28, D), part=part)
    [layer] = trace.layers
    q, k, _ = model.heads[:, 0, part].detach()
    np.testing.assert_allclose(layer.weights(), torch.softmax(q @ k.mT / D_K**0.5, -1), atol=1e-6)
    [reason] = trace.source.skipped
    assert f"it reads the item in 4 parts. Part {part}, from 0, is shown" in reason


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("folded", [True, False])
def test_one_text_that_is_read_in_parts_has_no_more_heads_than_each_part(normal, fused, folded):
    """That it is one text does not say that all that is read at once are heads."""

    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(D, 3 * D)

        def forward(self, x):
            heads = [part.unflatten(-1, (H, D_K)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)]
            q, k, v = (part.flatten(0, 1) if folded else part.contiguous() for part in heads)
            return F.scaled_dot_product_attention(q, k, v) if fused else torch.softmax(q @ k.mT, -1) @ v

    model = Windows(4)
    model.forward = lambda x: model.part(x.view(4, 7, D))
    model.part = Part()
    traces = []
    for batch in (None, 1):
        with mha.record(tokens=TOKENS, part=2, batch=batch) as rec:
            model(normal(1, 28, D))
        traces.append(rec.trace)
    (one,), (other,) = (trace.layers for trace in traces)
    assert one.n_heads == other.n_heads == H
    np.testing.assert_array_equal(one.weights(), other.weights())
    assert traces[0].source.skipped == traces[1].source.skipped
    assert "it reads the item in 4 parts" in traces[1].source.skipped[0]


def test_ambiguous_parts_of_several_items_are_reported(normal, refused):
    said = reason(refused, Windows(4), normal(3, 28, D), item=1)
    assert "reads 12 sequences at once, and the model was given 3 items" in said
    assert "items 0 to 0; item 1" in reason(refused, Windows(4), normal(1, 28, D), item=1)
    assert "parts 0 to 3; part 4" in reason(refused, Windows(4), normal(1, 28, D), part=4)


class InTurn(nn.Module):
    """Attention in turn: some heads at a time, one text at a time, or a module for one text at a time."""

    def __init__(self, way):
        super().__init__()
        self.way, self.qkv, self.block = way, nn.Linear(D, 3 * D), Causal()

    def forward(self, x):
        if self.way == "module":
            return torch.cat([self.block(one[None]) for one in x])
        q, k, v = (part.view(len(x), 7, H, D_K).transpose(1, 2) for part in self.qkv(x).split(D, dim=2))
        if self.way == "texts":
            return torch.stack([torch.softmax(a @ b.mT, -1) @ c for a, b, c in zip(q, k, v, strict=True)])
        q, k, v = (part.flatten(0, 1) for part in (q, k, v))
        if self.way == "heads of a text":
            return torch.cat([torch.softmax(q[[at]] @ k[[at]].mT, -1) @ v[[at]] for at in range(len(q))])
        slices = zip(q.split(len(x)), k.split(len(x)), v.split(len(x)), strict=True)
        return torch.cat([F.scaled_dot_product_attention(*one) for one in slices])


@pytest.mark.parametrize(
    ("way", "said"),
    [("heads", "in a row"), ("heads of a text", "in a row"), ("texts", "in a row"), ("module", "one item")],
)
def test_heads_or_texts_in_turn_are_not_mismistaken_for_each_other(normal, way, said, refused):
    """Where there are as many texts as heads, no size tells them apart."""
    for item in (0, 1):
        assert said in reason(refused, InTurn(way), normal(H, 7, D), item=item)
    if way == "module":
        assert len(recorded(InTurn(way), normal(1, 7, D)).layers) == 1


# At the same time


@pytest.mark.slow
def test_threads_record_only_their_own_calls(normal):
    model, start, found = GPT(3), threading.Barrier(8), {}

    def work(number):
        own = [f"{number}.{at}" for at in range(number + 2)]
        x = normal(1, number + 2, D, seed=number)
        start.wait()
        for _ in range(10):
            with torch.no_grad(), mha.record(tokens=own) as rec:
                model(x)
            found.setdefault(number, []).append((rec.trace, x))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(8))
    for traces in found.values():
        for trace, x in traces:
            assert len(trace.layers) == 3
            q = model.blocks[0].c_attn(F.layer_norm(x, (D,)))[0, :, :D_K]
            np.testing.assert_allclose(trace.layers[0].q[0], q.detach(), atol=1e-6)


def test_a_thread_without_a_recorder_is_not_recorded(x):
    with mha.record(tokens=TOKENS) as rec:
        other = threading.Thread(target=lambda: GPT()(x))
        other.start()
        other.join()
        GPT(1)(x)
    assert len(rec.trace.layers) == 1


def test_a_recorded_model_that_other_threads_use_is_recorded_in_one(x):
    model, other = GPT(2), torch.randn(1, 7, D)
    rec = mha.record(model, tokens=TOKENS)

    def elsewhere():
        for _ in range(20):
            model(other)

    with torch.no_grad():
        expected = recorded(model, x[:1]).layers
        with rec:
            thread = threading.Thread(target=elsewhere)
            thread.start()
            model(x[:1])
            thread.join()
    layers = rec.trace.layers
    assert [layer.name for layer in layers] == ["blocks.0", "blocks.1"]
    for layer, same in zip(layers, expected, strict=True):
        np.testing.assert_array_equal(layer.q, same.q)
    result = model.blocks[0](F.layer_norm(x[:1], (D,)))[0].detach()
    np.testing.assert_allclose(layers[0].result(), result, atol=1e-5)
    assert not any(part._forward_hooks for part in model.modules())


def test_a_model_that_is_not_a_module_is_refused(refused):
    assert "a torch.nn.Module and its tokens by name; got list" in str(
        refused(lambda: mha.record(TOKENS, tokens=TOKENS))
    )


@pytest.mark.parametrize("item", [1, -2, 5, 10**30])
@pytest.mark.parametrize("make", [Causal, lambda: nn.MultiheadAttention(D, H, batch_first=True)])
def test_a_batch_index_out_of_range_is_refused(x, item, make, refused):
    """Also for one text."""
    model = make()
    with mha.record(model, tokens=TOKENS, item=item) as rec:
        model(x[:1]) if isinstance(model, Causal) else model(x[:1], x[:1], x[:1])
    assert "The batch has items 0 to 0; item" in str(refused(lambda: rec.trace))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"item": "a"}, "item is a whole number; got 'a'."),
        ({"item": True}, "item is a whole number; got True."),
        ({"item": None}, "item is a whole number; got None."),
        ({"item": 1.0}, "item is a whole number; got 1.0."),
        ({"batch": 0}, "batch is a number of texts, at least 1; got 0."),
        ({"batch": "a"}, "batch is a number of texts, at least 1; got 'a'."),
        ({"kinds": "self"}, "kinds is a list with the kind of each call; got 'self'."),
        ({"kinds": 5}, "kinds is a list with the kind of each call; got 5."),
    ],
)
def test_arguments_of_another_type_are_refused_before_anything_runs(wrong, said, refused):
    assert str(refused(mha.record, tokens=TOKENS, **wrong)) == said


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("hide", ["bool", "float", "both"])
def test_a_row_that_sees_nothing_has_weight_0_where_torch_has_nan(normal, dtype, length, hide):
    model = nn.MultiheadAttention(D, H, batch_first=True).to(dtype)
    x = normal(2, length, D).to(dtype)
    padding = torch.zeros(2, length, dtype=torch.bool)
    padding[1] = True
    masks = {"key_padding_mask": padding} if hide != "float" else {}
    if hide != "bool":
        masks["attn_mask"] = torch.zeros(length, length, dtype=dtype)
        masks["attn_mask"][0] = -torch.inf
    if hide == "both":
        masks["key_padding_mask"] = torch.zeros(2, length, dtype=dtype).masked_fill(padding, -torch.inf)
    with torch.no_grad(), mha.record(tokens=TOKENS[:length], item=1) as rec:
        _, weights = model(x, x, x, average_attn_weights=False, **masks)
    expected = weights[1].float()
    assert expected.isnan().any()
    recorded = torch.tensor(rec.trace.layers[0].weights()).float()
    torch.testing.assert_close(recorded, expected.nan_to_num(0.0), atol=4 * torch.finfo(dtype).eps, rtol=0)


def test_the_outer_of_two_nested_recorders_has_the_calls_of_both(x):
    model = nn.MultiheadAttention(D, H, batch_first=True)
    with mha.record(tokens=TOKENS) as outer:
        Causal()(x)
        with mha.record(tokens=TOKENS, item=1) as inner:
            model(x, x, x)
    assert len(outer.trace.layers) == 2
    assert len(inner.trace.layers) == 1
    np.testing.assert_array_equal(outer.trace.layers[1].x, x[0])
    np.testing.assert_array_equal(inner.trace.layers[0].x, x[1])


def test_after_the_block_nothing_is_recorded_also_when_it_failed(x):
    rec = mha.record(tokens=TOKENS)

    def fail():
        with rec:
            Causal()(x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    Causal()(x)
    assert len(rec.trace.layers) == 1


@pytest.mark.slow
def test_compiled_code_runs_uncompiled_meanwhile(x):
    compiled, made = Causal().eval(), []

    def backend(graph, _):
        made.append(graph)
        return graph.forward

    fast = torch.compile(compiled, backend=backend)
    with torch.no_grad():
        expected = fast(x)
        assert len(made) == 1
        with mha.record(tokens=TOKENS) as one, mha.record(tokens=TOKENS) as two:
            output = fast(x)
            again = compiled(x)
    assert len(made) == 1
    assert torch.equal(output, again)
    torch.testing.assert_close(output, expected)
    assert len(one.trace.layers) == len(two.trace.layers) == 2
    with torch.no_grad():
        fast(x[:, :5])
    assert len(made) == 2  # and compiles again


def test_the_repr_of_a_recorder_lists_what_was_recorded(normal):
    q = normal(1, 2, 3, 4)
    with mha.record(tokens=["a", "b", "c"]) as rec:
        assert repr(rec) == "<Recorder of 3 tokens: nothing was recorded yet>"
        for _ in range(2):
            F.scaled_dot_product_attention(q, q, q)
    assert repr(rec) == "<Recorder of 3 tokens: 2 × (2 heads, 3 × 3)>"
