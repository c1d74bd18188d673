"""Which token of an item stands where in the parts that a model folds it into.

A module that is given the item as a whole runs again up to the attention over its parts, with some tokens
changed, as in `order`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

from mha_core.attention.module import Attended
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.gap import CLOSE, gap
from mha_core.capture.module_copy import Given, tensors
from mha_core.capture.own_code.order import Moves, Start, moved_rows
from mha_core.capture.own_code.rerun import Heads, rerun
from mha_core.errors import MhaError, Phrase

NO_WHOLE = Phrase("no module is given the item as a whole")
NOT_AGAIN = Phrase("its module does not run again, or computes something else then")
SEVERAL = Phrase("its queries, keys or values are made of several tokens each")
NOT_TILED = Phrase("some of its rows are of no token, as padding is, or some tokens have several rows")
APART = Phrase("its queries, keys and values have the tokens in different orders")
MAX_AXES = 5  # of what has the tokens of an item: (1, frame, row, column, width)


@dataclass(frozen=True, eq=False)
class Tiling:
    """The tokens (part, row) of an item in its parts, each in one place, by their numbers.

    They are numbered in the order in which `module` has them, in axes of these `sizes`. `wholes` are what was
    laid out, by the place in memory of the tensors that it was made of, which are held with it.
    """

    tokens: Tensor
    module: nn.Module
    sizes: tuple[int, ...]
    wholes: dict[tuple, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def is_part_by_part(self) -> bool:
        """Whether the module has the tokens of one part after the other, in several axes."""
        return len(self.sizes) > 1 and bool((self.tokens.flatten().diff() == 1).all())

    def whole(self, rows: Tensor, axis: int = 0) -> Tensor:
        """Rows of all parts, one part after the other along an axis, in the order of the tokens."""
        return rows.index_select(axis, self.tokens.flatten().argsort().to(rows.device))

    def attended(self, parts: Sequence[Attended]) -> Attended:
        """The attention of all parts as one over all tokens: those of other parts are hidden."""
        q, k, v = (self.whole(torch.cat([getattr(part, name) for part in parts], dim=2), 2) for name in "qkv")
        rule = self._rule([part.rule.item(0) for part in parts])
        return Attended(None, q, k, v, rule)  # type: ignore[arg-type]  # nobody asks for the output

    def _rule(self, rules: Sequence[ScoreRule]) -> ScoreRule:
        size, sinks = self.tokens.shape[1], rules[0].sinks
        if sinks is not None and not all(
            rule.sinks is not None and torch.equal(rule.sinks, sinks) for rule in rules
        ):
            raise MhaError("its parts have different sinks, which one layer cannot have.")
        laid = [rule.at(slice(None), slice(None), n_query=size, n_key=size) for rule in rules]
        mask = self._laid([rule.mask for rule in laid], torch.ones(size, size, dtype=torch.bool))
        bias = None
        if any(rule.bias is not None for rule in laid):
            bias = self._laid([rule.bias for rule in laid], torch.zeros(size, size))
        return replace(rules[0], mask=mask, bias=bias, distance_bias=None)

    def _laid(self, tables: Sequence[Tensor | None], default: Tensor) -> Tensor:
        """Tables ([head,] row, row) of the parts as one (head or 1, token, token), 0 between two parts."""
        first = next((table for table in tables if table is not None), default)
        filled = [default.to(first) if table is None else table for table in tables]
        laid = [
            table.expand(*table.shape[:-2], *default.shape).reshape(-1, *default.shape) for table in filled
        ]
        whole = first.new_zeros(max(map(len, laid)), self.tokens.numel(), self.tokens.numel())
        for table, own in zip(laid, self.tokens.to(whole.device), strict=True):
            whole[:, own[:, None], own] = table
        return whole


def tiling(
    modules: Iterable[tuple[nn.Module, Given]],
    q: Tensor,
    by_part: Callable[[Tensor], Tensor],
    shape: tuple[int, int],
) -> Tiling:
    """The tiling of an attention over parts; `shape` are the numbers of parts and of rows in each.

    `modules` are those around it with what they were given, the innermost one first. `q` are its queries as
    its code has them, and `by_part` brings these, its keys and its values into (part, head, row, width).
    Raises `MhaError` where it is not proven that each token stands in one place.
    """
    failed, given_in_parts = _unproven(NO_WHOLE), None
    found: Tiling | None = None
    for module, given in modules:
        starts = list(_starts(tensors(given), shape))
        shapes = [start.shape for start in starts]
        if (found is None and not starts) or (given_in_parts in shapes):
            continue
        try:
            own = _of_module(module, given, starts, q, by_part, shape)
        except MhaError as error:
            failed = error
            break
        except Exception:  # raised by the model's code: a module that cannot be copied may not run
            failed = _unproven(NOT_AGAIN)
            break
        if not own.is_part_by_part:
            return own
        if found is not None:
            return found
        # Its input may have the tokens in parts already: the module around it may have them in another order.
        found, given_in_parts = own, shapes[0]
    if found is None:
        raise failed
    return found


def _unproven(reason: Phrase) -> MhaError:
    return MhaError("it is not proven where each token stands in its parts: {reason}.", reason=reason)


def _starts(given: Iterable[object], shape: tuple[int, int], part: str = "") -> Iterator[Start]:
    """Which of these is a tensor (1, …) of a vector for each token."""
    for number, x in enumerate(given):
        if isinstance(x, Tensor) and x.is_floating_point() and 2 < x.dim() <= MAX_AXES and x.shape[0] == 1:
            for width in dict.fromkeys((x.dim() - 1, 1)):
                if x.shape.numel() == shape[0] * shape[1] * x.shape[width]:
                    axes = tuple(axis for axis in range(1, x.dim()) if axis != width)
                    yield Start(part, number, x.shape, axes, None)


def _of_module(
    module: nn.Module,
    given: Given,
    starts: list[Start],
    q: Tensor,
    by_part: Callable[[Tensor], Tensor],
    shape: tuple[int, int],
) -> Tiling:
    """The tiling by the order in which a module is given tokens, or else in which a part of it makes them."""
    made: list[Start] = []

    def watch(other: nn.Module, args: tuple, kwargs: dict) -> None:
        for name, part in other.named_modules():
            if name:
                part.register_forward_hook(lambda _, given, x, name=name: keep(name, x))

    def keep(name: str, x: object) -> None:
        with torch._C.DisableTorchFunction():  # not an operation of the model
            made.extend(_starts([x], shape, name))

    def is_same(heads: Heads) -> bool:
        return heads.q.shape == q.shape and gap(heads.q, q) <= CLOSE.get(q.dtype, 0.0)

    reference = rerun(module, given, watch, is_last=is_same)
    if not reference.heads or not is_same(reference.heads[-1]):
        raise _unproven(NOT_AGAIN)
    own = reference.heads[-1]

    def moved(start: Start, chosen: Tensor) -> list[Tensor]:
        """Which rows (part, row) of queries, keys and values change with some tokens."""
        change = partial(start.prepare, chosen, 0)
        reached = rerun(module, given, change, reference.results, lambda one: one.number == own.number).heads
        if not reached or [part.shape for part in reached[-1][:3]] != [part.shape for part in own[:3]]:
            raise _unproven(NOT_AGAIN)
        return [moved_rows(*pair, by_part) for pair in zip(own[:3], reached[-1][:3], strict=True)]

    reason = None
    for start in (*starts, *made):
        try:
            tokens = _tokens(partial(moved, start), shape)
        except MhaError as error:
            reason = reason or error
            continue
        return Tiling(tokens, module.get_submodule(start.part), start.sizes)
    raise reason or _unproven(NO_WHOLE)


def _tokens(moved: Callable[[Tensor], list[Tensor]], shape: tuple[int, int]) -> Tensor:
    """The number of the token in each row (part, row); `moved` says which rows move with some tokens."""
    moves = Moves.of(shape[0] * shape[1], moved)
    for each in moves:
        if (each.ones & each.zeros).any():
            raise _unproven(SEVERAL)
        if not (each.ones | each.zeros).all():
            raise _unproven(NOT_TILED)
        if not torch.equal(each.tokens, moves[0].tokens):
            raise _unproven(APART)
    tokens = moves[0].tokens
    if not torch.equal(tokens.flatten().sort().values, torch.arange(tokens.numel())):
        raise _unproven(NOT_TILED)
    return tokens
