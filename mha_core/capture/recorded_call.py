"""Attention calls of one text as `mha.record` keeps them, and the forward passes to which they belong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.masks import SharedTensors
from mha_core.errors import Phrase
from mha_core.traces.facts import Facts
from mha_core.traces.layer import LayerTrace
from mha_core.traces.projections import ModelProjections

BEAMS = Phrase(
    "it reads the beams of a search, which change places; record a call of the model with the text that the "
    "search has written."
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
    """One attention call of one text, or several calls that continue each other; all tensors are on the CPU.

    k (kv_head, key, d_k) and v (kv_head, key, d_v) have the keys and values of all of these calls.
    """

    number: int
    place: Place
    name: str
    queries: tuple[Queries, ...]
    k: Tensor
    v: Tensor
    about: Facts
    tensors: Mapping[str, Tensor] = field(default_factory=dict)  # x and further tensors of the layer
    matrices: Mapping[str, Tensor] = field(default_factory=dict)
    looks_outside: bool = False  # its keys come from another text
    n_parts: int = 1  # parts in which the item is read; this is one of them
    is_one_of_several_items: bool = False  # the model reads several items, one at a time
    note: Phrase | None = None  # on how it is shown
    ambiguity: str = ""  # why its text or its heads are ambiguous; empty where they are not
    of_texts: Tensor | None = None  # the sums of the keys of all texts of a batch, (text, key)

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of queries and keys."""
        return sum(part.q.shape[1] for part in self.queries), self.k.shape[1]

    @property
    def n_heads(self) -> int:
        return self.queries[0].q.shape[0]

    def continued(self, later: "RecordedCall") -> "RecordedCall | None":
        """This call joined with one that continues it, both without unused keys of a cache; else None.

        The later keys are then the last keys of this call, followed by one for each later query.
        """
        if later.sizes[1] <= later.sizes[0]:  # all of its keys are its own
            return None
        for one, other in ((self, later), (self.without_unused_keys(), later.without_unused_keys())):
            n_shared = other.sizes[1] - other.sizes[0]
            if 0 < n_shared <= one.k.shape[1] and one._shares(other, n_shared):
                return one._joined(other, reads_on=True)
        return None

    def looking_again(self, later: "RecordedCall") -> "RecordedCall | None":
        """This call joined with one that looks at the same keys, as a decoder does again; else None."""
        if later.sizes[1] != self.k.shape[1] or not self._shares(later, self.k.shape[1]):
            return None
        return self._joined(later, reads_on=False)

    def _shares(self, later: "RecordedCall", n_shared: int) -> bool:
        """Whether the last keys and values are the first ones of a later call with equal heads and scale."""
        rules = [self.queries[0].rule, later.queries[0].rule]
        same = len({(rule.scale, rule.soft_cap, rule.temperature, rule.sinks is None) for rule in rules}) == 1
        same &= self.n_heads == later.n_heads and self.name == later.name
        return same and all(
            one.shape[::2] == other.shape[::2] and torch.equal(one[:, -n_shared:], other[:, :n_shared])
            for one, other in ((self.k, later.k), (self.v, later.v))
        )

    def _joined(self, later: "RecordedCall", *, reads_on: bool) -> "RecordedCall":
        n_key, tensors, matrices = later.k.shape[1], {}, self.matrices
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
        ambiguity = self.ambiguity or (BEAMS if reads_on and self._changes_places(later) else "")
        return replace(
            self,
            ambiguity=ambiguity,
            of_texts=later.of_texts,
            queries=(*self.queries, *(part._replace(start=start) for part in later.queries)),
            k=k,
            v=v,
            about=replace(self.about, adjustments=None),
            tensors=tensors,
            matrices=matrices,
        )

    def _changes_places(self, later: "RecordedCall") -> bool:
        """Whether texts of the batch have changed places in a later call that continues this one."""
        if self.of_texts is None or later.of_texts is None or len(self.of_texts) != len(later.of_texts):
            return False
        n_key, n_shared = self.k.shape[1], later.k.shape[1] - later.sizes[0]
        return not torch.allclose(self.of_texts[:, n_key - n_shared : n_key], later.of_texts[:, :n_shared])

    def without_unused_keys(self) -> "RecordedCall":
        """The call without the last keys that are hidden from all queries, as in a cache of fixed size."""
        mask = self.queries[0].rule.mask
        if mask is None or len(self.queries) > 1 or mask.shape[-1] < self.k.shape[1]:
            return self
        seen = mask.flatten(0, -2).any(0).nonzero()
        return (self.cropped(int(seen.max()) + 1) if len(seen) else None) or self

    def cropped(self, n_key: int) -> "RecordedCall | None":
        """The call with its first keys only, if all others are hidden from its queries; else None."""
        [part, *others], rule = self.queries, self.queries[0].rule
        if others or part.n_key <= n_key or rule.mask is None or rule.distance_bias is not None:
            return None
        mask = rule.mask.expand(*rule.mask.shape[:-1], part.n_key)
        if mask[..., n_key:].any():
            return None
        mask, bias = mask[..., :n_key], rule.bias
        if bias is not None:
            bias = bias.expand(*bias.shape[:-1], part.n_key)[..., :n_key]
        rule = replace(rule, mask=None if mask.all() else mask, bias=bias)
        k, v = self.k[:, :n_key], self.v[:, :n_key]
        return replace(self, queries=(part._replace(rule=rule, n_key=n_key),), k=k, v=v)

    def layer(self, kind: str, shared: SharedTensors) -> LayerTrace:
        """The call as a layer of a trace; layers of one trace share equal masks."""
        q = torch.cat([part.q for part in self.queries], dim=1)
        rule = self._joined_rule() if len(self.queries) > 1 else self.queries[0].rule
        if rule.mask is not None:
            rule = replace(rule, mask=shared.one(rule.mask))
        tensors = {"weights": q, "v": self.v} if self.about.missing else {"q": q, "k": self.k, "v": self.v}
        tensors |= self.tensors
        return LayerTrace(
            MappingProxyType(tensors),
            rule,
            ModelProjections(self.matrices),
            kind,
            self.name,
            replace(self.about, call=self.number),
        )

    def _joined_rule(self) -> ScoreRule:
        """The score rule of all queries; keys that did not exist yet are hidden from earlier queries."""
        n_key, masks, biases = self.k.shape[1], [], []
        for q, rule, n_seen, start in self.queries:
            sizes = q.shape[1], n_seen
            expanded = rule.at(slice(None), slice(None), n_query=q.shape[1], n_key=n_seen)
            masks.append(_expanded(expanded.mask, True, sizes, start, n_key))
            biases.append(_expanded(expanded.bias, 0.0, sizes, start, n_key))
        bias = _stacked(biases) if any(bool(bias.any()) for bias in biases) else None
        return replace(self.queries[0].rule, mask=_stacked(masks), bias=bias, distance_bias=None)


def _expanded(
    table: Tensor | None, default: bool | float, sizes: tuple[int, int], start: int, n_key: int
) -> Tensor:
    """A mask or bias as (head or 1, query, key), hidden or zero for keys that did not exist yet."""
    table = torch.full(sizes, default) if table is None else table
    table = table.reshape((1,) * (3 - table.dim()) + tuple(table.shape)).expand(-1, *sizes)
    return nn.functional.pad(table, (start, n_key - start - sizes[1]))


def _stacked(tables: list[Tensor]) -> Tensor:
    n_heads = max(table.shape[0] for table in tables)
    return torch.cat([table.expand(n_heads, -1, -1) for table in tables], dim=1)


@dataclass(eq=False)
class ForwardPass:
    """The calls of one forward pass in order, what could not be recorded, and the outermost calls around it.

    `lost` are calls that were not followed; their queries are their weights.
    `parts` are the passes that were joined into this one.
    """

    calls: list[RecordedCall] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    called: list[object] = field(default_factory=list)
    parts: "tuple[ForwardPass, ...]" = ()
    lost: list[RecordedCall] = field(default_factory=list)

    def continued(self, later: "ForwardPass") -> "ForwardPass | None":
        """This pass joined with a later one that continues it; else None."""
        calls, reads_on = list(self.calls), False
        for call in later.calls:
            joined = (
                (n, one, way == RecordedCall.continued)
                for way in (RecordedCall.continued, RecordedCall.looking_again)
                for n, earlier in enumerate(calls)
                if (one := way(earlier, call)) is not None
            )
            if (first := next(joined, None)) is None:
                return None
            at, one, continues = first
            calls[at] = one
            reads_on |= continues
        if not reads_on:
            return None
        parts = (*(self.parts or (self,)), later)
        return ForwardPass(calls, self.unread + later.unread, self.called + later.called, parts)

    def has(self, place: Place) -> bool:
        """Whether a place belongs to this pass."""
        return place.forward_pass is self or place.forward_pass in self.parts


def side_by_side(calls: Sequence[RecordedCall]) -> RecordedCall | None:
    """Calls of one head each as one call of several heads; None where their sizes or rules differ."""
    first, rules = calls[0], [call.queries[0].rule for call in calls]
    sizes = {(call.sizes, call.n_heads, len(call.queries), call.k.shape, call.v.shape) for call in calls}
    alike = {(rule.scale, rule.soft_cap, rule.temperature, rule.sinks is None) for rule in rules}
    if len(calls) < 2 or first.n_heads > 1 or len(first.queries) > 1 or len(sizes) > 1 or len(alike) > 1:
        return None
    n_query, n_key = first.sizes
    expanded = [rule.at(slice(None), slice(None), n_query=n_query, n_key=n_key) for rule in rules]
    own_sinks = [rule.sinks for rule in rules if rule.sinks is not None]
    sinks = torch.cat(own_sinks) if own_sinks else None
    mask = _of_heads([rule.mask for rule in expanded], True, first.sizes)
    bias = _of_heads([rule.bias for rule in expanded], 0.0, first.sizes)
    rule = replace(rules[0], mask=mask, bias=bias, distance_bias=None, sinks=sinks)
    x = first.tensors.get("x")
    inputs = [call.tensors.get("x") for call in calls]
    same_x = x is not None and all(one is not None and torch.equal(one, x) for one in inputs)
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
        ambiguity="",
        tensors={"x": x} if x is not None and same_x else {},
        matrices={name: torch.cat([call.matrices[name] for call in calls], dim=-1) for name in matrices},
    )


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
    expanded = [_expanded(table, default, sizes, 0, sizes[1]) for table in tables]
    return expanded[0] if all(torch.equal(table, expanded[0]) for table in expanded) else torch.cat(expanded)
