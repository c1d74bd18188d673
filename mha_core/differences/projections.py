"""The learned matrices of a module, found by their products: X W or X W + b is among the results of a run.

Their roles come from the names of the weights, or from the order in which these are defined.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.module import AttentionSpec, Projections
from mha_core.differences.flow import Run, arranged
from mha_core.differences.formula import IMPOSSIBLE, Products, stages
from mha_core.differences.student import WORD, Case
from mha_core.errors import MhaError, listed
from mha_core.traces.indices import by_number

# Words in the names of weights, or their parts of three letters and more. An earlier row counts more: q_proj
# is W^Q, and attn.proj W^O.
ROLES = {
    "qkv": "qkv kqv inproj",
    "kv": "kv wkv",
    "q": "q wq qs quer",
    "k": "k wk ks key",
    "v": "v wv vs value",
    "o": "o wo fc out proj final dense unify mix merge combine concat",
}
PER_HEAD = "The packed matrix has q, k and v of each head beside each other."


def role(name: str) -> str | None:
    """The matrix that a weight is by its name: q, k, v, o, or qkv and kv packed; None for another name."""
    words = [word.lower() for word in WORD.findall(name) if word not in ("weight", "bias")]
    words += [one + other for one, other in pairwise(words)]
    for matrix, names in ROLES.items():
        for named, word in product(names.split(), words):
            if named == word or (len(named) >= 3 and named in word):
                return matrix
    return None


class Learned(NamedTuple):
    """The names of the weights of each matrix, and the matrices, by a note on how they lie in the weights."""

    names: dict[str, list[str]]
    layouts: dict[str, Projections]


def products(learned: Projections, case: Case, n_heads: int) -> Products:
    """The products from which the right formula starts in a run."""
    known = learned._asdict()
    inputs = {"q": case.inputs[0], "k": case.inputs[:2][-1], "v": case.inputs[-1]}
    return Products(
        {(use, of): x @ known[f"w_{of}"] + known[f"b_{of}"] for use, x in inputs.items() for of in "qkv"},
        n_heads=n_heads,
        n_kv_heads=known["w_k"].shape[-1] * n_heads // known["w_q"].shape[-1],
        d_model=inputs["q"].shape[-1],
        learned=learned,
        mask=case.mask,
        padding=case.padding,
    )


class Weight(NamedTuple):
    """A weight as a matrix, (row, column), and the bias of its columns."""

    name: str
    matrix: Tensor
    bias: Tensor


@dataclass(frozen=True)
class _Weights:
    """The weights of a module, and a run in whose results their products are found."""

    module: nn.Module
    run: Run
    spec: AttentionSpec
    tolerance: float

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        return {name: one.detach().double() for name, one in self.module.named_parameters()}

    def of_input(self, name: str) -> Weight | None:
        """The weight as it is multiplied with an input; None where it is not."""
        for axis, x in product(self.axes(name), self.run.case.inputs):
            table = self._table(name, axis)
            bias = self._bias(name, torch.tensordot(x, table, 1))
            if bias is not None:
                return Weight(name, table.flatten(1), bias)
        return None

    def of_result(self, name: str) -> Weight | None:
        """The weight as it is multiplied with what was computed before; None where it is not."""
        results = self.run.flow.results
        for place, axis in product(reversed(range(len(results))), self.axes(name)):
            matrix = self._table(name, axis).flatten(1).mT
            shape = (*self.run.output.shape[:2], len(matrix))
            for heads in arranged(results[place].value.double(), shape):
                bias = self._bias(name, heads @ matrix, start=place + 1)
                if bias is not None:
                    return Weight(name, matrix, bias)
        return None

    def unused(self, name: str, *, is_output: bool) -> Weight:
        """A weight as it should be multiplied, where its product is not among the results."""
        axes = self.axes(name)
        is_linear = isinstance(self.module.get_submodule(name.rpartition(".")[0]), nn.Linear)
        table = self._table(name, axes[0] if is_linear != is_output else axes[-1]).flatten(1)
        matrix = table.mT if is_output else table
        return Weight(name, matrix, self._own_bias(name, matrix.shape[1]))

    def axes(self, name: str) -> list[int]:
        """The axes of a weight that may be d_model, the last one first; none of a vector."""
        shape = self.parameters[name].shape
        return [n for n in reversed(range(len(shape))) if len(shape) > 1 and shape[n] == self.spec.d_model]

    def _table(self, name: str, axis: int) -> Tensor:
        """The weight with d_model as its first axis, and heads before their columns. (d_model, …)"""
        table = self.parameters[name].movedim(axis, 0)
        is_turned = table.dim() == 3 and table.shape[1] not in (self.spec.n_heads, self.spec.n_kv_heads)
        return table.mT if is_turned else table

    def _bias(self, weight: str, result: Tensor, *, start: int = 0) -> Tensor | None:
        """The bias with which a product is among the results, else its own; None if it is not there."""
        columns = result.shape[2:]
        own, none = self._own_bias(weight, columns.numel()), torch.zeros(columns)
        others = [one for one in self.parameters.values() if one.numel() == columns.numel()]
        for bias in (own, none) if own.any() else (*others, none):
            made = result + bias.reshape(columns)
            if self.run.flow.place(made, self.tolerance, start=start) is not None:
                return own if bias is none else bias.flatten()
        return None

    def _own_bias(self, weight: str, columns: int) -> Tensor:
        """The bias of a weight by its name, or the only one of its role; zeros where there is none."""
        biases = {
            name: one.flatten()
            for name, one in self.parameters.items()
            if one.numel() == columns and not name.endswith("weight")
        }
        same = [one for name, one in biases.items() if role(name) == role(weight)]
        same = same if len(same) == 1 else [torch.zeros(columns)]
        return biases.get(f"{weight.removesuffix('weight')}bias", same[0])


def learned_matrices(
    module: nn.Module, run: Run, named: Mapping[str, str], spec: AttentionSpec, tolerance: float
) -> Learned:
    """The learned matrices of a run; `named` are the matrices of the weights that the reader has named.

    Raises `MhaError` where the weights of Q, K and V are not found.
    """
    weights = _Weights(module, run, spec, tolerance)
    names = [name for name in weights.parameters if weights.axes(name)]
    matrices = {name: named.get(name) or role(name) for name in names}
    of_inputs = {name: found for name in names if (found := weights.of_input(name))}
    others = sorted(set(names) - set(of_inputs), key=by_number)
    outputs = {name: found for name in others if (found := weights.of_result(name))}
    unused = [name for name in others if name not in outputs]
    if any(matrices[name] in (None, "o") for name in of_inputs):  # then the order of definition tells
        orders = [*of_inputs], [name for name in names if name not in outputs]
        order = next((order for order in orders if len(order) % 3 == 0 or len(order) == 1), [])
        parts = ["qkv"] if len(order) == 1 else ["q", "k", "v"]
        matrices |= {name: parts[len(parts) * nth // len(order)] for nth, name in enumerate(order)}
    made: dict[str, list[Weight]] = {}
    for name in sorted(of_inputs, key=by_number):
        made.setdefault(matrices[name] or "", []).append(of_inputs[name])
    used = set("".join(made))
    for name in unused:  # as W^K where keys are made with W^Q, or a weight used in slices
        is_square = weights.parameters[name].numel() == spec.d_model**2
        matrix = matrices[name] = matrices[name] or ("o" if is_square else "qkv")
        if matrix != "o" and not set(matrix) & used:
            made.setdefault(matrix, []).append(weights.unused(name, is_output=False))
    if not any(set(parts) <= set(made) for parts in (("q", "k", "v"), ("qkv",), ("q", "kv"))):
        raise MhaError(
            "The weights of Q, K and V were not found; the inputs are multiplied with {found}. Name them, as "
            "in --weights q=W_q.weight,k=W_k.weight,v=W_v.weight.",
            found=listed([*of_inputs], "and") if of_inputs else "no weight",
        )
    made = {matrix: parts for matrix, parts in made.items() if matrix in ROLES and matrix != "o"}
    joining = [name for name in outputs or unused if matrices[name] == "o"] or [*outputs]
    if joined := [outputs.get(name) or weights.unused(name, is_output=True) for name in joining]:
        made["o"] = joined if len(joined) == spec.n_heads else joined[-1:]
    layouts: dict[str, Projections] = {}
    for note in ("", PER_HEAD) if {"qkv", "kv"} & set(made) else ("",):
        with suppress(*IMPOSSIBLE):  # for this number of heads
            learned = _layout(made, spec, per_head=note == PER_HEAD)
            stages(products(learned, run.case, spec.n_heads))
            layouts[note] = learned
    if not layouts:
        shapes = [f"{one.name} {tuple(one.matrix.shape)}" for parts in made.values() for one in parts]
        raise MhaError(
            "With {h} heads no attention can be computed from {found}.",
            h=spec.n_heads,
            found=listed(shapes, "and"),
        )
    return Learned({matrix: [one.name for one in parts] for matrix, parts in made.items()}, layouts)


def _layout(
    made: Mapping[str, Sequence[Weight]], spec: AttentionSpec, *, per_head: bool = False
) -> Projections:
    """The matrices and their biases, of a packed matrix one after the other or `per_head`."""
    found: dict[str, Tensor] = {}
    for packed, parts in made.items():
        if packed == "o":
            found["w_o"] = torch.cat([part.matrix for part in parts])
            found["b_o"] = torch.stack([part.bias for part in parts]).sum(0)
            continue
        flat = torch.cat([torch.vstack([part.matrix, part.bias]) for part in parts], dim=1)
        width, pair = spec.d_model, 2 * spec.d_k  # of all queries; of a key and its value
        if per_head:
            cut = [part.flatten(1) for part in flat.unflatten(1, (spec.n_heads, -1)).chunk(len(packed), 2)]
        elif packed == "qkv" and flat.shape[1] - width in range(pair, 2 * width, pair):  # shared keys
            cut = [flat[:, :width], *flat[:, width:].chunk(2, dim=1)]
        else:
            cut = [*flat.chunk(len(packed), dim=1)]
        for name, part in zip(packed, cut, strict=True):
            found |= {f"w_{name}": part[:-1], f"b_{name}": part[-1]}
    return Projections(**found)
