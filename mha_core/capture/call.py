"""One attention call of a model: its queries, keys and values, what made them, and its layer in a trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.functional import attention_weights
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.masks import Choice, hidden_by
from mha_core.capture.rotary import RotaryCode
from mha_core.traces.facts import Adjustments, Facts, LatentProjection, OutputGate, Rotary
from mha_core.traces.layer import LayerTrace
from mha_core.traces.projections import ModelProjections, Part, Reference
from mha_core.traces.tensors import compact, copied, on_cpu

# The sizes of latent attention (MLA): their names in models, and ours.
LATENT = {
    "kv_lora_rank": "kv_rank",
    "q_lora_rank": "q_rank",
    "qk_rope_head_dim": "rotary_width",
    "qk_nope_head_dim": "plain_width",
    "v_head_dim": "value_width",
}


class Index(NamedTuple):
    """The choice of a learned index for a call, the scores behind it, and the mask without the choice."""

    choice: Choice
    scores: Tensor | None  # (batch, [index head,] query, block)
    mask: Tensor | None  # (batch, head or 1, query, key)

    def tensors(self) -> dict[str, Tensor]:
        """Scores and choice of the first text, as a layer keeps them."""
        tensors = {"index_choice": self.choice.by_head[0]}
        if self.scores is not None:
            scores = self.scores[0] if self.scores.dim() == 4 else self.scores[0, None]
            hidden = hidden_by(scores)
            if self.mask is not None and self.mask.shape[-1] == scores.shape[-1]:
                hidden = hidden | ~self.mask[0]
            tensors["index_scores"] = scores.masked_fill(hidden, float("-inf"))
        return tensors


@dataclass(eq=False)
class Call:
    """One attention call; q, k, v and `tensors` are copies, which the model cannot change."""

    name: str
    module: nn.Module | None
    q: Tensor
    k: Tensor
    v: Tensor
    rule: ScoreRule
    looks_outside: bool
    tensors: Mapping[str, Tensor] = field(default_factory=dict)  # more of the layer, without a batch axis
    projections: Mapping[str, Tensor | Part] = field(default_factory=dict)  # without W^O
    code: RotaryCode | None = None
    adjustments: Adjustments | None = None
    output: Mapping[str, Reference | None] = field(default_factory=dict)  # W^O and its bias
    # Steps between the heads' outputs and W^O; their values are among the tensors.
    gate: OutputGate | None = None
    output_rotary: Rotary | None = None
    index: Index | None = None

    def layer(self, kind: str, common: dict) -> LayerTrace:
        """The call as a layer of a trace. `common` holds the tensors that the layers of one trace share."""
        tensors = {"q": self.q[0], "k": self.k[0], "v": self.v[0], **self.tensors}
        projections = dict(self.projections)
        if kind != "cross" and "x_v" in tensors:  # its keys are neither of this text nor of the other one
            del tensors["x_v"]
            projections = {}
        tensors = {name: on_cpu(tensor) for name, tensor in tensors.items()}
        if self.code is not None:
            tensors |= _shared_code(self.code, common)
        if self.index is not None:
            tensors |= _shared_index(self.index, common)
        facts = Facts(
            latent=_latent(self.module),
            gate=self.gate,
            output_rotary=self.output_rotary,
            rotary=None if self.code is None else self.code.fact,
            index_block=None if self.index is None else self.index.choice.size,
            adjustments=self.adjustments if "w_q" in projections else None,
        )
        return LayerTrace(
            MappingProxyType(tensors),
            self.rule.item(0).mapped(compact) if self.rule.tensors() else self.rule,
            ModelProjections({**projections, **self.output}),
            kind,
            self.name,
            facts,
        )

    def weights(self) -> Tensor:
        """The weights of the call, (batch, head, query, key)."""
        sizes = {"n_query": self.q.shape[-2], "n_key": self.k.shape[-2]}
        return attention_weights(self.q, self.k, self.rule.at(slice(None), slice(None), **sizes))


def attribute(module: nn.Module | None, name: str) -> Any:
    """An attribute of a module, None where it has none: `getattr` is slow for a missing attribute."""
    return None if module is None else vars(module).get(name)


def _latent(module: nn.Module | None) -> LatentProjection | None:
    sizes = {ours: attribute(module, theirs) for theirs, ours in LATENT.items()}
    sizes = {ours: size for ours, size in sizes.items() if isinstance(size, int)}
    return LatentProjection(**sizes) if "kv_rank" in sizes else None


def _shared_index(index: Index, common: dict) -> dict[str, Tensor]:
    """The tensors of an index, kept once for all layers that use its choice."""
    shared = common.setdefault("indices", {})
    key = tuple(map(id, (index.choice.blocks, index.scores, index.mask)))
    if key not in shared:
        tensors = {name: on_cpu(copied(tensor)) for name, tensor in index.tensors().items()}
        if index.mask is not None:
            masks = common.setdefault("dense", {})
            tensors["dense_mask"] = masks.setdefault(id(index.mask), compact(index.mask[0]))
        shared[key] = (index, tensors)  # keeping the index keeps the ids valid
    return shared[key][1]


def _shared_code(code: RotaryCode, common: dict) -> dict[str, Tensor]:
    """The cosines and sines of a rotary code, kept once for all layers with equal ones."""
    for other, tensors in common.setdefault("codes", []):
        pairs = ((getattr(other, name), getattr(code, name)) for name in ("cos", "sin"))
        if other is code or all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs):
            return tensors
    tensors = {"cos": on_cpu(copied(code.cos)), "sin": on_cpu(copied(code.sin))}
    common["codes"].append((code, tensors))
    return tensors
