"""One shard of an atlas: some texts, and the measures of every head in each of them, as Parquet files."""

import io
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mha_core.atlases import measures
from mha_core.atlases.measures import TextMeasures
from mha_core.atlases.texts import AtlasText
from mha_core.errors import MhaError, Phrase, text_from_json, text_to_json
from mha_core.sources import outcomes_of
from mha_core.sources.huggingface.tokenizer import INPUTS
from mha_core.traces.source import Source
from mha_core.traces.trace import AttentionTrace

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
PRECISION = np.float16  # of values: three digits
COMPRESSION = {"compression": "zstd", "compression_level": 6}
# The columns of a measure: its name, and its name with one of these behind it.
VALUE, SHUFFLED, CHANCE, QUERY, KEY = "", "_shuffled", "_chance", "_query", "_key"
MACHINE = ("device", "torch", "transformers")  # facts of a source that differ between machines
LEFT_OUT = b"left_out"  # in the file's metadata: number and reason of each text without numbers


class Shard(NamedTuple):
    """Neighbouring texts of an atlas; `first` is the number of the first one, from 0."""

    first: int
    texts: tuple[AtlasText, ...]


class LeftOut(NamedTuple):
    """A text without numbers in an atlas, and why."""

    text: int
    reason: str


def column(measure: str, of: str = VALUE) -> str:
    """The column of a measure in the tables of the shards: ``previous_token_query``."""
    return measure.replace(" ", "_").replace(":", "") + of


def name(identity: Mapping[str, Any], shard: Shard) -> str:
    """The name of a shard's files, which no other texts, model, measures or versions share."""
    content = json.dumps([identity, shard.first, shard.texts], sort_keys=True)
    return sha256(content.encode()).hexdigest()[:16]


def origin(source: Source) -> list:
    """The source that all traces of an atlas have, as JSON: without what is of one text."""
    kind, facts = source.to_json()
    found = {"difference": 0.0, "notes": []}
    return [kind, {fact: found.get(fact, value) for fact, value in facts.items() if fact not in INPUTS}]


class Measurer:
    """Measures shards with one model. All traces have the same `origin`; `linked` texts have links."""

    def __init__(self, source: Any, settings: Mapping[str, Any], origin: list, *, linked: bool, batch: int):
        self.source, self.settings, self.origin, self.batch = source, settings, origin, batch
        self.linked, self.measures = linked, measures.columns(linked=linked)

    def __call__(self, shard: Shard) -> bytes:
        """The Parquet file of a shard: a row for each text and head, a row group for each layer."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # the last bit of a divided sum depends on the number of threads
        try:
            plain = self._of_texts([(one.text, one.links) for one in shard.texts])
            mixed = self._of_texts([(one.shuffled, one.shuffled_links) for one in shard.texts])
        finally:
            torch.set_num_threads(threads)
        kept: list[tuple[int, list[TextMeasures], list[TextMeasures]]] = []
        left_out = []
        for number, (one, other) in enumerate(zip(plain, mixed, strict=True), start=shard.first):
            if isinstance(one, MhaError):
                left_out.append((number, one.phrase))
            elif isinstance(other, MhaError):
                reason = Phrase("With its words shuffled: {reason}", reason=other.phrase)
                left_out.append((number, reason))
            else:
                kept.append((number, one, other))
        return _file(kept, left_out, self.measures)

    def _of_texts(
        self, texts: Sequence[tuple[str, measures.Links | None]]
    ) -> list[list[TextMeasures] | MhaError]:
        """The measures of each layer in each text, or why there are none."""
        links = dict(texts)

        def reduce(trace: AttentionTrace) -> list[TextMeasures] | MhaError:
            if (there := origin(trace.source)) != self.origin:
                self._check_machine(there)
                return MhaError(
                    "This text is in another language than the first one: another small model reads it."
                )
            try:
                return measures.of_trace(trace, links[trace.tokens.text] if self.linked else None)
            except MhaError as error:
                return error

        plain = [text for text, _ in texts]
        return list(outcomes_of(plain, source=self.source, batch=self.batch, reduce=reduce, **self.settings))

    def _check_machine(self, there: list) -> None:
        """Raise `MhaError` if this machine runs the same model in another way."""
        (_, expected), (_, facts) = self.origin, there
        for fact in MACHINE:
            if facts.get(fact) != expected.get(fact):
                raise MhaError(
                    "This atlas is made with {fact} {expected}, and a worker has {value}. "
                    "Its numbers would differ; use machines of one kind, with the same packages.",
                    fact=fact,
                    expected=expected.get(fact),
                    value=facts.get(fact),
                )


def _file(
    kept: list[tuple[int, list[TextMeasures], list[TextMeasures]]],
    left_out: Sequence[tuple[int, str]],
    names: Sequence[str],
) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    schema = _schema(names).with_metadata(
        {LEFT_OUT: json.dumps([(number, text_to_json(reason)) for number, reason in left_out])}
    )
    file = io.BytesIO()
    with parquet.ParquetWriter(file, schema, use_dictionary=False, **COMPRESSION) as writer:
        numbers = np.array([number for number, _, _ in kept], np.uint32)
        for at in range(len(kept[0][1]) if kept else 0):
            layer = zip(*(layers[at] for _, layers, _ in kept), strict=True)
            plain = TextMeasures(*(np.stack(parts, 1) for parts in layer))  # (head, text, measure) each
            shuffled = np.stack([layers[at].value for _, _, layers in kept], 1)
            n_heads, n_texts, _ = shuffled.shape
            arrays = [
                pa.array(np.tile(numbers, n_heads)),
                pa.array(np.full(n_heads * n_texts, at, np.uint16)),
                pa.array(np.repeat(np.arange(n_heads, dtype=np.uint16), n_texts)),
            ]
            for number in range(len(names)):
                for values in (plain.value, shuffled, plain.chance):
                    halves = values[..., number].ravel().astype(PRECISION)
                    arrays.append(pa.array(halves, from_pandas=True))  # NaN is null
                for places in (plain.query, plain.key):
                    cells = places[..., number].ravel()
                    arrays.append(pa.array(cells.astype(np.uint16), mask=cells < 0))
            # One row group: DuckDB and we read one layer without the others.
            table = pa.Table.from_arrays(arrays, schema=schema)
            writer.write_table(table, row_group_size=max(1, len(table)))
    return file.getvalue()


def _schema(names: Sequence[str]) -> "pa.Schema":
    import pyarrow as pa

    fields = [("text", pa.uint32()), ("layer", pa.uint16()), ("head", pa.uint16())]
    for measure in names:
        fields += [(column(measure, of), pa.float16()) for of in (VALUE, SHUFFLED, CHANCE)]
        fields += [(column(measure, of), pa.uint16()) for of in (QUERY, KEY)]
    return pa.schema(fields)


def texts_file(shard: Shard) -> bytes:
    """The texts of a shard as a Parquet file: number, text, the same with shuffled words."""
    import pyarrow as pa
    from pyarrow import parquet

    links = [json.dumps([one.links, one.shuffled_links]) for one in shard.texts]
    numbers = np.arange(shard.first, shard.first + len(shard.texts), dtype=np.uint32)
    table = pa.table(
        {
            "text": numbers,
            "string": pa.array([one.text for one in shard.texts], pa.string()),
            "shuffled": pa.array([one.shuffled for one in shard.texts], pa.string()),
            "links": pa.array(links, pa.string()),
        }
    )
    file = io.BytesIO()
    parquet.write_table(table, file, **COMPRESSION)
    return file.getvalue()


def read_texts(file: Any) -> Shard:
    """The shard that `texts_file` wrote."""
    from pyarrow import parquet

    rows = parquet.read_table(file).to_pylist()
    texts = tuple(AtlasText(row["string"], row["shuffled"], *json.loads(row["links"])) for row in rows)
    return Shard(rows[0]["text"], texts)


def left_out(file: Any) -> list[LeftOut]:
    """The texts that a shard's file has no numbers of."""
    from pyarrow import parquet

    entries = json.loads(parquet.read_schema(file).metadata[LEFT_OUT])
    return [LeftOut(number, text_from_json(reason)) for number, reason in entries]
