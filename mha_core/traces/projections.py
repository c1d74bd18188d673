"""The matrices of a layer as its model has them: copied only when asked for, refused once changed."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from torch import Tensor

from mha_core.attention.module import Projections
from mha_core.errors import MhaError

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

    def taken(self) -> Tensor:
        """The part: a view of the whole where its columns lie beside each other, else a copy."""
        return self.columns(self.whole) if self.whole.dim() == 2 else self.columns(self.whole[None])[0]


class ModelProjections(Projections):
    """A model's own matrices, where it has them: each comes to the CPU when somebody asks for it.

    So a trace copies none of them, and one that the model has changed since, by training above all, is no
    longer what made the layer: asking for it raises `MhaError`. One that came from a GPU is a copy from
    then on. Saved or pickled, they are plain `Projections`.
    """

    _own: Mapping[str, tuple[Tensor | Part, int]]  # with the version that it has in this trace
    _copies: dict[str, Tensor]

    def __new__(cls, matrices: Mapping[str, Tensor | Part | None]) -> "ModelProjections":
        own = {name: _detached(matrix) for name, matrix in matrices.items() if matrix is not None}
        self = super().__new__(cls, **{name: _whole(matrix) for name, matrix in own.items()})
        self._own = {name: (matrix, _version(matrix)) for name, matrix in own.items()}
        self._copies = {}
        return self

    @property
    def known(self) -> tuple[str, ...]:
        """The names of those that the layer has; asking for them copies nothing."""
        return tuple(self._own)

    def __getattribute__(self, name: str) -> object:
        return self._asked(name) if name in SYMBOLS else super().__getattribute__(name)

    def __getitem__(self, at: int | slice) -> object:
        return tuple(self)[at]

    def __iter__(self) -> Iterator[Tensor | None]:
        return (self._asked(name) for name in SYMBOLS)

    def __reduce__(self) -> tuple:
        return Projections, tuple(self)

    def _replace(self, **changed: Tensor | None) -> Projections:
        return Projections(*self)._replace(**changed)

    def _asked(self, name: str) -> Tensor | None:
        if name in self._copies or name not in self._own:
            return self._copies.get(name)
        matrix, version = self._own[name]
        if _version(matrix) != version:
            raise MhaError(
                f"{SYMBOLS[name]} is the model's own, and the model has changed it since this trace was "
                f"made, as training does. Trace again, or save a trace before: a file has its own."
            )
        whole = _whole(matrix)
        found = matrix.taken() if isinstance(matrix, Part) else matrix
        found = found if found.is_cpu else found.to("cpu")
        if found.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
            self._copies[name] = found
        return found


def _detached(matrix: Tensor | Part) -> Tensor | Part:
    return matrix._replace(whole=matrix.whole.detach()) if isinstance(matrix, Part) else matrix.detach()


def _whole(matrix: Tensor | Part) -> Tensor:
    return matrix.whole if isinstance(matrix, Part) else matrix


def _version(matrix: Tensor | Part) -> int:
    """How often a matrix was written over; not known of one that was made in inference mode."""
    whole = _whole(matrix)
    return 0 if whole.is_inference() else whole._version
