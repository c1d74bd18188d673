"""Traces of torch code that stays as it is: what it asks torch's attention functions is written down.

A `TorchFunctionMode` sees each call of `F.scaled_dot_product_attention` and `F.multi_head_attention_forward`
before it happens, keeps a copy of one item of its queries, keys and values, and lets it happen untouched.
The mode belongs to one thread: recorders in several threads mix nothing, and of two within each other the
outer one has the calls of both. While a mode is on, torch leaves its fused encoder path by itself, and
compiled code runs uncompiled; what `torch.jit` made cannot be seen.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType

import torch
from torch import Tensor

from mha_core.attention import Attended
from mha_core.errors import MhaError
from mha_core.layer import LayerTrace
from mha_core.named import as_tokens, described
from mha_core.rule import HIDDEN, ScoreRule
from mha_core.spec import known
from mha_core.tokens import Tokens
from mha_core.trace import KINDS, AttentionTrace
from mha_core.watch import SDPA, SIGNATURE, Reached, Watch, projections, uncompiled, until_heads

NOTHING = (
    "No attention was recorded. Looked for, in this thread and inside the block: calls of "
    "torch.nn.functional.scaled_dot_product_attention and multi_head_attention_forward. Code with a "
    "softmax of its own, flex_attention, the flash_attn package and modules made by torch.jit call neither "
    "(a model of transformers does with attn_implementation='sdpa'). mha.from_tensors(q=, k=, v=, tokens=) "
    "takes what such code computes."
)


def record(
    *,
    tokens: "str | Sequence[str] | Tokens",
    keys: "str | Sequence[str] | Tokens | None" = None,
    item: int = 0,
    kinds: Sequence[str] | None = None,
    source: str | Mapping[str, object] = "recorded",
) -> "Recorder":
    """``with mha.record(tokens=…) as rec: my_model(x)``, and `rec.trace` is its attention.

    `tokens` are what the positions of the input stand for: a list of strings, or a text. `keys` are the
    tokens of a second text that they look at, as in an encoder–decoder; whose call is whose is told by the
    lengths, or by `kinds`, one for each call in their order: encoder (keys among themselves), decoder,
    cross. `item` picks from a batch. The model computes as ever, to the bit what it computes with torch's
    fused path off; with dropout the weights are those before it.

    Raises `MhaError`, when `trace` is read, where no call was seen or one does not fit the tokens.
    """
    looking = as_tokens(tokens, "tokens")
    looked_at = None if keys is None else as_tokens(keys, "keys")
    return Recorder(looking, looked_at, item, kinds, described(source))


class Recorder:
    """What `record` hands out: a context, whose `trace` has what was called in it."""

    def __init__(self, tokens: Tokens, keys: Tokens | None, item: int, kinds, source: Mapping):
        self.tokens, self.keys, self.item, self.kinds, self.source = tokens, keys, item, kinds, source
        self.layers: list[LayerTrace] = []
        self.problem: MhaError | None = None
        self._causal: dict[tuple[int, int], Tensor] = {}
        self._inside = ExitStack()

    def __enter__(self) -> "Recorder":
        self._inside.enter_context(uncompiled)
        self._inside.enter_context(Watch(self.saw))
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
        if not self.layers:
            raise MhaError(NOTHING)
        kinds = self._lengths() if self.kinds is None else self._checked()
        layers = tuple(replace(layer, kind=kind) for layer, kind in zip(self.layers, kinds, strict=True))
        if self.keys is None:
            return AttentionTrace(self.tokens, layers, self.source)
        return AttentionTrace(self.keys, layers, self.source, target=self.tokens)

    def _checked(self) -> Sequence[str]:
        if len(self.kinds) != len(self.layers):
            raise MhaError(f"kinds names {len(self.kinds)} calls, and {len(self.layers)} were recorded.")
        return [known("kind of layer", kind, KINDS, parameter="kinds") for kind in self.kinds]

    def _lengths(self) -> list[str]:
        """Whose call each one is, as its numbers of queries and keys tell."""
        own = len(self.tokens)
        fitting = {(own, own): "self"}
        if self.keys is not None:
            other = len(self.keys)
            fitting = {(other, other): "encoder", (own, own): "decoder", (own, other): "cross"}
            if len(fitting) < 3:
                raise MhaError(
                    f"tokens and keys are {own} each, so lengths do not tell whose call is whose; say it "
                    f"with kinds=, one of encoder, decoder, cross for each of the {len(self.layers)} calls."
                )
        found = []
        for number, layer in enumerate(self.layers):
            sizes = layer.n_query, layer.n_key
            if sizes not in fitting:
                offered = ", ".join(f"{queries} and {keys}" for queries, keys in fitting)
                raise MhaError(
                    f"Call {number} has {sizes[0]} queries and {sizes[1]} keys; the tokens given allow "
                    f"{offered}. Give one token for each position; where queries look at another text, its "
                    f"tokens as keys=."
                )
            found.append(fitting[sizes])
        return found

    def saw(self, function, args: tuple, kwargs: dict) -> None:
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

    def _keep(
        self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
        **more,
    ) -> None:  # fmt: skip
        """A call of `scaled_dot_product_attention`, as one layer."""
        q, k, v = (self._one(part) for part in (query, key, value))
        if not enable_gqa:  # heads may be told once for all
            heads = max(part.shape[0] for part in (q, k, v))
            q = q.expand(heads, -1, -1)
            if k.shape[0] != v.shape[0]:
                k, v = (part.expand(heads, -1, -1) for part in (k, v))
        if torch.is_autocast_enabled(q.device.type):
            q, k, v = (part.to(torch.get_autocast_dtype(q.device.type)) for part in (q, k, v))
        mask, bias = self._mask(attn_mask, query.dim())
        if is_causal:
            mask = self._below(q.shape[1], k.shape[1])
        rule = ScoreRule(scale=scale, mask=mask, bias=bias)
        attended = Attended(None, q[None], k[None], v[None], rule)
        about = {"call": len(self.layers) + 1} | ({"dropout": dropout_p} if dropout_p else {})
        self.layers.append(LayerTrace.of(attended, about=MappingProxyType(about), **more))

    def _one(self, part: Tensor) -> Tensor:
        """One item of a batch, (head, position, width)."""
        if part.is_nested or (part.dim() not in (2, 4) and not (part.dim() == 3 and part.shape[0] == 1)):
            raise MhaError(
                f"Call {len(self.layers)} of scaled_dot_product_attention has tensors of shape "
                f"{'a nested tensor' if part.is_nested else tuple(part.shape)}, of which it cannot be told "
                f"what is a head and what is a text; (batch, head, position, d_k) can be recorded."
            )
        if part.dim() < 4:
            return part.reshape(1, *part.shape[-2:])
        if not (part.shape[0] == 1 or 0 <= self.item < part.shape[0]):
            raise MhaError(f"The batch has items 0 to {part.shape[0] - 1}; item {self.item} was asked for.")
        return part[self.item if part.shape[0] > 1 else 0]

    def _mask(self, given: Tensor | None, axes: int) -> tuple[Tensor | None, Tensor | None]:
        """What hides cells, and what is added to scores; ([head,] query, key) or None."""
        if given is None:
            return None, None
        if axes == 3 and given.dim() == 3:
            given = given[None]  # its first axis is the batch, as that of the queries
        if given.dim() == 4:
            given = given[self.item if given.shape[0] > 1 else 0]
        if given.dtype == torch.bool:
            return given, None
        # The lowest number is meant to hide, and does where a row has anything else.
        hidden = given <= torch.finfo(given.dtype).min
        hidden &= (given == HIDDEN) | ~hidden.all(-1, keepdim=True)
        bias = given.masked_fill(hidden, 0.0)
        return ~hidden if hidden.any() else None, bias if bias.any() else None

    def _below(self, n_query: int, n_key: int) -> Tensor:
        """The causal mask of that size, one for all layers."""
        if (n_query, n_key) not in self._causal:
            self._causal[n_query, n_key] = torch.ones(n_query, n_key, dtype=torch.bool).tril()
        return self._causal[n_query, n_key]

    def _forwarded(self, given: dict) -> None:
        """A call of `multi_head_attention_forward`: followed up to where its heads have their q, k and v."""
        dropout = given["dropout_p"] if given.get("training", True) else 0.0
        causal = given.get("is_causal", False) and not given.get("need_weights", True)
        try:
            until_heads(**given | {"training": False, "need_weights": False, "is_causal": causal})
        except Reached as reached:
            q, k, v, mask, _, is_causal = reached.args
        query = given["query"]
        more: dict = {"projections": projections(given)}
        if query is given["key"] is given["value"]:
            x = query[:, None] if query.dim() == 2 else query
            more["x"] = x[:, self.item if x.shape[1] > 1 else 0][None]
        self._keep(q, k, v, mask, dropout, is_causal, **more)
