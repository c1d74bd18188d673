"""Traces of unchanged torch code: its attention is recorded while it runs.

A `TorchFunctionMode` intercepts each call of `F.scaled_dot_product_attention`,
`F.multi_head_attention_forward` and `flex_attention`, and copies one item of its queries, keys and values.
A second mode follows code that computes a softmax itself; such attention is computed again, row by row, and
recorded where the result is the same. The modes belong to one thread: recorders in several threads are
independent, and of two nested ones the outer one records the calls of both. While a mode is active, torch
does not take its fused encoder path, and compiled code runs uncompiled; `torch.jit` modules cannot be
recorded.
"""

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import FrameType, MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mha_core.attention.module import Attended
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture import eager_code
from mha_core.capture.axes import item_index, text_axis
from mha_core.capture.caller import Caller, Root, caller
from mha_core.capture.eager_code import EagerMode
from mha_core.capture.eager_scores import Attempt, Followed, Shared, version
from mha_core.capture.mixing import without_attention
from mha_core.capture.projections import Proof, Provenance, Use, matrix, provenance
from mha_core.capture.sdpa import (
    FORWARD,
    SDPA,
    SIGNATURE,
    HeadsReached,
    SdpaMode,
    SdpaReader,
    flex_arguments,
    projections,
    uncompiled,
    unpacked,
    until_heads,
)
from mha_core.errors import MhaError, one_of
from mha_core.sources.arrays import sides_of
from mha_core.traces.facts import Facts
from mha_core.traces.layer import KINDS, LayerTrace, with_texts
from mha_core.traces.projections import ModelProjections, Part
from mha_core.traces.source import RecordedSource, SourceValue, array_source
from mha_core.traces.tensors import compact, contiguous_copy
from mha_core.traces.tokens import Sides, Tokens
from mha_core.traces.trace import AttentionTrace

NOTHING = (
    "No attention was recorded. Looked for, in this thread and inside the block: calls of "
    "torch.nn.functional.scaled_dot_product_attention and multi_head_attention_forward, of flex_attention, "
    "and products of queries and keys that go through a softmax to the values. The flash_attn package and "
    "modules made by torch.jit cannot be seen. mha.from_tensors(q=, k=, v=, tokens=) takes what such code "
    "computes."
)
NO_VALUES = "no values were multiplied with its weights"
MISFITS = ("name", "raise")


def record(
    model: nn.Module | None = None,
    *,
    tokens: "str | Sequence[str] | Tokens",
    keys: "str | Sequence[str] | Tokens | None" = None,
    item: int = 0,
    batch: int | None = None,
    kinds: Sequence[str] | None = None,
    misfit: str = "name",
    source: SourceValue = RecordedSource.name,
) -> "Recorder":
    """``with mha.record(tokens=…) as rec: my_model(x)``, and `rec.trace` is its attention.

    `tokens` are the tokens at the positions of the input: a list of strings, or a text. `keys` are the tokens
    of a second text that they look at, as in an encoder–decoder; the kind of each call follows from its
    lengths, or from `kinds`, one for each call in order: encoder (keys among themselves), decoder, cross.
    With ``mha.record(model, tokens=…)`` layers have the names of the model's modules, and x, W^O and, where
    their products are the q, k and v, W^Q, W^K and W^V.

    `item` is the index in a batch of `batch` texts. That number follows from what the running modules read;
    it is needed only for code without modules whose axes of texts and heads cannot be told apart.
    The output of the model is, to the bit, that with torch's fused path off. With dropout the recorded
    weights are those before dropout. A factor for each head on the scores is recorded as one on its queries.
    One-head modules whose outputs are concatenated are the heads of one layer. Calls whose keys extend those
    of an earlier one, as with a cache, continue it: the layer has the queries of all of them, each with the
    keys that were there.

    Calls that do not fit the tokens, attention that cannot be followed, and layers that mix tokens by other
    means, are left out and named in ``trace.source.skipped`` with their place; ``misfit="raise"`` refuses
    them instead.
    Raises `MhaError` for an unknown `misfit`; when `trace` is read, if nothing was recorded that fits the
    tokens, or in several forward passes.
    """
    if model is not None and not isinstance(model, nn.Module):
        raise MhaError(
            f"mha.record takes the model as a torch.nn.Module and its tokens by name; got "
            f"{type(model).__name__}. Write mha.record(model, tokens=…), or mha.record(tokens=…)."
        )
    one_of("misfit", misfit, MISFITS, parameter="misfit")
    return Recorder(
        sides_of(tokens, keys),
        item,
        kinds,
        array_source(source, RecordedSource),
        model=model,
        batch=batch,
        misfit=misfit,
    )


class Place(NamedTuple):
    """Where attention was computed: in words, in which forward pass, and in which module."""

    text: str
    forward_pass: "ForwardPass"
    module: nn.Module | None


class Queries(NamedTuple):
    """Queries (head, query, d_k) with their rule, which look at `n_key` keys from the position `start` on."""

    q: Tensor
    rule: ScoreRule
    n_key: int
    start: int = 0


@dataclass(eq=False)
class RecordedCall:
    """One attention call of one text, or several that continue each other; all tensors are on the CPU.

    k (kv_head, key, d_k) and v (kv_head, key, d_v) are those of all of them.
    """

    number: int
    place: Place
    name: str
    queries: tuple[Queries, ...]
    k: Tensor
    v: Tensor
    about: Facts
    tensors: Mapping[str, Tensor] = field(default_factory=dict)  # x and what else a layer has
    matrices: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of queries and keys."""
        return sum(part.q.shape[1] for part in self.queries), self.k.shape[1]

    @property
    def n_heads(self) -> int:
        return self.queries[0].q.shape[0]

    def is_continued_by(self, later: "RecordedCall") -> bool:
        """Are the later keys the last ones of these, followed by one for each of the later queries?"""
        n_shared = later.sizes[1] - later.sizes[0]
        return 0 < n_shared <= self.k.shape[1] and self._shares(later, n_shared)

    def is_read_by(self, later: "RecordedCall") -> bool:
        """Are the later keys and values the very same? So a decoder reads the other text at each step."""
        return later.sizes[1] == self.k.shape[1] and self._shares(later, self.k.shape[1])

    def _shares(self, later: "RecordedCall", n_shared: int) -> bool:
        """Are the last keys and values the first ones of a later call of the same kind?"""
        rules = [self.queries[0].rule, later.queries[0].rule]
        same = len({(rule.scale, rule.soft_cap, rule.temperature, rule.sinks is None) for rule in rules}) == 1
        same &= self.n_heads == later.n_heads and self.name == later.name
        return same and all(
            one.shape[::2] == other.shape[::2] and torch.equal(one[:, -n_shared:], other[:, :n_shared])
            for one, other in ((self.k, later.k), (self.v, later.v))
        )

    def continued(self, later: "RecordedCall") -> "RecordedCall":
        """This call and a later one that continues it, or reads the same keys."""
        n_key, tensors, matrices = later.k.shape[1], {}, self.matrices
        reads_on = self.is_continued_by(later)
        n_new = later.sizes[0] if reads_on else 0
        if "x" in self.tensors and "x" in later.tensors:
            tensors["x"] = torch.cat([self.tensors["x"], later.tensors["x"]])
        if "x_v" in self.tensors and not reads_on:
            tensors["x_v"] = self.tensors["x_v"]
        if self.about.adjustments is not None or ("x_v" in self.tensors and reads_on):
            matrices = {name: matrix for name, matrix in matrices.items() if name in ("w_o", "b_o")}
        k, v = (
            torch.cat([one, other[:, n_key - n_new :]], dim=1)
            for one, other in ((self.k, later.k), (self.v, later.v))
        )
        start = k.shape[1] - n_key
        return replace(
            self,
            queries=(*self.queries, *(part._replace(start=start) for part in later.queries)),
            k=k,
            v=v,
            about=replace(self.about, adjustments=None),
            tensors=tensors,
            matrices=matrices,
        )

    def layer(self, kind: str, shared: Shared) -> LayerTrace:
        """The call as a layer of a trace; layers of one trace share equal masks."""
        q, rule = torch.cat([part.q for part in self.queries], dim=1), self.queries[0].rule
        if len(self.queries) > 1:
            rule = self._joined_rule()
        if rule.mask is not None:
            rule = replace(rule, mask=shared.one(rule.mask))
        tensors = {"q": q, "k": self.k, "v": self.v, **self.tensors}
        return LayerTrace(
            MappingProxyType(tensors),
            rule,
            ModelProjections(self.matrices),
            kind,
            self.name,
            replace(self.about, call=self.number),
        )

    def _joined_rule(self) -> ScoreRule:
        """The rule of all queries: keys that were not there are hidden from them."""
        n_key, masks, biases = self.k.shape[1], [], []
        for q, rule, n_seen, start in self.queries:
            sizes = q.shape[1], n_seen
            laid = rule.at(slice(None), slice(None), n_query=q.shape[1], n_key=n_seen)
            masks.append(_laid_out(laid.mask, True, sizes, start, n_key))
            biases.append(_laid_out(laid.bias, 0.0, sizes, start, n_key))
        bias = _stacked(biases) if any(bool(bias.any()) for bias in biases) else None
        return replace(self.queries[0].rule, mask=_stacked(masks), bias=bias, distance_bias=None)


def _laid_out(
    table: Tensor | None, default: bool | float, sizes: tuple[int, int], start: int, n_key: int
) -> Tensor:
    """A mask or bias as (head or 1, query, key), hidden or zero for the keys that were not there."""
    table = torch.full(sizes, default) if table is None else table
    table = table.reshape((1,) * (3 - table.dim()) + tuple(table.shape)).expand(-1, *sizes)
    return nn.functional.pad(table, (start, n_key - start - sizes[1]))


def _stacked(tables: list[Tensor]) -> Tensor:
    n_heads = max(table.shape[0] for table in tables)
    return torch.cat([table.expand(n_heads, -1, -1) for table in tables], dim=1)


@dataclass(eq=False)
class ForwardPass:
    """The calls of one forward pass in order, what could not be recorded, and the outermost calls around it.

    `parts` are the passes that this one was joined of.
    """

    calls: list[RecordedCall] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    called: list[object] = field(default_factory=list)
    parts: "tuple[ForwardPass, ...]" = ()

    def continued(self, later: "ForwardPass") -> "ForwardPass | None":
        """This pass and a later one, if that reads on where this one ended; else None."""
        calls, reads_on = list(self.calls), False
        for call in later.calls:
            at = next((n for n, earlier in enumerate(calls) if earlier.is_continued_by(call)), None)
            reads_on |= at is not None
            if at is None:
                at = next((n for n, earlier in enumerate(calls) if earlier.is_read_by(call)), None)
            if at is None:
                return None
            calls[at] = calls[at].continued(call)
        if not reads_on:
            return None
        parts = (*(self.parts or (self,)), later)
        return ForwardPass(calls, self.unread + later.unread, self.called + later.called, parts)

    def has(self, place: Place) -> bool:
        """Does a place belong to this pass?"""
        return place.forward_pass is self or place.forward_pass in self.parts


class Recorder:
    """The context manager of `record`; its `trace` has the calls made inside it."""

    def __init__(
        self,
        sides: Sides,
        item: int,
        kinds: Sequence[str] | None,
        source: RecordedSource,
        *,
        model: nn.Module | None = None,
        batch: int | None = None,
        misfit: str = "name",
    ):
        self.sides, self.item, self.kinds, self.source = sides, item, kinds, source
        self.model, self.batch, self.misfit = model, batch, misfit
        self._passes = [ForwardPass()]
        self._count = 0
        self._eager_mode = EagerMode(
            self._add_followed, every_row=True, locate=self._place, on_concat=self._add_joined
        )
        self._reader = SdpaReader(item)
        self._block: FrameType | None = None
        self._root: Root | None = None
        self._names = {} if model is None else {part: name for name, part in model.named_modules()}
        self._modules = ModuleUses(self._names, self._eager_mode.undisturbed)
        # By the id of a call's result: the result, its version, the axis of its texts, and the call.
        self._results: dict[int, tuple[weakref.ref, int, int | None, RecordedCall]] = {}
        self._modes = ExitStack()

    def __repr__(self) -> str:
        calls = [call for each in self._passes for call in each.calls]
        counted = Counter(f"{call.n_heads} heads, {call.sizes[0]} × {call.sizes[1]}" for call in calls)
        words = "; ".join(f"{count} × ({sizes})" for sizes, count in counted.items())
        return f"<Recorder of {len(self.sides.queries)} tokens: {words or 'nothing was recorded yet'}>"

    def __enter__(self) -> "Recorder":
        self._block = sys._getframe(1)
        self._modes.enter_context(uncompiled)
        self._modes.enter_context(self._modules)
        self._modes.enter_context(self._eager_mode)
        self._modes.enter_context(SdpaMode(self._record_call))
        return self

    def __exit__(self, *error) -> None:
        self._modes.__exit__(*error)
        self._block = self._root = None
        self._results.clear()

    @property
    def trace(self) -> AttentionTrace:
        """The attention of the one forward pass recorded so far, one layer for each call, in order.

        Raises `MhaError` if nothing was recorded that fits the tokens, and if there were several passes.
        """
        traces = self.traces
        if len(traces) > 1:
            raise MhaError(
                f"{len(traces)} forward passes were recorded; rec.traces has a trace of each. A pass ends "
                f"where a module, or a function without modules, is called again in the block; what is one "
                f"pass belongs into one module or function."
            )
        return traces[0]

    @property
    def traces(self) -> tuple[AttentionTrace, ...]:
        """A trace for each forward pass recorded so far, in order.

        A pass ends where a module that was called in the block is called again, or a function outside of all
        modules. Passes without a call that fits the tokens are named in ``source.skipped`` of the others.
        Raises `MhaError` if nothing was recorded that fits the tokens.
        """
        self._eager_mode.warn()
        passes = [self._sorted(forward) for forward in self._folded()]
        fitting = [each for each in passes if each.calls]
        elsewhere = [reason for each in passes if not each.calls for reason in each.skipped]
        mixers = self._without_attention({call.name for each in fitting for call in each.calls})
        skipped = [*(reason for each in passes for reason in each.skipped), *mixers]
        if self.misfit == "raise" and skipped:
            raise MhaError(skipped[0])
        if not fitting:
            raise MhaError(" ".join((self._nothing(passes), *mixers)))
        return tuple(self._trace(each, [*elsewhere, *mixers]) for each in fitting)

    def _without_attention(self, recorded: Collection[str]) -> list[str]:
        """Sentences on layers that mix tokens by other means, of the model or of the modules that ran."""
        called = dict.fromkeys(root for each in self._passes for root in each.called)
        modules = [root for root in called if isinstance(root, nn.Module)]
        modules = modules if self.model is None else [self.model]
        layers = {name: text for each in modules for name, text in without_attention(each).items()}
        return [f"{text}." for name, text in layers.items() if name not in recorded]

    def _nothing(self, passes: "Sequence[SortedPass]") -> str:
        """Why there is no trace."""
        misfits = [reason for each in passes for reason in each.misfits]
        unread = [reason for each in passes for reason in each.unread]
        unfollowed = _counted(reason for each in passes for reason in each.unfollowed)
        if misfits:
            misfits[1:] = [
                "Give one token for each position, without those that are written and never read; where "
                "queries look at another text, give its tokens as keys=."
            ]
        return " ".join((*unread[:1], *misfits, *unfollowed) if misfits or unread else (NOTHING, *unfollowed))

    def _trace(self, forward: "SortedPass", elsewhere: list[str]) -> AttentionTrace:
        shared, calls = Shared(), forward.calls
        kinds = self._kinds_by_lengths(calls) if self.kinds is None else self._kinds_by_caller(calls)
        layers = [call.layer(kind, shared) for call, kind in zip(calls, kinds, strict=True)]
        source = replace(self.source, skipped=_counted([*forward.skipped, *elsewhere]))
        if not self.sides.same:  # the text of the keys is the encoder's
            layers = with_texts(self.sides.keys, self.sides.queries, layers)
        return AttentionTrace(self.sides.queries, tuple(layers), source)

    def _folded(self) -> list[ForwardPass]:
        """The passes, of which those that read on are one."""
        passes = self._passes[:1]
        for later in self._passes[1:]:
            whole = passes[-1].continued(later) if later.calls else None
            passes = [*passes, later] if whole is None else [*passes[:-1], whole]
        return passes

    def _sorted(self, forward: ForwardPass) -> "SortedPass":
        """What of a pass fits the tokens, and what does not."""
        kinds = self._kinds_by_sizes()
        fitting = [call for call in forward.calls if call.sizes in kinds]
        misfits = [self._misfit(call) for call in forward.calls if call.sizes not in kinds]
        unfollowed = [
            reason
            for attempt in self._eager_mode.attempts
            if forward.has(attempt.place) and (reason := _unfollowed(attempt, kinds))
        ]
        return SortedPass(fitting, misfits, forward.unread, unfollowed)

    def _kinds_by_sizes(self) -> dict[tuple[int, int], str]:
        """The kind of a call by its numbers of queries and keys."""
        n_query, n_key = len(self.sides.queries), len(self.sides.keys)
        if self.sides.same:
            return {(n_query, n_query): "self"}
        return {(n_key, n_key): "encoder", (n_query, n_query): "decoder", (n_query, n_key): "cross"}

    def _misfit(self, call: RecordedCall) -> str:
        """The reason why a call is no layer."""
        allowed = ", ".join(f"{queries} and {keys}" for queries, keys in self._kinds_by_sizes())
        n_query, n_key = call.sizes
        return f"{call.place.text}: {n_query} queries and {n_key} keys; the tokens allow {allowed}."

    def _kinds_by_caller(self, calls: Sequence[RecordedCall]) -> Sequence[str]:
        if len(self.kinds) != len(calls):
            raise MhaError(f"kinds names {len(self.kinds)} calls, and {len(calls)} were recorded.")
        return [one_of("kind of layer", kind, KINDS, parameter="kinds") for kind in self.kinds]

    def _kinds_by_lengths(self, calls: Sequence[RecordedCall]) -> list[str]:
        """The kind of each call, by its numbers of queries and keys."""
        kinds, length = self._kinds_by_sizes(), len(self.sides.queries)
        if not self.sides.same and len(kinds) < 3:
            raise MhaError(
                f"tokens and keys are {length} each, so lengths do not tell whose call is whose; say it with "
                f"kinds=: encoder, decoder or cross for each of the {len(calls)} calls."
            )
        return [kinds[call.sizes] for call in calls]

    # While the block runs

    def _place(self) -> Place:
        """The place of an operation that runs now; it opens a new pass where one begins."""
        return self._located(caller(self._block, self.model))

    def _located(self, where: Caller) -> Place:
        root, innermost = where.root, where.innermost
        if root is not None and (self._root is None or root.frame is not self._root.frame):
            if root.called in self._passes[-1].called:
                self._passes = [*self._folded(), ForwardPass()]
            self._passes[-1].called.append(root.called)
            self._root = root
        text = where.line
        if innermost is not None:
            name = self._names.get(innermost)
            text = f"{name} ({text})" if name else f"{text} ({type(innermost).__name__})"
        return Place(text, self._passes[-1], where.module)

    def _record_call(self, function: Callable, args: tuple, kwargs: dict, result: object) -> None:
        """Record a call of one of torch's functions; whatever goes wrong, the model runs on undisturbed."""
        # In this order: leaving inference mode switches gradients on again.
        with torch.inference_mode(False), torch.no_grad():
            where = caller(self._block, self.model)
            place = self._located(where)
            try:
                if function is FORWARD:
                    self._add_forward(place, SIGNATURE.bind(*args, **kwargs).arguments)
                    return
                if function is not SDPA:
                    kwargs, args = flex_arguments(*args, **kwargs), ()
                    result = result[0]
                self._add_sdpa(place, where, result, *args, **kwargs)
            except MhaError as error:
                self._skip(place, str(error))
            except Exception as error:  # of ours: the model shall not notice
                self._skip(place, f"it was not recorded, by an error of ours: {error!r}")

    def _skip(self, place: Place, reason: str) -> None:
        place.forward_pass.unread.append(f"{place.text}: {reason}")

    def _add_sdpa(
        self, place: Place, where: Caller, result: Tensor, query, key, value, attn_mask=None, *args, **kwargs
    ) -> None:
        """A call of `scaled_dot_product_attention`, as one layer."""
        batch = self.batch
        packed = 1 if query.is_nested else where.packed_heads(query.shape)
        query, attn_mask, output = (unpacked(tensor, packed) for tensor in (query, attn_mask, result))
        if batch is None and query.dim() > 1 and not query.is_nested:
            batch = where.batch((query.shape[-2], key.shape[-2]), query.shape)
        attended, about, axis = self._reader.attended(batch, query, key, value, attn_mask, *args, **kwargs)
        self._add(place, attended, about, result, axis, output=output)

    def _add_forward(self, place: Place, arguments: dict) -> None:
        """A call of `multi_head_attention_forward`: followed up to where its heads have their q, k and v."""
        dropout = arguments["dropout_p"] if arguments.get("training", True) else 0.0
        causal = arguments.get("is_causal", False) and not arguments.get("need_weights", True)
        query = arguments["query"]
        try:
            until_heads(**arguments | {"training": False, "need_weights": False, "is_causal": causal})
        except HeadsReached as reached:
            q, k, v, mask, _, is_causal = reached.args
        attended, about, _ = self._reader.attended(q.shape[0], q, k, v, mask, dropout, is_causal)
        tensors: dict[str, Tensor] = {}
        if query is arguments["key"] is arguments["value"]:
            x = query[:, None] if query.dim() == 2 else query
            tensors["x"] = x[:, item_index(self.item, x.shape[1])]
        self._add(place, attended, about, tensors=tensors, matrices=projections(arguments)._asdict())

    def _add_followed(self, seen: Followed, output: Tensor, result: Tensor) -> bool:
        """Record an attention that the code computes itself; was it exact?"""
        where = caller(self._block, self.model)
        place = self._located(where)
        if not eager_code.is_exact(seen):
            return False
        lead = output.shape[:-2]
        try:
            batch = self.batch
            if batch is None:
                sizes = (seen.q.shape[2], seen.k.shape[2])
                batch = where.batch(sizes, (*lead, *seen.q.shape[2:]))
            axis = text_axis(lead, batch, seen.inside)
            with torch.inference_mode(False), torch.no_grad():
                attended = eager_code.attended(seen, lead, axis, self.item)
                about = Facts(by_hand=True, dropout=seen.dropout)
                self._add(place, attended, about, result, axis, output=output)
        except MhaError as error:
            self._skip(place, str(error))
        return True

    def _add(
        self,
        place: Place,
        attended: Attended,
        about: Facts,
        result: Tensor | None = None,
        axis: int | None = None,
        tensors: Mapping[str, Tensor] = MappingProxyType({}),
        matrices: Mapping[str, Tensor | None] = MappingProxyType({}),
        output: Tensor | None = None,
    ) -> None:
        """Record a call; `result` is its output as the code has it, `output` the same as (…, query, d_v)."""
        self._count += 1
        n_texts = 1 if axis is None or result is None else result.shape[axis]
        made = self._modules.provenance(place.module, attended, n_texts, self.item)
        q, k, v = (contiguous_copy(part[0]) for part in (attended.q, attended.k, attended.v))
        call = RecordedCall(
            self._count,
            place,
            self._names.get(place.module, ""),
            (Queries(q, attended.rule.item(0).mapped(compact), k.shape[1]),),
            k,
            v,
            replace(about, adjustments=made.adjustments),
            _copies(made.tensors | tensors),
            _copies(made.projections | matrices),
        )
        call = self._settled(place.forward_pass, call)
        if result is not None:
            output = result if output is None else output
            one = output if axis is None else output.select(axis, item_index(self.item, output.shape[axis]))
            heads = one.reshape(-1, *one.shape[-2:])
            self._await(call, result, axis, heads.transpose(0, 1).flatten(1))

    def _await(self, call: RecordedCall, result: Tensor, axis: int | None, concat: Tensor) -> None:
        """Wait for what becomes of a result, with heads' outputs `concat` (query, h · d_v) for the text."""
        gone = weakref.ref(result, lambda _, key=id(result): self._results.pop(key, None))
        self._results[id(result)] = (gone, version(result), axis, call)
        self._modules.await_output(call, concat, 1 if axis is None else result.shape[axis], self.item)

    def _settled(self, forward: ForwardPass, call: RecordedCall) -> RecordedCall:
        """The call among those of its pass; one that continues an earlier one is joined to it."""
        for at, earlier in enumerate(forward.calls):
            if earlier.is_continued_by(call):
                forward.calls[at] = earlier.continued(call)
                return forward.calls[at]
        forward.calls.append(call)
        return call

    def _add_joined(self, parts: Sequence[Tensor], joined: Tensor) -> None:
        """Results of calls were set side by side: calls of one head each are the heads of one layer."""
        calls, axis = [], None
        for part in parts:
            reference, changes, axis, call = self._results.get(id(part), (None, 0, None, None))
            if reference is None or reference() is not part or version(part) != changes:
                return
            calls.append(call)
        forward = calls[0].place.forward_pass
        layer = side_by_side(calls) if all(call in forward.calls for call in calls) else None
        if layer is not None:
            forward.calls = [call for call in forward.calls if call not in calls]
            layer = self._settled(forward, layer)
            one = joined if axis is None else joined.select(axis, item_index(self.item, joined.shape[axis]))
            self._await(layer, joined, axis, one.reshape(-1, one.shape[-1]))


class SortedPass(NamedTuple):
    """A forward pass: the calls that fit the tokens, and sentences on the others."""

    calls: list[RecordedCall]
    misfits: list[str]
    unread: list[str]
    unfollowed: list[str]

    @property
    def skipped(self) -> list[str]:
        """All that is left out."""
        return [*self.unread, *self.misfits, *self.unfollowed]


class ModuleUse(NamedTuple):
    """A module as it was used: what went in and came out, and how often both had been changed then."""

    module: nn.Module
    x: Tensor
    y: Tensor
    versions: tuple[int, int]

    def of_text(self, n_texts: int, item: int, name: str) -> Use | None:
        """The use for one text of a batch, if its tensors are unchanged and have a row for each text."""
        if self.versions != (version(self.x), version(self.y)):
            return None
        x, y = (_rows_of_text(tensor, n_texts, item) for tensor in (self.x, self.y))
        return None if x is None or y is None else Use.of(self.module, x.clone(), y.clone(), Proof(name))


class ModuleUses:
    """What the matrices and norms of a recorded model compute: they show what made q, k and v, and W^O.

    While it is entered, the modules have hooks, which do nothing in other threads than this one.
    """

    def __init__(self, names: Mapping[nn.Module, str], undisturbed: Callable[[], AbstractContextManager]):
        self._names, self._undisturbed = names, undisturbed
        self._hooks: list[RemovableHandle] = []
        self._thread = 0
        self._uses: list[ModuleUse] = []
        self._awaited: tuple[RecordedCall, Tensor, int, int] | None = None

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        for module in self._names:
            is_leaf = next(module.children(), None) is None
            if is_leaf and module._parameters.get("weight") is not None:
                self._hooks.append(module.register_forward_hook(self._on_use))

    def __exit__(self, *error) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._uses.clear()
        self._awaited = None

    def _on_use(self, module: nn.Module, args: tuple, output: object) -> None:
        if threading.get_ident() != self._thread or not args:
            return
        x = args[0]
        if isinstance(x, Tensor) and isinstance(output, Tensor) and x.is_floating_point() and not x.is_meta:
            with self._undisturbed(), torch.inference_mode(False), torch.no_grad():
                use = ModuleUse(module, x, output, (version(x), version(output)))
                self._uses.append(use)
                self._find_output(use)

    def provenance(self, module: nn.Module | None, attended: Attended, n_texts: int, item: int) -> Provenance:
        """What made q, k and v of one text, as far as the modules inside `module` show it."""
        uses, self._uses = self._uses, []
        if module not in self._names:
            return Provenance()
        inside = set(module.modules())
        # All are tried for q, k and v: the numbers show which made which.
        named = [
            use.of_text(n_texts, item, "c_attn" if use.module.weight.dim() == 2 else "qk_norm")
            for use in uses
            if use.module in inside
        ]
        inputs: dict[tuple, Tensor] = {}  # uses of one input share its copy
        shared = [
            use._replace(x=inputs.setdefault(_place_of(each.x), use.x))
            for each, use in zip((use for use in uses if use.module in inside), named, strict=True)
            if use is not None
        ]
        q, k, v = attended.q, attended.k, attended.v
        n_query = q.shape[2]
        if n_query < k.shape[2]:  # with a cache only the last keys and values are made now
            latest = provenance(q, k[:, :, -n_query:], v[:, :, -n_query:], shared)
            if latest.tensors:
                return latest
        return provenance(q, k, v, shared, outside=n_query != k.shape[2])

    def await_output(self, call: RecordedCall, concat: Tensor, n_texts: int, item: int) -> None:
        """The next module that takes the heads' outputs, (query, h · d_v), has W^O of the call."""
        if self._names:
            self._awaited = call, concat, n_texts, item

    def _find_output(self, use: ModuleUse) -> None:
        if self._awaited is None:
            return
        call, concat, n_texts, item = self._awaited
        one = use.of_text(n_texts, item, "o_proj")
        if one is None or one.x.shape[1:] != concat.shape or not torch.equal(one.x[0], concat):
            return
        if (product := matrix(one)) is not None:
            call.matrices = {**call.matrices, **_copies({"w_o": product[0], "b_o": product[1]})}
        self._awaited = None


def _place_of(tensor: Tensor) -> tuple:
    return tensor.data_ptr(), tensor.shape


def _rows_of_text(tensor: Tensor, n_texts: int, item: int) -> Tensor | None:
    """(1, token, width) of one text, or (1, …, width) where its heads have axes of their own."""
    shape = tensor.shape
    if n_texts == 1:
        return tensor if tensor.dim() == 4 else tensor.reshape(1, -1, shape[-1])
    if tensor.dim() == 2 and shape[0] % n_texts == 0:
        return tensor.unflatten(0, (n_texts, -1))[item : item + 1]
    if tensor.dim() > 2 and shape[0] == n_texts:
        return tensor[item : item + 1]
    if tensor.dim() == 3 and shape[1] == n_texts:
        return tensor[None, :, item]
    return None


def _copies(tensors: Mapping[str, Tensor | Part | None]) -> dict[str, Tensor]:
    """Copies on the CPU: a trace stays what it is when the model is trained further."""
    return {
        name: contiguous_copy(tensor.tensor() if isinstance(tensor, Part) else tensor)
        for name, tensor in tensors.items()
        if tensor is not None
    }


def side_by_side(calls: Sequence[RecordedCall]) -> RecordedCall | None:
    """Calls of one head each as one call of several; None where they are not of one kind."""
    first, rules = calls[0], [call.queries[0].rule for call in calls]
    sizes = {(call.sizes, call.n_heads, len(call.queries), call.k.shape, call.v.shape) for call in calls}
    alike = {(rule.scale, rule.soft_cap, rule.temperature, rule.sinks is None) for rule in rules}
    if len(calls) < 2 or first.n_heads > 1 or len(first.queries) > 1 or len(sizes) > 1 or len(alike) > 1:
        return None
    n_query, n_key = first.sizes
    laid = [rule.at(slice(None), slice(None), n_query=n_query, n_key=n_key) for rule in rules]
    sinks = None if rules[0].sinks is None else torch.cat([rule.sinks for rule in rules])
    mask = _of_heads([rule.mask for rule in laid], True, first.sizes)
    bias = _of_heads([rule.bias for rule in laid], 0.0, first.sizes)
    rule = replace(rules[0], mask=mask, bias=bias, distance_bias=None, sinks=sinks)
    inputs = [call.tensors.get("x") for call in calls]
    same_x = all(x is not None and torch.equal(x, inputs[0]) for x in inputs)
    names = {frozenset(call.matrices) for call in calls}
    changed = any(call.about.adjustments is not None for call in calls)
    matrices = {} if not same_x or changed or len(names) > 1 else first.matrices
    return replace(
        first,
        name=_common_name([call.name for call in calls]),
        queries=(Queries(torch.cat([call.queries[0].q for call in calls]), rule, n_key),),
        k=torch.cat([call.k for call in calls]),
        v=torch.cat([call.v for call in calls]),
        about=replace(first.about, adjustments=None),
        tensors={"x": inputs[0]} if same_x else {},
        matrices={name: torch.cat([call.matrices[name] for call in calls], dim=-1) for name in matrices},
    )


def _unfollowed(attempt: Attempt, kinds: Iterable[tuple[int, int]]) -> str:
    """The reason why an attention over these tokens, or over rearranged ones, is no layer; else none."""
    if attempt.followed:
        return ""
    end = f"was not followed: {attempt.lost or NO_VALUES}."
    for sizes in (attempt.sizes, *attempt.factors):
        if sizes in kinds:
            return f"{attempt.place.text}: attention over {sizes[0]} × {sizes[1]} tokens {end}"
    return f"{attempt.place.text}: attention {end}" if attempt.rearranged else ""


def _common_name(names: Sequence[str]) -> str:
    """The module that holds all of these."""
    levels = zip(*(name.split(".") for name in names), strict=False)
    return ".".join(level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels))


def _of_heads(
    tables: Sequence[Tensor | None], default: bool | float, sizes: tuple[int, int]
) -> Tensor | None:
    """The masks or biases of heads as one, (head or 1, query, key)."""
    if all(table is None for table in tables):
        return None
    laid = [_laid_out(table, default, sizes, 0, sizes[1]) for table in tables]
    return laid[0] if all(torch.equal(table, laid[0]) for table in laid) else torch.cat(laid)


def _counted(reasons: Iterable[str]) -> tuple[str, ...]:
    """Each sentence once, with how often it is true."""
    return tuple(
        reason if count == 1 else f"{reason} ({count} times)" for reason, count in Counter(reasons).items()
    )
