"""Whether the rows of attention are the tokens that a model was given, in their order, seen by what moves.

A copy of the model runs again with half of the tokens of one item changed: those whose number has a 1 at
one binary digit. Then it runs with the other half changed. What attention gave is held meanwhile, so that a
row moves only with the tokens that it is made of. A row that moves in exactly one of the two runs, for each
digit, is made of one token, and the digits are the number of this token.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.functional import HALF
from mha_core.capture.gap import CLOSE
from mha_core.capture.module_copy import Given, Prepare, copied, is_mask, tensors
from mha_core.capture.own_code.rerun import NAMES, Heads, Rerun, rerun
from mha_core.errors import Listed, Phrase, listed

TWO_TEXTS = Phrase("its queries and its keys are of two texts; give the tokens of the second one as keys=.")
IN_ORDER, ELSEWHERE, UNMOVED, OF_ALL, OF_SEVERAL = range(5)


class Start(NamedTuple):
    """Where tokens can be changed: in tensor `number` of what a module is given, or in what its `part` makes.

    `axes` of a tensor of this `shape` count the tokens, and `texts` counts texts, if one does. With some
    `patches` along both axes tokens are squares of a picture, behind `special` tokens of no place.
    """

    part: str
    number: int
    shape: torch.Size
    axes: tuple[int, ...]
    texts: int | None
    patches: tuple[int, int] | None = None
    special: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the axes of tokens."""
        return self.patches or tuple(self.shape[axis] for axis in self.axes)

    @property
    def n_tokens(self) -> int:
        return math.prod(self.sizes) + self.special

    def prepare(self, chosen: Tensor, item: int, module: nn.Module, args: tuple, kwargs: dict) -> None:
        """Change the `chosen` tokens of an item in what a copy is given or what its part makes."""
        if self.part:
            module.get_submodule(self.part).register_forward_hook(
                lambda _, given, x: self.changed(x, chosen, item)
            )
        else:
            x = next(islice(tensors((args, kwargs)), self.number, None))
            x.copy_(self.changed(x, chosen, item))

    def changed(self, x: Tensor, chosen: Tensor, item: int) -> Tensor:
        """Other vectors, or ids of other tokens, in the place of the chosen ones."""
        with torch._C.DisableTorchFunction():  # not an operation of the model
            chosen = chosen[self.special :].reshape(self.sizes)
            for axis in range(len(self.sizes)):
                chosen = chosen.repeat_interleave(x.shape[self.axes[axis]] // self.sizes[axis], axis)
            laid = self._laid(chosen, self.axes, x)
            if self.texts is not None and x.shape[self.texts] > 1:
                laid = laid & self._laid(torch.arange(x.shape[self.texts]) == item, (self.texts,), x)
            if not x.is_floating_point():
                ids = x.unique()
                other = ids[(torch.searchsorted(ids, x) + 1) % len(ids)] if len(ids) > 1 else (x - 1).abs()
                return torch.where(laid, other, x)
            noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
            size = 1 if x.dtype in HALF else 1e-3  # so small that what is sorted by its numbers stays sorted
            return x + laid.to(x) * noise * (1 + x.abs().mean()) * size

    @staticmethod
    def _laid(numbers: Tensor, axes: Sequence[int], x: Tensor) -> Tensor:
        return numbers.reshape([x.shape[axis] if axis in axes else 1 for axis in range(x.dim())]).to(x.device)


def starts(given: object, n_tokens: int) -> Iterator[Start]:
    """Where `n_tokens` tokens are in what a module is given: as ids, vectors, or a vector for each pixel."""
    for number, x in enumerate(tensors(given)):
        if is_mask(x) or x.is_complex():
            continue
        last = x.dim() - 1
        ways: list[tuple[tuple[int, ...], int | None]] = [((0,), None)]
        if x.is_floating_point() and last > 1:
            width_first, width_last = tuple(range(2, last + 1)), tuple(range(1, last))
            ways = [(width_last, 0), *([((0,), 1)] if last == 2 else []), (width_first, 0)]
            ways += [((axis,), 0) for axis in range(1, last) if last > 2]
        elif not x.is_floating_point() and last == 1:
            ways = [((1,), 0), ((0,), 1)]
        fitting = [
            Start("", number, x.shape, axes, texts)
            for axes, texts in ways
            if x.dim() > max(axes) and math.prod(x.shape[axis] for axis in axes) == n_tokens
        ]
        if (
            not fitting and x.is_floating_point() and last == 3
        ):  # a picture, with up to two tokens of no place
            fitting = list(_patches(number, x.shape, n_tokens))
        yield from [start for start in fitting if len(start.axes) > 1] or fitting[:1]


def _patches(number: int, shape: torch.Size, n_tokens: int) -> Iterator[Start]:
    """The square patches of pictures (text, channel, row, column) that make up tokens."""
    for special in range(3):
        side = math.sqrt(shape[2] * shape[3] / max(1, n_tokens - special))
        if n_tokens > special and side > 1 and not (shape[2] % side or shape[3] % side):
            patches = int(shape[2] // side), int(shape[3] // side)
            yield Start("", number, shape, (2, 3), 0, patches, special)


class Moves(NamedTuple):
    """Rows (digit, text, row) that move with tokens with a 1 at a digit, and with those with a 0."""

    ones: Tensor
    zeros: Tensor

    @classmethod
    def of(cls, n_tokens: int, moved: Callable[[Tensor], Sequence[Tensor]]) -> "list[Moves]":
        """The moves of several tensors; `moved` says which rows of each move with some tokens."""
        numbers, found = torch.arange(n_tokens), []
        for digit in range(max(1, (n_tokens - 1).bit_length())):
            chosen = (numbers >> digit) % 2 == 1
            found.append((moved(chosen), moved(~chosen)))
        ones, zeros = (
            [torch.stack(rows) for rows in zip(*side, strict=True)] for side in zip(*found, strict=True)
        )
        return [cls(*pair) for pair in zip(ones, zeros, strict=True)]

    @property
    def tokens(self) -> Tensor:
        """The token of each row (text, row), if it is made of one."""
        return sum((rows.long() << digit for digit, rows in enumerate(self.ones)), torch.zeros(()).long())

    def way(self, item: int, seen: Tensor, special: int) -> int:
        """How the rows of one item that are `seen`, behind `special` ones, are made of its tokens."""
        one = item if self.ones.shape[1] > 1 else 0
        seen = seen if len(seen) == self.ones.shape[2] else torch.ones(self.ones.shape[2], dtype=torch.bool)
        seen = seen & (torch.arange(len(seen)) >= special)
        ones, zeros = self.ones[:, one, seen], self.zeros[:, one, seen]
        if not (ones | zeros).any():
            return ELSEWHERE if (self.ones | self.zeros).any() else UNMOVED
        digits = torch.arange(len(ones))[:, None]
        if not torch.where(
            seen.nonzero()[:, 0] >> digits & 1 == 1, ones, zeros
        ).all():  # not of its own token
            return ELSEWHERE
        several = ones & zeros
        return OF_ALL if several.all() else OF_SEVERAL if several.any() else IN_ORDER


def moved_rows(one: Tensor, other: Tensor, by_text: Callable[[Tensor], Tensor]) -> Tensor:
    """Which rows (text, row) of queries, keys or values are others in the second tensor."""
    apart = by_text((one.float() - other.float()).abs()).amax((1, 3)).cpu()
    return apart > CLOSE.get(one.dtype, 0.0) / 100 * max(1.0, one.abs().max().item())


class Seen(NamedTuple):
    """A recorded attention in a run: its queries, and how their item is found.

    `by_text` brings queries, keys and values into (text, head, row, width), and `axis` counts texts in the
    result. `seen` says which keys are not hidden from all queries, as padding is.
    """

    number: int
    q: Tensor
    by_text: Callable[[Tensor], Tensor]
    item: int
    axis: int | None
    seen: Tensor


class Proof(NamedTuple):
    """The findings about attention by its number: the reasons `against` what has other rows than the tokens.

    `mixed` has the names of what several tokens were mixed into, `unproven` those that could not be checked.
    """

    against: dict[int, Phrase]
    mixed: dict[int, Listed]
    unproven: set[int]


def proof(
    again: Callable[[Prepare, Tensor | None], Callable[[], object]],
    given: Given,
    seen: Sequence[Seen | None],
    *,
    is_one_text: bool,
) -> Proof:
    """Whether the rows of the last attention that ran are tokens of what a module was `given`.

    With `is_one_text` its keys are those of the same text as its queries. `again` makes a copy of the module
    that runs again with its mixers held, and with chosen tokens changed in what these made, if given. Raises
    any error of somebody else's code.
    """
    calm, numbers = rerun(again(lambda *_: None, None)), {one.number for one in seen if one is not None}
    last = seen[len(seen) - len(calm.heads) :] if len(seen) >= len(calm.heads) else ()
    pairs = [
        (one, heads)
        for one, heads in zip(last, calm.heads, strict=False)
        if one is not None and one.q.shape == heads.q.shape
    ]
    found = Proof({}, {}, numbers - {one.number for one, _ in pairs})
    inputs = list(tensors(given)) if is_one_text else []
    lengths = {part.shape[-2] for _, heads in pairs for part in heads[:3]}
    places = [start for n in sorted(lengths) for start in starts(given, n)]
    for is_last in (False, True):
        ways = [_ways(again, calm, pairs, start, is_last) for start in places]
        undecided = []
        for at, (one, heads) in enumerate(pairs):
            own = [way[at] for way in ways]
            if not _decided(own, heads, places, found, one.number, inputs, is_last=is_last):
                undecided.append((one, heads))
        if found.against and undecided:  # those behind it may depend on it
            found.unproven.update(one.number for one, _ in undecided)
            undecided = []
        pairs = undecided
        if not pairs:
            break
    return found


def _decided(
    ways: Sequence[Sequence[int]],
    heads: Heads,
    places: Sequence[Start],
    found: Proof,
    number: int,
    inputs: Sequence[Tensor],
    *,
    is_last: bool,
) -> bool:
    """Note the finding about one attention; `ways` are those of its q, k and v, by the start's number."""
    fitting = [
        [at for at, start in enumerate(places) if start.n_tokens == part.shape[-2]] for part in heads[:3]
    ]
    if not all(fitting):
        found.unproven.add(number)
        return True
    best = [min((ways[at][n] == UNMOVED, ways[at][n], at) for at in fits) for n, fits in enumerate(fitting)]
    kinds = [kind for _, kind, _ in best]
    if not is_last and ELSEWHERE not in kinds and {*kinds} != {IN_ORDER}:
        return False
    for kind in (ELSEWHERE, UNMOVED, OF_ALL):
        if kind in kinds:
            found.against[number] = _reason(kind, _names(kinds, kind))
            return True
    if OF_SEVERAL in kinds:
        found.mixed[number] = _names(kinds, OF_SEVERAL)
    of_q, of_k, of_v = (places[at].number for _, _, at in best)
    if inputs and of_k == of_v != of_q and not torch.equal(inputs[of_q], inputs[of_k]):
        found.against[number] = TWO_TEXTS
    return True


def _names(kinds: Sequence[int], kind: int) -> Listed:
    """The words for those of queries, keys and values that are of a kind."""
    return listed([name for name, own in zip(NAMES.values(), kinds, strict=True) if own == kind], "and")


def _reason(kind: int, names: Listed) -> Phrase:
    """The reason against attention whose queries, keys or values are of a kind."""
    if kind == ELSEWHERE:
        return Phrase(
            "its {names} are not the tokens of this item in the order in which the model was given them.",
            names=names,
        )
    if kind == UNMOVED:
        return Phrase(
            "its {names} do not change with the tokens that the model was given: they are learned, or of "
            "something else.",
            names=names,
        )
    return Phrase(
        "its {names} are no tokens: each changes with every token, as channels and mixtures of all tokens "
        "do.",
        names=names,
    )


def _ways(
    again: Callable[[Prepare, Tensor | None], Callable[[], object]],
    calm: Rerun,
    pairs: Sequence[tuple[Seen, Heads]],
    start: Start,
    is_last: bool,
) -> list[list[int]]:
    """How q, k and v of each attention are made of the tokens of a start.

    At last the tokens are changed also in what attention and mixers gave, where these cut the way.
    """
    item = pairs[0][0].item

    def moved(chosen: Tensor) -> list[Tensor]:
        held = _held(calm.results, calm.heads, pairs, chosen) if is_last else calm.results
        run = again(partial(start.prepare, chosen, item), chosen if is_last else None)
        others = {heads.number: heads for heads in rerun(run, held).heads}
        rows = []
        for one, heads in pairs:
            pairs_of_parts = zip(heads[:3], others[heads.number][:3], strict=True)
            rows += [moved_rows(*parts, one.by_text) for parts in pairs_of_parts]
        return rows

    moves = iter(Moves.of(start.n_tokens, moved))
    return [[next(moves).way(one.item, one.seen, start.special) for _ in NAMES] for one, _ in pairs]


def _held(
    results: Mapping[int, Any], heads: Sequence[Heads], pairs: Sequence[tuple[Seen, Heads]], chosen: Tensor
) -> dict[int, Any]:
    """The results of attention with the rows of the chosen tokens changed."""
    held, texts = copied(dict(results)), {own.number: one for one, own in pairs}
    for each in heads:
        result = next(tensors(held[each.number]))
        if result.shape[each.axis] == len(chosen):
            axis = each.axis % result.dim()
            one = texts.get(each.number)
            has_texts = one is not None and (axis == 0 or result.dim() > 3)  # and is not folded
            start = Start("", 0, result.shape, (axis,), one.axis if one is not None and has_texts else None)
            result.copy_(start.changed(result, chosen, 0 if one is None else one.item))
    return held
