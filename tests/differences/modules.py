"""Multi-head attention as students write it, in four styles, and faults to plant in them.

A fault is the mistake that it is, a part of the code and what stands in its place.
"""

# ruff: noqa: E501

LINEAR = """
import math, torch
from torch import nn
import torch.nn.functional as F

class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads, dropout=0.1):
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.d_k = d_model // num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def split_heads(self, x):
        batch, length, _ = x.shape
        return x.view(batch, length, self.num_heads, self.d_k).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        batch = query.shape[0]
        q = self.split_heads(self.W_q(query))
        k = self.split_heads(self.W_k(key))
        v = self.split_heads(self.W_v(value))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = torch.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        out = torch.matmul(weights, v)
        out = out.transpose(1, 2).contiguous().view(batch, -1, self.d_model)
        return self.W_o(out)
"""
EINSUM = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.h, self.dim, self.dh = heads, dim, dim // heads
        self.query = nn.Parameter(torch.randn(heads, dim, self.dh))
        self.key = nn.Parameter(torch.randn(heads, dim, self.dh))
        self.value = nn.Parameter(torch.randn(heads, dim, self.dh))
        self.out = nn.Parameter(torch.randn(heads, self.dh, dim))

    def forward(self, x):
        q = torch.einsum("bnd,hdk->bhnk", x, self.query)
        k = torch.einsum("bnd,hdk->bhnk", x, self.key)
        v = torch.einsum("bnd,hdk->bhnk", x, self.value)
        scores = torch.einsum("bhnk,bhmk->bhnm", q, k) * self.dh ** -0.5
        n = x.shape[1]
        keep = torch.ones(n, n, dtype=torch.bool).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
        weights = scores.softmax(dim=-1)
        heads = torch.einsum("bhnm,bhmk->bhnk", weights, v)
        return torch.einsum("bhnk,hkd->bnd", heads, self.out)
"""
PACKED = """
import math, torch
from torch import nn
from torch.nn import functional as F

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head, self.n_embd = config.n_head, config.n_embd
        self.dropout = config.dropout
        size = config.block_size
        self.register_buffer("bias", torch.tril(torch.ones(size, size)).view(1, 1, size, size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = F.dropout(att, self.dropout, training=self.training)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)
"""
HEADS = """
import torch
from torch import nn

class Head(nn.Module):
    def __init__(self, d_model, d_head):
        super().__init__()
        self.q = nn.Linear(d_model, d_head, bias=False)
        self.k = nn.Linear(d_model, d_head, bias=False)
        self.v = nn.Linear(d_model, d_head, bias=False)

    def forward(self, x, mask):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(~mask, float("-inf"))
        return s.softmax(-1) @ v

class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(d_model, d_model // n_heads) for _ in range(n_heads))
        self.linear_out = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        return self.linear_out(torch.cat([head(x, mask) for head in self.heads], dim=-1))
"""
GROUPED = """
import math, torch
from torch import nn

class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.d = n_heads, n_kv_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, n_heads * self.d, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.o_proj = nn.Linear(n_heads * self.d, d_model, bias=False)

    def forward(self, hidden_states, attention_mask=None):
        b, n, _ = hidden_states.shape
        q = self.q_proj(hidden_states).view(b, n, self.n_heads, self.d).transpose(1, 2)
        k = self.k_proj(hidden_states).view(b, n, self.n_kv_heads, self.d).transpose(1, 2)
        v = self.v_proj(hidden_states).view(b, n, self.n_kv_heads, self.d).transpose(1, 2)
        times = self.n_heads // self.n_kv_heads
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        scores = q @ k.mT / math.sqrt(self.d)
        if attention_mask is not None:
            scores = scores + attention_mask
        heads = scores.softmax(-1) @ v
        return self.o_proj(heads.transpose(1, 2).reshape(b, n, -1))
"""

FAULTS = {
    "linear": (
        LINEAR,
        [
            ("scale=1", " / math.sqrt(self.d_k)", ""),
            ("scale=√d_model", "math.sqrt(self.d_k)", "math.sqrt(self.d_model)"),
            ("scale=d_k", "math.sqrt(self.d_k)", "self.d_k"),
            ("scale=times", "/ math.sqrt(self.d_k)", "* math.sqrt(self.d_k)"),
            ("scale=√h", "math.sqrt(self.d_k)", "math.sqrt(self.num_heads)"),
            ("scale=after", "/ math.sqrt(self.d_k)\n", "\n", "dim=-1)\n", "dim=-1) / math.sqrt(self.d_k)\n"),
            ("softmax=queries", "dim=-1", "dim=-2"),
            ("softmax=heads", "dim=-1", "dim=1"),
            ("softmax=texts", "dim=-1", "dim=0"),
            ("softmax=missing", "torch.softmax(scores, dim=-1)", "scores"),
            ("mask=lost", "scores.masked_fill(mask == 0, -1e9)", "scores"),
            ("mask=zero", "-1e9", "1e-9"),
            ("mask=zero", "-1e9", "0"),
            (
                "mask=after",
                "            scores = scores.masked_fill(mask == 0, -1e9)\n        weights = torch.softmax(scores, dim=-1)",
                "            weights = torch.softmax(scores, -1) * mask\n        else:\n            weights = torch.softmax(scores, -1)",
            ),
            ("mask=transposed", "mask == 0", "mask.transpose(-2, -1) == 0"),
            (
                "split=view",
                "x.view(batch, length, self.num_heads, self.d_k).transpose(1, 2)",
                "x.view(batch, self.num_heads, length, self.d_k)",
            ),
            (
                "split=interleaved",
                "x.view(batch, length, self.num_heads, self.d_k).transpose(1, 2)",
                "x.view(batch, length, self.d_k, self.num_heads).permute(0, 3, 1, 2)",
            ),
            (
                "join=view",
                "out.transpose(1, 2).contiguous().view(batch, -1, self.d_model)",
                "out.contiguous().view(batch, -1, self.d_model)",
            ),
            (
                "join=interleaved",
                "out.transpose(1, 2).contiguous().view(",
                "out.permute(0, 2, 3, 1).contiguous().view(",
            ),
            ("join=reversed", "out.transpose(1, 2)", "out.flip(1).transpose(1, 2)"),
            ("matrices=kqv", "self.W_q(query)", "self.W_k(query)", "self.W_k(key)", "self.W_q(key)"),
            ("matrices=qvk", "self.W_k(key)", "self.W_v(key)", "self.W_v(value)", "self.W_k(value)"),
            ("matrices=qqv", "self.W_k(key)", "self.W_q(key)"),
            ("matrices=qkk", "self.W_v(value)", "self.W_k(value)"),
            ("output=lost", "return self.W_o(out)", "return out"),
            ("output=no bias", "self.W_o(out)", "out @ self.W_o.weight.T"),
            (
                "bias=lost",
                "self.W_q(query)",
                "query @ self.W_q.weight.T",
                "self.W_k(key)",
                "key @ self.W_k.weight.T",
                "self.W_v(value)",
                "value @ self.W_v.weight.T",
            ),
            ("dropout=on", "self.dropout(weights)", "F.dropout(weights, 0.1)"),
            (
                "split=kept & join=view",
                "self.d_k).transpose(1, 2)",
                "self.d_k)",
                "out.transpose(1, 2).contiguous()",
                "out.contiguous()",
            ),
            ("scale=√h & mask=zero", "math.sqrt(self.d_k)", "math.sqrt(self.num_heads)", "-1e9", "0"),
            ("output=lost", "self.W_o", "self.blend", "return self.blend(out)", "return out"),
        ],
    ),
    "einsum": (
        EINSUM,
        [
            ("scale=1", " * self.dh ** -0.5", ""),
            ("scale=√d_model", "self.dh ** -0.5", "self.dim ** -0.5"),
            ("mask=transposed", ".tril()", ".triu()"),
            ("mask=inverted", "masked_fill(~keep", "masked_fill(keep"),
            ("mask=earlier", ".tril()", ".tril(-1)"),
            ("mask=later", ".tril()", ".tril(1)"),
            ("softmax=queries", "dim=-1", "dim=-2"),
            ("softmax=heads", "dim=-1", "dim=1"),
            (
                "mask=earlier",
                "forward(self, x)",
                "forward(self, x, causal=False)",
                "        scores = scores.masked_fill(",
                "        if causal: scores = scores.masked_fill(",
                ".tril()",
                ".tril(-1)",
            ),
            (
                "mask=lost",
                "dim, heads):",
                "dim, heads, causal=False):",
                '        scores = scores.masked_fill(~keep, float("-inf"))\n',
                "",
            ),
            ("mixing=transposed", '"bhnm,bhmk->bhnk", weights', '"bhmn,bhmk->bhnk", weights'),
            ("matrices=qkk", "x, self.value)", "x, self.key)"),
            (
                "matrices=kqv",
                "x, self.query)",
                "x, self.key_)",
                "x, self.key)",
                "x, self.query)",
                "self.key_)",
                "self.key)",
            ),
        ],
    ),
    "packed": (
        PACKED,
        [
            ("matrices=kqv", "q, k, v = self", "k, q, v = self"),
            ("matrices=qvk", "q, k, v = self", "q, v, k = self"),
            ("scale=1", " * (1.0 / math.sqrt(k.size(-1)))", ""),
            ("scale=√d_model", "math.sqrt(k.size(-1))", "math.sqrt(C)"),
            ("mask=earlier", "torch.ones(size, size))", "torch.ones(size, size), -1)"),
            ("mask=inverted", ":T] == 0", ":T] == 1"),
            ("softmax=queries", "dim=-1", "dim=2"),
            ("join=view", "y.transpose(1, 2).contiguous()", "y.contiguous()"),
            ("dropout=on", ", training=self.training", ""),
            (
                "dropout=on",
                "y = att @ v",
                "y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)",
            ),
            ("output=lost", "self.c_proj(y)", "y"),
            ("bias=lost", "self.c_attn(x)", "F.linear(x, self.c_attn.weight)"),
        ],
    ),
    "heads": (
        HEADS,
        [
            ("scale=1", " / q.shape[-1] ** 0.5", ""),
            ("join=reversed", "for head in self.heads]", "for head in reversed(self.heads)]"),
            (
                "join=interleaved",
                "torch.cat([head(x, mask) for head in self.heads], dim=-1)",
                "torch.stack([head(x, mask) for head in self.heads], dim=-1).flatten(2)",
            ),
            ("softmax=queries", "softmax(-1)", "softmax(1)"),
            ("matrices=kqv", "self.q(x), self.k(x), self.v(x)", "self.k(x), self.q(x), self.v(x)"),
            ("mask=zero", 'float("-inf")', "0.0"),
            ("matrices=qkk", "self.v(x)", "self.k(x)"),
        ],
    ),
    "grouped": (
        GROUPED,
        [
            (
                "repeat=in turn",
                "k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)",
                "k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1)",
            ),
            (
                "repeat=in turn",
                "def __init__(self, d_model, n_heads, n_kv_heads):",
                "def __init__(self, config):\n        d_model, n_heads, n_kv_heads = config.dim, config.n_heads, config.n_kv_heads",
                "k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)",
                "k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1)",
            ),
            ("scale=√d_model", "math.sqrt(self.d)", "math.sqrt(self.d * self.n_heads)"),
            ("mask=lost", "scores + attention_mask", "scores"),
            (
                "output=lost",
                "self.o_proj(heads.transpose(1, 2).reshape(b, n, -1))",
                "heads.transpose(1, 2).reshape(b, n, -1)",
            ),
        ],
    ),
}
# Correct code that looks different.
VARIANTS = {
    "a fused function": (
        "linear",
        "        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)\n        if mask is not None:\n            scores = scores.masked_fill(mask == 0, -1e9)\n        weights = torch.softmax(scores, dim=-1)\n        weights = self.dropout(weights)\n        out = torch.matmul(weights, v)\n",
        "        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)\n",
    ),
    "queries scaled": (
        "linear",
        "torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)",
        "torch.matmul(q / math.sqrt(self.d_k), k.transpose(-2, -1))",
    ),
    "a mask that is added": ("linear", "scores.masked_fill(mask == 0, -1e9)", "scores + mask"),
    "True hides": ("linear", "mask == 0", "mask == 1"),
    "mask and renormalise": (
        "linear",
        "        weights = self.dropout(weights)\n",
        "        if mask is not None:\n            weights = torch.softmax(scores, -1) * (mask != 0)\n            weights = weights / weights.sum(-1, keepdim=True)\n",
    ),
    "folded heads": (
        "linear",
        "        out = torch.matmul(weights, v)\n",
        "        n, m = weights.shape[-2:]\n        out = torch.bmm(weights.reshape(-1, n, m), v.reshape(-1, m, self.d_k)).view(batch, self.num_heads, n, -1)\n",
    ),
    "other letters": ("einsum", '"bhnk,bhmk->bhnm", q, k', '"bhik,bhjk->bhij", q, k'),
    "other order of axes": (
        "einsum",
        '"bnd,hdk->bhnk", x, self.value',
        '"bnd,hdk->bnhk", x, self.value',
        '"bhnm,bhmk->bhnk"',
        '"bhnm,bmhk->bhnk"',
    ),
    "fused and causal": (
        "packed",
        '        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))\n        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))\n        att = F.softmax(att, dim=-1)\n        att = F.dropout(att, self.dropout, training=self.training)\n        y = att @ v\n',
        "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n",
    ),
    "a switch for the mask": (
        "einsum",
        "dim, heads):\n        super().__init__()",
        "dim, heads, causal=False):\n        super().__init__()\n        self.causal = causal",
        "        scores = scores.masked_fill(",
        "        if self.causal: scores = scores.masked_fill(",
    ),
    "each head's q, k and v beside each other": (
        "packed",
        "q, k, v = self.c_attn(x).split(self.n_embd, dim=2)",
        "q, k, v = (one.flatten(2) for one in self.c_attn(x).view(B, T, self.n_head, -1).chunk(3, dim=-1))",
    ),
    "values first, and a mask that must be given": (
        "linear",
        "query, key, value, mask=None",
        "value, key, query, mask",
        "dropout=0.1",
        "dropout, device",
    ),
    "keys defined first": (
        "linear",
        "        self.W_q = nn.Linear(d_model, d_model)\n",
        "",
        "        self.W_o =",
        "        self.W_q = nn.Linear(d_model, d_model)\n        self.W_o =",
        "W_q",
        "q_proj",
        "W_k",
        "to_keys",
        "W_v",
        "v_proj",
    ),
    "a softmax in single precision": (
        "linear",
        "torch.softmax(scores, dim=-1)",
        "torch.softmax(scores.float(), dim=-1).type_as(v)",
    ),
    "scores in half precision": (
        "linear",
        "torch.matmul(q, k.transpose(-2, -1))",
        "torch.matmul(q.bfloat16(), k.transpose(-2, -1).bfloat16()).to(q)",
    ),
    "a causal module with padding": (
        "packed",
        "forward(self, x)",
        "forward(self, x, padding_mask=None)",
        "        att = F.softmax(",
        "        if padding_mask is not None:\n            att = att.masked_fill(~padding_mask[:, None, None, :], float('-inf'))\n        att = F.softmax(",
    ),
    "one text at a time": ("heads", "k.transpose(1, 2)", "k.T"),
    "one key for all queries, packed": (
        "packed",
        "3 * config.n_embd",
        "config.n_embd + 2 * (config.n_embd // config.n_head)",
        "split(self.n_embd, dim=2)",
        "split([C, C // self.n_head, C // self.n_head], dim=2)",
        "k = k.view(B, T, self.n_head,",
        "k = k.view(B, T, 1,",
        "v = v.view(B, T, self.n_head,",
        "v = v.view(B, T, 1,",
    ),
    "weights with the output": ("linear", "return self.W_o(out)", "return self.W_o(out), weights"),
    "softmax by hand": (
        "heads",
        "s.softmax(-1)",
        "((s - s.amax(-1, keepdim=True)).exp() / (s - s.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True))",
    ),
    "expanded keys": (
        "grouped",
        "k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)",
        "(one[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2) for one in (k, v))",
    ),
}


def changed(code: str, *changes: str) -> str:
    """The code with parts replaced, given in turn: a part and what stands in its place."""
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in code, old
        code = code.replace(old, new)
    return code


def solved(exercise: str) -> str:
    """The code of an exercise with its holes filled."""
    solutions = {
        "split": "x.view(*x.shape[:2], -1, self.d_k).transpose(1, 2)",
        "scores": "q @ k.mT / self.d_k**0.5",
        "weights": "scores.softmax(-1)",
        "join": "heads.transpose(1, 2).flatten(2)",
        "share": "x.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)",
    }
    for hole, solution in solutions.items():
        exercise = exercise.replace(f'raise NotImplementedError("{hole}")', f"return {solution}")
    return exercise
