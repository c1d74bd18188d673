"""Any torch code is recorded exactly, computes the same as before, and threads are kept apart."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.utils.checkpoint import checkpoint

import mha_core as mha
from tests.sources.recorded import (
    D_K,
    GPT,
    SOURCE,
    TOKENS,
    Attention,
    D,
    H,
    Itself,
    L,
    SelfAttention,
    assert_flowed,
    recorded,
    refusal,
)


@pytest.fixture
def x(normal):
    return normal(2, L, D)


HIDDEN = torch.ones(L, L, dtype=torch.bool).triu(1)
LOWEST = torch.finfo(torch.float32).min
# By their names the masks of a call of two texts.
MASKS = {
    "of all": lambda normal: normal(L, L) > -0.5,
    "of an item": lambda normal: normal(2, 1, L, L) > -0.5,
    "of a head": lambda normal: normal(1, H, L, L) > -0.5,
    "of keys": lambda normal: (normal(2, 1, 1, L) > -0.5) | (torch.arange(L) == 0),
    "added": lambda normal: normal(2, H, L, L),
    "added and −∞": lambda normal: normal(L, L).masked_fill(HIDDEN, -torch.inf),
    "the lowest number": lambda normal: torch.zeros(2, 1, L, L).masked_fill(HIDDEN, LOWEST),
}


def test_calls_of_torchs_function_are_read(normal, subtests):
    q, k, v = normal(2, 6, L, D_K), normal(2, 6, L, D_K, seed=1), normal(2, 6, L, 5, seed=2)
    calls = {
        name: ((q[:, :H], k[:, :H], v[:, :H]), {"attn_mask": mask(normal)}) for name, mask in MASKS.items()
    }
    calls |= {
        "shared keys": ((q, k[:, :2], v[:, :2]), {"enable_gqa": True}),
        "keys given once": ((q, k[:, :1], v[:1]), {}),
    }
    for name, (given, options) in calls.items():
        with subtests.test(name):
            call = lambda given=given, options=options: F.scaled_dot_product_attention(*given, **options)  # noqa: E731
            [layer] = recorded(call, item=1).layers
            seen = layer.allowed().any(-1)  # a row with all hidden is torch's to define
            assert seen.any()
            np.testing.assert_allclose(layer.output()[seen], call()[1][seen], atol=1e-5)
            assert layer.n_kv_heads == {"shared keys": 2, "keys given once": 6}.get(name, H)
    mask = normal(1, 2, L, L) > -0.5
    heads_first = (part.transpose(0, 1).contiguous() for part in (q, k, v))
    call = functools.partial(F.scaled_dot_product_attention, *heads_first, attn_mask=mask)
    [layer] = recorded(call, item=1, batch=2).layers
    seen = mask[0, 1].any(-1)
    np.testing.assert_allclose(layer.output()[:, seen], call()[:, 1][:, seen], atol=1e-5)
    added = torch.zeros(L, L).masked_fill(HIDDEN, LOWEST)
    added[3] = LOWEST  # it hides, unless all of a row have it
    [layer] = recorded(lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=added)).layers
    assert not layer.allowed(0)[2, 3:].any()
    assert layer.allowed(0)[3].all()


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


def test_a_call_with_another_result_is_named_and_not_shown(normal):
    q, hidden = normal(2, H, 7, D_K), torch.ones(7, 7, dtype=torch.bool).triu(1)
    with mha.record(tokens=TOKENS, item=1) as rec:
        F.scaled_dot_product_attention(q, q, q, attn_mask=hidden.as_subclass(Negated))
        F.scaled_dot_product_attention(q, q, q, attn_mask=~hidden)
    assert len(rec.trace.layers) == 1
    assert "is not what its queries, keys, values and mask give" in rec.trace.source.skipped[0]
    np.testing.assert_array_equal(rec.trace.layers[0].allowed(0), ~hidden)


def test_a_module_of_torch_with_another_function_is_named_and_not_shown(x, monkeypatch):
    torch_s, model = F.scaled_dot_product_attention, Itself(need_weights=False)
    with mha.record(tokens=TOKENS) as rec:
        model(x)
        monkeypatch.setattr(
            F, "scaled_dot_product_attention", lambda q, *more, **by: torch_s(2 * q, *more, **by)
        )
        model(x)
    assert sum(len(trace.layers) for trace in rec.traces) == 1
    assert "is not what its queries, keys, values and mask give" in rec.traces[0].source.skipped[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
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


def test_under_autocast_the_output_is_that_of_the_module_and_can_be_saved(x, tmp_path):
    """W^O is kept in float32 and multiplied in bfloat16."""
    model = nn.MultiheadAttention(D, H, batch_first=True).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16), mha.record(model, tokens=TOKENS) as rec:
        output, _ = model(x, x, x)
    rec.trace.save(tmp_path / "autocast.safetensors")
    for trace in (rec.trace, mha.load(tmp_path / "autocast.safetensors")):
        [layer] = trace.layers
        assert trace.source.name == "recorded"
        np.testing.assert_allclose(layer.result(), output[0].detach().float(), atol=0.01)
        whole = layer.contribution().sum(0) + layer.projections.b_o.float().numpy()
        np.testing.assert_allclose(whole, layer.result(), atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_autocast_leaves_float64_alone(normal, dtype):
    q, k, v = (normal(1, H, 7, D_K, seed=n).to(dtype) for n in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16), mha.record(tokens=TOKENS) as rec:
        output = F.scaled_dot_product_attention(q, k, v)
    [layer] = rec.trace.layers
    assert layer.tensors["q"].dtype == output.dtype
    atol = 1e-12 if dtype == torch.float64 else 0.02
    np.testing.assert_allclose(layer.output(), output[0].double(), atol=atol)


@pytest.mark.parametrize("reentrant", [None, True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_recording_does_not_change_a_training_nor_training_a_trace(x, reentrant, inside):
    """Backward runs a checkpointed module again, which is no further call."""
    model, gradients = nn.Sequential(Attention(), Attention(fused=False), Itself()), []
    x.requires_grad_()

    def forward():
        return (model(x) if reentrant is None else checkpoint(model, x, use_reentrant=reentrant)).sum()

    for watched in (False, True):
        model.zero_grad()
        with mha.record(tokens=TOKENS) if watched else nullcontext() as rec:
            loss = forward()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        gradients.append([part.grad.clone() for part in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    layers = rec.trace.layers
    before = [layer.output().copy() for layer in layers], layers[-1].result().copy()
    with torch.no_grad():
        for part in (*model.parameters(), x):
            part.zero_()
    assert len(layers) == 3
    for layer, output in zip(layers, before[0], strict=True):
        np.testing.assert_array_equal(layer.output(), output)
    np.testing.assert_array_equal(layers[-1].result(), before[1])


class Scripted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore::DeprecationWarning")
def test_calls_that_do_not_fit_compute_and_are_refused_on_access(x, normal):
    torchs, sdpa = nn.MultiheadAttention(D, H, batch_first=True), F.scaled_dot_product_attention
    itself = lambda given: torchs(given, given, given)  # noqa: E731
    rows = torch.nested.nested_tensor([normal(L, H, 4)] * 2, layout=torch.jagged).transpose(1, 2)
    cross = normal(1, 1, L, 4), *[normal(1, 1, 5, 4)] * 2
    room = torch.ones(L, 20, dtype=torch.bool).tril()  # of a cache, of which some that is unused is seen
    room[6, 19] = True
    for model, given, options, words in (
        (nn.Linear(D, D), (x,), {}, "scaled_dot_product_attention and multi_head_attention_forward"),
        (nn.Linear(D, D), (x,), {}, "mha.from_tensors"),
        (GPT(), (x,), {"tokens": TOKENS[:6]}, "7 queries and 7 keys"),
        (GPT(), (x,), {"item": 2}, "items 0 to 1; item 2"),
        *((SelfAttention(), (x[:1],), {"item": at}, "items 0 to 0; item") for at in (1, -2, 5, 10**30)),
        *((itself, (x[:1],), {"item": at}, "The batch has items 0 to 0; item") for at in (1, -2, 10**30)),
        (sdpa, cross, {}, "keys="),
        (sdpa, (normal(1, H, L, 4), *[normal(1, H, 20, 4)] * 2, room), {}, "7 queries and 20 keys"),
        (sdpa, [normal(3, L, 4)] * 3, {}, "3 heads or texts"),
        *((sdpa, [normal(6, L, 4)] * 3, {"batch": n}, "one text at a time, with batch=1") for n in (2, None)),
        (sdpa, (rows, rows, rows), {}, "nested"),
        (torch.jit.script(Scripted()), (x,), {}, "torch.jit"),
    ):
        assert words in refusal(model, *given, **options)
    one = normal(H, L, 4)
    assert_flowed(recorded(sdpa, one, one, one, batch=1), sdpa, one, one, one)


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


def test_modules_without_numbers_run_and_are_named(x, refused):
    """On the meta device there are only shapes."""
    q = torch.empty(1, H, 7, D_K, device="meta")
    shapes, model = nn.MultiheadAttention(D, H, batch_first=True, device="meta"), GPT(layers=1)
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


def test_what_runs_outside_the_recorded_model_is_left_out_and_named(x):
    """For example a teacher beside its student, or an average of its weights."""
    student, teacher, by_hand = GPT(), GPT(layers=3), Attention(fused=False)
    with mha.record(student, tokens=TOKENS, item=1) as rec:
        teacher(x)
        student(x)
        by_hand(x)
        F.scaled_dot_product_attention(x, x, x)
    assert [layer.name for layer in rec.trace.layers] == ["h.0.attn", "h.1.attn"]
    skipped = rec.trace.source.skipped
    assert [reason.partition(": ")[2] for reason in skipped] == [
        "it runs outside the model that is recorded. (3 times)",
        *["it runs outside the model that is recorded."] * 2,
    ]
    with mha.record(student.h[0].attn, tokens=TOKENS, item=1) as rec:
        student.h[0].attn.forward(x)
    assert len(rec.trace.layers) == 1
    with mha.record(tokens=TOKENS, item=1) as rec:  # a part of a model alone
        student.h[1].attn(x)
    with mha.record(student, tokens=TOKENS, item=1) as of_part:
        student.h[1].attn(x)
    np.testing.assert_array_equal(rec.trace.layers[0].q, of_part.trace.layers[0].q)


def test_threads_record_only_their_own_calls(normal):
    model, start = GPT(layers=3), threading.Barrier(4)

    def work(number):
        x, q = normal(1, number + 2, D, seed=number), model.h[0].attn.c_attn
        start.wait()
        for _ in range(5):
            with torch.no_grad(), mha.record(tokens=[f"{number}.{at}" for at in range(number + 2)]) as rec:
                model(x)
            first, *others = rec.trace.layers
            np.testing.assert_allclose(first.q[0], q(model.h[0].ln(x))[0, :, :D_K].detach(), atol=1e-6)
            assert len(others) == 2

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_a_recorded_model_that_other_threads_use_is_recorded_in_one(x):
    model, other = GPT(), torch.randn(1, 7, D)
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
    assert [layer.name for layer in layers] == ["h.0.attn", "h.1.attn"]
    for layer, same in zip(layers, expected, strict=True):
        np.testing.assert_array_equal(layer.q, same.q)
    result = model.h[0].attn(model.h[0].ln(x[:1]))[0].detach()
    np.testing.assert_allclose(layers[0].result(), result, atol=1e-5)
    assert not any(part._forward_hooks for part in model.modules())


def test_arguments_of_another_type_are_refused_before_anything_runs(refused):
    for name, rule, wrong in (
        ("item", "a whole number", ("a", True, None, 1.0)),
        ("batch", "a number of texts, at least 1", (0, "a")),
        ("kinds", "a list with the kind of each call", ("self", 5)),
    ):
        for value in wrong:
            message = str(refused(mha.record, tokens=TOKENS, **{name: value}))
            assert message == f"{name} is {rule}; got {value!r}."
    message = str(refused(lambda: mha.record(TOKENS, tokens=TOKENS)))
    assert "a torch.nn.Module and its tokens by name; got list" in message


def test_the_outer_of_two_nested_recorders_has_the_calls_of_both(x):
    model = nn.MultiheadAttention(D, H, batch_first=True)
    with mha.record(tokens=TOKENS) as outer:
        SelfAttention()(x)
        with mha.record(tokens=TOKENS, item=1) as inner:
            model(x, x, x)
    assert len(outer.trace.layers) == 2
    assert len(inner.trace.layers) == 1
    np.testing.assert_array_equal(outer.trace.layers[1].x, x[0])
    np.testing.assert_array_equal(inner.trace.layers[0].x, x[1])


def test_after_the_block_nothing_is_recorded_also_when_it_failed(x):
    rec = mha.record(tokens=TOKENS)
    with suppress(ZeroDivisionError), rec:
        SelfAttention()(x)
        raise ZeroDivisionError
    SelfAttention()(x)
    assert len(rec.trace.layers) == 1


@pytest.mark.slow
def test_compiled_code_runs_uncompiled_meanwhile(x):
    compiled, made = SelfAttention().eval(), []

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
