"""One sentence through attention: its tokens and each layer.

Layers and heads count from 0 in Python, from 1 in the app.
"""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from mha_core.attention.edits import Edit
from mha_core.errors import MhaError, Phrase, count_of, named_type, one_of, shown
from mha_core.traces import showing, storage
from mha_core.traces.answers import Answer
from mha_core.traces.indices import Picked, index
from mha_core.traces.layer import KINDS, LayerTrace
from mha_core.traces.matrices import MATRICES
from mha_core.traces.mixer import MixerTrace
from mha_core.traces.source import ArraySource, Source, array_source, caption
from mha_core.traces.tokens import MAX_TOKENS, Sides, Tokens

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import xarray as xr

    from mha_core.export.head_view import HeadView
    from mha_core.interventions.ledger import Ledger

UNKNOWN = {
    "x": Phrase("The input X of this layer is not known."),
    "x_v": Phrase("This layer has no inputs of its own for V: they are X."),
}
AXES = {"query": "query: word looking", "key": "key: word looked at", "token": "token"}  # titles in a figure


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """One sentence through one or more attention layers; immutable, without batch or device.

    `source` says where the numbers come from: a `RandomSource` with its seed, a `ModelSource` with its
    revision; a name, or a mapping of simple values with a "name", becomes an `ArraySource`. `answers` has an
    entry for each token of `answered`: the most probable words with their probabilities if the model answers
    there (a hidden word, the noun of a pronoun, or the next word), else None. It is empty for a source
    without answers. `questions` has the answers to each question of a small model in the same form; "[CLS]"
    means that there is nothing to find. `tokens` are the tokens of the traced text; if all layers are
    "cross", of the queries' text. The `sides` of a layer are the texts of its queries and keys; for a "self"
    layer both are `tokens`. `mixers` are the model's layers without softmax that mix tokens linearly in their
    values. They have no weights, so they are not in `layers` or in anything that is computed from weights.
    """

    tokens: Tokens
    layers: tuple[LayerTrace, ...]
    source: Source
    answers: tuple[Answer | None, ...] = ()
    mixers: tuple[MixerTrace, ...] = ()
    questions: Mapping[str, tuple[Answer | None, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.source, Source):
            object.__setattr__(self, "source", array_source(self.source, ArraySource))
        if not isinstance(self.tokens, Tokens):
            raise MhaError(
                "tokens are Tokens, as mha.words(text) has them; got {type}.", type=named_type(self.tokens)
            )
        for name, kind in (("layers", LayerTrace), ("mixers", MixerTrace)):
            parts = getattr(self, name)
            if not isinstance(parts, list | tuple) or not all(isinstance(part, kind) for part in parts):
                raise MhaError(
                    "{name} are a tuple of {type}; got {parts}.",
                    name=name,
                    type=kind.__name__,
                    parts=shown(parts),
                )
        sides = Sides(self.tokens, self.tokens)
        object.__setattr__(self, "layers", tuple(_with_sides(layer, sides) for layer in self.layers))
        if self.answers and len(self.answers) != len(self.answered):
            raise MhaError(
                "{n_tokens} tokens cannot go with {n_answers} answers.",
                n_tokens=len(self.answered),
                n_answers=len(self.answers),
            )
        if not isinstance(self.questions, Mapping):
            raise MhaError(
                "questions are a mapping from names to answers; got {questions}.",
                questions=shown(self.questions),
            )
        object.__setattr__(self, "questions", MappingProxyType(dict(self.questions)))
        for question, answers in self.questions.items():
            if len(answers) != len(self.answered):
                raise MhaError(
                    "{n_tokens} tokens cannot go with {n_answers} answers to {question!r}.",
                    n_tokens=len(self.answered),
                    n_answers=len(answers),
                    question=question,
                )
        for mixer in self.mixers:
            if mixer.n_tokens != len(self.tokens):
                raise MhaError(
                    "{n_tokens} tokens cannot go with a mixer of {n_mixed}.",
                    n_tokens=len(self.tokens),
                    n_mixed=mixer.n_tokens,
                )

    @property
    def nbytes(self) -> int:
        """The bytes of the tensors that the trace holds; shared memory counts once, computed results do not.

        They are q, k, v (or weights) and x, the intermediate results, masks and biases, and the matrices W,
        which a model may share: ``4 · layers · (W + tokens · (q + k + v + x))`` with random weights.
        """
        parts: tuple[LayerTrace | MixerTrace, ...] = (*self.layers, *self.mixers)
        tensors = [tensor for part in parts for tensor in part.held()]
        storages = (tensor.untyped_storage() for tensor in tensors)
        return sum({(s.device, s.data_ptr()): s.nbytes() for s in storages}.values())

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits with which the numbers were computed; each picture has them in its caption."""
        return self.source.edits

    @property
    def sides(self) -> Sides:
        """The two texts of the first layer, and of all layers if they are of one kind."""
        return self.layers[0].sides if self.layers else Sides(self.tokens, self.tokens)

    @property
    def answered(self) -> Tokens:
        """The tokens of `answers`: those of the decoder if there is one, else `tokens`."""
        decoders = (layer for layer in self.layers if layer.kind in ("decoder", "cross"))
        return next((layer.sides.queries for layer in decoders), self.tokens)

    @property
    def title(self) -> str:
        """The text, or between two texts "queries → keys", each in its own writing direction."""
        return self.sides.title

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of attention in the trace, in the order of their first layers."""
        return tuple(dict.fromkeys(layer.kind for layer in self.layers))

    def part(self, kind: str) -> "AttentionTrace":
        """The trace of the layers of one kind; its `tokens` are the tokens of their queries.

        Raises `MhaError` for a kind that the trace does not have.
        """
        one_of(Phrase("kind of layer in this trace"), kind, self.kinds, parameter="kind")
        if self.kinds == (kind,) and kind in ("self", "cross"):
            return self
        layers = tuple(layer for layer in self.layers if layer.kind == kind)
        tokens = layers[0].sides.queries
        answers, questions = (self.answers, self.questions) if tokens is self.answered else ((), {})
        if kind != "cross":
            layers = tuple(replace(layer, kind="self") for layer in layers)
        mixers = self.mixers if tokens is self.tokens and kind != "cross" else ()
        return AttentionTrace(tokens, layers, self.source, answers, mixers, questions)

    def layer(self, layer: int) -> LayerTrace:
        """One layer by its index, from 0; ``-1`` is the last. Raises `MhaError` for an index out of range."""
        return self.layers[self.layer_index(layer)]

    def layer_index(self, layer: int) -> int:
        """The index of a layer, from 0; ``-1`` is the last one."""
        of = (
            Phrase("This trace, whose {n} layers without softmax are its mixers,", n=len(self.mixers))
            if self.mixers
            else Phrase("This trace")
        )
        return index("layer", layer, len(self.layers), of=of)

    def mixer(self, mixer: int) -> MixerTrace:
        """One layer without softmax by its index in `mixers`. Raises `MhaError` for an index out of range."""
        return self.mixers[index("mixer", mixer, len(self.mixers), of=Phrase("This trace"))]

    def frame(
        self, name: str, *, layer: int = 0, head: int | None = None, rows: Picked = None, keys: Picked = None
    ) -> "pd.DataFrame":
        """One matrix as a pandas DataFrame: token axes have labels, dimensions count from 1.

        `name` is one of `MATRICES`. All but x, x_v, concat and result are matrices of one `head`. `rows`
        selects queries and `keys` selects keys, on the axes that have them, as in `LayerTrace`; scores,
        weights and outputs are computed for these rows only. `attrs` has the text and the source.
        Raises `MhaError` for an unknown name, layer, row or key, and for a head that is missing or unknown.
        """
        import pandas as pd  # takes half a second, and only tables need it

        one_of("matrix", name, MATRICES, parameter="name")
        matrix, one_layer = MATRICES[name], self.layer(layer)
        if not matrix.of_layer and head is None:
            raise MhaError("{name} is a matrix of one head; say which, as in head=0.", name=name)
        values = matrix.values(one_layer, head, rows=rows, keys=keys)
        if values is None:
            raise MhaError(UNKNOWN[name])
        queries = pd.Index(one_layer.sides.queries.labels)[one_layer.row_indices(rows)]
        labels = {
            "token": queries,
            "query": queries,
            "key": pd.Index(one_layer.sides.keys.labels)[one_layer.key_indices(keys)],
        }
        index, columns = (
            pd.Index(labels.get(axis, range(1, size + 1)), name=axis)
            for axis, size in zip(matrix.axes, values.shape, strict=True)
        )
        frame = pd.DataFrame(values, index, columns)
        frame.attrs = self._attributes()
        return frame

    def _attributes(self) -> dict[str, str]:
        """The attributes of a table: the text, and the source with its edits."""
        return {"text": self.title, "source": caption(self.source.caption_facts())}

    def to_xarray(
        self, name: str = "weights", *, layer: int | None = None, head: int | None = None
    ) -> "xr.DataArray":
        """One matrix as an `xarray.DataArray`: of one head or all, of one layer or all.

        `name` is one of `MATRICES`. The axes are `layer`, without ``layer=``; `head`, without ``head=``
        (`kv_head` for k and v; x, x_v, concat and result have none); and those of the matrix. Token axes have
        words, as ``the~2`` for the second "the"; the others count from 0:
        ``trace.to_xarray("weights", layer=2).sel(head=3, query="it")``. With ``head=3`` the matrices of the
        other heads are not computed.

        Raises `MhaError` for an unknown name, layer or head, for a matrix that is not known, where layers
        differ in shape or texts, and where xarray is not installed.
        """
        one_of("matrix", name, MATRICES, parameter="name")
        try:
            import xarray
        except ImportError:
            raise MhaError("to_xarray needs the package xarray: pip install xarray.") from None
        matrix = MATRICES[name]
        numbers = range(len(self.layers) or 1) if layer is None else [layer]
        layers = [self.layer(number) for number in numbers]
        known = [matrix.values(one, head) for one in layers]
        arrays = [array for array in known if array is not None]
        if len(arrays) < len(layers):
            raise MhaError(UNKNOWN[name])
        shapes, sides = {array.shape for array in arrays}, {one.sides for one in layers}
        if len(shapes) > 1 or len(sides) > 1:
            raise MhaError(
                "The layers differ in shape or in their texts, so {name} of all is no one array; say which, "
                "as in layer=0.",
                name=name,
            )
        no_heads = matrix.of_layer or head is not None
        dims = [*([] if no_heads else ["kv_head" if name in ("k", "v") else "head"]), *matrix.axes]
        queries, keys = layers[0].sides.queries.typed, layers[0].sides.keys.typed
        names = {"token": queries, "query": queries, "key": keys}
        coords = {dim: list(names.get(dim, range(size))) for dim, size in zip(dims, *shapes, strict=True)}
        values = arrays[0] if layer is not None else np.stack(arrays)
        if layer is None:
            dims, coords = ["layer", *dims], {"layer": list(numbers), **coords}
        return xarray.DataArray(values, coords, dims, name, self._attributes())

    def logits(
        self,
        token: int | str | None = None,
        words: Sequence[int | str] | None = None,
        *,
        source: object = None,
        tokenizer: object = None,
    ) -> "pd.DataFrame":
        """The logits of words at a token: word, id, logit and probability, the most probable word first.

        ``softmax(logits)`` are the probabilities among all words with which the model answers there. `words`
        are some of them or their ids, in the order of the rows; the default is all. `token` is the one after
        which the word comes, or the hidden one of a masked model, by default the last one. A small model
        answers a question at each word: by default it is asked at the last pronoun or hidden word. After
        edits they are the logits with these edits, so ``trace.logits(words=["cat"])`` of two traces shows
        what an edit does to your word.

        A trace does not contain its model, which therefore reads the text once more. By default it is loaded
        by its name; `source` is a model in memory, with its `tokenizer`, or another place of it.
        ``frame.attrs["at"]`` is the position of the token.

        Raises `MhaError` for a trace whose model answers with no words, for a model that now computes other
        numbers, for a token where it gives no answer, and for a word that is none or several of its
        vocabulary.
        """
        return showing.logits(self, token, words, source=source, tokenizer=tokenizer)

    def figure(self, name: str = "weights", *, layer: int = 0, head: int | None = None) -> "go.Figure":
        """One matrix as a plotly figure with values on hover; ``.write_html("a.html")`` saves it.

        Weights have a colour scale from 0 to 1, other matrices one centred on 0; cells hidden by the mask are
        grey. Arguments and errors are those of `frame`.
        """
        frame = self.frame(name, layer=layer, head=head)
        matrix = MATRICES[name]
        allowed = self.layer(layer).allowed(head) if name in ("masked", "weights") else None
        rows, columns = (AXES.get(axis, f"dimension of {axis}") for axis in matrix.axes)
        figure = showing.heatmap(
            frame,
            kind=matrix.kind,
            rows=rows,
            columns=columns,
            hidden=None if allowed is None or allowed.all() else ~allowed,
        )
        of_head = "" if matrix.of_layer else f", head {head}"
        title = f"{name}, layer {layer}{of_head} · {caption(self.source.caption_facts())}"
        return figure.update_layout(
            title={"text": html.escape(title), "font": {"size": 13}}, margin={"t": 40}
        )

    def view(
        self,
        *,
        layer: int | None = None,
        head: int | None = None,
        token: int | str | None = None,
        heads: Sequence[int] | None = None,
        beside: "AttentionTrace | None" = None,
        titles: Sequence[str] | None = None,
        height: int | None = None,
        ledger: "Ledger | None" = None,
    ) -> "HeadView":
        """An interactive view of all heads: a notebook displays it, ``.save("view.html")`` saves it.

        Below the lines it shows Q, K, V, scores, weights and output of the chosen head, and all heads of the
        layer. It contains Q, K and V as float32, about ``4 · (h + 2 · n_kv_heads) · d_k`` bytes for each
        token and layer. `layer` (default: the last), `head` and `token` are selected at the start; `token` is
        a position, or a word as in `Tokens.index`. `heads` are the heads whose lines are drawn at the start,
        by default `head`; without both it is the first head, or in a small model those that answer a question
        at the token. All count from 0. `beside` is a second trace with as many layers and heads, of another
        sentence or another model. `titles` are the titles of the traces; the default is the text, and for two
        traces the facts in which their sources differ. `height` is the height of the frame in a notebook, in
        pixels. A `ledger` of the trace, as `mha_core.ledger` returns it, is drawn below; then its token is
        selected by default.

        Raises `MhaError` for a layer, head or token out of range, for layers of several kinds, for a second
        trace with other numbers of layers or heads, for more or fewer titles than traces, and for a ledger of
        another text.
        """
        return showing.view(
            self,
            layer=layer,
            head=head,
            token=token,
            heads=heads,
            beside=beside,
            titles=titles,
            height=height,
            ledger=ledger,
        )

    def __repr__(self) -> str:
        heads = ", ".join(dict.fromkeys(count_of(layer.n_heads, "head") for layer in self.layers)) or "none"
        mixers = f", {count_of(len(self.mixers), 'mixer')}" if self.mixers else ""
        sizes = f"{count_of(len(self.tokens), 'token')}, {count_of(len(self.layers), 'layer')} ({heads})"
        source = caption(self.source.caption_facts())
        return f"<AttentionTrace {self.title[:60]!r}: {sizes}{mixers}; {source}>"

    def _repr_html_(self) -> str:
        """HTML for a notebook: the text, the source, and small pictures of the weights."""
        return showing.trace_html(self)

    def save(self, path: str | PathLike, *, matrices: bool = True, mixers: bool = True) -> None:
        """Write the trace as one safetensors file; an existing file is replaced in one step.

        Most of the file is the layers' matrices W: 14 of 15 MB for 16 tokens and d_model 384. With
        ``matrices=False`` they are left out. In the trace that `load` reads, `contribution` and `result` then
        raise `MhaError`, since they need W^O; everything else is bit-identical.

        Mixers are saved with the matrices of all their heads, since a file does not contain the model's code;
        ``mixers=False`` leaves them out. Raises `MhaError` if these matrices are too large for a file.
        """
        parts = self._parts() if mixers else replace(self, mixers=())._parts()
        storage.write(path, parts, matrices=matrices)

    def __reduce__(self) -> tuple:
        """Pickled and copied in its saved form, without cached results."""
        header, tensors = storage.packed(self._parts())
        return _unpickled, (header, storage.as_bytes(tensors))

    def _parts(self) -> storage.Parts:
        return self.tokens, self.layers, self.source, self.answers, self.mixers, self.questions


def _unpickled(header: str, content: bytes) -> AttentionTrace:
    return AttentionTrace(*storage.unpacked(json.loads(header), storage.from_bytes(content)))


def _with_sides(layer: LayerTrace, sides: Sides) -> LayerTrace:
    """The layer with the trace's `sides` if it is of the kind "self" or has no texts; else unchanged.

    Raises `MhaError` if the layer's kind, texts and sizes do not match.
    """
    one_of(Phrase("kind of layer"), layer.kind, KINDS, parameter="kind")
    if layer.kind == "cross" and not layer.sides.named:
        raise MhaError("A cross layer stands between two texts; say which, as in sides=Sides(queries, keys).")
    if (layer.kind == "self" and layer.sides != sides) or not layer.sides.named:
        layer = replace(layer, sides=sides)
    if layer.sides.same == (layer.kind == "cross"):
        raise MhaError(
            "A layer of the kind {kind} has one text for its sides; layers between two texts, and they "
            "alone, are of the kind cross."
            if layer.sides.same
            else "A layer of the kind {kind} has two texts for its sides; layers between two texts, and they "
            "alone, are of the kind cross.",
            kind=layer.kind,
        )
    queries, keys = len(layer.sides.queries), len(layer.sides.keys)
    if (layer.n_query, layer.n_key) != (queries, keys):
        raise MhaError(
            "{queries} tokens that look at {keys} cannot go with {n_query} queries and {n_key} keys.",
            queries=queries,
            keys=keys,
            n_query=layer.n_query,
            n_key=layer.n_key,
        )
    return layer


def load(
    path: str | PathLike,
    *,
    limit: int = MAX_TOKENS,
    max_bytes: int | None = None,
    max_flops: int | None = None,
) -> AttentionTrace:
    """Read a trace that `AttentionTrace.save` wrote; it is bit-identical.

    `limit` is the largest number of tokens, as in `trace`. Raises `MhaError` if the file is missing,
    truncated, damaged, not a saved trace, or has more than `limit` tokens, 512 layers, or 1,024 heads in a
    layer; the header is checked before any numbers are read. For an untrusted file, `max_bytes` and
    `max_flops` limit the memory and the operations of its layers; None means no limit.
    """
    parts = storage.read(path, limit, max_bytes, max_flops)
    try:
        return AttentionTrace(*parts)
    except MhaError as error:
        raise MhaError("{path} is damaged: {reason}", path=str(path), reason=error.phrase) from None
