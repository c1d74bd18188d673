"""Traces of unchanged torch code: its calls of torch's attention functions are recorded.

A `TorchFunctionMode` intercepts each call of `F.scaled_dot_product_attention` and
`F.multi_head_attention_forward` before it runs, copies one item of its queries, keys and values, and lets
it run unchanged. A second mode follows code that calls softmax itself; such attention is computed again,
row by row, and recorded where the result is the same. The modes belong to one thread: recorders in several
threads are independent, and of two nested ones the outer one records the calls of both. While a mode is
active, torch does not take its fused encoder path, and compiled code runs uncompiled; `torch.jit` modules
cannot be recorded.
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

    `tokens` are the tokens at the positions of the input: a list of strings, or a text. `keys` are the tokens
    of a second text that they look at, as in an encoder–decoder; the kind of each call follows from its
    lengths, or from `kinds`, one for each call in order: encoder (keys among themselves), decoder, cross.
    `item` is the index in a batch. The output of the model is, to the bit, that with torch's fused path off;
    with dropout in torch's functions the recorded weights are those before dropout.

    Code that calls softmax itself counts as a call if it could be followed from queries and keys to the
    values; ``trace.source.skipped`` names the others.
    Raises `MhaError`, when `trace` is read, if there was no call or one does not fit the tokens.
    """
    return Recorder(sides_of(tokens, keys), item, kinds, array_source(source, RecordedSource))


class Recorder:
    """The context manager of `record`; its `trace` has the calls made inside it."""

    def __init__(self, sides: Sides, item: int, kinds, source: RecordedSource):
        self.sides, self.item, self.kinds, self.source = sides, item, kinds, source
        self.layers: list[LayerTrace] = []
        self.problem: MhaError | None = None
        self._eager_mode = EagerMode(self._add_eager, every_row=True)
        self._followed: Counter[tuple[int, int]] = Counter()
        self._eager_errors: list[MhaError] = []
        self._reader = SdpaReader(item)
        self._modes = ExitStack()

    def __repr__(self) -> str:
        counted = Counter(f"{layer.n_heads} heads, {layer.n_query} × {layer.n_key}" for layer in self.layers)
        calls = "; ".join(f"{count} × ({sizes})" for sizes, count in counted.items())
        return f"<Recorder of {len(self.sides.queries)} tokens: {calls or 'nothing was recorded yet'}>"

    def __enter__(self) -> "Recorder":
        self._modes.enter_context(uncompiled)
        self._modes.enter_context(self._eager_mode)
        self._modes.enter_context(SdpaMode(self._record_call))
        return self

    def __exit__(self, *error) -> None:
        self._modes.__exit__(*error)

    @property
    def trace(self) -> AttentionTrace:
        """The attention recorded so far, one layer for each call, in order.

        Raises `MhaError` if there was no call, and for a call that does not fit the tokens.
        """
        if self.problem is not None:
            raise self.problem
        self._eager_mode.warn()
        unfollowed = self._unfollowed()
        if not self.layers and self._eager_errors:
            raise self._eager_errors[0]
        if not self.layers:
            raise MhaError(" ".join((NOTHING, *unfollowed)))
        kinds = self._kinds_by_lengths() if self.kinds is None else self._kinds_by_caller()
        layers = (replace(layer, kind=kind) for layer, kind in zip(self.layers, kinds, strict=True))
        source = replace(self.source, skipped=unfollowed)
        if not self.sides.same:  # the text of the keys is the encoder's
            layers = with_texts(self.sides.keys, self.sides.queries, layers)
        return AttentionTrace(self.sides.queries, tuple(layers), source)

    def _unfollowed(self) -> tuple[str, ...]:
        """The remark on softmaxes over these tokens that ran and could not be followed."""
        ran = self._eager_mode.softmaxes
        count = sum(max(0, ran[sizes] - self._followed[sizes]) for sizes in self._kinds_by_sizes())
        return (UNFOLLOWED.format(count=count),) if count else ()

    def _kinds_by_sizes(self) -> dict[tuple[int, int], str]:
        """The kind of a call by its numbers of queries and keys."""
        n_query, n_key = len(self.sides.queries), len(self.sides.keys)
        if self.sides.same:
            return {(n_query, n_query): "self"}
        return {(n_key, n_key): "encoder", (n_query, n_query): "decoder", (n_query, n_key): "cross"}

    def _misfit(self, number: int, sizes: tuple[int, int]) -> MhaError:
        expected = ", ".join(f"{queries} and {keys}" for queries, keys in self._kinds_by_sizes())
        return MhaError(
            f"Call {number} has {sizes[0]} queries and {sizes[1]} keys; the tokens given allow {expected}. "
            f"Give one token for each position; where queries look at another text, its tokens as keys=."
        )

    def _kinds_by_caller(self) -> Sequence[str]:
        if len(self.kinds) != len(self.layers):
            raise MhaError(f"kinds names {len(self.kinds)} calls, and {len(self.layers)} were recorded.")
        return [one_of("kind of layer", kind, KINDS, parameter="kinds") for kind in self.kinds]

    def _kinds_by_lengths(self) -> list[str]:
        """The kind of each call, by its numbers of queries and keys."""
        kinds, length = self._kinds_by_sizes(), len(self.sides.queries)
        if not self.sides.same and len(kinds) < 3:
            raise MhaError(
                f"tokens and keys are {length} each, so lengths do not tell whose call is whose; say it with "
                f"kinds=: encoder, decoder or cross for each of the {len(self.layers)} calls."
            )
        for number, layer in enumerate(self.layers):
            if (layer.n_query, layer.n_key) not in kinds:
                raise self._misfit(number, (layer.n_query, layer.n_key))
        return [kinds[layer.n_query, layer.n_key] for layer in self.layers]

    def _add_eager(self, seen: Followed, output: Tensor) -> None:
        """Record an attention that the code computes itself, if it is one of these texts."""
        sizes = seen.q.shape[2], seen.k.shape[2]
        if not eager_code.is_exact(seen):
            return
        try:
            if sizes not in self._kinds_by_sizes():
                raise self._misfit(len(self.layers), sizes)
            with torch.inference_mode(False), torch.no_grad():
                self._add(eager_code.attended(seen, output.shape[:-2], self.item), Facts(by_hand=True))
            self._followed[sizes] += 1
        except MhaError as error:  # perhaps an attention over other things than these tokens
            self._eager_errors.append(error)

    def _record_call(self, function: Callable, args: tuple, kwargs: dict) -> None:
        """Record a call; errors are kept for `trace`, so that the model runs on undisturbed."""
        if self.problem is not None:
            return
        # In this order: leaving inference mode switches gradients on again.
        with torch.inference_mode(False), torch.no_grad():
            try:
                if function is SDPA:
                    self._add_sdpa(*args, **kwargs)
                else:
                    self._add_forward(SIGNATURE.bind(*args, **kwargs).arguments)
            except MhaError as error:
                self.problem = error

    def _add_sdpa(self, *args, facts: dict = MappingProxyType({}), **kwargs) -> None:
        """A call of `scaled_dot_product_attention`, as one layer."""
        self._add(*self._reader.attended(len(self.layers), *args, **kwargs), **facts)

    def _add(self, attended: Attended, about: Facts, **facts) -> None:
        about = replace(about, call=len(self.layers) + 1)
        self.layers.append(LayerTrace.of(attended, about=about, **facts))

    def _add_forward(self, arguments: dict) -> None:
        """A call of `multi_head_attention_forward`: followed up to where its heads have their q, k and v."""
        dropout = arguments["dropout_p"] if arguments.get("training", True) else 0.0
        causal = arguments.get("is_causal", False) and not arguments.get("need_weights", True)
        try:
            until_heads(**arguments | {"training": False, "need_weights": False, "is_causal": causal})
        except HeadsReached as reached:
            q, k, v, mask, _, is_causal = reached.args
        query = arguments["query"]
        facts: dict = {"projections": projections(arguments)}
        if query is arguments["key"] is arguments["value"]:
            x = query[:, None] if query.dim() == 2 else query
            facts["x"] = x[:, self.item if x.shape[1] > 1 else 0][None]
        self._add_sdpa(q, k, v, mask, dropout, is_causal, facts=facts)
