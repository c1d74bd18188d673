"""The learned matrices of a module, found by their products: X W or X W + b is among the results of a run.

Their roles come from the names of the weights, or from the order in which these are defined.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_core.differences.flow import Flow, arranged
from mha_core.differences.formula import Products
from mha_core.differences.student import WORD, Case, Sizes
from mha_core.errors import MhaError, listed

ROLES = {
    "qkv": {"qkv", "kqv", "wqkv", "inproj", "cattn", "attn"},
    "kv": {"kv", "wkv"},
    "q": {"q", "wq", "query", "queries", "qs"},
    "k": {"k", "wk", "key", "keys", "ks"},
    "v": {"v", "wv", "value", "values", "vs"},
    "o": {"o", "wo", "out", "output", "proj", "fc", "final", "dense", "unify", "mix", "merge", "combine"},
}


def role(name: str) -> str | None:
    """The matrix that a weight is by its name: q, k, v, o, or qkv and kv packed; None for another name."""
    words = [word.lower() for word in WORD.findall(name) if word not in ("weight", "bias")]
    joined = [one + other for one, other in pairwise(words)]
    return next(
        (
            matrix
            for word in (*reversed(joined), *reversed(words))
            for matrix, names in ROLES.items()
            if word in names
        ),
        None,
    )


class Learned(NamedTuple):
    """A weight as a matrix, (row, column), and the bias of its columns."""

    name: str
    matrix: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Projections:
    """The learned weights of a module by matrix; a matrix in parts, one for each head, has several."""

    made: Mapping[str, Sequence[Learned]]
    sizes: Sizes

    @property
    def names(self) -> dict[str, list[str]]:
        """The names of the weights of each matrix."""
        return {matrix: [one.name for one in parts] for matrix, parts in self.made.items()}

    @property
    def layouts(self) -> tuple[str, ...]:
        """How the parts of a packed matrix may lie in it."""
        return ("parts", "per head") if {"qkv", "kv"} & set(self.made) else ("parts",)

    def products(self, case: Case, layout: str) -> Products:
        """The products from which the right formula starts in a run."""
        inputs = {"q": case.inputs[0], "k": case.inputs[:2][-1], "v": case.inputs[-1]}
        matrices, biases = self._columns("matrix", layout), self._columns("bias", layout)
        outputs = self.made.get("o")
        return Products(
            {(use, name): x @ matrices[name] + biases[name] for use, x in inputs.items() for name in "qkv"},
            n_heads=self.sizes.h,
            n_kv_heads=matrices["k"].shape[-1] * self.sizes.h // matrices["q"].shape[-1],
            d_model=self.sizes.d_model,
            biases=biases,
            mask=case.mask,
            padding=case.padding,
            w_o=torch.cat([one.matrix for one in outputs]) if outputs else None,
            b_o=torch.stack([one.bias for one in outputs]).sum(0) if outputs else None,
        )

    def _columns(self, of: str, layout: str) -> dict[str, Tensor]:
        """The columns of W^Q, W^K and W^V, or of their biases, head by head."""
        h, n_kv = self.sizes.h, self.sizes.n_kv_heads
        found: dict[str, Tensor] = {}
        for packed, parts in self.made.items():
            flat = torch.cat([getattr(part, of) for part in parts], dim=-1)
            if len(packed) == 1:
                cut = [flat]
            elif layout == "per head":
                cut = [part.flatten(-2) for part in flat.unflatten(-1, (h, -1)).chunk(len(packed), -1)]
            else:
                counts = [h if name == "q" else n_kv for name in packed]
                cut = flat.split([flat.shape[-1] // sum(counts) * count for count in counts], dim=-1)
            found |= dict(zip(packed, cut, strict=True))
        return found


@dataclass(frozen=True)
class _Weights:
    """The weights of a module, and the inputs and results of a run in which their products are found."""

    module: nn.Module
    inputs: Sequence[Tensor]
    flow: Flow
    sizes: Sizes
    tolerance: float

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        return {name: one.detach().double() for name, one in self.module.named_parameters()}

    def of_input(self, name: str) -> Learned | None:
        """The weight as it is multiplied with an input; None where it is not."""
        for axis, x in product(self.axes(name), self.inputs):
            table = self._table(name, axis)
            bias = self._bias(name, torch.tensordot(x, table, 1))
            if bias is not None:
                return Learned(name, table.flatten(1), bias)
        return None

    def of_result(self, name: str) -> Learned | None:
        """The weight as it is multiplied with what was computed before; None where it is not."""
        for place, axis in product(reversed(range(len(self.flow.results))), self.axes(name)):
            matrix = self._table(name, axis).flatten(1).mT
            shape = (*self.inputs[0].shape[:2], len(matrix))
            for heads in arranged(self.flow.results[place].value.double(), shape):
                bias = self._bias(name, heads @ matrix, start=place + 1)
                if bias is not None:
                    return Learned(name, matrix, bias)
        return None

    def unused(self, name: str, *, is_output: bool) -> Learned:
        """A weight as it should be multiplied, where its product is not among the results."""
        axes = self.axes(name)
        is_linear = isinstance(self.module.get_submodule(name.rpartition(".")[0]), nn.Linear)
        table = self._table(name, axes[0] if is_linear != is_output else axes[-1]).flatten(1)
        matrix = table.mT if is_output else table
        return Learned(name, matrix, self._own_bias(name, matrix.shape[1]))

    def axes(self, name: str) -> list[int]:
        """The axes of a weight that may be d_model, the last one first; none of a vector."""
        shape = self.parameters[name].shape
        return [n for n in reversed(range(len(shape))) if len(shape) > 1 and shape[n] == self.sizes.d_model]

    def _table(self, name: str, axis: int) -> Tensor:
        """The weight with d_model as its first axis, and heads before their columns. (d_model, …)"""
        table = self.parameters[name].movedim(axis, 0)
        is_turned = table.dim() == 3 and table.shape[1] not in (self.sizes.h, self.sizes.n_kv_heads)
        return table.mT if is_turned else table

    def _bias(self, weight: str, result: Tensor, *, start: int = 0) -> Tensor | None:
        """The bias with which a product is among the results, else its own; None if it is not there."""
        columns = result.shape[2:]
        own, none = self._own_bias(weight, columns.numel()), torch.zeros(columns)
        others = [one for one in self.parameters.values() if one.numel() == columns.numel()]
        for bias in (own, *others, none):
            places = self.flow.places(result + bias.reshape(columns), self.tolerance, start=start)
            if next(places, None) is not None:
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


def projections(
    module: nn.Module,
    flow: Flow,
    inputs: Sequence[Tensor],
    named: Mapping[str, str],
    sizes: Sizes,
    tolerance: float,
) -> Projections:
    """The learned matrices of a run; `named` are the matrices of the weights that the reader has named.

    Raises `MhaError` where the weights of Q, K and V are not found.
    """
    weights = _Weights(module, inputs, flow, sizes, tolerance)
    names = [name for name in weights.parameters if weights.axes(name)]
    matrices = {name: named.get(name) or role(name) for name in names}
    of_inputs = {name: found for name in names if (found := weights.of_input(name))}
    order = list(of_inputs)
    if any(matrices[name] in (None, "o") for name in order):
        if len(order) == 1:
            matrices[order[0]] = "qkv"
        elif len(order) % 3 == 0:
            matrices |= {name: "qkv"[3 * nth // len(order)] for nth, name in enumerate(order)}
    made: dict[str, list[Learned]] = {}
    for name in sorted(order, key=_natural):
        made.setdefault(matrices[name] or "", []).append(of_inputs[name])
    others = sorted(set(names) - set(order), key=_natural)
    outputs = {name: found for name in others if (found := weights.of_result(name))}
    unused = [name for name in others if name not in outputs]
    for name in unused:  # as W^K where keys are made with W^Q, or a weight used in slices
        matrix = matrices[name] or "o"
        if matrix != "o" and not set(matrix) & set("".join(made)):
            made[matrix] = [weights.unused(name, is_output=False)]
    if not any(set(parts) <= set(made) for parts in (("q", "k", "v"), ("qkv",), ("q", "kv"))):
        raise MhaError(
            "The weights of Q, K and V were not found; the inputs are multiplied with {found}. Name them, as "
            "in --weights q=W_q.weight,k=W_k.weight,v=W_v.weight.",
            found=listed(order, "and") if order else "no weight",
        )
    made = {matrix: parts for matrix, parts in made.items() if matrix in ROLES and matrix != "o"}
    joining = [name for name in outputs or unused if matrices[name] == "o"]
    if outputs:
        joining = joining or list(outputs)
        made["o"] = [outputs[name] for name in (joining if len(joining) == sizes.h else joining[-1:])]
    elif len(joining) == 1:
        made["o"] = [weights.unused(joining[0], is_output=True)]
    return Projections(made, sizes)


def _natural(name: str) -> list[tuple[int, str]]:
    """The order of numbered names: head 2 comes before head 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
