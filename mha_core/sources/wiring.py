"""Which matrices of a model made a layer's q, k and v: found by the numbers that flowed, never by names.

A projection is believed only if its output, cut into heads, changed by what was found between, and turned
by the rotary code where there is one, is the q, k or v that was used. What cannot be shown to be so stays
unknown. What was found once of a module is looked for there first, and shown again each time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from mha_core.attention import Projections
from mha_core.sources import between
from mha_core.sources.cuts import Rotary, cuts, rotations
from mha_core.sources.leaves import Leaf, alike, is_the_same, matrix


class Way(NamedTuple):
    """From a module's output to what was wanted: which of the ways to cut and to turn it, and its norm."""

    module: int  # its id
    cut: int
    turn: int
    norm: dict | None  # what the module is if it is no matrix; empty if that is not known


Ways = tuple[tuple[Way, ...], ...]  # of q, k and v, each from its last module to its first


@dataclass(frozen=True)
class Wiring:
    """What is known of a call besides q, k and v themselves; None and empty where it is not.

    `parts` has numbers between a matrix and q, k or v by the names that `LayerTrace` gives them, and
    `between` the steps between for each of the three, where there are other ones than a rotation.
    """

    x: Tensor | None = None
    x_v: Tensor | None = None  # what K and V are made of, in cross-attention
    projections: Projections = field(default_factory=Projections)
    rotary: Rotary | None = None
    parts: Mapping[str, Tensor] = field(default_factory=dict)  # each (1, head, token, width)
    between: Mapping[str, list[dict]] = field(default_factory=dict)
    ways: Ways = ((), (), ())
    used: tuple[Leaf, ...] = ()  # the modules that it took


@dataclass(frozen=True)
class _Link:
    """One module on the way to q, k or v."""

    leaf: Leaf
    columns: Callable | None  # of the leaf's output; None for all of them
    cut: Tensor
    changed: dict | None  # by one number, after it was cut
    rotary: Rotary | None
    wanted: Tensor
    way: Way


def find(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    leaves: list[Leaf],
    codes: tuple[Tensor, Tensor] | None,
    *,
    outside: bool = False,
    ways: Ways | None = None,
    turns: dict | None = None,
) -> Wiring:
    """What made the q (1, h, L, d_k), k (1, n_kv, S, d_k), v (1, n_kv, S, d_v) of an attention call.

    `leaves` are the candidates in the order in which they ran, `codes` the cosines and sines (1, L, …)
    that the layer was handed; `outside` says that K and V are made of another text. `ways` are those that
    were found before in the same module, `turns` keeps the rotations of one forward pass.
    """
    sizes = (q.shape[1], k.shape[1], q.shape[3], v.shape[3])
    leaves = [leaf for given in leaves if (leaf := between.restored(given)) is not None]
    turning = [] if outside else _turning(codes, q, {} if turns is None else turns)
    of_q, of_k, of_v = ways or (None, None, None)
    made_q = _chain(q, 0, sizes, leaves, [None, *turning], of_q)
    # Queries and keys are turned alike; a code that turned only one of them is not understood.
    form = next((link.rotary for link in made_q if link.rotary is not None), None)
    made_k = _chain(k, 1, sizes, leaves, [None] if form is None else [form, None], of_k) if made_q else ()
    if form is not None and all(link.rotary is None for link in made_k):
        made_k = ()
    made_v = _chain(v, 2, sizes, leaves, [None], of_v)
    chains = {"q": made_q, "k": made_k, "v": made_v}
    found = {"ways": tuple(tuple(link.way for link in made) for made in chains.values())}
    found["used"] = tuple(link.leaf for made in chains.values() for link in made)
    first = {name: made[-1].leaf for name, made in chains.items() if made and made[-1].way.norm is None}
    text = first.get("q" if outside else "v")
    if text is not None and matrix(text) is not None:
        found["x"] = text.x.reshape(1, -1, text.x.shape[-1])
    if not (made_q and made_k):
        return Wiring(**found)
    found["rotary"] = form
    found["parts"] = {} if form is None else _turned(made_q, "q") | _turned(made_k, "k")
    weights = {name: _columns(made[-1]) for name, made in chains.items() if name in first}
    if len(first) < 3 or None in weights.values() or not _alike_inputs(first, outside):
        return Wiring(**found)
    (w_q, b_q), (w_k, b_k), (w_v, b_v) = (weights[name] for name in "qkv")
    found["projections"] = Projections(w_q, w_k, w_v, None, b_q, b_k, b_v, None)
    if outside:
        found["x_v"] = first["v"].x.reshape(1, -1, first["v"].x.shape[-1])
    told = {name: _steps(made) for name, made in chains.items()}
    if any(step["step"] != "rotary" for steps in told.values() for step in steps):
        found["between"] = told
        for name, steps in told.items():
            if steps and steps[0]["step"] != "rotary":
                found["parts"][f"{name}_linear"] = chains[name][-1].cut
    return Wiring(**found)


def _chain(
    wanted: Tensor,
    role: int,
    sizes: tuple,
    leaves: list[Leaf],
    turning: list[Rotary | None],
    ways: tuple[Way, ...] | None,
) -> tuple[_Link, ...]:
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
        rest = _chain(
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
) -> _Link | None:
    """The link by a way that is known, if it is that again."""
    for leaf in reversed(leaves):
        if id(leaf.module) != way.module:
            continue
        for number, (cut, columns) in enumerate(cuts(leaf.y, role, sizes, wanted.shape)):
            if number == way.cut and way.turn < len(turning):
                rotary = turning[way.turn]
                if rotary is None:
                    same = is_the_same(cut, wanted) or alike(cut, wanted)
                else:
                    same = alike(rotary.turn(cut), wanted)
                changed = None
                if not same:
                    changed = between.adjusted(cut, wanted if rotary is None else rotary.back(wanted))
                return _Link(leaf, columns, cut, changed, rotary, wanted, way) if same or changed else None
    return None


def _link(
    wanted: Tensor, role: int, sizes: tuple, leaves: list[Leaf], turning: list[Rotary | None]
) -> _Link | None:
    """The last leaf whose output, cut and turned in one of these ways, is what was wanted.

    If there is none: whose output is that when it is multiplied or cut off at one number.
    """
    tried = [
        (leaf, number, cut, columns)
        for leaf in reversed(leaves)
        for number, (cut, columns) in enumerate(cuts(leaf.y, role, sizes, wanted.shape))
    ]

    def made(one: tuple, turn: int, changed: dict | None = None) -> _Link:
        leaf, number, cut, columns = one
        own = None if matrix(leaf) is not None else between.norm(leaf, wanted.shape[3]) or {}
        way = Way(id(leaf.module), number, turn, own)
        return _Link(leaf, columns, cut, changed, turning[turn], wanted, way)

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


def _turning(codes: tuple[Tensor, Tensor] | None, q: Tensor, known: dict) -> list[Rotary]:
    """The rotations of a call; layers with the same codes share them."""
    key = (tuple(map(id, codes)) if codes is not None else None, q.shape[2], q.shape[3])
    if key not in known:
        known[key] = (codes, rotations(codes, q.shape))  # who holds the codes holds their ids
    return known[key][1]


def _steps(made: tuple[_Link, ...]) -> list[dict]:
    """What stands between the matrix and q, k or v, in order."""
    steps = []
    for link in reversed(made):
        steps += [step for step in (link.way.norm, link.changed) if step is not None]
        steps += [{"step": "rotary"}] if link.rotary is not None else []
    return steps


def _turned(made: tuple[_Link, ...], name: str) -> dict[str, Tensor]:
    """What was turned, and what became of it where something else came after."""
    at = next(number for number, link in enumerate(made) if link.rotary is not None)
    found = {f"{name}_raw": between.apply(made[at].changed, made[at].cut)}
    return found | ({f"{name}_turned": made[at].wanted} if at else {})


def _alike_inputs(first: Mapping[str, Leaf], outside: bool) -> bool:
    """Are the inputs of the three matrices one, or in cross-attention those of K and V?"""
    x = {name: leaf.x.data_ptr() for name, leaf in first.items()}
    return x["k"] == x["v"] and (outside or x["q"] == x["v"])


def _columns(link: _Link) -> tuple[Tensor, Tensor | None] | None:
    found = matrix(link.leaf)
    if found is None or link.columns is None:
        return found
    weight, bias = found
    columns = link.columns(link.leaf.y.device)
    first, last = columns[0].item(), columns[-1].item()
    if last - first + 1 == len(columns) and bool((columns.diff() == 1).all()):
        columns = slice(first, last + 1)  # a part of the matrix, not a copy
    return weight[:, columns], None if bias is None else bias[columns]
