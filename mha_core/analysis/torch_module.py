"""A layer as one `nn.Module` to copy: its sizes are the defaults, its names those of the formulas."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mha_core.attention.latent import EPSILON, LatentAttention, LatentSpec
from mha_core.attention.module import AttentionSpec
from mha_core.attention.score_rule import ScoreRule
from mha_core.traces.layer import LayerTrace
from mha_core.traces.verify import product_difference, projection_parts

ROUNDING = 1e-4  # of X W: with a larger difference the layer does more than the module
MATRICES = ("q", "k", "v", "o")
# What stands behind # in the module, by name; the app has them in the reader's language (`code.…`).
COMMENTS = (
    "input",
    "project",
    "shared",
    "latent",
    "position",
    "scores",
    "softmax",
    "mix",
    "concat",
    "output",
)
SPLIT = """\
    def split(self, columns, heads):
        return columns.unflatten(-1, (heads, -1)).transpose(1, 2)"""
ROTATE = """\


def rotate(x):
    length, width = x.shape[-2:]
    angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    first, second = x.chunk(2, dim=-1)
    return x * angle.cos().repeat(1, 2) + torch.cat([-second, first], dim=-1) * angle.sin().repeat(1, 2)
"""
ATTEND = """\
        scores = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5  # {scores}
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        A = scores.softmax(dim=-1).nan_to_num()  # {softmax}
        heads = A @ V  # {mix}
        concat = heads.transpose(1, 2).flatten(2)  # {concat}
        return self.W_O(concat)  # {output}"""


def module(
    spec: AttentionSpec | LatentSpec, about: str, comments: Mapping[str, str], biases: str = ""
) -> str:
    """The code of the module, `about` as its docstring; `biases` are the letters of MATRICES with a bias."""
    rotates = isinstance(spec, LatentSpec) and spec.rotary_width
    lines = _latent(spec) if isinstance(spec, LatentSpec) else _heads(spec, biases)
    matrices, names, forward = lines
    sizes = ", ".join(f"{name}={size}" for name, size in names.items())
    made = "\n".join(f"        self.{name} = {part}" for name, part in matrices.items())
    kept = "\n".join(f"        self.{name} = {name}" for name in names if name.startswith("num_"))
    code = f'''\
import torch
from torch import nn
{ROTATE if rotates else ""}

class MultiHeadAttention(nn.Module):
    """{about}"""

    def __init__(self, {sizes}):
        super().__init__()
{kept}
{made}

    def forward(self, X, mask=None):
        # {{input}}
{forward}
{ATTEND}

{SPLIT}
'''
    return code.format_map(comments)


def _linear(rows: str, columns: str, *, bias: bool = False) -> str:
    return f"nn.Linear({rows}, {columns}, bias={bias})"


def _heads(spec: AttentionSpec, biases: str) -> tuple[dict[str, str], dict[str, int], str]:
    names = {"d_model": spec.d_model, "num_heads": spec.n_heads}
    shares = spec.n_kv_heads < spec.n_heads
    names |= {"num_kv_heads": spec.n_kv_heads} if shares else {}
    names |= {"d_k": spec.d_k, "d_v": spec.d_v}
    kv = "num_kv_heads" if shares else "num_heads"
    widths = {"q": "num_heads * d_k", "k": f"{kv} * d_k", "v": f"{kv} * d_v"}
    made = {
        f"W_{name.upper()}": _linear("d_model", width, bias=name in biases) for name, width in widths.items()
    }
    made["W_O"] = _linear("num_heads * d_v", "d_model", bias="o" in biases)
    forward = ["Q = self.split(self.W_Q(X), self.num_heads)  # {project}"]
    forward += [f"{name} = self.split(self.W_{name}(X), self.{kv})" for name in "KV"]
    if shares:
        forward += ["group = self.num_heads // self.num_kv_heads  # {shared}"]
        forward += ["K, V = (one.repeat_interleave(group, dim=1) for one in (K, V))"]
    return made, names, _indented(forward)


def _latent(spec: LatentSpec) -> tuple[dict[str, str], dict[str, int], str]:
    names = {"d_model": spec.d_model, "num_heads": spec.n_heads, "d_k": spec.d_k, "d_v": spec.d_v}
    names |= {"kv_rank": spec.kv_rank}
    made, source = {}, "X"
    forward = []
    if spec.q_rank is not None:
        names["q_rank"] = spec.q_rank
        made = {"W_DQ": _linear("d_model", "q_rank"), "norm_Q": f"nn.RMSNorm(q_rank, eps={EPSILON!r})"}
        forward, source = ["c_Q = self.norm_Q(self.W_DQ(X))"], "c_Q"
    entry = "d_model" if spec.q_rank is None else "q_rank"
    made |= {"W_UQ": _linear(entry, "num_heads * d_k"), "W_DKV": _linear("d_model", "kv_rank")}
    made |= {"norm_KV": f"nn.RMSNorm(kv_rank, eps={EPSILON!r})"}
    made |= {"W_UK": _linear("kv_rank", "num_heads * d_k"), "W_UV": _linear("kv_rank", "num_heads * d_v")}
    made["W_O"] = _linear("num_heads * d_v", "d_model")
    forward += [f"Q = self.split(self.W_UQ({source}), self.num_heads)  # {{project}}"]
    forward += ["c_KV = self.norm_KV(self.W_DKV(X))  # {latent}"]
    forward += ["K, V = (self.split(W(c_KV), self.num_heads) for W in (self.W_UK, self.W_UV))"]
    if spec.rotary_width:
        names["rotary"] = spec.rotary_width
        made |= {"W_QR": _linear(entry, "num_heads * rotary"), "W_KR": _linear("d_model", "rotary")}
        forward += [
            f"Q = torch.cat([Q, rotate(self.split(self.W_QR({source}), self.num_heads))], dim=-1)",
            "k_R = rotate(self.W_KR(X))[:, None].expand(-1, self.num_heads, -1, -1)  # {position}",
            "K = torch.cat([K, k_R], dim=-1)",
        ]
    return made, names, _indented(forward)


def _indented(lines: list[str]) -> str:
    return "\n".join(f"        {line}" for line in lines)


def spec_of(layer: LayerTrace) -> tuple[AttentionSpec, str] | None:
    """The sizes and the biases of a layer that does what the module does; None for one that does more.

    Such a layer has X and all its matrices, one text, and between them nothing but a mask.
    """
    known, about = layer.projections, layer.about
    plain = projection_parts(layer) and layer.sides.same and not layer.knows("x_v") and layer.d_model
    changed = about.latent or layer.adjustments or about.gate or about.output_rotary or layer.knows("w_o_a")
    others = vars(replace(layer.rule, mask=None)) != vars(ScoreRule())
    if not plain or changed or others or known.w_o is None:
        return None
    gap = product_difference(layer)
    if gap is None or gap > ROUNDING * max(1.0, float(np.abs(layer.q).max())):
        return None  # such as a rotation that the trace does not describe
    biases = "".join(name for name in MATRICES if layer.knows(f"b_{name}"))
    d_model = layer.d_model or 0
    return AttentionSpec(d_model, layer.n_heads, layer.n_kv_heads, layer.d_k, layer.d_v), biases


def state(layer: LayerTrace, latent: LatentAttention | None = None) -> dict:
    """The tensors for `load_state_dict` of the module; for latent attention those of our own module."""
    if latent is not None:
        return _latent_state(latent)
    found = {}
    for name in MATRICES:
        found[f"W_{name.upper()}.weight"] = getattr(layer.projections, f"w_{name}").mT
        if (bias := getattr(layer.projections, f"b_{name}")) is not None:
            found[f"W_{name.upper()}.bias"] = bias
    return {name: tensor.float().cpu().contiguous() for name, tensor in found.items()}


def _latent_state(latent: LatentAttention) -> dict:
    spec, found = latent.spec, {"W_O.weight": latent.o.weight, "norm_KV.weight": latent.kv_norm.weight}
    parts = latent.q_up.weight.unflatten(0, (spec.n_heads, -1)).split([spec.d_k, spec.rotary_width], dim=1)
    queries = dict(zip(("W_UQ", "W_QR"), parts, strict=True))
    parts = latent.kv_up.weight.unflatten(0, (spec.n_heads, -1)).split([spec.d_k, spec.d_v], dim=1)
    heads = queries | dict(zip(("W_UK", "W_UV"), parts, strict=True))
    found |= {f"{name}.weight": part.flatten(0, 1) for name, part in heads.items()}
    down = latent.kv_down.weight.split([spec.kv_rank, spec.rotary_width])
    found |= {f"{name}.weight": part for name, part in zip(("W_DKV", "W_KR"), down, strict=True)}
    if spec.q_rank is not None:
        found |= {"W_DQ.weight": latent.q_down.weight, "norm_Q.weight": latent.q_norm.weight}
    return {name: part.detach().cpu().contiguous() for name, part in found.items() if part.numel()}
