"""The first matrix that differs between two traces, and the mistake that makes the one of the other."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from mha_core.attention.module import Projections
from mha_core.differences.formula import DROPOUT, STAGES, Mistake, Products, Rotation
from mha_core.differences.search import HIDING, causes, distance, rounding
from mha_core.errors import MhaError, Phrase, listed, named_type
from mha_core.export.notebook import picture
from mha_core.traces.layer import LayerTrace
from mha_core.traces.trace import AttentionTrace

COMPARED = ("x", "q", "k", "v", "raw", "scaled", "weights", "heads", "concat", "output")
INPUT = Phrase("the input of the layer")
PER_LAYER = 0.25  # by which rounding grows with each layer
SIDE = 32  # cells on a side of a picture


@dataclass(frozen=True, eq=False)
class Difference:
    """The first matrix that differs between two runs, by how much, and the causes that were tested.

    `matrix` is a name of `STAGES`, or "x" for the layer's input; None if the runs are equal. `distance` and
    `rounding` are shares of the matrix's largest number. Each cause is one mistake or two, which turn
    their run into mine on all texts; several fit where the texts do not tell them apart. `heads` is the order
    of my heads, if it is another: for each of theirs the number of mine. `mine` and `theirs` are the matrix,
    (head, row, column) or (token, width).
    """

    matrix: str | None
    layer: int | None
    distance: float
    rounding: float
    causes: tuple[tuple[Mistake, ...], ...] = ()
    heads: tuple[int, ...] | None = None
    notes: tuple[Phrase, ...] = ()
    mine: np.ndarray | None = None
    theirs: np.ndarray | None = None

    @property
    def is_equal(self) -> bool:
        """Whether all matrices that both runs have are equal within rounding."""
        return self.matrix is None

    def sentences(self) -> list[Phrase]:
        """The finding in words."""
        found = list(self.notes)
        if self.heads is not None:
            order = listed([head + 1 for head in self.heads], "comma")
            found.append(Phrase("The heads are in another order: theirs are my heads {order}.", order=order))
        if self.matrix is None or self.layer is None:
            equal = Phrase("The two runs are equal within rounding, up to W^O of the last layer compared.")
            return [*found, equal]
        found.append(
            Phrase(
                "The first difference is in layer {layer}: {matrix}."
                if math.isnan(self.distance)
                else "The first difference is in layer {layer}: {matrix}, by {distance:.2g} of the largest "
                "number where rounding is {rounding:.0e}.",
                layer=self.layer + 1,
                matrix=INPUT if self.matrix == "x" else STAGES[self.matrix],
                distance=self.distance,
                rounding=self.rounding,
            )
        )
        for cause in self.causes:
            found += [mistake.sentence for mistake in cause]
        if not self.causes and self.matrix != "x":
            found.append(
                Phrase("The cause is unknown: no known mistake, and no two of them, make this difference.")
            )
        elif len(self.causes) > 1:
            found.append(Phrase("These texts do not tell the causes apart; compare more of them."))
        return found

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def _repr_html_(self) -> str:
        """HTML for a notebook: the sentences, and both matrices of the head that differs most."""
        said = "".join(f"<div>{html.escape(sentence)}</div>" for sentence in self.sentences())
        mine, theirs, where = self.mine, self.theirs, ""
        if mine is None or theirs is None or mine.shape != theirs.shape:
            return said
        if mine.ndim == 3:
            head = int(np.nan_to_num(np.abs(mine - theirs)).max((1, 2)).argmax())
            mine, theirs, where = mine[head], theirs[head], f", head {head + 1}"
        named = {"mine": mine, "theirs": theirs, "mine − theirs": mine - theirs}
        pictures = "".join(_picture(matrix, f"{name}{where}") for name, matrix in named.items())
        return f'{said}<div style="display:flex;flex-wrap:wrap;gap:12px;margin:6px 0">{pictures}</div>'


class Recorded(Protocol):
    """A recorder: its trace, or attention of which nobody knows which token is where."""

    @property
    def trace(self) -> AttentionTrace: ...
    @property
    def unlabelled(self) -> Sequence[LayerTrace]: ...


Runs = AttentionTrace | Recorded | Sequence[AttentionTrace | Recorded]
Layers = Sequence[LayerTrace]


def difference(mine: Runs, theirs: Runs) -> Difference:
    """The first matrix in which my run of attention differs from theirs, and why.

    Both are a trace, or a list of traces of the same texts in the same order: with three texts a cause is
    rarely a coincidence. They may come from `trace`, `record` or a file. A recorder may stand for its trace:
    where a fault has mixed up the tokens, its matrices are compared in call order, and attention that is no
    softmax of scores by its weights and values.
    Layers are compared in order, each from its input to its output: q, k and v, scores, weights, the heads'
    outputs, concat W^O. Numbers are equal within the rounding of the coarser precision. Heads in another
    order are found and named.

    A cause is named only if the known formula with that mistake turns their numbers into mine, on every text;
    one mistake is preferred to two. Mistakes are those of the scale, the softmax's axis, the mask, the split
    and join of heads, exchanged matrices, biases, rotary codes, the order of shared keys, and dropout.

    >>> trace = mha.trace("How are you?", h=4, d_model=64)
    >>> print(mha.difference(trace, trace))
    The two runs are equal within rounding, up to W^O of the last layer compared.

    Other names of tokens, as in another text, are noted. Raises `MhaError` for values that are no traces, and
    for texts of other lengths.
    """
    ours, others = (_layers_of(one) for one in (mine, theirs))
    if any(len(one) != len(other) for one, other in zip(ours, others, strict=False)):
        ours, others = (_layers_of(one, unlabelled=True) for one in (mine, theirs))
    if len(ours) != len(others) or not ours:
        raise MhaError(
            "Give the traces of the same texts: there are {mine} of one run and {theirs} of the other.",
            mine=len(ours),
            theirs=len(others),
        )
    notes = []
    texts = [(one[0].sides, other[0].sides) for one, other in zip(ours, others, strict=True)]
    named = [(one.queries.pieces, other.queries.pieces) for one, other in texts if one.named and other.named]
    words = (pair for both in named for pair in zip(*both, strict=False))
    if (unequal := next((pair for pair in words if pair[0] != pair[1]), None)) is not None:
        notes.append(
            Phrase(
                "The tokens have other names: {mine} in my run is {theirs} in theirs.",
                mine=unequal[0],
                theirs=unequal[1],
            )
        )
    counts = len(ours[0]), len(others[0])
    if counts[0] != counts[1]:
        notes.append(
            Phrase(
                "Layers after layer {n} are not compared: one run has {mine}, the other {theirs}.",
                n=min(counts),
                mine=counts[0],
                theirs=counts[1],
            )
        )
    order: tuple[int, ...] | None = None
    limit = 0.0
    for number in range(min(counts)):
        pairs = [(one[number], other[number]) for one, other in zip(ours, others, strict=True)]
        _check(pairs)
        layers = [layer for pair in pairs for layer in pair]
        tensors = [layer.tensors[of] for layer in layers for of in ("v", "weights") if layer.knows(of)]
        limit = rounding(*(tensor.dtype for tensor in tensors)) * (1 + PER_LAYER * number)
        found = [(_matrices(a), _matrices(b)) for a, b in pairs]
        here = _order(*found[0], limit)
        if here is not None:
            order = here
            for a, _ in found:
                a |= {name: one[:, here] for name, one in a.items() if one.dim() == 4}
        drops = pairs[0][0].about.dropout > pairs[0][1].about.dropout
        for name in COMPARED:
            if name == "concat" and drops:  # the weights and heads are those before it
                return Difference("weights", number, math.nan, limit, ((DROPOUT,),), order, tuple(notes))
            both = [(a[name], b[name]) for a, b in found if name in a and name in b]
            shares = [distance(b, a) for a, b in both]
            if max(shares, default=0.0) > limit:
                at = int(np.argmax(shares))
                fitting = _causes(pairs, found, limit) if name != "x" else []
                fitting = [(*cause, DROPOUT) if drops else cause for cause in fitting]
                if number and not fitting and (name == "x" or not all("x" in one for one in found[0])):
                    notes.append(
                        Phrase(
                            "What comes between the heads of layer {layer} and the next layer was not "
                            "recorded in both runs: W^O, residual connections, norms or MLPs.",
                            layer=number,
                        )
                    )
                matrices = [one.squeeze(0).numpy() for one in both[at]]
                return Difference(
                    name, number, max(shares), limit, tuple(fitting), order, tuple(notes), *matrices
                )
    if not all("output" in one for one in found[0]):
        notes.append(
            Phrase(
                "W^O and its bias were not recorded in both runs of layer {layer}, and are not compared.",
                layer=min(counts),
            )
        )
    return Difference(None, None, 0.0, limit, heads=order, notes=tuple(notes))


def _layers_of(runs: Runs, *, unlabelled: bool = False) -> list[Layers]:
    """The layers of each run of a text, in call order with those that are `unlabelled`."""
    found: list[Layers] = []
    every: Sequence[Any] = runs if isinstance(runs, list | tuple) else [runs]
    for run in every:
        try:
            layers = run.layers if isinstance(run, AttentionTrace) else run.trace.layers
        except MhaError:
            layers = ()
            if not run.unlabelled:
                raise
        except AttributeError:
            raise MhaError(
                "Two traces are compared, or two lists of traces; got {type}.", type=named_type(run)
            ) from None
        if (unlabelled or not layers) and not isinstance(run, AttentionTrace):
            sizes = {(one.n_query, one.n_key) for one in layers or run.unlabelled}
            more = [one for one in run.unlabelled if (one.n_query, one.n_key) in sizes]
            layers = sorted((*layers, *more), key=lambda layer: layer.about.call or 0)
        if not layers:
            raise MhaError("A trace without layers of attention cannot be compared.")
        found.append(layers)
    return found


def _check(pairs: Sequence[tuple[LayerTrace, LayerTrace]]) -> None:
    for one, other in pairs:
        mine, theirs = (one.n_query, one.n_key), (other.n_query, other.n_key)
        if mine != theirs:
            raise MhaError(
                "The texts have other lengths: {mine} queries and keys in one run, {theirs} in the other.",
                mine=mine,
                theirs=theirs,
            )
        if one.n_heads != other.n_heads:
            raise MhaError(
                "One run has {mine} heads and the other {theirs}; only layers of as many heads are compared.",
                mine=one.n_heads,
                theirs=other.n_heads,
            )


def _matrices(layer: LayerTrace) -> dict[str, Tensor]:
    """The matrices of a layer by the names of `STAGES`, in double precision, with a batch axis.

    Shared keys and values are there once for each head.
    """

    def repeated(shared: np.ndarray) -> np.ndarray:
        return np.repeat(shared, layer.n_heads // len(shared), axis=0)

    found: dict[str, Any] = {"weights": layer.weights()}
    if layer.knows("x"):
        found["x"] = layer.x
    if layer.knows("v"):
        found |= {"v": repeated(layer.v), "heads": layer.output()}
    if layer.knows("q"):
        found |= {"q": layer.q, "k": repeated(layer.k)}
        found |= {"raw": layer.scores(), "scaled": layer.scaled()}
    if layer.projections.w_o is not None or layer.knows("concat"):
        found["concat"] = layer.concat()
    if layer.projections.w_o is not None or layer.knows("result"):
        found["output"] = layer.result()
    return {name: _double(matrix) for name, matrix in found.items()}


def _order(mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor], limit: float) -> tuple[int, ...] | None:
    """For each of their heads the one of mine with the same weights and outputs; None in the same order."""
    names = [name for name in ("weights", "heads") if name in mine and name in theirs]
    h = mine["weights"].shape[1]
    order: list[int] = []
    for head in range(h):
        same = [
            other
            for other in range(h)
            if all(distance(theirs[name][:, head], mine[name][:, other]) <= limit for name in names)
        ]
        if head not in same and len(same) != 1:
            return None
        order.append(head if head in same else same[0])
    return tuple(order) if order != [*range(h)] and sorted(order) == [*range(h)] else None


def _causes(
    pairs: Sequence[tuple[LayerTrace, LayerTrace]],
    found: Sequence[tuple[Mapping[str, Tensor], Mapping[str, Tensor]]],
    limit: float,
) -> list[tuple[Mistake, ...]]:
    """The mistakes that turn their layer into mine on every text; none where only its weights are known."""
    if not all(theirs.knows("q") and theirs.knows("v") for _, theirs in pairs):
        return []
    has_nan = any(mine["heads"].isnan().any() for mine, _ in found if "heads" in mine)
    given = [_products(theirs, -math.inf if has_nan else HIDING) for _, theirs in pairs]
    names = ["q", "raw", "weights"] if all(mine.knows("q") for mine, _ in pairs) else []  # and so k and v
    names.append("heads")
    if all(one.learned.w_o is not None for one in given):
        names += ["concat", "output"]
    runs = [{name: mine[name] for name in names if name in mine} for mine, _ in found]
    return causes(given, runs, limit) or causes(given, runs, limit, pairs=True)


def _products(layer: LayerTrace, hidden: float) -> Products:
    """The products X W of a layer, or q, k and v where more than a rotation follows, and its rule.

    `hidden` is the score of hidden keys in the other run.
    """
    code, rotation = layer.about.rotary, None
    if code is not None and layer.stages("q") == ["q_raw", "q"]:
        cos, sin = (_double(layer.tensor(name))[0] for name in ("cos", "sin"))
        rotation = Rotation(code.form, cos, sin, code.start)
    tables = {
        name: layer.tensor(f"{name}_raw") if rotation and name != "v" else getattr(layer, name)
        for name in "qkv"
    }
    flat = {name: _double(table).transpose(1, 2).flatten(2) for name, table in tables.items()}
    products = {(use, matrix): flat[matrix] for use in "qkv" for matrix in "qkv"}
    if layer.kind == "cross":
        products = {(use, use): flat[use] for use in "qkv"}
    allowed = _double(layer.allowed()).bool()
    padding = allowed.any(2, keepdim=True).all(1, keepdim=True)
    lower = torch.ones_like(allowed).tril()
    mask = lower if torch.equal(lower & padding, allowed) else allowed | ~padding
    rule = layer.rule.at(slice(None), slice(None), n_query=layer.n_query, n_key=layer.n_key)
    learned = {name: getattr(layer.projections, name) for name in ("b_q", "b_k", "b_v", "b_o", "w_o")}
    if layer.knows("gate") or layer.about.output_rotary is not None:
        del learned["w_o"]  # the output is more than concat W^O
    return Products(
        products,
        n_heads=layer.n_heads,
        n_kv_heads=layer.n_kv_heads,
        d_model=layer.d_model,
        learned=Projections(**{name: one.double() for name, one in learned.items() if one is not None}),
        mask=None if mask.all() else mask,
        padding=None if padding.all() else padding,
        rule=replace(rule, mask=None).mapped(Tensor.double),
        rotation=rotation,
        hidden=hidden,
    )


def _double(array: np.ndarray) -> Tensor:
    return torch.as_tensor(np.array(array, np.float64))[None]


def _picture(matrix: np.ndarray, title: str) -> str:
    """A matrix with its largest number; of a large one the number of the largest size in each cell."""
    values = np.where(np.isfinite(matrix), matrix, 0.0)
    rows, columns = (np.linspace(0, size, min(size, SIDE) + 1).astype(int) for size in values.shape)
    blocks = [[values[a:b, c:d] for c, d in pairwise(columns)] for a, b in pairwise(rows)]
    cells = np.array([[one.flat[np.abs(one).argmax()] for one in row] for row in blocks])
    end = np.abs(cells).max() or 1.0
    title = f"{title}, to {end:.3g}"
    return f'<figure style="margin:0">{picture(cells / end, title)}<figcaption>{title}</figcaption></figure>'
