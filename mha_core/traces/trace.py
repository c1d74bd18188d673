"""One sentence through attention: its tokens and what each layer left behind.

Layers and heads count from 0 here; the app, like the papers, counts them from 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING

from mha_core.errors import MhaError, one_of
from mha_core.traces import storage
from mha_core.traces.indices import Picked, index
from mha_core.traces.layer import KINDS, LayerTrace
from mha_core.traces.matrices import MATRICES
from mha_core.traces.source import Source, described
from mha_core.traces.tokens import Sides, Tokens

if TYPE_CHECKING:
    import pandas as pd

    from mha_core.export.head_view import HeadView


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """One sentence through one or more attention layers; immutable, without batch or device.

    `source` tells where the numbers came from: a `RandomSource` its seed, a `ModelSource` its revision; a
    name, or a mapping of plain values with one, becomes an `ArraySource`.
    `answers` has, for each token that a trained model was asked about, the most probable words with
    their probabilities, and None for the others; it is empty for a source without answers.
    `tokens` are those of the text that was traced; where one text alone looks at another, those that look.
    A layer's `sides` say whose tokens look at whose in it: in a layer of the kind "self" the trace's own.
    """

    tokens: Tokens
    layers: tuple[LayerTrace, ...]
    source: Source
    answers: tuple[tuple[tuple[str, float], ...] | None, ...] = ()

    def __post_init__(self):
        if not isinstance(self.source, Source):
            object.__setattr__(self, "source", described(self.source))
        own = Sides(self.tokens, self.tokens)
        object.__setattr__(self, "layers", tuple(_in_texts(layer, own) for layer in self.layers))
        if self.answers and len(self.answers) != len(self.tokens):
            raise MhaError(f"{len(self.tokens)} tokens cannot go with {len(self.answers)} answers.")

    @property
    def sides(self) -> Sides:
        """The two texts of the first layer, and of all of them where they are of one kind."""
        return self.layers[0].sides if self.layers else Sides(self.tokens, self.tokens)

    @property
    def title(self) -> str:
        """The text, or the one that looks → the one that it looks at, each in its own direction."""
        return self.sides.title

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of attention that the trace has, in the order in which they come."""
        return tuple(dict.fromkeys(layer.kind for layer in self.layers))

    def part(self, kind: str) -> "AttentionTrace":
        """The layers of one kind alone; the tokens of its queries are then `tokens`.

        Raises `MhaError` for a kind that the trace does not have.
        """
        one_of("kind of layer in this trace", kind, self.kinds, parameter="kind")
        if self.kinds == (kind,) and kind in ("self", "cross"):
            return self
        layers = tuple(layer for layer in self.layers if layer.kind == kind)
        tokens = layers[0].sides.queries
        answers = self.answers if tokens is self.tokens and kind != "cross" else ()
        if kind != "cross":
            layers = tuple(replace(layer, kind="self") for layer in layers)
        return AttentionTrace(tokens, layers, self.source, answers)

    def layer(self, layer: int) -> LayerTrace:
        """One of the layers, from 0; ``-1`` is the last. Raises `MhaError` for one that is not there."""
        return self.layers[self.layer_index(layer)]

    def layer_index(self, layer: int) -> int:
        """The number of a layer from 0; ``-1`` is the last one."""
        return index("layer", layer, len(self.layers), of="This trace")

    def frame(
        self,
        name: str,
        *,
        layer: int = 0,
        head: int | None = None,
        rows: Picked = None,
        keys: Picked = None,
    ) -> "pd.DataFrame":
        """One matrix as a pandas DataFrame: token labels on its token axes, dimensions from 1 on.

        `name` is one of `MATRICES`. All but x, x_v, concat and result are matrices of one `head`. `rows`
        picks tokens that look and `keys` those that are looked at, on the axes that have them, as
        `LayerTrace` does; scores, weights and outputs are computed for these rows alone.
        Raises `MhaError` for an unknown name, layer, row or key, and for a head that is missing or unknown.
        """
        import pandas as pd  # half a second that a computation without tables should not pay

        one_of("matrix", name, MATRICES, parameter="name")
        matrix, shown = MATRICES[name], self.layer(layer)
        if not matrix.of_layer and head is None:
            raise MhaError(f"{name} is a matrix of one head; say which, as in head=0.")
        values = matrix.values(shown, head, rows=rows, keys=keys)
        if values is None and name == "x_v":
            raise MhaError("This layer has no inputs of its own for V: they are X.")
        if values is None:
            raise MhaError("The input X of this layer is not known.")
        queries = _picked(shown.sides.queries.labels, shown.row_indices(rows))
        labels = {"token": queries, "query": queries}
        labels["key"] = _picked(shown.sides.keys.labels, shown.key_indices(keys))
        row_labels, column_labels = (
            pd.Index(labels.get(axis, range(1, size + 1)), name=axis)
            for axis, size in zip(matrix.axes, values.shape, strict=True)
        )
        return pd.DataFrame(values, index=row_labels, columns=column_labels)

    def view(
        self,
        *,
        layer: int | None = None,
        head: int = 0,
        token: int | None = None,
        beside: "AttentionTrace | None" = None,
    ) -> "HeadView":
        """All heads over the sentence, to be explored: a notebook shows it, ``.save("view.html")`` keeps it.

        It starts with the last layer if none is said, that head, and that token's lines; all from 0. Another
        sentence that went through the same model can stand `beside` it. Raises `MhaError` for a layer, head
        or token that is not there, for layers of several kinds, and for another model's trace beside it.
        """
        from mha_core.export.head_view import view

        return view(self, layer=layer, head=head, token=token, beside=beside)

    def _repr_html_(self) -> str:
        """What a notebook shows: what this is, its source, and small pictures of the weights."""
        from mha_core.export.notebook import of_trace

        return of_trace(self)

    def save(self, path: str | PathLike, *, matrices: bool = True) -> None:
        """Write the trace as one safetensors file; an existing file is replaced in one step.

        The layers' own matrices W are most of it: of 16 tokens in a model of d_model 384, 14 of 15 MB. With
        ``matrices=False`` they stay out, and the trace that `load` reads does not know them: what needs W^O,
        `contribution` and `result`, is then refused, all else is the same to the last bit.
        """
        storage.write(path, self._parts(), matrices=matrices)

    def __reduce__(self):
        """Pickled and copied as it is saved: without what was computed before, and read-only again."""
        header, tensors = storage.packed(self._parts())
        return _unpickled, (header, storage.as_bytes(tensors))

    def _parts(self) -> storage.Parts:
        return self.tokens, self.layers, self.source, self.answers


def _unpickled(header: str, content: bytes) -> AttentionTrace:
    return AttentionTrace(*storage.unpacked(header, storage.from_bytes(content)))


def _in_texts(layer: LayerTrace, own: Sides) -> LayerTrace:
    """A layer with its sides, the trace's `own` text where it looks at itself and says nothing else."""
    one_of("kind of layer", layer.kind, KINDS, parameter="kind")
    if layer.kind == "cross" and not layer.sides.named:
        raise MhaError("A cross layer stands between two texts; say which, as in sides=Sides(queries, keys).")
    if (layer.kind == "self" and layer.sides != own) or not layer.sides.named:
        layer = replace(layer, sides=own)
    if layer.sides.same == (layer.kind == "cross"):
        raise MhaError(
            f"A layer of the kind {layer.kind} has {'one text' if layer.sides.same else 'two texts'} for its "
            f"sides; layers between two texts, and they alone, are of the kind cross."
        )
    queries, keys = len(layer.sides.queries), len(layer.sides.keys)
    if (layer.n_query, layer.n_key) != (queries, keys):
        raise MhaError(
            f"{queries} tokens that look at {keys} cannot go with {layer.n_query} queries and "
            f"{layer.n_key} keys."
        )
    return layer


def load(path: str | PathLike) -> AttentionTrace:
    """Read a trace that `AttentionTrace.save` wrote, the same to the last bit.

    Raises `MhaError` when the file is missing, truncated, damaged, or something else.
    """
    parts = storage.read(path)
    try:
        return AttentionTrace(*parts)
    except MhaError as error:
        raise MhaError(f"{path} is damaged: {error}") from None


def _picked(labels: tuple[str, ...], picked: slice | list[int] | None) -> Sequence[str]:
    if isinstance(picked, list):
        return [labels[at] for at in picked]
    return labels if picked is None else labels[picked]
