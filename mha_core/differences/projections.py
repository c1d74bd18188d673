"""The learned matrices of a module, found in what flowed through it: products of an input and a weight.

Their roles come from the names of the weights, or from the order in which these are defined.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from mha_core.differences.flow import Flow, Operation, arranged, relaid, restored, tensors_in
from mha_core.differences.formula import Products
from mha_core.differences.student import WORD, Case, Sizes
from mha_core.errors import MhaError, listed

PRODUCTS = {"linear", "matmul", "rmatmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "tensordot"}
SUMS = {"add", "radd", "iadd"}
# Operations after which an input is still the input.
SAME = {"get", "view", "reshape", "flatten", "transpose", "permute", "contiguous", "clone", "to", "double"}
SAME |= {"float", "unsqueeze", "swapaxes", "movedim", "expand", "type_as"}
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


@dataclass(frozen=True)
class Weighted:
    """A product of an input, or of the heads' outputs, with a weight, and the bias added to it."""

    operation: Operation
    given: Tensor  # the factor that is no weight
    weight: str
    source: int | None  # the input of the module that is the factor; None for what is computed
    bias: str | None = None
    is_added: bool = False  # the bias comes in an operation of its own

    def of(self, factor: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """The product with another factor, laid out as the first one, and the bias that it has."""
        result = self.operation.again({id(self.given): factor})
        return result + parameters[self.bias] if self.is_added and self.bias else result


@dataclass(frozen=True)
class Projections:
    """The learned products of a module by matrix; a matrix in parts, one for each head, has several."""

    made: Mapping[str, list[Weighted]]
    parameters: Mapping[str, Tensor]
    unused: frozenset[str]
    inputs: Sequence[Tensor]
    sizes: Sizes
    is_linear: bool = True  # whether an unused W^O is the weight of an nn.Linear

    @property
    def names(self) -> dict[str, list[str]]:
        """The names of the weights of each matrix."""
        return {matrix: [one.weight for one in products] for matrix, products in self.made.items()}

    @property
    def layouts(self) -> tuple[str, ...]:
        """How the parts of a packed matrix may lie in it."""
        return ("parts", "per head") if {"qkv", "kv"} & set(self.made) else ("parts",)

    def products(self, inputs: Sequence[Tensor], case: Case, layout: str) -> Products:
        """The products from which the right formula starts in a run with these inputs."""
        n = len(inputs)
        of_use = {"q": inputs[0], "k": inputs[min(1, n - 1)], "v": inputs[n - 1]}
        products, biases = {}, {}
        for use, x in of_use.items():
            for matrix, product in self._multiplied(x, layout).items():
                products[use, matrix] = product
        for matrix in ("q", "k", "v"):
            if (bias := self._lost_bias(matrix)) is not None:
                biases[matrix] = bias
                for use in of_use:
                    products[use, matrix] = products[use, matrix] + bias
        width = products["q", "q"].shape[-1] // self.sizes.h
        return Products(
            products,
            n_heads=self.sizes.h,
            n_kv_heads=products["k", "k"].shape[-1] // width,
            d_model=self.sizes.d_model,
            biases=biases,
            mask=case.mask,
            padding=case.padding,
            output=self._output(),
        )

    def _multiplied(self, x: Tensor, layout: str) -> dict[str, Tensor]:
        """The products of x with all matrices. (batch, token, head · width)"""
        h, found = self.sizes.h, {}
        for matrix, parts in self.made.items():
            if matrix == "o":
                continue
            flat = torch.cat([self._product(one, x) for one in parts], dim=-1)
            if len(matrix) == 1:
                found[matrix] = flat
                continue
            if layout == "per head":
                cut = flat.unflatten(-1, (h, -1)).chunk(len(matrix), dim=-1)
                found |= {name: part.flatten(2) for name, part in zip(matrix, cut, strict=True)}
                continue
            shared = self.sizes.n_kv_heads
            counts = [{"q": h}.get(name, shared) for name in matrix]
            if flat.shape[-1] % sum(counts):
                raise MhaError("The packed matrix has {n} columns, not q, k and v.", n=flat.shape[-1])
            unit = flat.shape[-1] // sum(counts)
            found |= dict(zip(matrix, flat.split([unit * count for count in counts], dim=-1), strict=True))
        return found

    def _product(self, one: Weighted, x: Tensor) -> Tensor:
        assert one.source is not None
        value = one.of(relaid(x, self.inputs[one.source], one.given.shape), self.parameters)
        batch, length, width = *x.shape[:2], value.numel() // prod(x.shape[:2])
        flat = restored(value, (batch, length, width))
        for n in (self.sizes.h, self.sizes.n_kv_heads):
            if flat is None and width % n == 0:
                heads = restored(value, (batch, n, length, width // n))
                flat = None if heads is None else heads.transpose(1, 2).flatten(2)
        if flat is None:
            raise MhaError("The product of the input with {name} has an unusual shape.", name=one.weight)
        return flat

    def _lost_bias(self, matrix: str) -> Tensor | None:
        """The biases that belong to a matrix and are used nowhere, as one vector."""
        names = [self._bias_of(one.weight) for one in self.made.get(matrix, ())]
        if not names or not all(name in self.unused for name in names):
            return None
        return torch.cat([self.parameters[name or ""].flatten() for name in names])

    def _bias_of(self, weight: str) -> str | None:
        if weight.endswith("weight") and (name := f"{weight.removesuffix('weight')}bias") in self.parameters:
            return name
        names = [
            name for name, one in self.parameters.items() if one.dim() == 1 and role(name) == role(weight)
        ]
        return names[0] if len(names) == 1 else None

    def _output(self) -> Callable[[Tensor, bool], Tensor] | None:
        """A function from the concatenated heads to the output; None for a module without W^O."""
        if parts := self.made.get("o"):
            return partial(self._joined, parts)
        names = [name for name in self.unused if role(name) == "o" and self.parameters[name].dim() == 2]
        return partial(self._never_used, names[0]) if len(names) == 1 else None

    def _joined(self, parts: list[Weighted], concat: Tensor, with_bias: bool) -> Tensor:
        heads = concat.unflatten(-1, (self.sizes.h, -1)).transpose(1, 2)
        if len(parts) == self.sizes.h > 1:
            factors = list(heads.unbind(1))
        else:
            parts, factors = parts[-1:], [heads]
        total: Tensor | None = None
        for one, heads in zip(parts, factors, strict=True):
            factor = next(arranged(heads, one.given.shape), None)
            if factor is None:
                raise ValueError("heads of another width")
            value = one.of(factor, self.parameters)
            output = restored(value, (*concat.shape[:2], value.numel() // prod(concat.shape[:2])))
            if output is None:
                raise ValueError("an output of an unusual shape")
            bias = one.bias or self._bias_of(one.weight)
            if bias is not None and (bias in self.unused) == with_bias:
                output = output + self.parameters[bias] if with_bias else output - self.parameters[bias]
            total = output if total is None else total + output
        assert total is not None
        return total

    def _never_used(self, name: str, concat: Tensor, with_bias: bool) -> Tensor:
        weight, bias = self.parameters[name], self._bias_of(name)
        output = concat @ (weight.mT if self.is_linear else weight)
        return output + self.parameters[bias] if with_bias and bias else output


def projections(
    module: nn.Module, flow: Flow, inputs: Sequence[Tensor], named: Mapping[str, str], sizes: Sizes
) -> Projections:
    """The learned products of a run; `named` are the matrices of the weights that the reader has named.

    Raises `MhaError` where the weights of Q, K and V are not found.
    """
    parameters = dict(module.named_parameters())
    place = {tensor.untyped_storage().data_ptr(): name for name, tensor in parameters.items()}
    sources = {tensor.untyped_storage().data_ptr(): nth for nth, tensor in enumerate(inputs)}
    found: dict[int, Weighted] = {}  # by their results
    used: set[str] = set()
    for operation in flow.operations:
        tensors = [*tensors_in(operation.args), *tensors_in(operation.kwargs.values())]
        pointers = [tensor.untyped_storage().data_ptr() for tensor in tensors]
        names = [place[pointer] for pointer in pointers if pointer in place]
        others = [(t, p) for t, p in zip(tensors, pointers, strict=True) if p not in place]
        result = operation.result.untyped_storage().data_ptr()
        if operation.name in SAME:
            knowledge: tuple[dict[int, Any], ...] = (sources, place, found)
            for known in knowledge:
                if pointers and pointers[0] in known:
                    known.setdefault(result, known[pointers[0]])
            continue
        used |= set(names)
        if operation.name in PRODUCTS and names and others:
            weight = next((name for name in names if parameters[name].dim() > 1), names[0])
            bias = next((name for name in names if name != weight), None)
            found[result] = Weighted(operation, others[0][0], weight, sources.get(others[0][1]), bias)
        elif operation.name in SUMS and names and others and others[0][1] in found:
            found[result] = replace(found[others[0][1]], bias=names[0], is_added=True)
            found[others[0][1]] = found[result]
    every = list({id(one.operation): one for one in found.values()}.values())
    unused = frozenset(set(parameters) - used)
    made = _by_matrix(every, parameters, unused, named)
    linear = any(isinstance(part, nn.Linear) for part in module.modules())
    return Projections(made, parameters, unused, inputs, sizes, linear)


def _by_matrix(
    found: list[Weighted], parameters: Mapping[str, Tensor], unused: frozenset[str], named: Mapping[str, str]
) -> dict[str, list[Weighted]]:
    of_inputs = {one.weight: one for one in reversed(found) if one.source is not None}
    matrices = {name: named.get(name) or role(name) for name in of_inputs}
    order = [name for name in parameters if name in matrices]
    if any(matrix in (None, "o") for matrix in matrices.values()):
        if len(order) == 1:
            matrices = {order[0]: "qkv"}
        elif len(order) % 3 == 0:
            matrices = {name: "qkv"[3 * nth // len(order)] for nth, name in enumerate(order)}
    made: dict[str, list[Weighted]] = {}
    for name in sorted(of_inputs, key=_natural):
        made.setdefault(matrices[name] or "", []).append(of_inputs[name])
    for name in sorted(unused, key=_natural):  # as W^K where keys are made with W^Q
        matrix = named.get(name) or role(name)
        same = [one for one in of_inputs.values() if parameters[one.weight].shape == parameters[name].shape]
        if matrix in ("q", "k", "v") and matrix not in made and parameters[name].dim() > 1 and same:
            made[matrix] = [_exchanged(same[0], name, parameters)]
    if not any(set(parts) <= set(made) for parts in (("q", "k", "v"), ("qkv",), ("q", "kv"))):
        raise MhaError(
            "The weights of Q, K and V were not found; the inputs are multiplied with {found}. Name them, as "
            "in --weights q=W_q.weight,k=W_k.weight,v=W_v.weight.",
            found=listed(order, "and") if order else "no weight",
        )
    made.pop("", None)
    outputs = [one for one in found if one.source is None and one.weight not in of_inputs]
    by_name = [one for one in outputs if (named.get(one.weight) or role(one.weight)) == "o"]
    if outputs:
        made["o"] = sorted(by_name, key=lambda one: _natural(one.weight)) or outputs[-1:]
    return made


def _exchanged(like: Weighted, name: str, parameters: Mapping[str, Tensor]) -> Weighted:
    """The same product with another weight, and with its bias."""
    changed = {id(parameters[like.weight]): parameters[name]}
    bias = f"{name.removesuffix('weight')}bias"
    if like.bias and bias in parameters:
        changed[id(parameters[like.bias])] = parameters[bias]
    return replace(like, operation=like.operation.exchanged(changed), weight=name, bias=like.bias and bias)


def _natural(name: str) -> list[tuple[int, str]]:
    """The order of numbered names: head 2 comes before head 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
