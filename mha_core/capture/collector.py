"""What flows through somebody else's model: one attention function, and a collector that one thread has.

The model is prepared once, before anybody shares it: hooks that do nothing unless a collector is active
in the context of the thread that runs. So traces of one model in many threads never meet.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial

import torch
from torch import Tensor, nn

from mha_core.attention.functional import attend
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture import latent, learned, wiring
from mha_core.capture.call import Call, copied, told
from mha_core.capture.leaves import Leaf, is_linear, matrix
from mha_core.capture.masks import Parts
from mha_core.capture.plain import Plain, plain
from mha_core.capture.wiring import Wiring

ATTENTION = re.compile(r"att(n|ention)", re.IGNORECASE)  # where matrices of q, k and v are looked for
NORM = re.compile(r"norm", re.IGNORECASE)  # one without a weight is found by what its class is called
CROSS = re.compile(r"cross|encdec|encoder_attn|enc_dec|src_attn", re.IGNORECASE)
CROSS_INPUTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states")

Attend = Callable[[Tensor, Tensor, Tensor, ScoreRule], Tensor]

_active: ContextVar["Collector | None"] = ContextVar("headscope_collector", default=None)


class Collector:
    """The calls of one forward pass, in order."""

    def __init__(self, names: Mapping[int, str], by: Attend = attend):
        self.by = by
        self.calls: list[Call | Plain] = []  # all of them a `Call` when the pass is over
        self.parts = Parts()
        self._names = names
        self._leaves: list[Leaf] = []
        self._turns: dict = {}  # the rotations of this pass, and the texts that are looked at
        self._texts: dict[tuple, tuple[Tensor, Tensor]] = {}
        # Attention modules that were entered since the last call, with what they were handed.
        self._frames: list[tuple[str, nn.Module | None, dict]] = []
        # The heads' outputs side by side and their version, until W^O takes them.
        self._joined: tuple[Tensor, int] | None = None

    def add(self, module: nn.Module | None, q: Tensor, k: Tensor, v: Tensor, rule: ScoreRule, joined: Tensor):
        """A call and its result, (1, query, head, d_v)."""
        call = plain(module, q, k, v, rule, self._leaves)
        self.calls.append(self._understood(module, q, k, v, rule) if call is None else call)
        self._leaves, self._frames, self._joined = [], [], (joined, joined._version)

    def finish(self) -> None:
        """What could wait until the pass was over."""
        self.calls[:] = [
            call.finished(self._names) if isinstance(call, Plain) else call for call in self.calls
        ]

    def _understood(self, module: nn.Module | None, q: Tensor, k: Tensor, v: Tensor, rule: ScoreRule) -> Call:
        inner = self._frames[-1][0] if self._frames else ""
        name = self._names.get(id(module), inner)
        inputs: dict = {}
        for *_, kept in self._frames:
            inputs |= kept
        outside = any(inputs.get(key) is not None for key in CROSS_INPUTS) or _looks_outside(name)
        call = Call(name, module, copied(q), copied(k), copied(v), rule, outside)
        ways, matrices = learned.ways(module), None
        if q.shape[0] == 1:
            codes = inputs.get("position_embeddings")
            codes = codes if _are_codes(codes) else None
            known = wiring.find(q, k, v, self._leaves, codes, outside=outside, ways=ways, turns=self._turns)
            if known.rotary is None and (width := told(module, "qk_rope_head_dim")):
                known = latent.turned(known, q, k, self._leaves, codes, width=width)
            short = latent.short(self._leaves, self._names, name)
            if ways is None:
                matrices = None if outside or id(module) not in self._names else wiring.plain(known)
                used = [leaf.module for leaf in (*known.used, *short.values())]
                learned.learn(module, known.ways, used, matrices)
            call.projections, call.rotary, call.between = known.projections, known.rotary, known.between
            hidden, version = inputs.get("hidden_states", (None, 0))
            hidden = hidden if hidden is not None and hidden._version == version else None
            call.tensors = self._kept(known, short, hidden, q)
        if ways is None and matrices is None:  # what it was handed tells nothing more of a plain one
            around = (part for at, part, _ in self._frames if f"{name}.".startswith(f"{at}."))
            learned.use(*(part for part in around if part is not None))
        return call

    def _kept(
        self, known: Wiring, short: dict[str, Leaf], hidden: Tensor | None, q: Tensor
    ) -> dict[str, Tensor]:
        """Copies of what a layer keeps besides q, k and v, without a batch."""
        found = {name: copied(part[0]) for name, part in known.parts.items()}
        found |= {name: copied(leaf.y[0]) for name, leaf in short.items()}
        if known.x is not None and known.x.shape[0] == q.shape[2]:
            found["x"] = copied(known.x)
        # The hidden states that the module was handed, if there is one of them for each query.
        elif hidden is not None and hidden.dim() == 3 and hidden.shape[:2] == (1, q.shape[2]):
            found["x"] = copied(hidden[0])
        if (x_v := known.x_v) is not None:
            key = (x_v.data_ptr(), x_v._version, x_v.shape)
            if key not in self._texts:  # all layers look at the same one; who holds it holds its place
                self._texts[key] = (x_v, copied(x_v))
            found["x_v"] = self._texts[key][1]
        return found

    def entered(self, name: str, module: nn.Module | None, args: tuple, kwargs: dict) -> None:
        """An attention module was called; the arguments that matter are kept until the attention itself."""
        kept = {key: kwargs[key] for key in ("position_embeddings", *CROSS_INPUTS) if key in kwargs}
        hidden = kwargs.get("hidden_states", args[0] if args else None)
        if isinstance(hidden, Tensor):
            kept["hidden_states"] = (hidden, hidden._version)
        self._frames.append((name, module, kept))

    def left(self, leaf: Leaf, near: bool) -> None:
        """A matrix was used; it is W^O if it took the heads' outputs, unchanged, right after attention."""
        if self._joined is not None and _is_matrix(leaf.module):
            joined, version = self._joined
            fits = leaf.x.numel() == joined.numel() and leaf.x.dtype == joined.dtype
            fits &= joined._version == version  # a model may change them in place before it joins them
            same = leaf.x.data_ptr() == joined.data_ptr() and leaf.x.is_contiguous()
            if fits and (same or torch.equal(leaf.x.reshape(-1), joined.flatten())):
                if learned.is_new(leaf.module) or not is_linear(leaf.module):
                    matrix(leaf)  # which needs the numbers
                    learned.use(leaf.module)
                self.calls[-1].o = leaf.module
                self._joined = None
                return
        if near:
            self._leaves.append(leaf)


@contextmanager
def collecting(names: Mapping[int, str], by: Attend = attend) -> Iterator[Collector]:
    """While this is entered, what models with our hooks compute in this thread is collected.

    Those that take our attention function attend `by` this one.
    """
    with activated(Collector(names, by)) as collector:
        yield collector


@contextmanager
def activated(collector: Collector) -> Iterator[Collector]:
    """While this is entered, `collector` is the one of this thread."""
    token = _active.set(collector)
    try:
        yield collector
        collector.finish()
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
    """`attend`, or what the collector has for it, by the interface for attention functions.

    The result is (batch, query, head, d_v). The mask is that of the eager implementation: it has causality,
    windows and padding in it.
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
    by = attend if collector is None else collector.by
    joined = by(query, key, value, rule).transpose(1, 2).contiguous()
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
                entering = module.register_forward_pre_hook(partial(_on_entering, name), with_kwargs=True)
                learned.hooked(module, entering)
            continue
        weight = getattr(module, "weight", None)
        if (
            isinstance(weight, Tensor)
            and not isinstance(module, nn.Embedding)
            and (weight.dim() == 2 or near)
        ) or (weight is None and near and NORM.search(type(module).__name__)):
            learned.hooked(module, module.register_forward_hook(partial(_on_leaving, near)))
    return names


def _on_entering(name: str, module: nn.Module, args: tuple, kwargs: dict) -> None:
    collector = _active.get()
    if collector is not None:
        collector.entered(name, module, args, kwargs)


def _on_leaving(near: bool, module: nn.Module, args: tuple, output: object) -> None:
    collector = _active.get()
    if collector is not None and args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
        collector.left(Leaf.of(module, args[0], output), near)


def _is_matrix(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)  # None also of a norm that was made without
    return weight is not None and weight.dim() == 2


@cache
def _looks_outside(name: str) -> bool:
    """Does an attention look at another text, by its name?"""
    return CROSS.search(name) is not None


def _are_codes(codes: object) -> bool:
    """Are these cosines and sines, or both as complex numbers?"""
    if isinstance(codes, Tensor):
        return codes.is_complex()
    return isinstance(codes, tuple) and len(codes) == 2 and all(isinstance(c, Tensor) for c in codes)
