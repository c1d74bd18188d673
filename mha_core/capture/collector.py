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
from torch.overrides import TorchFunctionMode

from mha_core.attention.functional import attend
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture import bands, projections
from mha_core.capture.call import Call, Index, attribute
from mha_core.capture.masks import Choice, SharedRules
from mha_core.capture.projections import GATES, OUTPUTS, WATCHED, Proof, Use
from mha_core.capture.rotary import Codes, RotaryCode, candidates
from mha_core.errors import MhaError, listed
from mha_core.traces.tensors import copied

ATTENTION = re.compile(r"att(n|ention)", re.IGNORECASE)  # modules that are handed what attention needs
CROSS = re.compile(r"cross|encdec|encoder_attn|enc_dec|src_attn", re.IGNORECASE)
INDEXER = "indexer"  # what modules with a learned index are called
CROSS_INPUTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states")

# What models hand to attention by these names changes nothing in it: eager masks and q, k, v have it in them.
# The last three are inputs of a model, which some hand on with all that they do not know.
HARMLESS = {
    *("deterministic", "is_causal", "logits_to_keep", "position_ids", "sliding_window", "use_cache"),
    *("output_attentions", "output_hidden_states", "output_router_logits"),
    *("decoder_input_ids", "input_ids", "token_type_ids"),
}

Attend = Callable[[Tensor, Tensor, Tensor, ScoreRule], Tensor]

_active: ContextVar["Collector | None"] = ContextVar("headscope_collector", default=None)


class Collector:
    """The calls of one forward pass, in order.

    `names` are those of the model's modules, by their ids, as `watch` returns them. Models that take our
    attention function compute attention `by` this one.
    """

    def __init__(self, names: Mapping[int, str], by: Attend = attend):
        self.by = by
        self.calls: list[Call] = []
        self.rules = SharedRules()
        self._names = names
        # Since the last call: modules that may have made q, k and v, and the arguments of attention modules.
        self._uses: list[Use] = []
        self._before: list[Use] = []  # the last call: those before it
        self._arguments: list[tuple[str, dict]] = []
        # The rotations of this pass, and the texts that are looked at.
        self._rotations: dict[tuple, tuple[Codes, list[RotaryCode]]] = {}
        self._texts: dict[tuple, tuple[Tensor, Tensor]] = {}
        # By the id of what an index chose: that, and the scores that it chose by.
        self._index_scores: dict[int, tuple[Tensor, Tensor]] = {}
        # The heads' outputs side by side and their version, until W^O takes them.
        self._joined: tuple[Tensor, int] | None = None

    def add(
        self,
        module: nn.Module | None,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rule: ScoreRule,
        joined: Tensor,
        index: Index | None = None,
    ) -> None:
        """A call, its result (1, query, head, d_v), and the index that chose its keys."""
        name = self._names.get(id(module), self._arguments[-1][0] if self._arguments else "")
        inputs: dict = {}
        for place, arguments in self._arguments:
            if not place or f"{name}.".startswith(f"{place}."):  # modules inside are handed something else
                inputs |= arguments
        outside = any(inputs.get(key) is not None for key in CROSS_INPUTS) or _looks_outside(name)
        call = Call(name, module, copied(q), copied(k), copied(v), rule, outside, index=index)
        if q.shape[0] == 1:
            self._explain(call, q, k, v, inputs)
        self.calls.append(call)
        self._before, self._uses, self._arguments = self._uses, [], []
        self._joined = joined, joined._version

    def _explain(self, call: Call, q: Tensor, k: Tensor, v: Tensor, inputs: dict) -> None:
        """What made q, k and v, as far as the modules of the attention show it."""
        children = {} if call.module is None else call.module._modules
        uses = [use.unchanged() for use in self._uses if children.get(use.proof.name) is use.module]
        uses = [use for use in uses if use is not None]
        codes = inputs.get("position_embeddings")
        codes = codes if _are_codes(codes) else None
        origin = projections.provenance(
            q, k, v, uses, self._rotated(codes, q.shape), outside=call.looks_outside
        )
        tensors, call.code, call.adjustments = dict(origin.tensors), origin.code, origin.adjustments
        if call.code is None and (width := attribute(call.module, "qk_rope_head_dim")):
            latent = projections.latent(q, k, uses, codes, width=width)
            if latent is not None:
                tensors, call.code = tensors | dict(latent.tensors), latent.code
        tensors |= projections.short_vectors(uses)
        hidden, version = inputs.get("hidden_states", (None, 0))
        if "x" not in tensors or len(tensors["x"]) != q.shape[2]:
            tensors.pop("x", None)
            # The hidden states that the module was handed, if there is one of them for each query.
            unchanged = hidden is not None and hidden._version == version
            if unchanged and hidden.dim() == 3 and hidden.shape[:2] == (1, q.shape[2]):
                tensors["x"] = hidden[0]
        call.tensors = {
            name: self._text(tensor) if name == "x_v" else copied(tensor) for name, tensor in tensors.items()
        }
        call.projections = origin.projections

    def _text(self, x: Tensor) -> Tensor:
        """A copy of what another text's keys and values are made of: all layers look at the same one."""
        key = (x.data_ptr(), x._version, x.shape)
        if key not in self._texts:
            self._texts[key] = (x, copied(x))  # who holds it holds its place
        return self._texts[key][1]

    def _rotated(self, codes: Codes, shape: torch.Size) -> list[RotaryCode]:
        """The rotations that may be those of a call; layers with the same codes share them."""
        key = (tuple(map(id, codes)) if isinstance(codes, tuple) else id(codes), shape[2], shape[3])
        if key not in self._rotations:
            self._rotations[key] = (codes, candidates(codes, shape))  # who holds the codes holds their ids
        return self._rotations[key][1]

    def add_bands(self, module: nn.Module, args: tuple, kwargs: dict, output: Tensor) -> None:
        """A call whose scores stood in bands, if it can be shown as one of queries and keys."""
        banded = bands.banded(module, args, kwargs, output, self._uses)
        if banded is not None:
            self._uses = banded.uses
            self.add(module, banded.q, banded.k, banded.v, banded.rule, output)

    def indexed(self, blocks: Tensor, scores: Tensor) -> None:
        """A learned index chose blocks of keys by its scores."""
        self._index_scores[id(blocks)] = (blocks, scores)

    def index_scores(self, blocks: Tensor) -> Tensor | None:
        """The scores that an index chose these blocks by, in this layer or in one before it."""
        return self._index_scores.get(id(blocks), (None, None))[1]

    @property
    def knows_codes(self) -> bool:
        """Was the attention that runs now handed the cosines and sines of a rotary code?"""
        return any("position_embeddings" in arguments for _, arguments in self._arguments)

    def add_codes(self, codes: tuple[Tensor, Tensor]) -> None:
        """The cosines and sines of the attention that runs now, where it was handed none."""
        self._arguments.append(("", {"position_embeddings": codes}))

    def entered(self, name: str, args: tuple, kwargs: dict) -> None:
        """An attention module was called; the arguments that matter are kept until the attention itself."""
        arguments = {key: kwargs[key] for key in ("position_embeddings", *CROSS_INPUTS) if key in kwargs}
        hidden = kwargs.get("hidden_states", args[0] if args else None)
        if isinstance(hidden, Tensor):
            arguments["hidden_states"] = (hidden, hidden._version)
        self._arguments.append((name, arguments))

    def left(self, use: Use) -> None:
        """A module was used; it is W^O if it took the heads' outputs, with or without a gate."""
        if use.proof.name not in OUTPUTS:
            self._uses.append(use)
        elif self._joined is not None:
            joined, version = self._joined
            fits = use.x.numel() == joined.numel() and use.x.dtype == joined.dtype
            fits &= joined._version == version  # a model may change them in place before it joins them
            same = use.x.data_ptr() == joined.data_ptr() and use.x.is_contiguous()
            if not fits:
                return
            if not (same or torch.equal(use.x.reshape(-1), joined.flatten())):
                gate = projections.output_gate(joined, use.x, [*self._before, *self._uses])
                if gate is None:
                    return
                self.calls[-1].gate, values = gate
                self.calls[-1].tensors = {**self.calls[-1].tensors, "gate": copied(values)}
            self.calls[-1].output = projections.matrix(use)
            self._joined = None


@contextmanager
def collecting(collector: Collector) -> Iterator[None]:
    """While this is entered, `collector` collects what models with our hooks compute in this thread."""
    token = _active.set(collector)
    try:
        yield
    finally:
        _active.reset(token)


class UnknownKeyword(MhaError):
    """A model hands its attention something by a name that we do not understand."""


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
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    **others: object,
) -> tuple[Tensor, None]:
    """`attend`, or what the collector has for it, by the interface for attention functions.

    The result is (batch, query, head, d_v). The mask is that of the eager implementation: it has causality,
    windows and padding in it. Not in it is what a learned index chose, (batch, query, chosen) keys or (batch,
    index head, query, chosen) blocks of keys: models mask that only for functions whose names they know.
    Raises `UnknownKeyword` for any other argument that has a value.
    """
    unknown = [name for name, value in others.items() if value is not None and name not in HARMLESS]
    if unknown:
        raise UnknownKeyword(
            f"{type(module).__name__} hands its attention {listed(map('{}='.format, unknown), 'and')}, which "
            f"is not understood."
        )
    collector = _active.get()
    sinks = s_aux if sinks is None else sinks
    choice = _choice(module, indices, block_indices)
    rules = SharedRules() if collector is None else collector.rules
    common = {
        "n_heads": query.shape[1],
        "n_query": query.shape[-2],
        "n_key": key.shape[-2],
        "scale": None if scaling is None else float(scaling),
        "soft_cap": softcap,
        "sinks": None if sinks is None else sinks.detach().reshape(-1),
    }
    rule = rules.rule(attention_mask, position_bias, choice, **common)
    by = attend if collector is None else collector.by
    joined = by(query, key, value, rule).transpose(1, 2).contiguous()
    if collector is not None:
        index = None
        if choice is not None:
            dense = rules.rule(attention_mask, position_bias, **common)
            index = Index(choice, collector.index_scores(choice.blocks), dense.mask)
        collector.add(module, query, key, value, rule, joined, index)
    return joined, None


def _choice(module: nn.Module, keys: Tensor | None, blocks: Tensor | None) -> Choice | None:
    """What a learned index chose (DeepSeek V3.2: keys, MiniMax M3: blocks of keys)."""
    if blocks is None:
        return None if keys is None else Choice(keys)
    size = getattr(getattr(module, "indexer", None), "block_size", None)
    if keys is not None or not isinstance(size, int):
        raise UnknownKeyword(
            f"{type(module).__name__} hands its attention block_indices= of blocks of an unknown size."
        )
    return Choice(blocks, size)


def watch(model: nn.Module) -> dict[int, str]:
    """Prepare a model, once: hooks on its matrices and attention modules. → each module's name by its id"""
    names = {}
    for name, module in model.named_modules():
        names[id(module)] = name
        last = name.rpartition(".")[2]
        if not module._modules and (last in WATCHED or (last in GATES and ATTENTION.search(name))):
            module.register_forward_hook(partial(_on_leaving, Proof(last)))
        elif last == INDEXER:
            module.register_forward_hook(_on_indexed, with_kwargs=True)
        elif module._modules and ATTENTION.search(name):
            module.register_forward_pre_hook(partial(_on_entering, name), with_kwargs=True)
            if bands.in_bands(module):
                module.register_forward_hook(_on_bands, with_kwargs=True)
    return names


def _on_entering(name: str, _module: nn.Module, args: tuple, kwargs: dict) -> None:
    collector = _active.get()
    if collector is not None:
        collector.entered(name, args, kwargs)


def _on_leaving(proof: Proof, module: nn.Module, args: tuple, output: object) -> None:
    collector = _active.get()
    if collector is not None and args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
        collector.left(Use.of(module, args[0], output, proof))


def _on_bands(module: nn.Module, args: tuple, kwargs: dict, output: tuple[Tensor, ...]) -> None:
    collector = _active.get()
    if collector is not None:
        with torch.no_grad(), torch._C.DisableTorchFunction():  # who follows the code does not see this
            collector.add_bands(module, args, kwargs, output[0])


def _on_indexed(module: nn.Module, args: tuple, kwargs: dict, blocks: object) -> None:
    """Keep the scores that a learned index chose by: it runs once more while its choice is watched."""
    collector = _active.get()
    if collector is None or not isinstance(blocks, Tensor):
        return
    with _Choices() as choices:
        again = type(module).forward(module, *args, **kwargs)
    if torch.equal(again, blocks) and choices.scores is not None:
        collector.indexed(blocks, choices.scores)


class _Choices(TorchFunctionMode):
    """Keeps the scores of the last choice of the highest ones."""

    scores: Tensor | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") == "topk" and args and isinstance(args[0], Tensor):
            self.scores = args[0].detach()
        return func(*args, **(kwargs or {}))


@cache
def _looks_outside(name: str) -> bool:
    """Does an attention look at another text, by its name?"""
    return CROSS.search(name) is not None


def _are_codes(codes: object) -> bool:
    """Are these cosines and sines, or both as complex numbers?"""
    if isinstance(codes, Tensor):
        return codes.is_complex()
    return isinstance(codes, tuple) and len(codes) == 2 and all(isinstance(c, Tensor) for c in codes)
