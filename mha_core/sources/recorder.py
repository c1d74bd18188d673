"""Traces of torch code that stays as it is: what it asks torch's attention functions is written down.

A `TorchFunctionMode` sees each call of `F.scaled_dot_product_attention` and `F.multi_head_attention_forward`
before it happens, keeps a copy of one item of its queries, keys and values, and lets it happen untouched.
Another one follows what is computed with a softmax of the code's own; what was understood is computed again,
row by row, and kept where it is the same. The modes belong to one thread: recorders in several threads mix
nothing, and of two within each other the outer one has the calls of both. While a mode is on, torch leaves
its fused encoder path by itself, and compiled code runs uncompiled; what `torch.jit` made cannot be seen.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType

import torch
from torch import Tensor

from mha_core.attention.module import Attended
from mha_core.capture import eager_code
from mha_core.capture.eager_code import EagerMode
from mha_core.capture.eager_scores import Followed
from mha_core.capture.sdpa import (
    SDPA,
    SIGNATURE,
    HeadsReached,
    SdpaMode,
    SdpaReader,
    projections,
    uncompiled,
    until_heads,
)
from mha_core.errors import MhaError, one_of
from mha_core.sources.arrays import sides_of
from mha_core.traces.facts import Facts
from mha_core.traces.layer import KINDS, LayerTrace, with_texts
from mha_core.traces.source import RecordedSource, SourceValue, array_source
from mha_core.traces.tokens import Sides, Tokens
from mha_core.traces.trace import AttentionTrace

NOTHING = (
    "No attention was recorded. Looked for, in this thread and inside the block: calls of "
    "torch.nn.functional.scaled_dot_product_attention and multi_head_attention_forward, and products of "
    "queries and keys that go through a softmax to the values. flex_attention, the flash_attn package and "
    "modules made by torch.jit cannot be seen. mha.from_tensors(q=, k=, v=, tokens=) takes what such code "
    "computes."
)
UNFOLLOWED = (
    "Of the softmaxes that the model has of its own, {count} over these tokens could not be followed from "
    "queries and keys to the values; dropout is one reason, which model.eval() switches off."
)


def record(
    *,
    tokens: "str | Sequence[str] | Tokens",
    keys: "str | Sequence[str] | Tokens | None" = None,
    item: int = 0,
    kinds: Sequence[str] | None = None,
    source: SourceValue = RecordedSource.name,
) -> "Recorder":
    """``with mha.record(tokens=…) as rec: my_model(x)``, and `rec.trace` is its attention.

    `tokens` are what the positions of the input stand for: a list of strings, or a text. `keys` are the
    tokens of a second text that they look at, as in an encoder–decoder; whose call is whose is told by the
    lengths, or by `kinds`, one for each call in their order: encoder (keys among themselves), decoder,
    cross. `item` picks from a batch. The model computes as ever, to the bit what it computes with torch's
    fused path off; with dropout in torch's functions the weights are those before it.

    A softmax of the code's own is a call, too, if it could be followed from queries and keys to the values;
    of what could not, ``trace.source.skipped`` tells.
    Raises `MhaError`, when `trace` is read, where no call was seen or one does not fit the tokens.
    """
    return Recorder(sides_of(tokens, keys), item, kinds, array_source(source, RecordedSource))


class Recorder:
    """What `record` hands out: a context, whose `trace` has what was called in it."""

    def __init__(self, sides: Sides, item: int, kinds, source: RecordedSource):
        self.sides, self.item, self.kinds, self.source = sides, item, kinds, source
        self.layers: list[LayerTrace] = []
        self.problem: MhaError | None = None
        self._by_hand = EagerMode(self._follow, every_row=True)
        self._followed: Counter[tuple[int, int]] = Counter()
        self._unclear: list[MhaError] = []
        self._called = SdpaReader(item)
        self._inside = ExitStack()

    def __repr__(self) -> str:
        counted = Counter(f"{layer.n_heads} heads, {layer.n_query} × {layer.n_key}" for layer in self.layers)
        calls = "; ".join(f"{count} × ({sizes})" for sizes, count in counted.items())
        return f"<Recorder of {len(self.sides.queries)} tokens: {calls or 'nothing was recorded yet'}>"

    def __enter__(self) -> "Recorder":
        self._inside.enter_context(uncompiled)
        self._inside.enter_context(self._by_hand)
        self._inside.enter_context(SdpaMode(self._saw))
        return self

    def __exit__(self, *error) -> None:
        self._inside.__exit__(*error)

    @property
    def trace(self) -> AttentionTrace:
        """All attention that was recorded so far, a layer for each call in their order.

        Raises `MhaError` where there was none, and for a call that does not fit the tokens.
        """
        if self.problem is not None:
            raise self.problem
        self._by_hand.warn()
        unfollowed = self._unfollowed()
        if not self.layers and self._unclear:
            raise self._unclear[0]
        if not self.layers:
            raise MhaError(" ".join((NOTHING, *unfollowed)))
        kinds = self._lengths() if self.kinds is None else self._checked()
        layers = (replace(layer, kind=kind) for layer, kind in zip(self.layers, kinds, strict=True))
        source = replace(self.source, skipped=unfollowed)
        if not self.sides.same:  # the keys are what is written from
            layers = with_texts(self.sides.keys, self.sides.queries, layers)
        return AttentionTrace(self.sides.queries, tuple(layers), source)

    def _unfollowed(self) -> tuple[str, ...]:
        """What is to be said of softmaxes over these tokens that ran and are not shown."""
        ran = self._by_hand.softmaxes
        count = sum(max(0, ran[sizes] - self._followed[sizes]) for sizes in self._fitting())
        return (UNFOLLOWED.format(count=count),) if count else ()

    def _fitting(self) -> dict[tuple[int, int], str]:
        """Whose call one is with so many queries and keys."""
        own, other = len(self.sides.queries), len(self.sides.keys)
        if self.sides.same:
            return {(own, own): "self"}
        return {(other, other): "encoder", (own, own): "decoder", (own, other): "cross"}

    def _misfit(self, number: int, sizes: tuple[int, int]) -> MhaError:
        offered = ", ".join(f"{queries} and {keys}" for queries, keys in self._fitting())
        return MhaError(
            f"Call {number} has {sizes[0]} queries and {sizes[1]} keys; the tokens given allow {offered}. "
            f"Give one token for each position; where queries look at another text, its tokens as keys=."
        )

    def _checked(self) -> Sequence[str]:
        if len(self.kinds) != len(self.layers):
            raise MhaError(f"kinds names {len(self.kinds)} calls, and {len(self.layers)} were recorded.")
        return [one_of("kind of layer", kind, KINDS, parameter="kinds") for kind in self.kinds]

    def _lengths(self) -> list[str]:
        """Whose call each one is, as its numbers of queries and keys tell."""
        fitting, own = self._fitting(), len(self.sides.queries)
        if not self.sides.same and len(fitting) < 3:
            raise MhaError(
                f"tokens and keys are {own} each, so lengths do not tell whose call is whose; say it with "
                f"kinds=: encoder, decoder or cross for each of the {len(self.layers)} calls."
            )
        for number, layer in enumerate(self.layers):
            if (layer.n_query, layer.n_key) not in fitting:
                raise self._misfit(number, (layer.n_query, layer.n_key))
        return [fitting[layer.n_query, layer.n_key] for layer in self.layers]

    def _follow(self, seen: Followed, output: Tensor) -> None:
        """Write an attention down that the code computes itself, if it is one of these texts."""
        sizes = seen.q.shape[2], seen.k.shape[2]
        if not eager_code.is_exact(seen):
            return
        try:
            if sizes not in self._fitting():
                raise self._misfit(len(self.layers), sizes)
            with torch.inference_mode(False):
                self._add(eager_code.attended(seen, output.shape[:-2], self.item), Facts(by_hand=True))
            self._followed[sizes] += 1
        except MhaError as error:  # perhaps it is none of the attention that is meant
            self._unclear.append(error)

    def _saw(self, function: Callable, args: tuple, kwargs: dict) -> None:
        """Write a call down; what is wrong with it is told later, since the model shall not notice."""
        if self.problem is not None:
            return
        with torch.no_grad(), torch.inference_mode(False):
            try:
                if function is SDPA:
                    self._keep(*args, **kwargs)
                else:
                    self._forwarded(SIGNATURE.bind(*args, **kwargs).arguments)
            except MhaError as error:
                self.problem = error

    def _keep(self, *args, more: dict = MappingProxyType({}), **given) -> None:
        """A call of `scaled_dot_product_attention`, as one layer."""
        self._add(*self._called.attended(len(self.layers), *args, **given), **more)

    def _add(self, attended: Attended, about: Facts, **more) -> None:
        about = replace(about, call=len(self.layers) + 1)
        self.layers.append(LayerTrace.of(attended, about=about, **more))

    def _forwarded(self, given: dict) -> None:
        """A call of `multi_head_attention_forward`: followed up to where its heads have their q, k and v."""
        dropout = given["dropout_p"] if given.get("training", True) else 0.0
        causal = given.get("is_causal", False) and not given.get("need_weights", True)
        try:
            until_heads(**given | {"training": False, "need_weights": False, "is_causal": causal})
        except HeadsReached as reached:
            q, k, v, mask, _, is_causal = reached.args
        query = given["query"]
        more: dict = {"projections": projections(given)}
        if query is given["key"] is given["value"]:
            x = query[:, None] if query.dim() == 2 else query
            more["x"] = x[:, self.item if x.shape[1] > 1 else 0][None]
        self._keep(q, k, v, mask, dropout, is_causal, more=more)
