"""Whether the rows of attention are the tokens that a model was given, in their order.

A copy of the model runs again with half of the tokens of one item changed: those whose number has a 1 at
one binary digit. Then it runs with the other half changed. What attention gave is held meanwhile, so that a
row moves only with the tokens that it is made of. A row that moves in exactly one of the two runs, for each
digit, is made of one token, and the digits are the number of this token.

`order` asks less, in two runs: of half of the tokens, drawn at random, exactly their own rows move.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.functional import HALF
from mha_core.capture.gap import CLOSE
from mha_core.capture.module_copy import Given, copied, is_mask, is_plain, tensors
from mha_core.capture.own_code.rerun import Heads, Rerun, rerun
from mha_core.capture.token_mixing import Mixers, Tokens, changed, laid
from mha_core.errors import Listed, Phrase, listed

NAMES = (Phrase("queries"), Phrase("keys"), Phrase("values"))
TWO_TEXTS = Phrase("its queries and its keys are of two texts; give the tokens of the second one as keys=.")
IN_ORDER, ELSEWHERE, UNMOVED, OF_ALL, OF_SEVERAL = range(5)


class Start(NamedTuple):
    """Where tokens can be changed: in tensor `number` of what a module is given, or in what its `part` makes.

    `axes` of a tensor of this `shape` count the tokens, and `texts` counts texts, if one does. With some
    `patches` along both axes tokens are squares of a picture, behind `special` tokens of no place. Vectors of
    one item change by `size`, so little that what is sorted by its numbers stays sorted.
    """

    part: str
    number: int
    shape: torch.Size
    axes: tuple[int, ...]
    texts: int | None
    patches: tuple[int, int] | None = None
    special: int = 0
    size: float = 1e-3

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the axes of tokens."""
        return self.patches or tuple(self.shape[axis] for axis in self.axes)

    @property
    def n_tokens(self) -> int:
        return math.prod(self.sizes) + self.special

    def prepare(self, chosen: Tensor, item: int | None, module: nn.Module, args: tuple, kwargs: dict) -> None:
        """Change the `chosen` tokens of an item in what a copy is given or what its part makes."""
        if self.part:
            part = module.get_submodule(self.part)
            part.register_forward_hook(lambda _, given, x: self.changed(x, chosen, item))
        else:
            x = next(islice(tensors((args, kwargs)), self.number, None))
            x.copy_(self.changed(x, chosen, item))

    def changed(self, x: Tensor, chosen: Tensor, item: int | None) -> Tensor:
        """Other vectors, or ids of other tokens, in the place of the chosen ones of an item or of all."""
        with torch._C.DisableTorchFunction():  # not an operation of the model
            chosen = chosen[self.special :].reshape(self.sizes)
            for axis in range(len(self.sizes)):
                chosen = chosen.repeat_interleave(x.shape[self.axes[axis]] // self.sizes[axis], axis)
            rows = laid(chosen, self.axes, x)
            if item is not None and self.texts is not None and x.shape[self.texts] > 1:
                n_texts = x.shape[self.texts]
                rows = rows & laid(torch.arange(n_texts) == item % n_texts, (self.texts,), x)
            return changed(x, rows, 1.0 if item is None or x.dtype in HALF else self.size)


def starts(given: object, n_tokens: int) -> Iterator[Start]:
    """Where `n_tokens` tokens are in what a module is given: ids, vectors, pixels or patches of a picture."""
    for number, x in enumerate(tensors(given)):
        if is_mask(x):
            continue
        if (tokens := Tokens.of(x, [n_tokens])) is not None:
            texts = 0 if tokens.axes[0] else 1 if x.dim() > 2 else None
            yield Start("", number, x.shape, tokens.axes, texts)
        elif x.dim() == 4:
            yield from _patches(number, x.shape, n_tokens)


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
        has_digit = seen.nonzero()[:, 0] >> torch.arange(len(ones))[:, None] & 1 == 1
        if not torch.where(has_digit, ones, zeros).all():  # not of its own token
            return ELSEWHERE
        several = ones & zeros
        return OF_ALL if several.all() else OF_SEVERAL if several.any() else IN_ORDER


def moved_rows(one: Tensor, other: Tensor, by_text: Callable[[Tensor], Tensor]) -> Tensor:
    """Which rows (text, row) of queries, keys or values differ in the second tensor."""
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

    `mixed` has the reasons to name modules that mix tokens before it, `proven` what has the tokens in order.
    """

    against: dict[int, Phrase]
    mixed: dict[int, Phrase]
    proven: set[int]


@contextmanager
def outermost(
    modules: Iterable[nn.Module], on_end: Callable[[nn.Module, Given | None], None], *, only_plain: bool
) -> Iterator[None]:
    """Copies what the outermost of some modules is given; `on_end` gets both when it has run.

    What could not be copied is None, and with `only_plain` also what is more than tensors, numbers and words,
    as a cache. In the block the modules have hooks, which change nothing.
    """
    running: list[nn.Module] = []
    given: Given | None = None

    def begin(module: nn.Module, args: tuple, kwargs: dict) -> None:
        nonlocal given
        running.append(module)
        if len(running) == 1:
            given = None
            if only_plain and not is_plain((args, kwargs)):
                return
            try:
                with torch.no_grad(), torch._C.DisableTorchFunction():
                    given = copied((args, kwargs))
            except Exception:  # raised by the object's own code; a note says that it was not checked
                pass

    def end(module: nn.Module, args: tuple, output: object) -> None:
        if module in running:  # it may have run already when the block began
            del running[len(running) - 1 - running[::-1].index(module) :]
            if not running:
                on_end(module, given)

    with ExitStack() as hooks:
        for module in modules:
            if not isinstance(module, torch.jit.ScriptModule):
                hooks.enter_context(module.register_forward_pre_hook(begin, with_kwargs=True))
                hooks.enter_context(module.register_forward_hook(end, always_call=True))
        yield


def proof(
    module: nn.Module,
    given: Given,
    names: Mapping[nn.Module, str],
    mixers: Mixers,
    attends: Collection[str],
    seen: Sequence[Seen | None],
    *,
    is_one_text: bool,
) -> Proof:
    """Whether the rows of the attention that ran last in a module are the tokens that this was `given`.

    `mixers` gets the findings about the module's parts, which have these `names`; `attends` has the names of
    those with attention. With `is_one_text` keys are of the queries' text. Raises any error of other code.
    """
    parts = {place: names[part] for place, part in module.named_modules() if part in names}

    def run(prepare: Callable, held: Mapping[int, Any] = MappingProxyType({})) -> Rerun:
        def named(other: nn.Module, args: tuple, kwargs: dict) -> None:
            own = {part: parts[place] for place, part in other.named_modules() if place in parts}
            prepare(own, other, args, kwargs)

        return rerun(module, given, named, held)

    reference = run(lambda own, *_: mixers.watch(own, None))
    places = [start for n in sorted(mixers.lengths) for start in starts(given, n)]
    for token in sorted({0, *(n // 2 for n in mixers.lengths)}):
        held = _held(reference, {}, {n: torch.arange(n) == token for n in mixers.lengths})
        run(lambda own, *_, token=token: mixers.watch(own, token), held)
    pairs = _pairs(reference, seen)
    found = Proof({}, {}, set())
    inputs = list(tensors(given)) if is_one_text else []

    def is_left(name: str) -> bool:
        return any(each == name or not name or each.startswith(f"{name}.") for each in attends)

    def moved(start: Start, chosen: Tensor, is_last: bool) -> list[Tensor]:
        def change(own: Mapping[nn.Module, str], *copies: Any) -> None:
            mixers.hold(own, is_left, chosen if is_last else None)
            _seen_in(pairs, start).prepare(chosen, pairs[0][0].item, *copies)

        texts = {heads.number: one for one, heads in pairs}
        held = _held(reference, texts, {len(chosen): chosen}) if is_last else reference.results
        others = {heads.number: heads for heads in run(change, held).heads}
        return [
            moved_rows(before, now, one.by_text)
            for one, heads in pairs
            for before, now in zip(heads[:3], others[heads.number][:3], strict=True)
        ]

    # At last also what attention and mixers gave changes, which may cut the way.
    for is_last in (False, True):
        if not pairs:
            break
        ways = []
        for start in places:
            moves = iter(Moves.of(start.n_tokens, partial(moved, start, is_last=is_last)))
            ways.append(
                [[next(moves).way(one.item, one.seen, start.special) for _ in NAMES] for one, _ in pairs]
            )
        undecided = []
        for at, (one, heads) in enumerate(pairs):
            own = [way[at] for way in ways]
            if not _decided(own, heads, places, found, one.number, inputs, is_last=is_last):
                undecided.append((one, heads))
        pairs = [] if found.against else undecided  # those behind it may depend on it
    return found


def order(
    module: nn.Module, given: Given, seen: Sequence[Seen | None], lengths: Collection[int]
) -> tuple[set[int], bool]:
    """The numbers of the attention in a module whose rows are its tokens in their order, by two runs.

    Also whether any has rows of others, or of all tokens, so that `proof` has something to find. A wrong
    order moves the right rows with a chance of 1 to the ways of choosing half of the tokens. Raises any
    error of other code.
    """
    places: dict[int, Start] = {}
    for n in sorted(lengths):
        places |= dict([(n, start) for start in starts(given, n) if start.patches is None][:1])
    if not places:
        return set(), False
    reference = rerun(module, given)
    pairs = _pairs(reference, seen)
    chosen = {n: _half(n) for n in places}

    def change(*copies: Any) -> None:
        for n, start in places.items():
            _seen_in(pairs, start).prepare(chosen[n], pairs[0][0].item, *copies)

    # What attention gave changes at the same tokens, for layers that get nothing else.
    held = _held(reference, {heads.number: one for one, heads in pairs}, chosen)
    others = rerun(module, given, change, held).heads if pairs else ()
    by_number = {heads.number: heads for heads in others}
    proven, is_strange = set(), False
    for one, heads in pairs:
        if not all(part.shape[-2] in chosen for part in heads[:3]):
            continue
        kinds = set()
        for before, now in zip(heads[:3], by_number[heads.number][:3], strict=True):
            rows = moved_rows(before, now, one.by_text)
            rows = rows[one.item if len(rows) > 1 else 0]
            counted = one.seen if len(one.seen) == len(rows) else torch.ones_like(rows)
            moved, own = rows[counted], chosen[len(rows)][counted]
            if not own.any() or (own.all() and len(own) > 1):  # of what is not padding
                kinds.add(UNMOVED)
            elif torch.equal(moved, own):
                kinds.add(IN_ORDER)
            else:
                kinds.add(OF_SEVERAL if (moved >= own).all() and not moved.all() else ELSEWHERE)
        if kinds == {IN_ORDER}:
            proven.add(one.number)
        is_strange |= ELSEWHERE in kinds
    return proven, is_strange


def _half(n: int) -> Tensor:
    """About half of `n` tokens, with the first and without the last."""
    chosen = torch.rand(n, generator=torch.Generator().manual_seed(0)) < 0.5
    chosen[-1], chosen[0] = False, True
    return chosen


def _seen_in(pairs: Sequence[tuple[Seen, Heads]], start: Start) -> Start:
    """The start with changes that half precision, as under autocast, does not round away."""
    return start._replace(size=1.0) if any(one.q.dtype in HALF for one, _ in pairs) else start


def _pairs(reference: Rerun, seen: Sequence[Seen | None]) -> list[tuple[Seen, Heads]]:
    """The attention of a run, each with what was recorded of it."""
    last = seen[len(seen) - len(reference.heads) :] if len(seen) >= len(reference.heads) else ()
    return [
        (one, heads)
        for one, heads in zip(last, reference.heads, strict=False)
        if one is not None and one.q.shape == heads.q.shape
    ]


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
        found.mixed[number] = Phrase(
            "mixes tokens before its attention, in its {names}, which is not shown",
            names=_names(kinds, OF_SEVERAL),
        )
    if inputs:
        of_q, of_k, of_v = (inputs[places[at].number] for _, _, at in best)
        if torch.equal(of_k, of_v) and not torch.equal(of_q, of_k):
            found.against[number] = TWO_TEXTS
            return True
    found.proven.add(number)
    return True


def _names(kinds: Sequence[int], kind: int) -> Listed:
    """The words for those of queries, keys and values that are of a kind."""
    return listed([name for name, own in zip(NAMES, kinds, strict=True) if own == kind], "and")


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


def _held(reference: Rerun, texts: Mapping[int, Seen], chosen: Mapping[int, Tensor]) -> dict[int, Any]:
    """The results of attention with the rows of tokens changed that are chosen among so many."""
    held = copied(dict(reference.results))
    for each in reference.heads:
        result = next(tensors(held[each.number]))
        if (rows := chosen.get(result.shape[each.axis])) is not None:
            axis, one = each.axis % result.dim(), texts.get(each.number)
            has_texts = one is not None and (axis == 0 or result.dim() > 3)  # and is not folded
            start = Start("", 0, result.shape, (axis,), one.axis if one is not None and has_texts else None)
            result.copy_(start.changed(result, rows, None if one is None else one.item))
    return held
