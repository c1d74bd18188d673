"""Attention of GPT-2, Llama and BERT written anew, faults to plant in it, and right variants.

A row is a port, what should be found, and parts of the code with what stands in their place. A text is read
alone, or padded in a batch.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

D, H, SHARED = 48, 4, 2
GPT2 = """
class Attention(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        for mine, theirs in ((self.c_attn, of.c_attn), (self.c_proj, of.c_proj)):
            mine.weight.data, mine.bias.data = theirs.weight.data.T.clone(), theirs.bias.data.clone()

    def forward(self, x, keep):
        b, n, _ = x.shape
        q, k, v = self.c_attn(x).split(D, dim=2)
        q, k, v = (one.view(b, n, H, d).transpose(1, 2) for one in (q, k, v))
        att = q @ k.transpose(-2, -1) / math.sqrt(d)
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        att = att.masked_fill(~causal, -torch.inf)
        att = att.masked_fill(~keep[:, None, None], -torch.inf)
        att = F.softmax(att, dim=-1)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(b, n, D)
        return self.c_proj(y)
"""
LLAMA = """
class Attention(nn.Module):
    def __init__(self, of):
        super().__init__()
        weights = (getattr(of, f"{name}_proj").weight.data.T.clone() for name in "qkvo")
        self.wq, self.wk, self.wv, self.wo = map(nn.Parameter, weights)

    def rotated(self, x):
        angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
        return x * cos + torch.cat([-x[..., d // 2:], x[..., :d // 2]], -1) * sin

    def forward(self, x, keep):
        b, n, _ = x.shape
        q, k, v = (x @ w for w in (self.wq, self.wk, self.wv))
        q, k, v = (one.view(b, n, -1, d).transpose(1, 2) for one in (q, k, v))
        q, k = self.rotated(q), self.rotated(k)
        k, v = k.repeat_interleave(H // SHARED, 1), v.repeat_interleave(H // SHARED, 1)
        mask = torch.full((n, n), -torch.inf).triu(1)
        scores = torch.matmul(q, k.transpose(2, 3)) * d ** -0.5 + mask
        weights = torch.softmax(scores.float(), -1).to(q.dtype)
        heads = torch.matmul(weights, v)
        return heads.transpose(1, 2).reshape(b, n, -1) @ self.wo
"""
BERT = """
class Attention(nn.Module):
    def __init__(self, of):
        super().__init__()
        of, out = of.self, of.output.dense
        parts = of.query, of.key, of.value
        self.q, self.k, self.v = (nn.Parameter(one.weight.data.view(H, d, D).clone()) for one in parts)
        self.bq, self.bk, self.bv = (nn.Parameter(one.bias.data.view(H, d).clone()) for one in parts)
        self.o = nn.Parameter(out.weight.data.T.reshape(H, d, D).clone())
        self.bo = nn.Parameter(out.bias.data.clone())

    def forward(self, x, keep):
        b, n, _ = x.shape
        q = torch.einsum("bne,hde->bnhd", x, self.q) + self.bq
        k = torch.einsum("bne,hde->bnhd", x, self.k) + self.bk
        v = torch.einsum("bne,hde->bnhd", x, self.v) + self.bv
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / d ** 0.5
        scores = scores + torch.where(keep, 0.0, torch.finfo(x.dtype).min)[:, None, None]
        weights = scores.softmax(-1)
        heads = torch.einsum("bhij,bjhd->bihd", weights, v)
        return torch.einsum("bihd,hde->bie", heads, self.o) + self.bo
"""
CODE = {"gpt2": GPT2, "llama": LLAMA, "bert": BERT}

_FUSED = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"
_OUTPUT = 'torch.einsum("bihd,hde->bie", heads, self.o) + self.bo'
ROWS = [
    # GPT-2: the cause, its matrix
    ("gpt2", "scale=√d_model", "scaled", "math.sqrt(d)", "math.sqrt(D)"),
    ("gpt2", "softmax=queries", "weights", "dim=-1", "dim=-2"),
    ("gpt2", "softmax=heads", "weights", "dim=-1", "dim=1"),
    ("gpt2", "mask=earlier", "weights", ".tril()", ".tril(-1)"),
    ("gpt2", "mask=later", "weights", ".tril()", ".tril(1)"),
    ("gpt2", "mask=transposed", "weights", ".tril()", ".triu()"),
    ("gpt2", "mask=zero", "weights", "masked_fill(~causal, -torch.inf)", "masked_fill(~causal, 0)"),
    ("gpt2", "mask=after", "weights", "att.masked_fill(~causal, -torch.inf)", "att",
     "dim=-1)", "dim=-1) * causal"),
    ("gpt2", "split=view", "q", "view(b, n, H, d).transpose(1, 2)", "reshape(b, H, n, d)"),
    ("gpt2", "matrices=kqv", "q", "q, k, v = self", "k, q, v = self"),
    ("gpt2", "bias=lost", "q", "self.c_attn(x)", "F.linear(x, self.c_attn.weight)"),
    ("gpt2", "join=view", "concat", "y.transpose(1, 2).contiguous()", "y.contiguous()"),
    ("gpt2", "join=reversed", "concat", "y.transpose(1, 2)", "y.flip(1).transpose(1, 2)"),
    ("gpt2", "output=lost", "output", "self.c_proj(y)", "y"),
    ("gpt2", "output=no bias", "output", "self.c_proj(y)", "y @ self.c_proj.weight.T"),
    ("gpt2", "dropout=on", "weights", "y = att @ v", "y = F.dropout(att, 0.3) @ v"),
    ("gpt2", "mask=later & join=view", "weights", ".tril()", ".tril(1)", "y.transpose(1, 2)", "y"),
    ("gpt2 padded", "mask=no padding", "weights", "~keep[:, None, None]", "torch.tensor(False)"),
    # Llama
    ("llama", "rotation=other", "q", "repeat(1, 2)", "repeat_interleave(2, 1)",
     "torch.cat([-x[..., d // 2:], x[..., :d // 2]], -1)",
     "torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)"),
    ("llama", "rotation=lost", "q", "self.rotated(q), self.rotated(k)", "q, k"),
    ("llama", "repeat=in turn", "k", "repeat_interleave(H // SHARED, 1)", "repeat(1, H // SHARED, 1, 1)"),
    ("llama", "join=view", "concat", "heads.transpose(1, 2)", "heads"),
    ("llama", "output=lost", "output", " @ self.wo", ""),
    # BERT
    ("bert", "scale=1", "scaled", " / d ** 0.5", ""),
    ("bert", "softmax=missing", "weights", "scores.softmax(-1)", "scores"),
    ("bert", "mixing=transposed", "weights", "bhij,bjhd->bihd", "bhji,bjhd->bihd"),
    ("bert", "matrices=qvk", "k", "k = torch", "v_ = torch", "v = torch", "k = torch", "v_ = ", "v = "),
    ("bert", "split=interleaved", "q", ".weight.data.view(H, d, D)",
     ".weight.data.view(d, H, D).transpose(0, 1)",
     ".bias.data.view(H, d)", ".bias.data.view(d, H).T"),
    ("bert", "output=no bias", "output", " + self.bo", ""),
    ("bert", "join=interleaved", "concat", _OUTPUT, "heads.mT.flatten(2) @ self.o.flatten(0, 1) + self.bo"),
    ("bert padded", "mask=queries", "weights", "[:, None, None]", "[:, None, :, None]"),
    ("bert padded", "softmax=queries", "weights", "softmax(-1)", "softmax(-2)"),
    # What no mistake of the table explains
    ("llama", "", "output", " @ self.wo", " @ self.wq"),
    ("bert", "", "output", "heads, self.o", "heads[:, :, [1, 0, 2, 3]], self.o"),
    ("bert", "", "scaled", " / d ** 0.5", " / (d - 1) ** 0.5"),
]  # fmt: skip
VARIANTS = [
    ("gpt2",), ("llama",), ("bert",), ("gpt2 padded",), ("bert padded",),
    ("gpt2", "att @ v", _FUSED),
    ("gpt2", "self.c_proj(y)", "y @ self.c_proj.weight.T + self.c_proj.bias"),
    ("gpt2", "self.c_proj(y)",
     "torch.addmm(self.c_proj.bias, y.view(-1, D), self.c_proj.weight.T).view(b, n, D)"),
    ("gpt2", "-torch.inf", "-1e9"),
    ("gpt2", "q @ k.transpose(-2, -1)", "(k @ q.mT).mT"),
    ("llama", "torch.matmul(weights, v)", "(v.mT @ weights.mT).mT"),
    ("llama", "torch.matmul(weights, v)", _FUSED),
    ("bert", _OUTPUT, "heads.flatten(2) @ self.o.flatten(0, 1) + self.bo"),
    ("bert", _OUTPUT, f"x + {_OUTPUT} - x"),
    ("bert", _OUTPUT, "self.bo + " + _OUTPUT.removesuffix(" + self.bo")),
]  # fmt: skip


def changed(name: str, *parts: str) -> type[nn.Module]:
    """The attention of a port with parts of its code replaced."""
    code = CODE[name]
    for old, new in zip(parts[::2], parts[1::2], strict=True):
        assert old in code, old
        code = code.replace(old, new)
    space = {"nn": nn, "torch": torch, "F": F, "math": math, "D": D, "H": H, "SHARED": SHARED, "d": D // H}
    exec(code, space)
    return space["Attention"]


class Port(nn.Module):
    """A model of transformers with an attention that was written anew."""

    def __init__(self, name: str, theirs: nn.Module, attention: type[nn.Module]):
        super().__init__()
        self.theirs = theirs
        blocks = {"gpt2": "h", "llama": "layers", "bert": "encoder.layer"}[name]
        part = {"gpt2": "attn", "llama": "self_attn", "bert": "attention"}[name]
        self.blocks = theirs.get_submodule(blocks)
        self.attention = nn.ModuleList(attention(block.get_submodule(part)) for block in self.blocks)

    def forward(self, ids, attention_mask):
        of = self.theirs
        if hasattr(of, "embeddings"):  # BERT
            x = of.embeddings(ids)
            for block, attention in zip(self.blocks, self.attention, strict=True):
                x = block.attention.output.LayerNorm(x + attention(x, attention_mask))
                x = block.output(block.intermediate(x), x)
            return x
        is_llama = hasattr(of, "embed_tokens")
        x = of.embed_tokens(ids) if is_llama else of.wte(ids) + of.wpe(torch.arange(ids.shape[1]))
        names = ("input_layernorm", "post_attention_layernorm") if is_llama else ("ln_1", "ln_2")
        for block, attention in zip(self.blocks, self.attention, strict=True):
            before, after = map(block.get_submodule, names)
            x = x + attention(before(x), attention_mask)
            x = x + block.mlp(after(x))
        return x
