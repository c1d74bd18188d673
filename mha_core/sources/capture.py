"""What flows through somebody else's model: one attention function, and a collector that one thread has.

The model is prepared once, before anybody shares it: hooks that do nothing unless a collector is active
in the context of the thread that runs. So traces of one model in many threads never meet.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn

from mha_core.attention import Attended, Projections, attend, attention_weights
from mha_core.layer import LayerTrace
from mha_core.rule import ScoreRule
from mha_core.sources import latent, wiring
from mha_core.sources.additive import Parts
from mha_core.sources.wiring import Leaf, Wiring

ATTENTION = re.compile(r"att(n|ention)", re.IGNORECASE)  # where matrices of q, k and v are looked for
CROSS = re.compile(r"cross|encdec|encoder_attn|enc_dec|src_attn", re.IGNORECASE)
CROSS_INPUTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states")
# What a latent attention (MLA) says of itself, and in which words we say it.
LATENT = {
    "kv_lora_rank": "kv_rank",
    "q_lora_rank": "q_rank",
    "qk_rope_head_dim": "rotary_width",
    "qk_nope_head_dim": "plain_width",
    "v_head_dim": "value_width",
}
# The norm that a short vector goes through before queries, or keys and values, are made of it.
SHORT = {"q_short": "q_a_layernorm", "kv_short": "kv_a_layernorm"}

_active: ContextVar["Collector | None"] = ContextVar("headscope_collector", default=None)


@dataclass(eq=False)
class Call:
    """One attention call: what went in, by which rule, and what was found out about it."""

    name: str
    module: nn.Module | None
    q: Tensor
    k: Tensor
    v: Tensor
    rule: ScoreRule
    looks_outside: bool
    wiring: Wiring = field(default_factory=Wiring)
    w_o: tuple[Tensor, Tensor | None] | None = None
    versions: tuple[int, ...] = ()
    x_version: int = 0
    short: dict[str, Leaf] = field(default_factory=dict)  # of a latent attention (MLA)

    def __post_init__(self):
        self.versions = tuple(t._version for t in (self.q, self.k, self.v))

    @property
    def is_as_it_was(self) -> bool:
        """False if the model has changed q, k or v in place since."""
        return self.versions == tuple(t._version for t in (self.q, self.k, self.v))


class Collector:
    """The calls of one forward pass, in order."""

    def __init__(self, names: Mapping[int, str]):
        self.calls: list[Call] = []
        self.parts = Parts()
        self._names = names
        self._leaves: list[Leaf] = []
        self._frames: list[tuple[str, dict]] = []  # attention modules that were entered since the last call
        # The heads' outputs side by side and their version, until W^O takes them.
        self._joined: tuple[Tensor, int] | None = None

    def add(self, module: nn.Module | None, q: Tensor, k: Tensor, v: Tensor, rule: ScoreRule, joined: Tensor):
        """A call and its result, (1, query, head, d_v)."""
        inner = self._frames[-1][0] if self._frames else ""
        name = self._names.get(id(module), inner)
        inputs = {key: value for _, frame in self._frames for key, value in frame.items()}
        outside = any(inputs.get(key) is not None for key in CROSS_INPUTS) or CROSS.search(name) is not None
        call = Call(name, module, q, k, v, rule, outside)
        if q.shape[0] == 1:
            norms = {
                id(norm): name
                for name, of in SHORT.items()
                if (norm := getattr(module, of, None)) is not None
            }
            call.short = {norms[id(leaf.module)]: leaf for leaf in self._leaves if id(leaf.module) in norms}
            codes = inputs.get("position_embeddings")
            if outside:
                call.wiring = Wiring(x=_queries_input(inputs, q))
            else:
                call.wiring = wiring.find(q, k, v, self._leaves, codes if _is_pair(codes) else None)
                if call.wiring.rotary is None and (width := getattr(module, "qk_rope_head_dim", None)):
                    call.wiring = latent.turned(call.wiring, q, k, self._leaves, codes, width=width)
                if call.wiring.x is None:
                    call.wiring = call.wiring._replace(x=_queries_input(inputs, q))
            if (x := call.wiring.x) is not None:
                call.x_version = x._version
        self.calls.append(call)
        self._leaves, self._frames, self._joined = [], [], (joined, joined._version)

    def entered(self, name: str, args: tuple, kwargs: dict) -> None:
        """An attention module was called; the arguments that matter are kept until the attention itself."""
        kept = {key: kwargs[key] for key in ("position_embeddings", *CROSS_INPUTS) if key in kwargs}
        hidden = kwargs.get("hidden_states", args[0] if args else None)
        if isinstance(hidden, Tensor):
            kept["hidden_states"] = hidden
        self._frames.append((name, kept))

    def left(self, leaf: Leaf, near: bool) -> None:
        """A matrix was used; it is W^O if it took the heads' outputs, unchanged, right after attention."""
        if self._joined is not None and leaf.module.weight.dim() == 2:
            joined, version = self._joined
            fits = leaf.x.numel() == joined.numel() and leaf.x.dtype == joined.dtype
            fits &= joined._version == version  # a model may change them in place before it joins them
            same = leaf.x.data_ptr() == joined.data_ptr() and leaf.x.is_contiguous()
            if fits and (same or torch.equal(leaf.x.reshape(-1), joined.flatten())):
                self.calls[-1].w_o = wiring.matrix(leaf)
                self._joined = None
                return
        if near:
            self._leaves.append(leaf)


@contextmanager
def collecting(names: Mapping[int, str]) -> Iterator[Collector]:
    """While this is entered, what models with our hooks compute in this thread is collected."""
    collector = Collector(names)
    token = _active.set(collector)
    try:
        yield collector
    finally:
        _active.reset(token)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    sinks: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """`attend` with the arguments of the interface for attention functions. → (batch, query, head, d_v)

    The mask is that of the eager implementation: it has causality, windows and padding in it.
    """
    collector = _active.get()
    sinks = s_aux if sinks is None else sinks
    rule = (Parts() if collector is None else collector.parts).rule(
        attention_mask,
        position_bias,
        n_query=query.shape[-2],
        n_key=key.shape[-2],
        scale=None if scaling is None else float(scaling),
        soft_cap=softcap,
        sinks=None if sinks is None else sinks.detach().reshape(-1),
    )
    joined = attend(query, key, value, rule).transpose(1, 2).contiguous()
    if collector is not None:
        collector.add(module, query, key, value, rule, joined)
    return joined, None


def watch(model: nn.Module) -> dict[int, str]:
    """Prepare a model, once: hooks on its matrices and attention modules. → each module's name by its id"""
    names = {}
    for name, module in model.named_modules():
        names[id(module)] = name
        near = ATTENTION.search(name) is not None
        if next(module.children(), None) is not None:
            if near:
                module.register_forward_pre_hook(partial(_on_entering, name), with_kwargs=True)
            continue
        weight = getattr(module, "weight", None)
        if (
            isinstance(weight, Tensor)
            and not isinstance(module, nn.Embedding)
            and (weight.dim() == 2 or near)
        ):
            module.register_forward_hook(partial(_on_leaving, near))
    return names


def _on_entering(name: str, _: nn.Module, args: tuple, kwargs: dict) -> None:
    collector = _active.get()
    if collector is not None:
        collector.entered(name, args, kwargs)


def _on_leaving(near: bool, module: nn.Module, args: tuple, output: object) -> None:
    collector = _active.get()
    if collector is not None and args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
        collector.left(Leaf.of(module, args[0], output), near)


def layer(call: Call, kind: str, shared: dict) -> LayerTrace:
    """A call as a layer of a trace. `shared` holds what several layers have in common, for one trace."""
    known, about = call.wiring, {}
    if known.x is not None and known.x._version != call.x_version:  # changed in place since, by a sum perhaps
        known = known._replace(x=None, projections=Projections())
    traced = LayerTrace.of(
        Attended(call.q, call.q, call.k, call.v, call.rule),
        x=known.x,
        projections=_with_output(known.projections, call.w_o),
        kind=kind,
        name=call.name,
    )
    tensors = dict(traced.tensors)
    if known.rotary is not None:
        about["rotary"] = {"form": known.rotary.form, "width": known.rotary.cos.shape[-1]}
        if known.rotary.start:
            about["rotary"]["start"] = known.rotary.start
        tensors |= {"q_raw": _kept(known.q_raw[0]), "k_raw": _kept(known.k_raw[0])}
        for key in ("cos", "sin"):
            given = getattr(known.rotary, key)
            same = [kept for kept in shared.get(key, ()) if kept.shape == given.shape]
            same = [kept for kept in same if torch.equal(kept, given.to("cpu"))]
            if not same:
                same = [_kept(given)]
                shared.setdefault(key, []).extend(same)
            tensors[key] = same[0]
    if isinstance(getattr(call.module, "kv_lora_rank", None), int):
        sizes = {ours: getattr(call.module, theirs, None) for theirs, ours in LATENT.items()}
        about["latent"] = {ours: size for ours, size in sizes.items() if isinstance(size, int)}
        tensors |= {name: _kept(leaf.y[0]) for name, leaf in call.short.items() if leaf.is_as_it_was}
    return replace(traced, tensors=MappingProxyType(tensors), about=MappingProxyType(about))


def weights(call: Call) -> Tensor:
    """The weights of a call, (batch, head, query, key)."""
    sizes = {"n_query": call.q.shape[-2], "n_key": call.k.shape[-2]}
    return attention_weights(call.q, call.k, call.rule.at(slice(None), slice(None), **sizes))


def _with_output(projections: Projections, w_o: tuple[Tensor, Tensor | None] | None) -> Projections:
    return projections if w_o is None else projections._replace(w_o=w_o[0], b_o=w_o[1])


def _kept(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)


def _queries_input(inputs: dict, q: Tensor) -> Tensor | None:
    """The hidden states that the attention module was handed, if there is one of them for each query."""
    hidden = inputs.get("hidden_states")
    fits = hidden is not None and hidden.dim() == 3 and hidden.shape[:2] == (q.shape[0], q.shape[2])
    return hidden if fits else None


def _is_pair(codes: object) -> bool:
    return isinstance(codes, tuple) and len(codes) == 2 and all(isinstance(c, Tensor) for c in codes)
