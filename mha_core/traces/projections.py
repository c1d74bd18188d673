"""The matrices of a layer as references to its model: copied on first use, refused once the model changed."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

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
}


class Part(NamedTuple):
    """Some columns of a packed matrix, or some numbers of its bias."""

    whole: Tensor
    columns: Callable[[Tensor], Tensor]

    def tensor(self) -> Tensor:
        """The part: a view of the whole matrix where its columns are adjacent in memory, else a copy."""
        return self.columns(self.whole) if self.whole.dim() == 2 else self.columns(self.whole[None])[0]


class ModelProjections(Projections):
    """References to a model's own matrices; each comes to the CPU when it is first read.

    So a trace copies no matrix. Once the model has changed a matrix, above all by training, it is no longer
    the one that made the layer, and reading it raises `MhaError`. A write through ``parameter.data`` is not
    noticed, since torch does not count it. A copy of a matrix from a GPU stays valid. A saved or pickled
    trace has simple `Projections` instead.
    """

    _references: Mapping[str, tuple[Tensor | Part, int]]  # each with its version at the time of the trace
    _copies: dict[str, Tensor]

    def __new__(cls, matrices: Mapping[str, Tensor | Part | None]) -> "ModelProjections":
        references = {name: _detached(matrix) for name, matrix in matrices.items() if matrix is not None}
        self = super().__new__(cls, **{name: _whole(matrix) for name, matrix in references.items()})
        self._references = {name: (matrix, version(_whole(matrix))) for name, matrix in references.items()}
        self._copies = {}
        return self

    @property
    def known(self) -> tuple[str, ...]:
        """The names of the matrices and biases that the layer has; nothing is copied."""
        return tuple(self._references)

    def __getattribute__(self, name: str) -> object:
        return self._matrix(name) if name in SYMBOLS else super().__getattribute__(name)

    def __getitem__(self, at: int | slice) -> object:
        return tuple(self)[at]

    def __iter__(self) -> Iterator[Tensor | None]:
        return (self._matrix(name) for name in SYMBOLS)

    def __reduce__(self) -> tuple:
        return Projections, tuple(self)

    def _replace(self, **changed: Tensor | None) -> Projections:
        return Projections(*self)._replace(**changed)

    def _matrix(self, name: str) -> Tensor | None:
        if name in self._copies or name not in self._references:
            return self._copies.get(name)
        matrix, traced_version = self._references[name]
        whole = _whole(matrix)
        if version(whole) != traced_version:
            raise MhaError(
                f"{SYMBOLS[name]} is the model's own, and the model has changed it since this trace was "
                f"made, as training does. Trace again, or save a trace before: a file has its own."
            )
        tensor = on_cpu(matrix.tensor() if isinstance(matrix, Part) else matrix)
        if tensor.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
            self._copies[name] = tensor
        return tensor


def _detached(matrix: Tensor | Part) -> Tensor | Part:
    return matrix._replace(whole=matrix.whole.detach()) if isinstance(matrix, Part) else matrix.detach()


def _whole(matrix: Tensor | Part) -> Tensor:
    return matrix.whole if isinstance(matrix, Part) else matrix
