"""Two runs: ports of GPT-2, Llama and BERT with planted faults, other precisions and orders of heads."""

import copy
import math

import pytest
import torch
from torch import nn

import mha_core as mha
from mha_core.errors import MhaError

D, H, SHARED = 48, 4, 2
IDS = ([3, 5, 7, 9, 2, 4, 8], [11, 12, 13, 14, 15], [1, 2, 3, 4, 5, 6, 7, 8, 9])


class BertPort(nn.Module):
    """BERT's encoder written anew, with einsum and the weights of one of transformers."""

    def __init__(self, theirs: nn.Module, fault: str = ""):
        super().__init__()
        self.theirs, self.fault = theirs, fault

    def forward(self, ids):
        x = self.theirs.embeddings(ids)
        for block in self.theirs.encoder.layer:
            after = block.attention.output
            x = after.LayerNorm(x + after.dense(self.attended(block.attention.self, x)))
            x = block.output(block.intermediate(x), x)
        return x

    def attended(self, of, x):
        fault = self.fault
        layers = (of.query, of.value, of.key) if fault == "exchanged" else (of.query, of.key, of.value)
        q, k, v = (layer(x).unflatten(-1, (H, -1)) for layer in layers)
        if fault == "interleaved":
            q, k, v = (one.flatten(2).unflatten(-1, (-1, H)).mT for one in (q, k, v))
        if fault == "fused":  # right
            heads = nn.functional.scaled_dot_product_attention(*(one.transpose(1, 2) for one in (q, k, v)))
            return heads.transpose(1, 2).flatten(2)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * (1 if fault == "no scale" else q.shape[-1] ** -0.5)
        weights = scores.softmax(-1)
        return torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)


class Port(nn.Module):
    """A decoder written anew with the weights of one of transformers, and perhaps a fault."""

    def __init__(self, theirs: nn.Module, fault: str = ""):
        super().__init__()
        self.theirs, self.fault = theirs, fault
        self.is_llama = hasattr(theirs, "embed_tokens")
        blocks = theirs.layers if self.is_llama else theirs.h
        self.attention = nn.ModuleList(Attention(block, fault, is_llama=self.is_llama) for block in blocks)

    def forward(self, ids):
        of = self.theirs
        if self.is_llama:
            x = of.embed_tokens(ids)
            names = ("input_layernorm", "post_attention_layernorm")
        else:
            x = of.wte(ids) + of.wpe(torch.arange(ids.shape[1]))
            names = ("ln_1", "ln_2")
        for block, attention in zip(of.layers if self.is_llama else of.h, self.attention, strict=True):
            before, after = (getattr(block, name) for name in names)
            x = x + attention(before(x))
            x = x + block.mlp(after(x))
        return x


class Attention(nn.Module):
    def __init__(self, block: nn.Module, fault: str, *, is_llama: bool):
        super().__init__()
        self.fault, self.is_llama, self.d = fault, is_llama, D // H
        if is_llama:
            of = block.self_attn
            self.q, self.k, self.v, self.o = of.q_proj, of.k_proj, of.v_proj, of.o_proj
            return
        self.c_attn, self.c_proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        for mine, theirs in ((self.c_attn, block.attn.c_attn), (self.c_proj, block.attn.c_proj)):
            mine.weight.data, mine.bias.data = theirs.weight.data.T.clone(), theirs.bias.data.clone()

    def forward(self, x):
        fault, (b, n, _) = self.fault, x.shape
        if self.is_llama:
            q, k, v = self.q(x), self.k(x), self.v(x)
        else:
            bias = None if fault == "no bias" else self.c_attn.bias
            q, k, v = nn.functional.linear(x, self.c_attn.weight, bias).split(D, dim=2)
        if fault == "exchanged":
            q, k = k, q
        counts = (H, SHARED, SHARED) if self.is_llama else (H, H, H)
        if fault == "view":
            q, k, v = (one.reshape(b, h, n, self.d) for one, h in zip((q, k, v), counts, strict=True))
        else:
            q, k, v = (
                one.view(b, n, h, self.d).transpose(1, 2) for one, h in zip((q, k, v), counts, strict=True)
            )
        if self.is_llama:
            q, k = (self.rotated(one) for one in (q, k))
            times = H // SHARED
            k, v = (
                one.repeat(1, times, 1, 1) if fault == "in turn" else one.repeat_interleave(times, 1)
                for one in (k, v)
            )
        if fault == "other heads":
            q, k, v = (one[:, [2, 0, 3, 1]] for one in (q, k, v))
        scores = q @ k.mT / math.sqrt(D if fault == "√d_model" else self.d)
        allowed = torch.ones(n, n, dtype=torch.bool).tril(1 if fault == "later" else 0)
        heads = scores.masked_fill(~allowed, float("-inf")).softmax(-1) @ v
        if fault == "other heads":
            heads = heads[:, [1, 3, 0, 2]]
        joined = heads.transpose(1, 2).reshape(b, n, D)
        return self.o(joined) if self.is_llama else self.c_proj(joined)

    def rotated(self, x):
        if self.fault == "no rotation":
            return x
        angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(0, self.d, 2) / self.d)
        if self.fault == "pairs":
            across = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
            return x * angle.cos().repeat_interleave(2, 1) + across * angle.sin().repeat_interleave(2, 1)
        across = torch.cat([-x[..., self.d // 2 :], x[..., : self.d // 2]], -1)
        return x * angle.cos().repeat(1, 2) + across * angle.sin().repeat(1, 2)


@pytest.fixture(scope="module")
def models():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "bos_token_id": None, "eos_token_id": None}
    gpt2 = transformers.GPT2Config(n_embd=D, n_head=H, n_layer=2, n_positions=16, **sizes)
    llama = transformers.LlamaConfig(
        hidden_size=D, num_attention_heads=H, num_key_value_heads=SHARED, num_hidden_layers=2, **sizes
    )
    bert = transformers.BertConfig(
        hidden_size=D, num_attention_heads=H, num_hidden_layers=2, intermediate_size=2 * D, vocab_size=40
    )
    made = {
        "gpt2": transformers.GPT2Model(gpt2).eval(),
        "llama": transformers.LlamaModel(llama).eval(),
        "bert": transformers.BertModel(bert).eval(),
    }
    for model in made.values():
        for weight in model.parameters():
            weight.data.normal_(0, 0.2)
    return {name: (model, [mha.trace(ids, source=model) for ids in IDS]) for name, model in made.items()}


def recorded(model: nn.Module):
    """A recorder of each text; of one whose heads are mixed up it has no trace."""
    recorders = []
    for ids in IDS:
        with torch.no_grad(), mha.record(model, tokens=[str(one) for one in ids]) as recorder:
            model(torch.tensor([ids]))
        recorders.append(recorder)
    return recorders


@pytest.mark.parametrize(
    ("name", "fault", "matrix", "cause"),
    [
        ("gpt2", "", None, None),
        ("gpt2", "exchanged", "q", "kqv"),
        ("gpt2", "no bias", "q", "lost"),
        ("gpt2", "view", "q", "view"),
        ("gpt2", "√d_model", "scaled", "√d_model"),
        ("gpt2", "later", "weights", "later"),
        ("llama", "", None, None),
        ("llama", "pairs", "q", "other"),
        ("llama", "no rotation", "q", "lost"),
        ("llama", "in turn", "k", "in turn"),
        ("bert", "", None, None),
        ("bert", "fused", None, None),
        ("bert", "exchanged", "k", "qvk"),
        ("bert", "no scale", "scaled", "1"),
        ("bert", "interleaved", "q", "interleaved"),
    ],
)
def test_a_port_differs_where_its_fault_is_and_for_that_reason(models, name, fault, matrix, cause):
    model, theirs = models[name]
    port = (BertPort if name == "bert" else Port)(copy.deepcopy(model), fault).eval()
    found = mha.difference(recorded(port), theirs)
    assert (found.matrix, found.is_equal) == (matrix, matrix is None)
    assert [[one.value for one in of] for of in found.causes] == ([[cause]] if cause else [])
    if cause:
        assert found.layer == 0
        assert found.causes[0][0].sentence in str(found)
        assert found._repr_html_().count("<svg") == (3 if found.mine.shape == found.theirs.shape else 0)


def test_heads_in_another_order_are_equal_and_named(models):
    model, theirs = models["gpt2"]
    found = mha.difference(recorded(Port(copy.deepcopy(model), "other heads").eval()), theirs)
    assert (found.is_equal, found.heads) == (True, (1, 3, 0, 2))
    assert "theirs are my heads 2, 4, 1, 3" in str(found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_no_difference_and_a_changed_weight_is_one_of_unknown_cause(models, dtype):
    model, theirs = models["llama"]
    half = copy.deepcopy(model).to(dtype)
    assert mha.difference([mha.trace(ids, source=half) for ids in IDS], theirs).is_equal
    half.layers[1].self_attn.v_proj.weight.data += 1
    found = mha.difference([mha.trace(ids, source=half) for ids in IDS], theirs)
    assert (found.matrix, found.layer, found.causes) == ("v", 1, ())
    assert "unknown" in str(found)


def test_what_cannot_be_compared_is_refused():
    one, other = (mha.trace(text, h=4, d_model=32) for text in ("How are you?", "Two words"))
    for mine, theirs, said in (
        (one, other, "other lengths"),
        (one, [one, one], "of the same texts"),
        ([], [], "there are 0 of one run"),
        (one, "trace", "got a str"),
        (one, mha.trace("How are you?", h=2, d_model=32), "4 heads and the other 2"),
    ):
        with pytest.raises(MhaError, match=said):
            mha.difference(mine, theirs)


def test_other_words_are_noted():
    mine, theirs = (mha.trace(f"The {noun} saw it.", h=2, d_model=16) for noun in ("dog", "cat"))
    assert "dog in my run is cat in theirs" in str(mha.difference(mine, theirs))
    assert mha.difference(mine, mine).notes == ()
