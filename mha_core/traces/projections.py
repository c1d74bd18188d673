"""The matrices of a layer as references to its model: copied on first use, invalid once the model changes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from mha_core.attention.module import Projections
from mha_core.errors import MhaError
from mha_core.traces.tensors import on_cpu, version

SYMBOLS = {
    "w_q": "W^Q",
    "w_k": "W^K",
    "w_v": "W^V",
    "w_o": "W^O",
    "b_q": "b^Q",
    "b_k": "b^K",
    "b_v": "b^V",
    "b_o": "b^O",
    "w_o_a": "W_a of W^O",
    "w_o_b": "W_b of W^O",
    "w_uk": "W^UK",
    "w_uv": "W^UV",
}


class Part(NamedTuple):
    """Some columns of a packed matrix, or some numbers of its bias."""

    whole: Tensor
    columns: Callable[[Tensor], Tensor]

    def tensor(self) -> Tensor:
        """The part: a view of the whole matrix if its columns are adjacent in memory, else a copy."""
        return self.columns(self.whole) if self.whole.dim() == 2 else self.columns(self.whole[None])[0]


class GroupedProduct(NamedTuple):
    """A low-rank W^O: a matrix for each group of heads (group, in, rank), then one (group · rank, out)."""

    first: Tensor
    second: Tensor

    def tensor(self) -> Tensor:
        """The product, (group · in, out)."""
        return (self.first @ self.second.unflatten(0, (len(self.first), -1))).flatten(0, 1)


Reference = Tensor | Part | GroupedProduct


class ModelProjections(Projections):
    """References to a model's own matrices; each is copied to the CPU when it is first read.

    So a trace itself copies no matrix. After the model has changed a matrix, for example by training, the
    matrix no longer belongs to the layer, and reading it raises `MhaError`. A write through
    ``parameter.data`` is not noticed, since torch does not count it. A copy from a GPU stays valid. A saved
    or pickled trace has simple `Projections` instead.
    """

    _references: Mapping[str, tuple[Reference, list[int]]]  # each with its versions at the time of the trace
    _copies: dict[str, Tensor]

    def __new__(cls, matrices: Mapping[str, Reference | None]) -> "ModelProjections":
        references = {name: _detached(matrix) for name, matrix in matrices.items() if matrix is not None}
        self = super().__new__(cls, **{name: _parameters(matrix)[0] for name, matrix in references.items()})
        self._references = {name: (matrix, _versions(matrix)) for name, matrix in references.items()}
        self._copies = {}
        return self

    @property
    def known(self) -> tuple[str, ...]:
        """The names of the matrices and biases that the layer has, without copying."""
        return tuple(self._references)

    def held(self) -> list[Tensor]:
        """The model's tensors behind the matrices, and the copies made so far, without copying more."""
        references = (part for matrix, _ in self._references.values() for part in _parameters(matrix))
        return [*references, *self._copies.values()]

    def __getattribute__(self, name: str) -> object:
        return self._matrix(name) if name in SYMBOLS else super().__getattribute__(name)

    def __getitem__(self, at: Any) -> Any:
        return tuple(self)[at]

    def __iter__(self) -> Iterator[Tensor | None]:
        return (self._matrix(name) for name in SYMBOLS)

    def __reduce__(self) -> tuple:
        return Projections, tuple(self)

    def _replace(self, **changed: Any) -> Projections:  # type: ignore[override]  # no longer the model's
        return Projections(*self)._replace(**changed)

    def _matrix(self, name: str) -> Tensor | None:
        if name in self._copies or name not in self._references:
            return self._copies.get(name)
        matrix, traced_versions = self._references[name]
        if _versions(matrix) != traced_versions:
            raise MhaError(
                "{matrix} is the model's own, and the model has changed it since this trace was "
                "made, as training does. Trace again, or save a trace before: a file has its own.",
                matrix=SYMBOLS[name],
            )
        tensor = on_cpu(matrix if isinstance(matrix, Tensor) else matrix.tensor())
        if tensor.untyped_storage().data_ptr() != _parameters(matrix)[0].untyped_storage().data_ptr():
            self._copies[name] = tensor
        return tensor


def _detached(matrix: Reference) -> Reference:
    if isinstance(matrix, Tensor):
        return matrix.detach()
    parts: dict[str, Any] = {
        name: part.detach() for name, part in matrix._asdict().items() if isinstance(part, Tensor)
    }
    return matrix._replace(**parts)


def _parameters(matrix: Reference) -> tuple[Tensor, ...]:
    """The model's parameters behind a matrix."""
    if isinstance(matrix, Tensor):
        return (matrix,)
    return tuple(part for part in matrix if isinstance(part, Tensor))


def _versions(matrix: Reference) -> list[int]:
    return [version(parameter) for parameter in _parameters(matrix)]
