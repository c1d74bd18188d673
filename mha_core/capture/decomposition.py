"""The decomposition of a tensor into a sum of vectors, each with the operation that wrote it.

A `TorchDispatchMode` follows every operation of a forward pass and changes none. It keeps linear operations:
sums, products with the model's matrices, rotations, and norms with their scale frozen (RMSNorm and LayerNorm
divide by one number for each token). The result of any other operation, such as an activation or a weighted
sum of values, counts as one written vector. The names of modules play no part: the vectors are added up again
and must equal the tensor.

Freezing the scale of norms: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from mha_core.errors import MhaError

# Operations that are linear in their first argument, where all others are constant.
LINEAR = {
    *("view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze"),
    *("slice", "select", "split", "split_with_sizes", "unbind", "clone", "alias", "detach", "_to_copy"),
    *("neg", "sum", "mean", "flip", "roll", "repeat", "index_select", "constant_pad_nd", "index", "gather"),
    *("tril", "triu", "view_as_complex", "view_as_real", "_reshape_alias", "lift_fresh", "unfold"),
}
SUMS = {"add", "sub"}
PRODUCTS = {"mul", "div"}
MATRIX_PRODUCTS = {"mm", "bmm", "matmul", "linear"}
BIASED_PRODUCTS = {"addmm", "baddbmm"}
LAYER_NORM, RMS_NORM = NORMS = ("native_layer_norm", "_fused_rms_norm")
RESHAPED = {"view", "_unsafe_view", "reshape", "_reshape_alias"}
UNCHANGED = {"clone", "alias", "detach", "_to_copy", "lift_fresh"}  # in double precision
EMPTY = {"new_empty", "empty_like", "new_zeros", "zeros_like"}  # filled afterwards
LIMITS = {"clamp", "clamp_min", "clamp_max", "nan_to_num"}  # identities where no number is outside the limits
COMPARISONS = {"gt", "ge", "lt", "le"}  # of numbers
PARTS = {"slice", "select"}  # views that can be written into
ACTIVATIONS = {"gelu", "relu", "silu", "tanh"}  # of one number each


@dataclass(eq=False)
class Leaf:
    """A written vector for each token: its `value`, and the operation that made it.

    An embedding has the `ids` that were looked up; a `constant` belongs to the model and does not depend on
    the text. A product of two tensors has both `factors`: it is linear in one if the other is frozen. So is
    an activation of one tensor, `given`, if the factor ``f(x) / x`` is frozen.
    """

    value: Tensor
    made_by: str
    order: int
    name: str = ""  # of the parameter itself, or of the last parameter before it
    ids: Tensor | None = None
    constant: bool = False
    factors: tuple[tuple["Node", Tensor], ...] = ()
    given: tuple["Node", Tensor] | None = None

    @property
    def inputs(self) -> tuple["Node", ...]:
        return ()


@dataclass(eq=False)
class LinearOperation:
    """A linear operation on `inputs`; `apply` computes it for any summands of the inputs."""

    apply: Callable[..., Tensor]
    inputs: tuple["Node", ...]
    name: str = ""  # of the last parameter before it
    is_matrix: bool = False

    def __post_init__(self) -> None:
        self.name = self.name or self.inputs[0].name


Node = Leaf | LinearOperation
Made = Callable[..., Sequence[Node | None]]  # None where the result is no linear operation after all


@dataclass(frozen=True, eq=False)
class Contribution:
    """The `vectors` (place, number) that one writer adds to a tensor.

    `leaf` is the written vector. `name` is its parameter, or the last parameter before it, and `head` is the
    number of the head where that is known. A constant is `last` if it was added to the sum of all others.
    """

    leaf: Leaf
    name: str
    vectors: Tensor
    head: int | None = None
    last: bool = False


class NoDecomposition(MhaError):
    """A tensor cannot be written as a sum of written vectors; the message is the reason."""


class Decomposition(TorchDispatchMode):
    """While this mode is active, it keeps for each tensor of the thread the sum that makes it.

    `names` has the names of the model's parameters, by their memory addresses. `words` are the ids of the
    tokens that the model reads. An embedding of other, consecutive ids depends on positions alone, so it is
    a constant. Choices are frozen: tensors of whole numbers are constants, too.
    """

    def __init__(self, names: Mapping[int, str], words: Sequence[Tensor] = ()):
        super().__init__()
        self.names, self._words = names, [ids.flatten().tolist() for ids in words]
        self._nodes: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._written: dict[int, torch.UntypedStorage] = {}  # memory that was changed in place
        self._compared: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # conditions on what was written
        # For each view its tensor, and how it is taken.
        self._views: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._order = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # otherwise the first operation loads torch's compiler: 3 seconds
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        known = [self._node(tensor) for tensor in _tensors((args, kwargs))]
        if name in EMPTY:
            result = func(*args, **kwargs)
            if result.is_floating_point():
                self._nodes[result] = self._constant(torch.zeros_like(result))
            return result
        if name in PARTS:
            result = func(*args, **kwargs)
            self._views[result] = args[0], lambda x: func(x, *args[1:], **kwargs)
            if any(known):
                self._nodes[result] = self._repeated(func, name, args, kwargs)(result)[0]
            return result
        if not any(known):
            result = func(*args, **kwargs)
            if name == "embedding" and not self._is_of_positions(args[1]):
                self._nodes[result] = self._leaf(result, name, ids=args[1], name=self._name(args[0]))
            return result
        if name.endswith("_") and not name.endswith("__") and isinstance(args[0], Tensor):
            return self._in_place(func, name[:-1], args, kwargs)
        factors, path = self._factors(name, args), next((each.name for each in known if each), "")
        given = (known[0], args[0]) if name in ACTIVATIONS and known[0] is not None else None
        made = self._linear(func, name, args, kwargs)
        result = func(*args, **kwargs)
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        nodes = [None] * len(outputs) if made is None else made(result)
        if name in COMPARISONS:
            self._compared[result] = True
        for output, node in zip(outputs, nodes, strict=True):
            if isinstance(output, Tensor) and (output.is_floating_point() or output.is_complex()):
                self._nodes[output] = node or self._leaf(
                    output, name, name=path, factors=factors, given=given
                )
        return result

    def sum_of(
        self, tensor: Tensor, heads: Callable[[Leaf], Tensor | None], *, frozen: bool = False
    ) -> "Sum":
        """The sum that makes a tensor.

        `heads` returns the parts of a leaf by head, (head, *its shape), if the leaf is the output of an
        attention; else None. With `frozen` the factor of an activation between the tensor and all heads and
        embeddings is frozen, as the scale of a norm is. Raises `NoDecomposition` where the sum is not known.
        """
        node = self._nodes.get(tensor)
        if node is None:
            raise NoDecomposition("what they are made of was not seen")
        return Sum(node, heads, frozen=frozen)

    # The nodes of tensors

    def _is_of_positions(self, ids: Tensor) -> bool:
        numbers = ids.flatten()
        return bool(self._words) and numbers.tolist() not in self._words and bool((numbers.diff() == 1).all())

    def _node(self, tensor: Tensor) -> Node | None:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return None
        node = self._nodes.get(tensor)
        if node is None and self._written and tensor.untyped_storage().data_ptr() in self._written:
            node = self._nodes[tensor] = self._leaf(tensor.clone(), "copy_")
        return node

    def _leaf(self, value: Tensor, made_by: str, **more: Any) -> Leaf:
        self._order += 1
        return Leaf(value, made_by, self._order, **more)

    def _constant(self, value: Tensor) -> Leaf:
        return self._leaf(value, "constant", constant=True, name=self._name(value))

    def _name(self, tensor: Tensor) -> str:
        return self.names.get(tensor.untyped_storage().data_ptr(), "")

    def _factors(self, name: str, args: tuple) -> tuple[tuple[Node, Tensor], ...]:
        if name != "mul" or not all(isinstance(arg, Tensor) for arg in args[:2]):
            return ()
        one, other = args[:2]
        pairs = ((self._node(one), other), (self._node(other), one))
        return tuple((node, factor) for node, factor in pairs if node is not None)

    def _in_place(self, func: Callable, name: str, args: tuple, kwargs: dict) -> object:
        target = args[0]
        node = self._node(target)
        if node is None:
            self._nodes[target] = self._constant(target.clone())
        elif isinstance(node, Leaf) and node.value is target:
            node.value = target.clone()
        made = self._linear(func, name, args, kwargs)
        result = func(*args, **kwargs)
        self._nodes[target] = (None if made is None else made(target)[0]) or self._leaf(target, name)
        part = target
        while part in self._views:  # a change of a view also changes the tensor it is a view of
            whole, view = self._views[part]
            inputs = self._node(whole) or self._constant(whole.clone()), self._nodes[part]
            self._nodes[whole] = LinearOperation(partial(_filled, view), inputs)
            part = whole
        storage = target.untyped_storage()
        self._written[storage.data_ptr()] = storage  # kept, so that no other memory gets its address
        return result

    # Linear operations: each method returns a function from the result to its nodes, None if it is not linear

    def _linear(self, func: Callable, name: str, args: tuple, kwargs: dict) -> Made | None:
        if name in LINEAR:
            others = any(map(self._node, _tensors((args[1:], kwargs))))
            if others or not isinstance(args[0], Tensor):
                return None
            if name == "view_as_real" and isinstance(self._node(args[0]), Leaf):
                return None  # written vectors are real: as where tokens are mixed by a Fourier transform
            return self._repeated(func, name, args, kwargs)
        if name in ("fill", "zero") and not any(map(self._node, _tensors(args[1:]))):
            return lambda result: [self._constant(result.clone())]
        if name == "copy":
            source, shape = self._summand(args[1]), args[0].shape
            return lambda _: [LinearOperation(lambda x: x.expand(shape), (source,))]
        if name in SUMS:
            return self._sum(-1 if name == "sub" else 1, args, kwargs)
        if name in PRODUCTS and not kwargs:
            return self._product(name, *args)
        if name == "linear":
            return self._matrix_product(args[0], args[1].mT, args[2] if len(args) > 2 else None, args[1])
        if name in MATRIX_PRODUCTS:
            return self._matrix_product(*args[:2])
        if name in BIASED_PRODUCTS and not kwargs:
            return self._matrix_product(args[1], args[2], args[0])
        if name in ("cat", "stack"):
            return self._joined(func, *args, **kwargs)
        if name in LIMITS and self._node(args[0]) is not None:
            node, given = self._summand(args[0]), args[0].clone()  # it may be written into now
            return lambda result: [
                LinearOperation(lambda x: x, (node,)) if torch.equal(given, result) else None
            ]
        if name == "where" and len(args) == 3 and args[0] not in self._compared:  # else an activation
            condition, inputs = args[0], (self._summand(args[1]), self._summand(args[2]))
            return lambda _: [LinearOperation(lambda x, y: torch.where(condition, x, y), inputs)]
        if name in ("index_put", "index_add"):
            return self._put(func, args, kwargs, at=2 if name == "index_put" else 3)
        if name == "masked_fill" and not isinstance(args[2], Tensor) and args[2] == 0:
            return self._repeated(func, name, args, kwargs)
        if name in NORMS and self._node(args[0]) is not None:
            return partial(self._norm, name == LAYER_NORM, args)
        return None

    def _repeated(self, func: Callable, name: str, args: tuple, kwargs: dict) -> Made:
        inputs = (self._summand(args[0]),)
        more = {key: value for key, value in kwargs.items() if key != "dtype"}

        def made(result: Tensor | Sequence[Tensor]) -> list[Node]:
            if not isinstance(result, Tensor):
                outputs = range(len(result))
                return [
                    LinearOperation(lambda x, at=at: func(x, *args[1:], **more)[at], inputs) for at in outputs
                ]
            shape = result.shape
            if name in RESHAPED:
                return [LinearOperation(lambda x: x.reshape(shape), inputs)]
            if name in UNCHANGED:
                return [LinearOperation(lambda x: x, inputs)]
            return [LinearOperation(lambda x: func(x, *args[1:], **more), inputs)]

        return made

    def _summand(self, value: Any) -> Node:
        """The node of a tensor; a tensor without one is a constant of the model."""
        value = value if isinstance(value, Tensor) else torch.tensor(float(value))
        return self._node(value) or self._constant(value)

    def _sum(self, sign: int, args: tuple, kwargs: dict) -> Made:
        factors = 1, sign * kwargs.get("alpha", 1)
        inputs = tuple(self._summand(arg) for arg in args[:2])
        return lambda result: [_added(inputs, factors, result.shape)]

    def _product(self, name: str, one: Any, other: Any) -> Made | None:
        of, by = (self._node(arg) if isinstance(arg, Tensor) else None for arg in (one, other))
        if of is None or (by is not None and name == "mul" and _is_scale(one, other)):
            one, other, of, by = other, one, by, of
            if name == "div":
                return None
        if by is not None:
            if not _is_scale(other, one):
                return None
            other = other.clone()  # frozen
        operation = torch.mul if name == "mul" else torch.div
        assert of is not None  # a product is asked for where one operand is known
        return lambda _: [LinearOperation(lambda x: operation(x, _like(other, x)), (of,))]

    def _matrix_product(
        self, one: Tensor, other: Tensor, bias: Tensor | None = None, weight: Tensor | None = None
    ) -> Made | None:
        left, right = self._node(one), self._node(other)
        if left is not None and right is None:
            name = self._name(other if weight is None else weight)
            product = LinearOperation(lambda x: x @ _like(other, x), (left,), name, True)
        elif left is None and right is not None:
            product = LinearOperation(lambda x: _like(one, x) @ x, (right,), self._name(one), True)
        else:
            return None
        if bias is None:
            return lambda _: [product]
        summands = product, self._summand(bias)
        return lambda result: [_added(summands, (1, 1), result.shape)]

    def _joined(self, func: Callable, tensors: Sequence[Tensor], dim: int = 0) -> Made:
        inputs = tuple(map(self._summand, tensors))
        return lambda _: [LinearOperation(lambda *parts: func(parts, dim), inputs)]

    def _put(self, func: Any, args: tuple, kwargs: dict, *, at: int) -> Made:
        """Numbers that are written or added at some places of a tensor."""
        inputs, shapes = (self._summand(args[0]), self._summand(args[at])), (args[0].shape, args[at].shape)
        put = getattr(torch, func.overloadpacket.__name__.removesuffix("_"))

        def operation(whole: Tensor, part: Tensor) -> Tensor:
            given = list(args)
            given[0], given[at] = whole.expand(shapes[0]), part.expand(shapes[1])
            return put(*given, **kwargs)

        return lambda _: [LinearOperation(operation, inputs)]

    def _norm(self, is_centred: bool, args: tuple, result: Sequence[Tensor]) -> list[Node]:
        """A LayerNorm, which is centred and may have a bias, or an RMSNorm; its scale is the last result."""
        (x, shape, weight), scale = args[:3], result[-1]
        axes = tuple(range(-len(shape), 0))

        def operation(part: Tensor) -> Tensor:
            even = (part - part.mean(axes, keepdim=True) if is_centred else part) * _like(scale, part)
            return even if weight is None else even * _like(weight, part)

        normed: Node = LinearOperation(operation, (self._summand(x),))
        if is_centred and args[3] is not None:
            normed = _added((normed, self._summand(args[3])), (1, 1), x.shape)
        return [normed, *(self._leaf(each, "norm") for each in result[1:])]


class Sum:
    """A tensor as a sum, in double precision: the written vectors, and the operations that lead to it."""

    def __init__(self, root: Node, heads: Callable[[Leaf], Tensor | None], *, frozen: bool = False):
        self._root, self._heads = root, heads
        self._gates: dict[Node, LinearOperation] = {}  # products of an attention's output and a gate
        self._leaves: dict[Node, frozenset[Leaf]] = {}
        self._find_leaves()
        while frozen and (leaf := self._only_leaf()) is not None and (gate := self._frozen(leaf)) is not None:
            self._gates[leaf] = gate
            self._find_leaves()

    def _find_leaves(self) -> None:
        for node in _in_order(
            self._root, lambda each: self._gates.get(each, each).inputs or _all_inputs(each)
        ):
            if isinstance(node, Leaf) and node not in self._gates and (gate := self._gate(node)) is not None:
                self._gates[node] = gate
            if isinstance(node, Leaf) and node not in self._gates:
                self._leaves[node] = frozenset([node])
            else:
                self._leaves[node] = frozenset().union(*(self._leaves[part] for part in self._inputs(node)))

    @torch.inference_mode(False)
    @torch.enable_grad()
    def contributions(self, places: Sequence[tuple]) -> list[Contribution]:
        """The contribution of each writer to the vectors at these places; they sum to these vectors.

        A number of a contribution is the gradient of the tensor's number times the written vector.
        """
        starts, values = self._starts, self._values(lambda _, written: written.sum(0).requires_grad_())
        total, inputs = values[self._root], [values[node] for node in starts]
        added: list[list[Tensor]] = [[] for _ in starts]
        for number in torch.cat([total[place] for place in places]).unbind():
            slopes = torch.autograd.grad(number, inputs, retain_graph=True, allow_unused=True)
            for (_, written), slope, of_writer in zip(starts.values(), slopes, added, strict=True):
                slope = torch.zeros_like(written[0]) if slope is None else slope
                products = torch.where(slope == 0, slope, written * slope)  # 0 also for an infinity
                of_writer.append(products.reshape(len(written), -1).sum(1))
        last = self._last()
        return [
            Contribution(
                leaf,
                node.name,
                numbers.view(len(places), -1),
                head if len(written) > 1 else None,
                leaf in last,
            )
            for (node, (leaf, written)), of_writer in zip(starts.items(), added, strict=True)
            for head, numbers in enumerate(torch.stack(of_writer, 1))
        ]

    @torch.inference_mode(False)
    @torch.enable_grad()
    def in_stream(self) -> list[Tensor] | None:
        """The vector that each writer adds to the residual stream, in the order of `contributions`.

        The stream is the last sum of what was written, in front of a matrix that makes the tensor of it;
        None without such a matrix. The vectors are those of the tokens that the tensor depends on.
        """
        stream = self._stream()
        if stream is None:
            return None
        values = self._values(lambda _, written: written.sum(0).requires_grad_())
        [slope] = torch.autograd.grad(values[self._root].amax(), values[stream])
        rows, vectors = (slope != 0).any(-1), []
        with torch.no_grad():
            nothing = self._values(lambda _, written: torch.zeros_like(written[0]))
            order = list(_in_order(stream, lambda each: () if each in self._starts else self._inputs(each)))
            for node, (leaf, written) in self._starts.items():
                path = {
                    each: None for each in order if leaf in self._leaves[each] and each not in self._starts
                }
                beside = {each: value for each, value in nothing.items() if each not in path}
                for part in written:
                    values = self._computed(beside | {node: part}, path)
                    vectors.append(values[stream][rows].flatten())
        return vectors

    def added_by(self, leaves: Collection[Leaf]) -> Tensor:
        """The tensor with all other written vectors 0."""
        with torch.no_grad():
            return self._values(lambda leaf, written: written.sum(0) * (leaf in leaves))[self._root]

    def _values(self, start: Callable[[Leaf, Tensor], Tensor]) -> dict[Node, Tensor]:
        """The value of each node, where `start` has those at which the parts of a leaf enter the sum."""
        values = {node: start(leaf, written) for node, (leaf, written) in self._starts.items()}
        path = _in_order(self._root, lambda each: () if each in self._starts else self._inputs(each))
        return self._computed(values, path)

    def _computed(self, values: dict[Node, Tensor], path: Iterable[Node]) -> dict[Node, Tensor]:
        """The values, with those of the nodes on a path that are not among them."""
        for node in path:
            if node not in values:
                operation = self._gates.get(node, node)
                assert isinstance(operation, LinearOperation)  # a leaf without a gate has its value
                values[node] = operation.apply(*(values[part] for part in self._inputs(node)))
        return values

    def _stream(self) -> Node | None:
        """The node of the residual stream: the last one of which no input depends on all that was written."""
        node, of_all, is_before_matrix = self._root, self._of_text(self._root), False
        while node not in self._starts:
            whole = [part for part in self._inputs(node) if self._of_text(part) == of_all]
            if not whole:
                break
            is_before_matrix = is_before_matrix or _is_matrix(node)
            node = whole[0]
        return node if is_before_matrix else None

    def _last(self) -> set[Leaf]:
        """The constants that were added to the sum of all written vectors, not to a part of it."""
        starts, last = self._starts, set[Leaf]()
        of_all = self._of_text(self._root)
        for node in _in_order(self._root, lambda each: () if each in starts else self._inputs(each)):
            inputs = self._inputs(node)
            entering = any(part in starts and isinstance(part, LinearOperation) for part in inputs)
            if not entering and self._of_text(node) == of_all:
                last |= {part for part in inputs if isinstance(part, Leaf) and part.constant}
        return last

    def _of_text(self, node: Node) -> frozenset[Leaf]:
        return frozenset(leaf for leaf in self._leaves[node] if not leaf.constant)

    @cached_property
    def _starts(self) -> dict[Node, tuple[Leaf, Tensor]]:
        """For each node at which a written vector enters the sum: its leaf, and its parts there, (part, …).

        For constants and embeddings this node is the leaf itself, for other leaves the first matrix product
        after it, where the vector gets the width of the sum.
        """
        starts, reached = {}, {self._root}
        for node in reversed(list(_in_order(self._root, self._inputs))):
            if node not in reached:  # it comes before a start
                continue
            leaf = next(iter(self._leaves[node])) if len(self._leaves[node]) == 1 else None
            is_written = leaf is not None and not leaf.constant and leaf.ids is None
            if leaf is not None and (node is leaf or (is_written and _is_matrix(node))):
                starts[node] = leaf, self._written(leaf, node)
            else:
                reached |= set(self._inputs(node))
        return starts

    def _written(self, leaf: Leaf, node: Node) -> Tensor:
        """The value of a node for each head of its only leaf, or for the leaf as a whole."""
        heads = self._heads(leaf)
        parts = (leaf.value[None] if heads is None else heads).detach()
        parts = parts if parts.dtype == torch.float64 else parts.float()
        path = list(_in_order(node, self._inputs))
        with torch.no_grad():
            return torch.stack([self._computed({leaf: part}, path)[node] for part in parts]).double()

    def _gate(self, leaf: Leaf) -> LinearOperation | None:
        """The product of an attention's output and a gate, as an operation linear in the output."""
        for node, factor in leaf.factors:
            below = self._leaves[node]
            if len(below) == 1 and self._heads(next(iter(below))) is not None:
                return LinearOperation(lambda x, by=factor: x * _like(by, x), (node,))
        return None

    def _only_leaf(self) -> Leaf | None:
        """The leaf of all that depends on the text, if it is neither an embedding nor of heads."""
        leaves = self._of_text(self._root)
        leaf = next(iter(leaves)) if len(leaves) == 1 else None
        return leaf if leaf is not None and leaf.ids is None and self._heads(leaf) is None else None

    def _frozen(self, leaf: Leaf) -> LinearOperation | None:
        """An activation, or a product of two tensors, as an operation linear in what more has written."""
        if leaf.given is not None:
            node, given = leaf.given
            factor = torch.where(given == 0, 0.0, leaf.value.double() / given)
        elif leaf.factors:
            node, factor = max(leaf.factors, key=lambda pair: len(self._leaves[pair[0]]))
        else:
            return None
        return LinearOperation(lambda x: x * _like(factor, x), (node,))

    def _inputs(self, node: Node) -> tuple[Node, ...]:
        return self._gates.get(node, node).inputs


def _all_inputs(node: Node) -> tuple[Node, ...]:
    """The inputs of a node; for a product of two tensors, both of them."""
    return tuple(part for part, _ in node.factors) if isinstance(node, Leaf) else node.inputs


def _is_matrix(node: Node) -> bool:
    return isinstance(node, LinearOperation) and node.is_matrix


def _filled(view: Callable[[Tensor], Tensor], whole: Tensor, part: Tensor) -> Tensor:
    """A tensor with one of its views replaced."""
    whole = whole.clone()
    view(whole).copy_(part)
    return whole


def _added(inputs: tuple[Node, ...], factors: tuple[float, ...], shape: torch.Size) -> LinearOperation:
    """The sum of tensors, each expanded to a shape."""

    def operation(*parts: Tensor) -> Tensor:
        summands = (part if by == 1 else part * by for part, by in zip(parts, factors, strict=True))
        first, *others = (part.expand(shape) for part in summands)
        return sum(others, start=first)

    return LinearOperation(operation, inputs)


def _in_order(root: Node, inputs: Callable[[Node], tuple[Node, ...]]) -> Iterator[Node]:
    """All nodes behind a node, and the node itself, each after its inputs."""
    stack: list[tuple[Node, bool]] = [(root, False)]
    done: set[Node] = set()
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready:
            done.add(node)
            yield node
        else:
            stack.append((node, True))
            stack += [(part, False) for part in inputs(node) if part not in done]


def _tensors(value: object) -> Iterator[Tensor]:
    """All tensors in the arguments of an operation."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _is_scale(factor: object, x: object) -> bool:
    """Whether a factor is one number for each token, or one for all tokens."""
    if not isinstance(factor, Tensor) or not isinstance(x, Tensor):
        return False
    return factor.numel() == 1 or (factor.shape[-1] == 1 < x.shape[-1])


def _like(value: Any, x: Tensor) -> Any:
    """A factor in the precision of x."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach()
    if value.is_complex():
        return value.to(torch.complex128 if x.dtype in (torch.float64, torch.complex128) else torch.complex64)
    return value.to(x.dtype.to_real())
