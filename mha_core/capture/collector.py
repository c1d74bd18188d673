"""The attention function that models call in place of their own, and the collector that keeps its calls.

A model gets its hooks once, before threads share it. They do nothing unless a collector is active in the
thread that runs, so several threads can trace one model without mixing their calls.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from functools import partial
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor, nn

from mha_core.attention.edits import Edit, Site, edited
from mha_core.attention.functional import attend
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture import projections
from mha_core.capture.call import Call, Index, attribute
from mha_core.capture.masks import Choice, SharedRules
from mha_core.capture.projections import GATES, LOW_RANK, OUTPUTS, WATCHED, Proof, Use
from mha_core.capture.rotary import Codes, RotaryCode, candidates, rotation_codes
from mha_core.errors import MhaError, listed
from mha_core.traces.projections import GroupedProduct
from mha_core.traces.tensors import copied

ATTENTION = re.compile(r"att(n|ention)", re.IGNORECASE)  # names of modules with the inputs of attention
CROSS = re.compile(r"cross|encdec|encoder_attn|enc_dec|src_attn", re.IGNORECASE)
CROSS_INPUTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states")

# Keywords that can be ignored: their effect is already in the eager mask or in q, k and v.
# The last three are inputs of the model; some models pass them on with all other keywords.
HARMLESS = {
    *("deterministic", "is_causal", "logits_to_keep", "position_ids", "sliding_window", "use_cache"),
    *("output_attentions", "output_hidden_states", "output_router_logits"),
    *("decoder_input_ids", "input_ids", "token_type_ids"),
}

Attend = Callable[[Tensor, Tensor, Tensor, ScoreRule], Tensor]

_active: ContextVar["Collector | None"] = ContextVar("headscope_collector", default=None)


class Collector:
    """Collects the calls of attention in one forward pass, in their order.

    In its block it collects the attention of models with our hooks, in this thread.
    `names` are the names of the model's modules by their ids, as `watch` returns them. A model that takes our
    attention function computes its attention with `by`. `edits` has the edits of each call by the number of
    the call, together with the attention that they were made for.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        by: Attend = attend,
        edits: Mapping[int, tuple[Site, Sequence[Edit]]] = MappingProxyType({}),
    ):
        self.by = by
        self.edits = dict(edits)  # the edits that have not been applied yet
        self.calls: list[Call] = []
        self.rules = SharedRules()
        self._names = names
        # Seen since the last call: modules that may have made q, k and v, and arguments of attention modules.
        self.uses: list[Use] = []
        self._arguments: list[tuple[str, dict]] = []
        self._previous_uses: list[Use] = []  # those before the last call
        # The rotary codes of this pass, and the texts of keys and values.
        self._rotations: dict[tuple, tuple[Codes, list[RotaryCode]]] = {}
        self._texts: dict[tuple, tuple[Tensor, Tensor]] = {}
        # For the id of each choice of an index: the choice and its scores.
        self._index_scores: dict[int, tuple[Tensor, Tensor]] = {}
        # Until the module of W^O runs: the concatenated outputs of the heads with their version, the rotary
        # codes of that attention, and the first matrix of a low-rank W^O.
        self._joined: tuple[Tensor, int] | None = None
        self._output_codes: Sequence[Codes] = ()
        self._first: Tensor | None = None

    def __enter__(self) -> Self:
        self._token: Token = _active.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _active.reset(self._token)

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
        """Add a call with its result `joined` (1, query, head, d_v), and its learned index if it has one."""
        name = self._names.get(id(module), self._arguments[-1][0] if self._arguments else "")
        inputs: dict = {}
        for place, arguments in self._arguments:
            if not place or f"{name}.".startswith(f"{place}."):  # modules inside have other arguments
                inputs |= arguments
        outside = any(inputs.get(key) is not None for key in CROSS_INPUTS)
        outside = outside or CROSS.search(name) is not None
        call = Call(name, module, copied(q), copied(k), copied(v), rule, outside, index=index)
        if q.shape[0] == 1:
            self._explain(call, q, k, v, inputs)
        self.calls.append(call)
        self._previous_uses, self.uses, self._arguments = self.uses, [], []
        self._joined, self._first = (joined, joined._version), None
        codes = inputs.get("position_embeddings")
        several = codes.values() if isinstance(codes, dict) else (codes,)  # of each kind of layers, by name
        self._output_codes = [one for one in several if _are_codes(one)]

    def edited_rule(self, rule: ScoreRule, q: Tensor, k: Tensor, v: Tensor) -> ScoreRule:
        """The edited score rule of the next call. Raises `MhaError` if the edits are of another size."""
        site, edits = self.edits.pop(len(self.calls), (None, ()))
        if site is None:
            return rule
        sizes = (q.shape[1], q.shape[2], k.shape[2], v.shape[3])
        if (1, *sizes) != (len(q), site.n_heads, len(site.queries), len(site.keys), site.d_v):
            raise MhaError(
                "An edit acts on another attention than it was made for: q is {q}.", q=tuple(q.shape)
            )
        return edited(rule, edits, site, q.device)

    def _explain(self, call: Call, q: Tensor, k: Tensor, v: Tensor, inputs: dict) -> None:
        """Add to the call what made its q, k and v, as far as the modules of the attention show it."""
        children = {} if call.module is None else call.module._modules
        own = [use.unchanged() for use in self.uses if children.get(use.proof.name) is use.module]
        uses = [use for use in own if use is not None]
        codes = inputs.get("position_embeddings")
        codes = codes if _are_codes(codes) else None
        origin = projections.provenance(
            q, k, v, uses, self._rotary_codes(codes, q.shape), outside=call.looks_outside
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
            # The hidden states among the module's arguments, if there is one for each query.
            unchanged = hidden is not None and hidden._version == version
            if unchanged and hidden.dim() == 3 and hidden.shape[:2] == (1, q.shape[2]):
                tensors["x"] = hidden[0]
        call.tensors = {
            name: self._text(tensor) if name == "x_v" else copied(tensor) for name, tensor in tensors.items()
        }
        call.projections = origin.projections

    def _text(self, x: Tensor) -> Tensor:
        """A copy of the input behind keys and values of another text; all layers share one copy."""
        key = (x.data_ptr(), x._version, x.shape)
        if key not in self._texts:
            self._texts[key] = (x, copied(x))  # keeping x keeps its address in use
        return self._texts[key][1]

    def _rotary_codes(self, codes: Codes, shape: torch.Size) -> list[RotaryCode]:
        """The rotary codes that a call may have used; layers with the same cosines and sines share them."""
        key = (tuple(map(id, codes)) if isinstance(codes, tuple) else id(codes), shape[2], shape[3])
        if key not in self._rotations:
            # They are kept, so that no other tensor gets their ids.
            self._rotations[key] = codes, candidates(codes, shape)
        return self._rotations[key][1]

    def add_index_scores(self, blocks: Tensor, scores: Tensor) -> None:
        """Keep the scores by which a learned index chose blocks of keys."""
        self._index_scores[id(blocks)] = (blocks, scores)

    def index_scores(self, blocks: Tensor) -> Tensor | None:
        """The scores by which an index chose these blocks, in this layer or in an earlier one."""
        return self._index_scores.get(id(blocks), (None, None))[1]

    def find_codes(self, used: Tensor, outputs: Iterable[Tensor]) -> None:
        """Find the rotary code of these keys, if the running attention module has none as an argument."""
        known = any("position_embeddings" in arguments for _, arguments in self._arguments)
        if not known and (codes := rotation_codes(used, outputs)) is not None:
            self._arguments.append(("", {"position_embeddings": codes}))

    def add_arguments(self, name: str, args: tuple, kwargs: dict) -> None:
        """Keep the arguments of an attention module that say something about the next call."""
        arguments = {key: kwargs[key] for key in ("position_embeddings", *CROSS_INPUTS) if key in kwargs}
        hidden = kwargs.get("hidden_states", args[0] if args else None)
        if isinstance(hidden, Tensor):
            arguments["hidden_states"] = (hidden, hidden._version)
        self._arguments.append((name, arguments))

    def add_use(self, use: Use) -> None:
        """Keep a use of a module. W^O belongs to the last call, any other module to the next one."""
        if use.proof.name not in OUTPUTS and use.proof.name not in LOW_RANK:
            self.uses.append(use)
        elif self._joined is not None and self._takes_outputs(use, *self._joined):
            self._add_output(use)

    def _add_output(self, use: Use) -> None:
        """Give the last call its W^O, or one of the two matrices that W^O is the product of."""
        self._joined = None
        if use.proof.name == LOW_RANK[0]:
            self._first = projections.grouped_matrix(use)
            if self._first is not None:
                self._joined = use.y, use.y._version
        elif (matrix := projections.matrix(use)) is not None:
            w_o, b_o = matrix
            self.calls[-1].output = {"w_o": w_o, "b_o": b_o}
            if self._first is not None:
                low_rank = {"w_o_a": self._first, "w_o_b": w_o}
                self.calls[-1].output = {"w_o": GroupedProduct(self._first, w_o), "b_o": b_o, **low_rank}

    def _takes_outputs(self, use: Use, joined: Tensor, version: int) -> bool:
        """Whether the input of a module is the heads' outputs `joined`: unchanged, gated or rotated."""
        if use.x.numel() != joined.numel() or use.x.dtype != joined.dtype or joined._version != version:
            return False  # a model may change them in place before it joins them
        if use.x.data_ptr() == joined.data_ptr() and use.x.is_contiguous():
            return True
        if torch.equal(use.x.reshape(-1), joined.flatten()):
            return True
        call = self.calls[-1]
        parameters = {} if call.module is None else call.module._parameters
        biases = [one for one in parameters.values() if one is not None and one.dim() == 1]
        gate = projections.output_gate(joined, use.x, [*self._previous_uses, *self.uses], biases)
        if gate is not None:
            call.gate, values = gate
            call.tensors = {**call.tensors, "gate": copied(values)}
            return True
        code = projections.output_rotation(joined, use.x, self._output_codes)
        if code is not None:
            call.output_rotary = code.fact
            call.tensors = {**call.tensors, "output_cos": copied(code.cos), "output_sin": copied(code.sin)}
        return code is not None


def current() -> Collector | None:
    """The collector that is active in this thread."""
    return _active.get()


class UnknownKeyword(MhaError):
    """A model calls its attention with a keyword that Headscope does not know."""


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
    """`attend`, or the collector's `by`, with the signature of attention functions in transformers.

    q (batch, head, query, d_k), k and v (batch, kv_head, key, …) → (batch, query, head, d_v). The mask is
    that of the eager implementation, with causality, windows and padding. It lacks the choice of a learned
    index, (batch, query, chosen) keys or (batch, index head, query, chosen) blocks of keys: models add that
    to the mask only for attention functions whose names they know.
    Raises `UnknownKeyword` for any other keyword that has a value.
    """
    unknown = [name for name, value in others.items() if value is not None and name not in HARMLESS]
    if unknown:
        raise UnknownKeyword(
            "{model} hands its attention {keywords}, which is not understood.",
            model=type(module).__name__,
            keywords=listed(map("{}=".format, unknown), "and"),
        )
    collector = _active.get()
    sinks = s_aux if sinks is None else sinks
    choice = _choice(module, indices, block_indices)
    rules = SharedRules() if collector is None else collector.rules
    common: dict[str, Any] = {
        "n_heads": query.shape[1],
        "n_query": query.shape[-2],
        "n_key": key.shape[-2],
        "scale": None if scaling is None else float(scaling),
        "soft_cap": softcap,
        "sinks": None if sinks is None else sinks.detach().reshape(-1),
    }
    rule = rules.rule(attention_mask, position_bias, choice, **common)
    if collector is None:
        return attend(query, key, value, rule).transpose(1, 2).contiguous(), None
    rule = collector.edited_rule(rule, query, key, value)
    joined = collector.by(query, key, value, rule).transpose(1, 2).contiguous()
    index = None
    if choice is not None:
        dense = rules.rule(attention_mask, position_bias, **common)
        index = Index(choice, collector.index_scores(choice.blocks), dense.mask)
    collector.add(module, query, key, value, rule, joined, index)
    return joined, None


def _choice(module: nn.Module, keys: Tensor | None, blocks: Tensor | None) -> Choice | None:
    """The choice of a learned index: of keys (DeepSeek V3.2) or of blocks of keys (MiniMax M3)."""
    if blocks is None:
        return None if keys is None else Choice(keys)
    size = getattr(getattr(module, "indexer", None), "block_size", None)
    if keys is not None or not isinstance(size, int):
        raise UnknownKeyword(
            "{model} hands its attention block_indices= of blocks of an unknown size.",
            model=type(module).__name__,
        )
    return Choice(blocks, size)


def watch(model: nn.Module) -> dict[int, str]:
    """Put hooks on a model's matrices and attention modules, once; returns the names of modules by id."""
    names = {}
    for name, module in model.named_modules():
        names[id(module)] = name
        last = name.rpartition(".")[2]
        if not module._modules and (last in WATCHED or (last in GATES and ATTENTION.search(name))):
            module.register_forward_hook(partial(_on_leaving, Proof(last)))
        elif module._modules and ATTENTION.search(name):
            module.register_forward_pre_hook(partial(_on_entering, name), with_kwargs=True)
    return names


def _on_entering(name: str, _module: nn.Module, args: tuple, kwargs: dict) -> None:
    collector = _active.get()
    if collector is not None:
        collector.add_arguments(name, args, kwargs)


def _on_leaving(proof: Proof, module: nn.Module, args: tuple, output: object) -> None:
    collector = _active.get()
    if collector is not None and args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
        collector.add_use(Use.of(module, args[0], output, proof))


def _are_codes(codes: object) -> bool:
    """Whether these are cosines and sines, or both as complex numbers."""
    if isinstance(codes, Tensor):
        return codes.is_complex()
    return isinstance(codes, tuple) and len(codes) == 2 and all(isinstance(c, Tensor) for c in codes)
