"""Which matrices of a model made a layer's q, k and v: found by the numbers that flowed, never by names.

A projection is believed only if its output, cut into heads, changed by what was found between, and turned
by the rotary code where there is one, is the q, k or v that was used. What cannot be shown to be so stays
unknown. What was found once of a module is looked for there first, and shown again each time.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from mha_core.attention.module import Projections
from mha_core.capture import between
from mha_core.capture.chains import Link, Way, chain, in_order, turned
from mha_core.capture.leaves import Leaf, is_linear, matrix
from mha_core.capture.rotary import Rotary, rotations

Ways = tuple[tuple[Way, ...], ...]  # of q, k and v, each from its last module to its first


class Wiring(NamedTuple):
    """What is known of a call besides q, k and v themselves; None and empty where it is not.

    `parts` has numbers between a matrix and q, k or v by the names that `LayerTrace` gives them, and
    `between` the steps between for each of the three, where there are other ones than a rotation.
    """

    x: Tensor | None = None  # (token, width)
    x_v: Tensor | None = None  # what K and V are made of, in cross-attention, (token, width)
    projections: Projections = Projections()
    rotary: Rotary | None = None
    parts: Mapping[str, Tensor] = MappingProxyType({})  # each (1, head, token, width)
    between: Mapping[str, list[dict]] = MappingProxyType({})
    ways: Ways = ((), (), ())
    used: tuple[Leaf, ...] = ()  # the modules that it took


def find(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    leaves: list[Leaf],
    codes: tuple[Tensor, Tensor] | Tensor | None,
    *,
    outside: bool = False,
    ways: Ways | None = None,
    turns: dict | None = None,
) -> Wiring:
    """What made the q (1, h, L, d_k), k (1, n_kv, S, d_k), v (1, n_kv, S, d_v) of an attention call.

    `leaves` are the candidates in the order in which they ran, `codes` the cosines and sines (1, L, …) that
    the layer was handed, perhaps as complex numbers; `outside` says that K and V are made of another text.
    `ways` are those that were found before in the same module, `turns` keeps the rotations of one pass.
    """
    sizes = (q.shape[1], k.shape[1], q.shape[3], v.shape[3])
    if not all(leaf.is_as_it_was for leaf in leaves):
        leaves = [leaf for given in leaves if (leaf := between.restored(given)) is not None]
    turning = [] if outside else _turning(codes, q, {} if turns is None else turns)
    of_q, of_k, of_v = ways or (None, None, None)
    made_q = chain(q, 0, sizes, leaves, [None, *turning], of_q)
    # Queries and keys are turned alike; a code that turned only one of them is not understood.
    form = _rotary(made_q)
    made_k = chain(k, 1, sizes, leaves, [None] if form is None else [form, None], of_k) if made_q else ()
    made_k = made_k if _rotary(made_k) is form else ()
    made_v = chain(v, 2, sizes, leaves, [None], of_v)
    chains = {"q": made_q, "k": made_k, "v": made_v}
    found = {"ways": tuple(tuple(link.way for link in made) for made in chains.values())}
    found["used"] = tuple(link.leaf for made in chains.values() for link in made)
    first = {name: made[-1].leaf for name, made in chains.items() if made and made[-1].way.norm is None}
    products = {name: made for name, leaf in first.items() if (made := matrix(leaf)) is not None}
    if (text := "q" if outside else "v") in products:
        found["x"] = _rows(first[text].x)
    if not (made_q and made_k):
        return Wiring(**found)
    found["rotary"] = form
    found["parts"] = {} if form is None else turned(made_q, "q") | turned(made_k, "k")
    if len(products) < 3 or not _alike_inputs(first, outside):
        return Wiring(**found)
    weights = [_columns(made[-1], products[name]) for name, made in chains.items()]
    (w_q, b_q), (w_k, b_k), (w_v, b_v) = weights
    found["projections"] = Projections(w_q, w_k, w_v, None, b_q, b_k, b_v, None)
    if first["q"].x.data_ptr() != first["v"].x.data_ptr():
        found["x_v"] = _rows(first["v"].x)
    if all(len(made) == 1 and made[0].changed is None for made in chains.values()):
        return Wiring(**found)
    told = {name: in_order(made) for name, made in chains.items()}
    if any(step["step"] != "rotary" for steps in told.values() for step in steps):
        found["between"] = told
        for name, steps in told.items():
            if steps and steps[0]["step"] != "rotary":
                found["parts"][f"{name}_linear"] = chains[name][-1].cut
    return Wiring(**found)


def plain(known: Wiring) -> tuple[int, ...] | None:
    """The ids of the three `nn.Linear` that made q, k and v of one x, if they were cut and nothing more."""
    whole = known.projections.w_q is not None and known.x_v is None and not known.between
    whole = whole and all(len(way) == 1 and way[0][1:] == (0, 0, None) for way in known.ways)
    if not (whole and all(is_linear(leaf.module) for leaf in known.used)):
        return None
    return tuple(way.module for (way,) in known.ways)


def _rows(x: Tensor) -> Tensor:
    """The input of a matrix, a row for each token, without a batch."""
    return x[0] if x.dim() == 3 and x.shape[0] == 1 else x.reshape(-1, x.shape[-1])


def _rotary(made: tuple[Link, ...]) -> Rotary | None:
    for link in made:
        if link.rotary is not None:
            return link.rotary
    return None


def _turning(codes: tuple[Tensor, Tensor] | Tensor | None, q: Tensor, known: dict) -> list[Rotary]:
    """The rotations of a call; layers with the same codes share them."""
    key = (tuple(map(id, codes)) if isinstance(codes, tuple) else id(codes), q.shape[2], q.shape[3])
    if key not in known:
        known[key] = (codes, rotations(codes, q.shape))  # who holds the codes holds their ids
    return known[key][1]


def _alike_inputs(first: Mapping[str, Leaf], outside: bool) -> bool:
    """Are the inputs of the three matrices one, or in cross-attention those of K and V?"""
    x = {name: leaf.x.data_ptr() for name, leaf in first.items()}
    return x["k"] == x["v"] and (outside or x["q"] == x["v"])


def _columns(link: Link, product: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
    """The columns of W and b that made this one of q, k and v."""
    if link.columns is None:
        return product
    weight, bias = product
    columns = link.columns(link.leaf.y.device)
    first, last = columns[0].item(), columns[-1].item()
    if last - first + 1 == len(columns) and bool((columns.diff() == 1).all()):
        columns = slice(first, last + 1)  # a part of the matrix, not a copy
    return weight[:, columns], None if bias is None else bias[columns]
