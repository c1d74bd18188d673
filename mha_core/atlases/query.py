"""Reading an atlas: its heads and measures, their strongest texts, and free SQL over all numbers."""

import json
from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mha_core.atlases import shard
from mha_core.atlases.shard import KEY, MACHINE, QUERY, VALUE, column
from mha_core.errors import MhaError, Phrase, at_least_1, count_of, in_range, one_of
from mha_core.traces.indices import index
from mha_core.traces.source import RandomSource, Source
from mha_core.traces.source import read as read_source

if TYPE_CHECKING:
    import duckdb

# In the folder of an atlas.
MANIFEST = "atlas.json"
TEXTS, HEADS = "texts", "heads"  # folders with a Parquet file for each shard
SUMMARY, EXAMPLES, STRINGS = "summary.csv", "examples.csv", "examples.json"
DECILES = 10


def _model_facts(origin: list) -> list:
    """The source of an atlas without the facts about the machine."""
    kind, facts = origin
    return [kind, {fact: value for fact, value in facts.items() if fact not in MACHINE}]


def read_manifest(folder: Path) -> dict[str, Any]:
    """How an atlas was made. Raises `MhaError` for a folder without one."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        read_source(manifest["origin"])
        return manifest
    except FileNotFoundError:
        raise MhaError(
            "{folder} is not the folder of an atlas: it has no {file}.", folder=folder, file=MANIFEST
        ) from None
    except (ValueError, KeyError, TypeError):
        raise MhaError(
            "{file} in {folder} is damaged; make the atlas again.", folder=folder, file=MANIFEST
        ) from None


class Atlas:
    """An atlas: what every head of a model does over many texts, from the folder that `mha.atlas` wrote.

    Layers, heads, texts and tokens count from 0. Deciles count from 1, and the tenth has the largest values.
    Raises `MhaError` for a folder without a finished atlas.
    """

    def __init__(self, folder: str | PathLike[str]):
        self.folder = Path(folder)
        self.manifest: Mapping[str, Any] = read_manifest(self.folder)
        missing = [name for name in (SUMMARY, EXAMPLES, STRINGS) if not (self.folder / name).is_file()]
        if missing:
            raise MhaError(
                "The atlas in {folder} is not finished; go on with the command that began it.",
                folder=self.folder,
            )

    def __repr__(self) -> str:
        heads, texts = count_of(sum(self.manifest["heads"]), "head"), count_of(self.n_texts, "text")
        return f"Atlas({str(self.folder)!r}: {self.manifest['source']}, {heads}, {texts})"

    @cached_property
    def source(self) -> Source:
        """The source of every number."""
        return read_source(self.manifest["origin"])

    def is_of(self, source: Source) -> bool:
        """Whether a trace with this source comes from the atlas's model, on any machine.

        Random weights never do: their source does not say their sizes.
        """
        if isinstance(source.origin, RandomSource):
            return False
        return _model_facts(shard.origin(source.origin)) == _model_facts(self.manifest["origin"])

    @property
    def n_texts(self) -> int:
        return self.manifest["texts"]

    @property
    def measures(self) -> list[str]:
        """The measures of every head in one text, each a mean over the rows that have it.

        - "previous token", "next token", "same token", "first token": the weight on that token;
        - "special tokens", "punctuation": the weight on all tokens of that kind;
        - "duplicate token": the weight on earlier tokens equal to the row's token (Wang et al. 2022);
        - "induction": the weight on the tokens that followed those (Olsson et al. 2022);
        - "entropy": relative to that of equal weights; "distance": in positions; both as in `metrics`;
        - in made-up sentences the links of `roles`, as "pronoun to noun": how often the right word has the
          largest weight of the row (Clark et al. 2019).
        """
        return self.manifest["measures"]

    def heads(self) -> pd.DataFrame:
        """One row for each head and measure.

        - layer, head, measure; n: the texts in which the measure exists;
        - mean over these texts, each text counted once; low, high: its 95 % interval by bootstrap over texts;
        - q0, q10 … q100: quantiles over texts;
        - shuffled, shuffled_low, shuffled_high: the mean and its interval with the words of each text
          shuffled; what a head does there, too, it does by position and not by words;
        - chance: the mean for equal weights on all visible keys;
        - fixed: of a link, how often the word at the best fixed distance is the right one.
        """
        return self._summary.copy()

    def head(self, layer: int, head: int) -> pd.DataFrame:
        """The rows of `heads` for one head, by measure."""
        layer, head = self._place(layer, head)
        rows = self._summary
        rows = rows[(rows["layer"] == layer) & (rows["head"] == head)]
        return rows.drop(columns=["layer", "head"]).set_index("measure")

    def top(
        self, measure: str, *, layer: int, head: int, n: int = 20, decile: int | None = None
    ) -> pd.DataFrame:
        """The `n` texts in which a measure of one head is largest, of all or of one `decile` of its texts.

        Columns: text (its number), string, value, and the cell, `query` and `key`, in the row where the
        measure is largest. An atlas that is only a summary has a few texts of each decile.
        """
        layer, head = self._place(layer, head)
        one_of("measure", measure, self.measures)
        at_least_1("n", n, Phrase("texts"))
        if decile is not None:
            in_range("decile", decile, 1, DECILES)
        if self.is_summary:
            rows = self._examples
            chosen = (rows["layer"] == layer) & (rows["head"] == head) & (rows["measure"] == measure)
            if decile is not None:
                chosen &= rows["decile"] == decile
            rows = rows[chosen].sort_values(["value", "text"], ascending=[False, True])[:n]
            strings = [self._strings[str(text)] for text in rows["text"]]
            rows = rows[["text", "value", "query", "key"]].reset_index(drop=True)
            rows.insert(1, "string", strings)
            return rows
        value, query, key = (column(measure, of) for of in (VALUE, QUERY, KEY))
        of_decile = "" if decile is None else f"WHERE decile = {decile}"
        return self.sql(f"""
            WITH found AS (
                SELECT text, {value} AS value, {query} AS query, {key} AS key,
                    ntile({DECILES}) OVER (ORDER BY {value}, text DESC) AS decile
                FROM heads WHERE layer = {layer} AND head = {head} AND {value} IS NOT NULL
            ), largest AS (SELECT * FROM found {of_decile} ORDER BY value DESC, text LIMIT {n})
            SELECT text, string, value, query, key FROM largest JOIN texts USING (text)
            ORDER BY value DESC, text
        """)

    def sql(self, query: str) -> pd.DataFrame:
        """The answer of DuckDB to a query over the tables `heads` and `texts`, as a frame.

        `heads` has a row for each text, layer and head, and for each measure, as previous_token, its value
        in that text, previous_token_shuffled with the words shuffled, previous_token_chance for equal
        weights, and previous_token_query and previous_token_key for the cell in the strongest row; `texts`
        has text (the number), string and shuffled.

        Raises `MhaError` for a query that DuckDB refuses, with its words, and for an atlas that is only a
        summary.
        """
        import duckdb

        try:
            return self._connection.execute(query).df()
        except duckdb.Error as error:
            raise MhaError("DuckDB: {reason}", reason=str(error)) from None

    @property
    def is_summary(self) -> bool:
        """Whether the numbers of single texts are not there, as in the atlases that come with Headscope."""
        return not (self.folder / HEADS).is_dir()

    @cached_property
    def left_out(self) -> pd.DataFrame:
        """The texts that could not be traced: text (the number) and reason."""
        rows = [] if self.is_summary else [row for file in self._files(HEADS) for row in shard.left_out(file)]
        return pd.DataFrame(rows, columns=["text", "reason"])

    @cached_property
    def _connection(self) -> "duckdb.DuckDBPyConnection":
        if self.is_summary:
            raise MhaError(
                "This atlas is only a summary: heads, head and top work; mha.atlas makes all numbers."
            )
        import duckdb

        connection = duckdb.connect()
        for table in (HEADS, TEXTS):
            files = ", ".join("'" + str(file).replace("'", "''") + "'" for file in self._files(table))
            columns = "*" if table == HEADS else "text, string, shuffled"
            connection.execute(f"CREATE VIEW {table} AS SELECT {columns} FROM read_parquet([{files}])")
        return connection

    def _files(self, table: str) -> list[Path]:
        return [self.folder / table / f"{name}.parquet" for name in self.manifest["shards"]]

    @cached_property
    def _summary(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / SUMMARY)

    @cached_property
    def _examples(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / EXAMPLES)

    @cached_property
    def _strings(self) -> dict[str, str]:
        return json.loads((self.folder / STRINGS).read_text(encoding="utf-8"))

    def _place(self, layer: int, head: int) -> tuple[int, int]:
        heads = self.manifest["heads"]
        layer = index("layer", layer, len(heads), of=Phrase("The model"))
        return layer, index("head", head, heads[layer], of=Phrase("The layer"))
