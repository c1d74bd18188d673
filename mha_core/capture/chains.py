"""From q, k or v back to the matrix that it comes from, one module after another.

A link is one module: its output, cut into heads, perhaps changed by one number and turned, is what was
wanted; before a norm, the norm's input is what is wanted next.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mha_core.capture import between
from mha_core.capture.leaves import Leaf, alike, is_the_same, matrix
from mha_core.capture.rotary import Rotary


class Way(NamedTuple):
    """From a module's output to what was wanted: which of the ways to cut and to turn it, and its norm."""

    module: int  # its id
    cut: int
    turn: int
    norm: dict | None  # what the module is if it is no matrix; empty if that is not known


class Link(NamedTuple):
    """One module on the way to q, k or v."""

    leaf: Leaf
    columns: Callable | None  # of the leaf's output; None for all of them
    cut: Tensor
    changed: dict | None  # by one number, after it was cut
    rotary: Rotary | None
    wanted: Tensor
    way: Way


def chain(
    wanted: Tensor,
    role: int,
    sizes: tuple,
    leaves: list[Leaf],
    turning: list[Rotary | None],
    ways: tuple[Way, ...] | None,
) -> tuple[Link, ...]:
    """The modules that made what was wanted, from the last to the first; nothing if there is none.

    Before a norm it is looked for what made the norm's input; where that is not found, the norm is the first.
    """
    if ways == ():  # it was looked for before, and not found
        return ()
    link = _as_before(wanted, role, sizes, leaves, turning, ways[0]) if ways else None
    if link is None:
        ways = None
        link = _link(wanted, role, sizes, leaves, turning)
    if link is None or not link.way.norm:
        return () if link is None else (link,)
    before = leaves[: next(at for at, leaf in enumerate(leaves) if leaf is link.leaf)]
    for cut, _ in cuts(link.leaf.x, role, sizes, wanted.shape):
        rest = chain(
            cut,
            role,
            sizes,
            before,
            turning if link.rotary is None else [None],
            None if ways is None else ways[1:],
        )
        if rest and rest[-1].way.norm is None:
            return (link, *rest)
    return (link,)


def _as_before(
    wanted: Tensor, role: int, sizes: tuple, leaves: list[Leaf], turning: list[Rotary | None], way: Way
) -> Link | None:
    """The link by a way that is known, if it is that again."""
    for leaf in reversed(leaves):
        if id(leaf.module) != way.module:
            continue
        for number, (cut, columns) in enumerate(cuts(leaf.y, role, sizes, wanted.shape)):
            if number == way.cut and way.turn < len(turning):
                rotary = turning[way.turn]
                if rotary is None and is_the_same(cut, wanted):
                    return Link(leaf, columns, cut, None, None, wanted, way)
                same = alike(cut if rotary is None else rotary.turn(cut), wanted)
                changed = None
                if not same:
                    changed = between.adjusted(cut, wanted if rotary is None else rotary.back(wanted))
                return Link(leaf, columns, cut, changed, rotary, wanted, way) if same or changed else None
    return None


def _link(
    wanted: Tensor, role: int, sizes: tuple, leaves: list[Leaf], turning: list[Rotary | None]
) -> Link | None:
    """The last leaf whose output, cut and turned in one of these ways, is what was wanted.

    If there is none: whose output is that when it is multiplied or cut off at one number.
    """
    tried = [
        (leaf, number, cut, columns)
        for leaf in reversed(leaves)
        for number, (cut, columns) in enumerate(cuts(leaf.y, role, sizes, wanted.shape))
    ]

    def made(one: tuple, turn: int, changed: dict | None = None) -> Link:
        leaf, number, cut, columns = one
        own = None if matrix(leaf) is not None else between.norm(leaf, wanted.shape[3]) or {}
        way = Way(id(leaf.module), number, turn, own)
        return Link(leaf, columns, cut, changed, turning[turn], wanted, way)

    if None in turning:  # the same numbers in the same place need not be compared
        for one in tried:
            if is_the_same(one[2], wanted):
                return made(one, turning.index(None))
    for one in tried:
        for turn, rotary in enumerate(turning):
            # The last token first: the rotation of the first one is none.
            tail, last = one[2][:, :, -1:], wanted[:, :, -1:]
            if not alike(tail if rotary is None else rotary.last.turn(tail), last):
                continue
            if alike(one[2] if rotary is None else rotary.turn(one[2]), wanted):
                return made(one, turn)
    for turn, rotary in enumerate(turning):
        before = wanted if rotary is None else rotary.back(wanted)
        for one in tried:
            if (changed := between.adjusted(one[2], before)) is not None:
                return made(one, turn, changed)
    return None


def in_order(made: tuple[Link, ...]) -> list[dict]:
    """The steps between the matrix and q, k or v."""
    steps = []
    for link in reversed(made):
        steps += [step for step in (link.way.norm, link.changed) if step is not None]
        steps += [{"step": "rotary"}] if link.rotary is not None else []
    return steps


def turned(made: tuple[Link, ...], name: str) -> dict[str, Tensor]:
    """What was turned, and what became of it where something else came after."""
    at = next(number for number, link in enumerate(made) if link.rotary is not None)
    found = {f"{name}_raw": between.apply(made[at].changed, made[at].cut)}
    return found | ({f"{name}_turned": made[at].wanted} if at else {})


def cuts(y: Tensor, role: int, sizes: tuple, shape: torch.Size) -> Iterator[tuple[Tensor, Callable | None]]:
    """Ways to cut an output into the heads of q (role 0), k (1) or v (2), and the columns each takes."""
    _, heads, tokens, width = shape
    if y.dim() == 4:  # of each head by itself, as a norm over its numbers
        yield from ((cut, None) for cut in (y, y.transpose(1, 2)) if cut.shape == shape)
        return
    y_shape = y.shape
    if y_shape[-1] < heads * width or y_shape[:-1].numel() != tokens:
        return
    if y_shape[-1] == heads * width:
        yield y.reshape(1, tokens, heads, width).transpose(1, 2), None
        return
    rows = y.reshape(tokens, -1)
    n_heads, n_kv, d_k, d_v = sizes
    blocks = (n_heads * d_k, n_kv * d_k, n_kv * d_v)
    group = n_heads // n_kv
    ways = []
    if rows.shape[1] == sum(blocks):  # all of q, all of k, all of v
        ways.append(lambda t: t.split(blocks, dim=1)[role])
    if role and rows.shape[1] == sum(blocks[1:]):  # all of k, all of v
        ways.append(lambda t: t.split(blocks[1:], dim=1)[role - 1])
    if rows.shape[1] == n_kv * (group + 2) * d_k and d_k == d_v:  # q, k and v of each key/value head

        def interleaved(t: Tensor) -> Tensor:
            parts = t.view(t.shape[0], n_kv, group + 2, d_k)
            return (parts[:, :, :group], parts[:, :, group], parts[:, :, group + 1])[role].flatten(1)

        ways.append(interleaved)
    if not role and rows.shape[1] == 2 * heads * width:  # of each head its q and a gate for its output
        ways.append(lambda t: t.view(t.shape[0], heads, 2, width)[:, :, 0].flatten(1))
    for way in ways:
        cut = way(rows).view(1, tokens, heads, width).transpose(1, 2)
        yield cut, lambda device, way=way: way(torch.arange(rows.shape[1], device=device)[None])[0]
