"""Finds attention that a model's own code computes, by following the code operation by operation.

It follows scores from the product q kᵀ through every change to a softmax, and the weights from there to
their product with the values. A `TorchFunctionMode` sees each operation of its thread and changes none. Each
softmax is an `Attempt`; one that could not be followed keeps its place and the reason, which
`sources.recorder` and `sources.huggingface` report.
"""

import math
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode

from mha_core.attention.module import Attended
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.axes import inner_axes, item_index
from mha_core.capture.collector import Collector
from mha_core.capture.gap import CLOSE
from mha_core.capture.own_code.caller import caller
from mha_core.capture.own_code.outputs import CASTS, PERMUTATIONS, VIEWS, OutputFlow, is_parameter
from mha_core.capture.own_code.scores import (
    Attempt,
    Exponentials,
    FollowedAttention,
    Known,
    Log,
    Lost,
    Multiple,
    Permuted,
    Product,
    RowNumbers,
    Rows,
    Scores,
    SharedTerms,
    UnfollowedScores,
    Unpermuted,
    Weights,
    are_same,
    as_product,
    factor_of,
    followed_attention,
    heads,
    number,
    reshaped,
    scores_after,
)
from mha_core.errors import MhaError, Phrase
from mha_core.traces.tensors import version

PRODUCTS = {"matmul", "bmm", "mm", "einsum", "baddbmm"}
REARRANGEMENTS = PERMUTATIONS | {"expand", "expand_as", "repeat", "chunk", "split", "getitem"}
ATTRIBUTES = {"T", "mT", "data"}
# Operations that may leave all numbers unchanged; then the result is known to be what the operand was.
IDENTITIES = {"dropout", "clamp", "clip", "max", "maximum", "min", "minimum", "nan_to_num"}
IDENTITIES |= {"expand", "masked_fill", "mul"}
# Operations that may touch only the weights of rows without visible keys; what comes of it is compared.
GUARDS = {"where", "masked_fill", "nan_to_num", "mul", "div", "setitem"}
ELEMENTWISE = {"add", "sub", "mul", "div", "masked_fill", "where", "tanh"}
# The steps of a softmax that is computed in several operations.
SOFTMAX_STEPS = {"logsumexp", "log_softmax", "exp", "sum", "amax", "max"}
ALIASES = {
    "true_divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "unsafe_view": "view",
    "clamp_min": "clamp",
    "special_softmax": "softmax",
    "special_log_softmax": "log_softmax",
    "special_logsumexp": "logsumexp",
    "concat": "cat",
    "concatenate": "cat",
}
STACKS = {"hstack": 1, "column_stack": 1, "dstack": 2}  # a concatenation along this axis
MAX_OUTPUTS = 4  # latest outputs of linear layers, enough to have those of the queries and keys
MIN_FACTOR = 1e-6  # a smaller factor, or one above its inverse, cannot be divided out without loss
LINEAR = {"linear", "addmm"}  # a rotary code may rotate their outputs
# The names of the relevant arguments, in their order.
ARGUMENTS = {
    **dict.fromkeys(("add", "sub", "mul", "div", "matmul"), ("input", "other")),
    **dict.fromkeys(("bmm", "mm"), ("input", "mat2")),
    **dict.fromkeys(("softmax", "log_softmax", "sum", "amax", "max"), ("input", "dim")),
    "baddbmm": ("input", "batch1", "batch2"),
    "einsum": ("equation", "operands"),
    "masked_fill": ("input", "mask", "value"),
    "where": ("condition", "input", "other"),
    "dropout": ("input", "p", "training"),
    "cat": ("tensors", "dim"),
    **dict.fromkeys(STACKS, ("tensors",)),
}
OPTIONAL = {"dropout", "sum", "amax", "max", "cat"}  # all arguments but the first may be left out
FOLLOWED = PRODUCTS | LINEAR | CASTS | VIEWS | REARRANGEMENTS | IDENTITIES | ELEMENTWISE | SOFTMAX_STEPS
FOLLOWED |= {"softmax", "cat", "data", *STACKS}
WENT = Phrase("its weights went through {operation}", operation=Phrase("an operation"))
NO_PRODUCT = Phrase(
    "its input is no product of queries and keys, or it went through code that torch does not show, such as "
    "a function of torch.jit.script (with PYTORCH_JIT=0 in the environment these are shown)"
)
NO_SOFTMAX = Phrase("values are multiplied with scores that went through no softmax")
UNDIVIDED = Phrase("values are multiplied with exponentials of scores that are not divided by their sum")
NO_TOKENS = Phrase("its keys are no tokens: they are channels, or mixtures of all tokens")
UNREADABLE = Phrase(
    "its tensors have no numbers that can be read: they are meta, nested, sparse or of torch.vmap"
)


class EagerMode(TorchFunctionMode):
    """Follows each attention of this thread from the product of queries and keys to the heads' outputs.

    `accept` decides whether an attention that was followed to its end is exact enough. Its arguments are that
    attention, the model's output as (…, query, d_v), where all axes before the last two are heads, and the
    same output as the tensor in the model. With `every_row` the weights of all queries are computed
    again and compared, else those of a few.
    `softmaxes` counts the softmaxes that ran, by their numbers of queries and keys: if there are more of
    them than attentions, one was not followed. `attempts` has each softmax, or the operation in its place,
    with its `locate()`. `on_concat` gets tensors that were concatenated along the last axis, and the result.
    `on_lost` gets attention that was not followed, with its weights in the place of its queries: whatever was
    made of a product of queries and keys, and multiplied with values.
    """

    def __init__(
        self,
        accept: Callable[[FollowedAttention, Tensor, Tensor], bool],
        *,
        every_row: bool,
        locate: Callable[[], object] = lambda: None,
        on_concat: Callable[[Sequence[Tensor], Tensor], None] = lambda parts, joined: None,
        on_lost: Callable[[FollowedAttention, Tensor, Tensor], object] | None = None,
    ):
        super().__init__()
        self.accept, self.every_row, self.locate, self.on_concat = accept, every_row, locate, on_concat
        self.on_lost = on_lost
        self.softmaxes: Counter[tuple[int, int]] = Counter()
        self.attempts: list[Attempt] = []
        self.outputs: deque[Tensor] = deque(maxlen=MAX_OUTPUTS)  # of linear layers
        self.flow = OutputFlow()
        self.error: Exception | None = None
        self.shared = SharedTerms()
        # For the id of a tensor: the tensor, its version, and its known meaning.
        self._known: dict[int, tuple[weakref.ref, int, Known]] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = _name(func)
        known = self._known_of(args[0]) if name == "setitem" else None
        if known is not None and isinstance(_unpermuted(known), Scores | Rows | Weights):
            result = func(*args, **kwargs)
            with self.undisturbed():
                new = _filled(known, *args)
                self._note(args[0], new) if new is not None else self._mark_unfollowed(name, known, args[0])
            return result
        if name not in FOLLOWED:
            result = self._run_unknown(name, func, args, kwargs) if self._known else func(*args, **kwargs)
            self._flows(name, args, kwargs, result)
            return result
        arguments = _by_position(name, args, kwargs)
        # Before the call: an operation in place changes versions.
        before = [self._known_of(arg) for arg in arguments]
        if name in STACKS and arguments:
            name, arguments = "cat", (arguments[0], STACKS[name])
        parts = [self._known_of(part) for part in arguments[0]] if name == "cat" and arguments else []
        result = func(*args, **kwargs)
        self._flows(name, args, kwargs, result)
        if arguments and isinstance(result, Tensor | tuple | list) and _is_strided((*arguments, result)):
            with self.undisturbed():
                if name == "cat":
                    self._concatenated(arguments, parts, result)
                else:
                    self._follow(name, func, arguments, kwargs, before, result)
                if name in PRODUCTS and isinstance(result, Tensor):
                    self._lost_values(name, arguments, result)
        elif name == "softmax" and isinstance(result, Tensor):
            with self.undisturbed():
                readable = result.layout is torch.strided and not result.is_nested and result.dim() > 1
                attempt = self._attempt(result.shape[-2:] if readable else (0, 0), UNREADABLE)
                attempt.rearranged = not readable and result.dim() > 1
        return result

    def _flows(self, name: str, args: tuple, kwargs: dict, result: object) -> None:
        """Follow the outputs of heads through an operation."""
        if self.flow.is_in(args):
            with self.undisturbed(), torch.inference_mode(False):
                self.flow.follow(name, args, kwargs, result)

    def folding(self, values: Tensor, n_texts: int) -> tuple[tuple[int, int], int] | None:
        """The two axes in the first axis of values (text and head, token, width): sizes, and the texts' one.

        They are known where one of the last linear layers made these values, and where the texts differ, so
        that only one order of the two axes fits; else None. `n_texts` is the number of texts.
        """
        n_rows, n_tokens, width = values.shape
        n_heads = n_rows // n_texts
        if n_texts < 2 or n_heads < 2 or n_rows % n_texts:
            return None
        for made in self.outputs:
            for tokens in (made, made.transpose(0, 1)) if made.dim() == 3 else ():
                if tokens.shape[:2] != (n_texts, n_tokens) or tokens.shape[2] % width:
                    continue
                heads = tokens[0].unflatten(1, (-1, width)).transpose(0, 1)  # of the first text
                orders = {
                    ((n_texts, n_heads), 0): values[:n_heads],
                    ((n_heads, n_texts), 1): values[::n_texts],
                }
                fits = [
                    order
                    for order, rows in orders.items()
                    if all(bool((heads == row).flatten(1).all(1).any()) for row in rows)
                ]
                if len(fits) == 1:
                    return fits[0]
        return None

    def are_of_tokens(self, *keys_and_values: Tensor) -> bool:
        """Whether each key and value (…, token, width) belongs to one token, by the layers that made them."""
        return not any(
            getattr(_unpermuted(self._known_of(part)), "mixed", False) or self._counts_vectors(part, -1, -2)
            for part in keys_and_values
        )

    def _counts_vectors(self, tensor: Tensor, axis: int, other: int) -> bool:
        """Whether, in a view of a linear layer's output, `axis` counts vectors and `other` their numbers."""
        steps = tensor.stride(axis), tensor.stride(other)
        if min(tensor.shape[axis], tensor.shape[other]) < 2 or 0 in steps:
            return False
        storage = tensor.untyped_storage().data_ptr()
        return any(
            steps[1] < made.shape[-1] and steps[0] % made.shape[-1] == 0 and made.is_contiguous()
            for made in self.outputs
            if made.untyped_storage().data_ptr() == storage
        )

    def _mixes_tokens(self, product: Product) -> bool:
        """Whether it is a product of a parameter and a linear layer's output that sums over all tokens."""
        (left, left_order), (right, right_order) = product.ends
        return (is_parameter(right) and self._counts_vectors(left, left_order[-1], left_order[-2])) or (
            is_parameter(left) and self._counts_vectors(right, *right_order[-2:])
        )

    def _run_unknown(self, name: str, func: Callable, args: tuple, kwargs: dict) -> object:
        """Run an operation that is not followed; scores and weights among its operands are lost."""
        if name.endswith("_like") or name.startswith("new_"):  # new tensors with the same shape
            return func(*args, **kwargs)
        operands = [part for arg in (*args, *kwargs.values()) for part in _tensors(arg)]
        before = [(part, known) for part in operands if isinstance(known := self._known_of(part), TRACKED)]
        result = func(*args, **kwargs)
        written = args[0] if result is None and args else result  # x[at] = y writes y into x
        for part, known in before:
            with self.undisturbed():
                self._mark_unfollowed(name, known, written if self._known_of(part) is known else part)
        return result

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """A block that modes do not see and whose errors do not reach the model."""
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                yield
        except MhaError:  # no score rule describes it, so it is not followed any further
            pass
        except Exception as error:  # reported by `warn`
            self.error = self.error or error

    def warn(self) -> None:
        """Warn of the first error in our own code: an attention may be missing because of it."""
        if self.error is not None:
            warnings.warn(
                f"Some attention was not followed, by an error of ours: {self.error!r}", stacklevel=3
            )

    def _known_of(self, tensor: object) -> Known | None:
        """The known meaning of a tensor; None if it was changed in place since."""
        if not isinstance(tensor, Tensor):
            return None
        if (entry := self._known.get(id(tensor))) is None:
            return None
        reference, changes, known = entry
        is_same = reference() is tensor
        return known if is_same and changes == version(tensor) else None

    def _note(self, tensor: Tensor, known: Known | None) -> None:
        if isinstance(known, Permuted) and known.order == tuple(range(len(known.order))):
            known = known.known
        if known is not None:
            key = id(tensor)
            gone = weakref.ref(tensor, lambda _: self._known.pop(key, None))
            self._known[key] = (gone, version(tensor), known)

    def _mark_unfollowed(
        self, name: str, known: Known, result: object, pairs: tuple[int, int] | None = None
    ) -> None:
        """Mark scores or weights as lost after an operation that is not followed.

        One that only looks at them, and makes nothing of their size, loses nothing. `pairs` are the sizes
        where the operation has made a number for each pair of tokens out of one for each token.
        """
        inner = _unpermuted(known)
        attempt = getattr(inner, "attempt", None)
        sizes = pairs or _sizes(known)[0]
        operation = _operation(inner) or name
        for part in _tensors(result):
            if part.dim() > 1 and part.is_floating_point() and 4 * part.numel() >= sizes[0] * sizes[1]:
                learned, mixed = (getattr(inner, name, False) for name in ("learned", "mixed"))
                learned &= pairs is None
                self._note(part, UnfollowedScores(sizes, operation, attempt, learned, mixed))
                if attempt is not None:
                    self._lose(attempt, operation)

    def _lose(self, attempt: Attempt, operation: str, *, used: bool = False) -> None:
        """Note the operation by which weights are lost; that of `used` ones replaces an earlier one."""
        if not attempt.lost or (used and getattr(attempt.lost, "template", "") == WENT.template):
            attempt.lost = (
                Phrase("its weights went through {operation}", operation=operation) if operation else WENT
            )

    def _follow(
        self, name: str, func: Callable, args: tuple, kwargs: dict, before: list, result: Any
    ) -> None:
        if name in PRODUCTS:
            self._product(name, args, kwargs, before, result)
            return
        if name in LINEAR:
            self.outputs.append(result)
            return
        if any(isinstance(known, Lost) for known in before):
            self._note(result, Lost() if isinstance(result, Tensor) and result.dim() > 1 else None)
            return
        if name in ("softmax", "log_softmax"):
            self._softmax(name, args, before[0], result)
            return
        tracked = [n for n, known in enumerate(before) if isinstance(known, TRACKED)]
        at = min(tracked, key=lambda n: isinstance(before[n], UnfollowedScores), default=None)
        if at is None:
            if isinstance(before[0], RowNumbers):
                self._of_rows(name, before[0], args[0], result)
            else:
                self._multiple(name, args, kwargs, before, result)
            return
        known, operand = before[at], args[at]
        if name in SOFTMAX_STEPS and at == 0 and self._softmax_step(name, known, args, kwargs, result):
            return
        if not isinstance(result, Tensor):
            return
        new = None
        if name in PERMUTATIONS and not isinstance(known, Log | UnfollowedScores):
            new = _permuted(func, known, operand, args, kwargs)
        elif name in VIEWS and isinstance(known, Rows):
            new = reshaped(known.scores, result.shape)
        elif name in VIEWS and isinstance(known, Scores | Weights):
            new = reshaped(known, result.shape)
            if new is None and isinstance(known, Scores) and result.shape[1:] == known.shape[-1:]:
                new = Rows(known)
        elif name == "getitem" and not isinstance(known, UnfollowedScores):
            new = _cropped(known, operand, result)
        elif result.shape == operand.shape:
            new = self._same_cells(name, at, known, args, kwargs, before, result)
        if new is not None:
            self._note(result, new)
        elif name not in ("max", "amax", "sum") or result.shape == operand.shape:
            pairs = _pairs(operand, args[1 - at]) if name in ELEMENTWISE and len(args) == 2 else None
            self._mark_unfollowed(name, known, result, pairs)

    def _same_cells(
        self, name: str, at: int, known: Known, args: tuple, kwargs: dict, before: list, result: Tensor
    ) -> Known | None:
        """The known meaning of a tensor after an operation that keeps its cells in place."""
        if name in CASTS or name == "data":
            return known
        if isinstance(known, Permuted):
            args = tuple(known.back(arg) if isinstance(arg, Tensor) else arg for arg in args)
            new = self._elementwise(name, at, known.known, args, kwargs, before, known.back(result))
            return None if new is None else Permuted(new, known.order)
        return self._elementwise(name, at, known, args, kwargs, before, result)

    def _elementwise(
        self, name: str, at: int, known: Unpermuted, args: tuple, kwargs: dict, before: list, result: Tensor
    ) -> Unpermuted | None:
        """Scores, exponentials or weights after an elementwise operation."""
        other = before[1 - at] if name in ("sub", "div") and len(before) > 1 else None
        if isinstance(other, RowNumbers | Log) and at == 0 and not kwargs:
            return self._by_row(name, known, other, result)
        new: Scores | Exponentials | None
        if isinstance(known, Scores):
            new = scores_after(name, at, known, args, kwargs)
        elif isinstance(known, Exponentials) and name in ("mul", "masked_fill"):
            new = _hidden_exponentials(name, at, known, args)
        elif (
            isinstance(known, Weights) and name == "dropout" and not _unchanged(name, result, args[at], args)
        ):
            return replace(known, dropout=_dropped(args)) if not known.dropout else None
        else:
            new = None
        if new is None and name in IDENTITIES and _unchanged(name, result, args[at], args):
            return known
        return _guarded(known, name) if new is None and name in GUARDS else new

    def _by_row(
        self, name: str, known: Unpermuted, row: RowNumbers | Log, result: Tensor
    ) -> Unpermuted | None:
        """Scores or exponentials minus, or divided by, one number for each row."""
        scores: Any = getattr(known, "scores", known)
        if row.scores is not scores:
            return None
        if name == "sub" and isinstance(known, Scores):
            if isinstance(row, Log):
                return Log(scores, of_weights=True)
            return known if row.of == "largest" else None  # this does not change the softmax
        if name == "div" and isinstance(known, Exponentials) and getattr(row, "of", "") == "sum":
            return self._weights(scores, result)
        return None

    def _of_rows(self, name: str, row: RowNumbers, operand: Tensor, result: object) -> None:
        """One number for each row in another shape, for example with a new axis of keys."""
        if name in VIEWS | CASTS | {"getitem", "data"} and isinstance(result, Tensor):
            self._note(result, row if result.numel() == operand.numel() else None)

    def _multiple(self, name: str, args: tuple, kwargs: dict, before: list, result: object) -> None:
        """A multiple of a tensor: its product with a number, or such a product in another shape."""
        if name in ("mul", "div") and isinstance(result, Tensor) and result.dim() > 1:
            for tensor, factor in ((args[0], args[1]), (args[1], args[0]))[: 2 if name == "mul" else 1]:
                value = number(factor) or 0.0
                if MIN_FACTOR < abs(value) < 1 / MIN_FACTOR and getattr(tensor, "shape", ()) == result.shape:
                    value = value if name == "mul" else 1 / value
                    self._note(result, Multiple(factor_of(before) * value))
                    return
        elif isinstance(before[0], Multiple) and name in CASTS | VIEWS | REARRANGEMENTS | {"data", "dropout"}:
            for part in result if isinstance(result, tuple | list) else (result,):
                if name != "dropout" or part is args[0]:
                    self._note(part, before[0])

    def _softmax(self, name: str, args: tuple, known: Known | None, result: Tensor) -> None:
        if not isinstance(args[1], int) or result.dim() < 2:
            return
        n = result.dim()
        axis = args[1] % n
        order = known.order if isinstance(known, Permuted) else tuple(range(n))
        scores = _unpermuted(known)
        lost = ""
        if isinstance(scores, Scores) and order[axis] == n - 2:  # the product was k qᵀ
            scores, lost = scores.transposed(), Phrase("it sums to 1 over the queries")
            swap = (*range(n - 2), n - 1, n - 2)
            order = tuple(swap[at] for at in order)
        if isinstance(scores, Scores) and order[axis] == n - 1:
            if name == "softmax":
                self._note(result, Permuted(self._weights(scores, result, lost), order))
            elif known is scores:
                self._note(result, Log(scores, of_weights=True))
        elif name == "softmax":
            lost = NO_PRODUCT
            if isinstance(known, UnfollowedScores):
                lost = Phrase("its scores went through {operation}", operation=known.operation)
            if isinstance(scores, Scores):
                lost = Phrase("it sums to 1 over another axis than keys or queries")
            if isinstance(known, TRACKED):
                self._note(result, Lost())
                own, *factors = _sizes(known)
                attempt = self._attempt(own, lost, tuple(factors))
                is_lost = isinstance(known, UnfollowedScores) and known.attempt is None and not known.learned
                attempt.rearranged = attempt.is_attention = is_lost
            elif axis == n - 1:
                attempt = self._attempt(result.shape[-2:], lost)
                self._note(result, UnfollowedScores(attempt.sizes, name, attempt))
            if axis == n - 1 and n > 2:
                self.softmaxes[result.shape[-2], result.shape[-1]] += 1

    def _attempt(self, sizes: Sequence[int], lost: str = "", factors: tuple = ()) -> Attempt:
        n_query, n_key = sizes
        attempt = Attempt((n_query, n_key), self.locate(), lost, factors)
        self.attempts.append(attempt)
        return attempt

    def _weights(self, scores: Scores, result: Tensor, lost: str = "") -> Weights:
        """The weights of scores: each row is divided by its sum."""
        if result.dim() > 2:
            self.softmaxes[scores.sizes] += 1
        attempt = self._attempt(scores.sizes, lost, scores.factors)
        attempt.is_attention = not scores.learned
        return Weights(scores, attempt)

    def _softmax_step(self, name: str, known: Known, args: tuple, kwargs: dict, result: Any) -> bool:
        """One of the steps of ``exp(s − max s) / Σ exp(s − max s)`` or ``exp(s − logsumexp(s))``."""
        if name == "exp":
            if isinstance(known, Log) and known.of_weights:
                self._note(result, self._weights(known.scores, result))
            elif isinstance(known, Scores):
                self._note(result, Exponentials(known))
            else:
                return False
            return True
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        axis = axis[0] if isinstance(axis, tuple | list) and len(axis) == 1 else axis
        rows = axis is not None and axis in (-1, args[0].dim() - 1)
        if name == "logsumexp" and isinstance(known, Scores):
            keeps = isinstance(result, Tensor) and result.shape == (*args[0].shape[:-1], 1)
            self._note(result, Log(known) if keeps else None)
        elif name == "sum" and isinstance(known, Exponentials) and rows:
            self._note(result, RowNumbers(known.scores, "sum"))
        elif name in ("max", "amax") and isinstance(known, Scores) and (rows or axis is None):
            largest = result if isinstance(result, Tensor) else result[0]
            self._note(largest, RowNumbers(known, "largest"))
        else:
            return False
        return True

    def _concatenated(self, args: tuple, parts: list, result: Any) -> None:
        """A concatenation: of scores and a sink, or of the outputs of heads."""
        tensors, axis = args[0], args[1] if len(args) > 1 else 0
        last = isinstance(axis, int) and axis in (-1, tensors[0].dim() - 1)
        if last and len(tensors) == 2 and isinstance(parts[0], Scores):
            scores = parts[0].with_sinks(tensors[1], result.shape)
            if scores is not None:
                self._note(result, scores)
                return
        for known in parts:
            if isinstance(known, TRACKED):
                self._mark_unfollowed("cat", known, result)
        if last:
            self.on_concat(tensors, result)

    def _product(self, name: str, args: tuple, kwargs: dict, before: list, result: Tensor) -> None:
        if name == "baddbmm":
            self._baddbmm(args, kwargs, result)
            return
        product, operands = _matrix_product(name, args, result)
        for known in map(self._known_of, operands):
            if (attempt := getattr(_unpermuted(known), "attempt", None)) is not None:
                attempt.uses += 1
        if product is None:
            return
        for way in (product, product.transposed()):
            known = self._in_order(*way.ends[0])
            if isinstance(known, Weights):
                self._values(known, way, result)
                return
            if known is not None and not is_parameter(way.right):
                self._not_weights(known)
        before = [self._known_of(end) for end, _ in product.ends]
        for known in before:
            if isinstance(known, TRACKED) and not isinstance(known, Scores):
                inner = _unpermuted(known)
                if (attempt := getattr(inner, "attempt", None)) is not None:
                    self._lose(attempt, _operation(inner) or name, used=True)
                self._mark_unfollowed(name, known, result)
        if product.left.is_floating_point():
            self._note(result, Permuted(self._scores(product, before), product.order))

    def _lost_values(self, name: str, args: tuple, result: Tensor) -> None:
        """A product of values with what was made of scores, where no attention was followed."""
        ends = args[1:] if name == "einsum" else args[-2:]
        [weights, *others] = [end for end in ends if self._is_of_scores(end)] or [None]
        attempt = getattr(_unpermuted(self._known_of(weights)), "attempt", None)
        if self.on_lost is None or weights is None or others or (attempt is not None and attempt.followed):
            return
        product = _matrix_product(name, args, result)[0]
        for way in () if product is None else (product, product.transposed()):
            lead, values = way.result.shape[:-2], way.ends[1][0]
            if way.ends[0][0] is weights and not is_parameter(values) and way.left.shape[:-2] == lead:
                v = heads(way.right, lead)
                lost = FollowedAttention(heads(way.left, lead), v, v, ScoreRule(), 0.0)
                self.on_lost(replace(lost, inside=_inside(way.right, lead)), way.result, result)

    def _is_of_scores(self, tensor: object) -> bool:
        """Whether a tensor was made of a product of queries and keys."""
        known = _unpermuted(self._known_of(tensor))
        is_learned = getattr(getattr(known, "scores", known), "learned", False)
        return isinstance(known, Lost) or (isinstance(known, TRACKED) and not is_learned)

    def _in_order(self, end: Tensor, order: tuple[int, ...]) -> Known | None:
        """Scores or weights that are a factor of a product, if their last axes are query and key there."""
        known = self._known_of(end)
        if isinstance(known, Permuted):
            inner = known.order
            known, order = known.known, tuple(inner[axis] for axis in order)
        return known if isinstance(known, TRACKED) and order == tuple(range(len(order))) else None

    def _baddbmm(self, args: tuple, kwargs: dict, result: Tensor) -> None:
        added, left, right = args
        product = Product.of(left, right, result)
        of_product = self._scores(product, [self._known_of(left), self._known_of(right)])
        scores = of_product.times(float(kwargs.get("alpha", 1.0)))
        if scores is not None and (beta := float(kwargs.get("beta", 1.0))):
            scores = scores.plus(added, beta)
        self._note(result, scores)

    def _scores(self, product: Product, before: list) -> Scores:
        lead = product.result.shape[:-2]
        factor = factor_of(before)
        q, k = heads(product.left, lead), heads(product.right.mT, lead)
        if q.shape[1] == 1:
            q = q.expand(1, max(1, lead.numel()), -1, -1)
        for n, known in enumerate(before):  # q and k before a factor, which becomes the rule's scale
            if isinstance(known, Multiple):
                q, k = (q / known.factor, k) if n == 0 else (q, k / known.factor)
        inside = tuple({*_inside(product.left, lead), *_inside(product.right.mT, lead)})
        learned = is_parameter(product.left) or is_parameter(product.right)
        factors = tuple(size for known in before if isinstance(known, TRACKED) for size in _sizes(known))
        mixed = self._mixes_tokens(product)
        mixed |= any(getattr(_unpermuted(known), "mixed", False) for known in before)
        shape = product.result.shape
        return Scores(q, k, shape, factor, inside=inside, learned=learned, factors=factors, mixed=mixed)

    def _not_weights(self, known: Known) -> None:
        """A product of values with a tensor in the place of weights that is not known to be weights."""
        if (attempt := getattr(known, "attempt", None)) is not None:
            attempt.is_attention = True
            return
        if getattr(known, "learned", False):
            return
        if isinstance(known, Exponentials):
            self._attempt(_sizes(known)[0], UNDIVIDED).rearranged = not known.scores.learned
        elif isinstance(known, UnfollowedScores):
            lost = Phrase(
                "values are multiplied with scores that went through {operation}", operation=known.operation
            )
            self._attempt(known.sizes, lost)
        else:
            self._attempt(_sizes(known)[0], NO_SOFTMAX)

    def _values(self, known: Weights, product: Product, result: Tensor) -> None:
        """A product of weights and values: the end of an attention."""
        scores, lead, attempt = known.scores, product.result.shape[:-2], known.attempt
        if attempt.followed:  # one softmax is one layer
            return
        if lead.numel() != scores.q.shape[1]:
            attempt.lost = attempt.lost or Phrase("its weights mix several values")
            return
        if scores.mixed or not self.are_of_tokens(product.right):
            attempt.lost = attempt.lost or NO_TOKENS
            return
        if self._is_made_of_weights(product.ends[1][0]):
            attempt.lost = attempt.lost or Phrase("its weights are multiplied with weights")
            self._mark_unfollowed("matmul", known, result)
            return
        weights = heads(product.left, lead)
        ways = [scores]
        if known.guard:  # which may have hidden what the scores show
            ways.append(replace(scores, hidden=(*scores.hidden, weights == 0)))
        for way in ways:
            if attempt.followed:
                break
            followed = followed_attention(
                way,
                weights,
                heads(product.right, lead),
                heads(product.result, lead),
                self.shared,
                every_row=self.every_row or known.guard != "",
                dropout=known.dropout,
            )
            if followed is not None:
                inside = tuple({*followed.inside, *_inside(product.right, lead)})
                attempt.followed = self.accept(replace(followed, inside=inside), product.result, result)
        if known.guard:
            self._lose(attempt, known.guard)
        attempt.lost = attempt.lost or Phrase("no score rule gives its weights")

    def _is_made_of_weights(self, values: Tensor) -> bool:
        """Whether a tensor was made of weights and has their shape."""
        known = _unpermuted(self._known_of(values))
        if isinstance(known, Scores):
            return values.shape[-2:] in known.factors
        if isinstance(known, Weights | UnfollowedScores) and known.attempt is not None:
            return values.shape[-2:] == _sizes(known)[0]
        return False


TRACKED = Scores | Weights | Exponentials | Log | Permuted | Rows | UnfollowedScores


def _unpermuted(known: Known | None) -> Unpermuted | None:
    return known.known if isinstance(known, Permuted) else known


def _matrix_product(name: str, args: tuple, result: Tensor) -> tuple[Product | None, Sequence[Tensor]]:
    """The product of two matrices that an operation computes, if it is one, and its operands."""
    if name == "einsum":
        operands = args[1] if isinstance(args[1], list | tuple) else args[1:]
        return as_product(args[0], operands, result), operands
    left, right = args[-2:]
    return Product.of(left, right, result) if min(left.dim(), right.dim()) > 1 else None, (left, right)


def _guarded(known: Unpermuted, name: str) -> Weights | None:
    """Weights behind an operation that may have changed some of them; None for anything else."""
    return replace(known, guard=known.guard or name) if isinstance(known, Weights) else None


def _operation(known: Unpermuted | None) -> str:
    """The first operation that scores or weights went through and that was not followed, if any was."""
    return getattr(known, "operation", "") or getattr(known, "guard", "")


def _pairs(one: Tensor, other: object) -> tuple[int, int] | None:
    """The sizes of the two axes in which an operation pairs the numbers of two tensors, (N, 1) and (1, M)."""
    if not isinstance(other, Tensor) or other.dim() != one.dim():
        return None
    sizes = list(zip(one.shape, other.shape, strict=True))
    rows, columns = ([a[n] for a in sizes if a[1 - n] == 1 < a[n]] for n in (0, 1))
    return (rows[0], columns[0]) if len(rows) == len(columns) == 1 else None


def _sizes(known: Known) -> tuple[tuple[int, int], ...]:
    """The numbers of queries and keys of a tensor, and of the scores that are factors of it."""
    inner = known.known if isinstance(known, Permuted) else known
    assert not isinstance(inner, Lost | Multiple)  # it is one of `TRACKED`
    scores = inner if isinstance(inner, Scores | UnfollowedScores) else inner.scores
    return (scores.sizes, *(scores.factors if isinstance(scores, Scores) else ()))


def _filled(known: Known, tensor: Tensor, cells: object, value: object) -> Known | None:
    """Scores after ``scores[cells] = value`` with a boolean mask and one number, or weights; else None."""
    if isinstance(known, Permuted) and (weights := _guarded(known.known, "setitem")) is not None:
        return replace(known, known=weights)
    if not isinstance(known, Scores | Rows):
        return None if isinstance(known, Permuted) else _guarded(known, "setitem")
    if not isinstance(cells, Tensor) or cells.dtype != torch.bool or cells.shape != tensor.shape:
        return None
    scores = known.scores if isinstance(known, Rows) else known
    mask = cells.clone().reshape(scores.shape)  # a copy: the code may change its mask
    new = scores_after("masked_fill", 0, scores, (tensor, mask, value), {})
    return None if new is None else Rows(new) if isinstance(known, Rows) else new


def _name(func: Callable) -> str:
    """The name of an operation, the same for all its aliases; for an attribute that is a tensor, its name."""
    if isinstance(func, OpOverload):  # as programs of torch.export call them
        func = func.overloadpacket
    name = getattr(func, "__name__", "").strip("_")
    if name == "get":
        name = getattr(getattr(func, "__self__", None), "__name__", "")
        return name if name in ATTRIBUTES else ""
    return ALIASES.get(name, name)


def _tensors(value: object) -> tuple[Tensor, ...]:
    """A tensor, or those in a list."""
    if isinstance(value, Tensor):
        return (value,)
    if isinstance(value, tuple | list):
        return tuple(part for part in value if isinstance(part, Tensor))
    return ()


def _inside(tensor: Tensor, lead: torch.Size) -> tuple[int, ...]:
    """The axes of heads that lie within a token in memory, if the tensor has all axes of the result."""
    return inner_axes(tensor) if tensor.shape[:-2] == lead else ()


def _permuted(func: Callable, known: Known, operand: Tensor, args: tuple, kwargs: dict) -> Known:
    """Scores or weights with their axes in another order."""
    numbered = torch.empty(tuple(range(2, operand.dim() + 2)), device="meta")
    order = tuple(size - 2 for size in func(numbered, *args[1:], **kwargs).shape)
    if isinstance(known, Permuted):
        return Permuted(known.known, tuple(known.order[axis] for axis in order))
    return Permuted(known, order)


def _cropped(known: Known, operand: Tensor, result: Tensor) -> Known | None:
    """Scores or weights after an index that selects all cells, or all but the column of the sink."""
    if result.data_ptr() != operand.data_ptr() or result.stride() != operand.stride():
        return None
    if result.shape == operand.shape:
        return known
    without_sink = (*operand.shape[:-1], operand.shape[-1] - 1)
    if isinstance(known, Weights) and known.scores.sinks is not None and result.shape == without_sink:
        return replace(known, scores=replace(known.scores, shape=result.shape))
    return None


def _hidden_exponentials(name: str, at: int, known: Exponentials, args: tuple) -> Exponentials | None:
    """Exponentials after some cells were set to 0."""
    other = args[1 - at] if name == "mul" else args[1]
    if not isinstance(other, Tensor) or not bool(((other == 0) | (other == 1)).all()):
        return None
    if name == "masked_fill" and number(args[2]) != 0:
        return None
    scores = known.scores.hiding(other == 0 if name == "mul" else other)
    return None if scores is None else Exponentials(scores)


def _dropped(args: tuple) -> float:
    """The share of numbers that a call of dropout sets to 0."""
    p = float(args[1]) if len(args) > 1 else 0.5
    if not 0 < p < 1:
        raise MhaError("dropout of {probability}", probability=p)
    return p


def _by_position(name: str, args: tuple, kwargs: dict) -> tuple:
    """The relevant arguments in their order, also those passed by name; empty where one is missing.

    ``scores.where(mask, other)`` becomes the order of ``torch.where(mask, scores, other)``.
    """
    names = ARGUMENTS.get(name, ("input",))
    for parameter in names[len(args) :]:
        if parameter not in kwargs:
            break
        args = (*args, kwargs[parameter])
    if len(args) < (1 if name in OPTIONAL else len(names)):
        return ()
    if name == "where" and isinstance(args[1], Tensor) and args[1].dtype == torch.bool:
        known = isinstance(args[0], Tensor) and args[0].dtype == torch.bool
        return args if known else (args[1], args[0], *args[2:])
    return args


def _is_strided(value: object) -> bool:
    """Whether a tensor, or all tensors in a list, have ordinary strided memory."""
    if isinstance(value, tuple | list):
        return all(map(_is_strided, value))
    if not isinstance(value, Tensor):
        return True
    usual = value.layout is torch.strided and not torch._C._functorch.is_batchedtensor(value)
    return usual and not (value.is_meta or value.is_nested or value.is_quantized)


def _unchanged(name: str, result: Tensor, operand: Tensor, args: tuple) -> bool:
    """Whether all numbers are unchanged, apart from those that hide a cell."""
    if result is operand:  # in place there is nothing to compare; the arguments of dropout decide
        p = args[1] if len(args) > 1 else 0.5
        training = args[2] if len(args) > 2 else True
        return name == "dropout" and not (p and training)
    return are_same(result, operand)


def is_exact(followed: FollowedAttention) -> bool:
    """Whether the computed output equals the model's own output up to rounding."""
    return followed.gap <= CLOSE.get(followed.v.dtype, 0.0)


def attended(followed: FollowedAttention, lead: Sequence[int], axis: int | None, item: int) -> Attended:
    """One text of an attention that was followed, as a batch of one.

    `lead` are the sizes of the output's axes before query and width. `axis` is the one that counts texts;
    with None all of them count heads. Raises `MhaError` for an item that the batch does not have.
    """
    numbers = torch.arange(math.prod(lead)).reshape(tuple(lead))
    if axis is not None:
        numbers = numbers.select(axis, item_index(item, lead[axis]))
    rows = numbers.flatten()
    k, v = (_shared_heads(part, followed.q.shape[1], rows) for part in (followed.k, followed.v))
    rule = followed.rule.mapped(lambda table: _of_heads(table, rows))
    q = followed.q[:, rows]
    return Attended(None, q, k, v, rule)  # type: ignore[arg-type]  # nobody asks for the output


def _shared_heads(part: Tensor, n_heads: int, rows: Tensor) -> Tensor:
    """The keys or values of some heads, kept once for neighbours that share them. (1, kv_head, key, width)"""
    group = n_heads // part.shape[1]
    numbers = rows // group
    few = numbers[::group]
    if len(rows) % group == 0 and torch.equal(few.repeat_interleave(group), numbers):
        return part[:, few]
    return part[:, numbers]


def _of_heads(table: Tensor, rows: Tensor) -> Tensor:
    """Some heads of sinks (head,), of a table (head, distance) or of a table (1, head or 1, query, key)."""
    if table.dim() <= 2:
        return table[rows]
    return table if table.shape[1] == 1 else table[:, rows]


class CollectingMode(EagerMode):
    """Adds to a collector each attention whose gap is at most `close`; `gap` is the largest of these."""

    def __init__(self, collector: Collector, close: float, *, every_row: bool):
        super().__init__(self._collect, every_row=every_row)
        self.collector, self.close, self.gap = collector, close, 0.0

    def _collect(self, followed: FollowedAttention, output: Tensor, _: Tensor) -> bool:
        if followed.gap > self.close or followed.dropout:
            return False
        self.gap = max(self.gap, followed.gap)
        self.collector.find_codes(followed.k, self.outputs)  # the matrices are proven with it
        self.outputs.clear()
        joined = heads(output, output.shape[:-2]).transpose(1, 2).contiguous()
        self.collector.add(caller().module, followed.q, followed.k, followed.v, followed.rule, joined)
        return True
