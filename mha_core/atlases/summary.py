"""The summary of an atlas: a few numbers for each head and measure, and examples of each decile.

Intervals are bootstrap over texts: each resample weighs every text by a Poisson(1) draw, so that texts can be
read one block after the other (Chamandy et al. 2012, "Estimating uncertainty for massive data streams").
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from mha_core.atlases.query import DECILES, EXAMPLES, HEADS, STRINGS, SUMMARY, TEXTS, read_manifest
from mha_core.atlases.shard import CHANCE, KEY, QUERY, SHUFFLED, VALUE, Shard, column, read_texts
from mha_core.traces.storage import replacing

RESAMPLES = 1000
BLOCK = 1024  # texts whose draws are made together, whatever the shards
INTERVAL = (2.5, 97.5)  # percentiles of the resampled means
QUANTILES = tuple(range(0, 101, 10))
EACH = 2  # example texts of each decile
DIGITS = "%.4g"


def write(folder: Path) -> None:
    """Write the summary of an atlas with all its shards, as CSV and JSON that pandas can read by itself."""
    manifest = read_manifest(folder)
    files = [folder / HEADS / f"{name}.parquet" for name in manifest["shards"]]
    fixed = fixed_distances(read_texts(folder / TEXTS / f"{name}.parquet") for name in manifest["shards"])
    rows: list[dict[str, object]] = []
    examples: list[pd.DataFrame] = []
    for layer, n_heads in enumerate(manifest["heads"]):
        for measure in manifest["measures"]:
            texts, arrays = _read(files, layer, measure, n_heads)
            described = _described(texts, arrays, manifest["seed"])
            rows += [
                {"layer": layer, "head": head, "measure": measure, **one, "fixed": fixed.get(measure, np.nan)}
                for head, one in enumerate(described)
            ]
            examples += _examples(texts, arrays, layer, measure)
    table = pd.DataFrame(rows)
    table = table.sort_values(["layer", "head"], kind="stable", ignore_index=True)
    found = pd.concat(examples, ignore_index=True)
    found = found.sort_values(["layer", "head"], kind="stable", ignore_index=True)
    _write_csv(folder / SUMMARY, table)
    _write_csv(folder / EXAMPLES, found)
    _write_strings(folder, manifest["shards"], set(found["text"]))


def fixed_distances(shards: Iterable[Shard]) -> dict[str, float]:
    """Of each kind of link in the texts, the share that has the most frequent distance."""
    distances: dict[str, Counter[int]] = {}
    for shard in shards:
        for text in shard.texts:
            for query, key, name in text.links or ():
                distances.setdefault(name, Counter())[key - query] += 1
    return {name: max(counts.values()) / counts.total() for name, counts in distances.items()}


def _read(
    files: list[Path], layer: int, measure: str, n_heads: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Which texts have numbers, and the columns of one measure in one layer. (head, text) each"""
    from pyarrow import parquet

    parts: dict[str, list[np.ndarray]] = {of: [] for of in (VALUE, SHUFFLED, CHANCE, QUERY, KEY)}
    texts = [np.empty(0, np.int64)]
    for path in files:
        file = parquet.ParquetFile(path)
        if not file.num_row_groups:
            continue  # all texts of this shard were left out
        table = file.read_row_group(layer, columns=["text", *(column(measure, of) for of in parts)])
        texts.append(table["text"].to_numpy().reshape(n_heads, -1)[0].astype(np.int64))
        for of, arrays in parts.items():
            values = table[column(measure, of)].to_numpy().astype(np.float32)
            arrays.append(values.reshape(n_heads, -1))
    empty = [np.empty((n_heads, 0), np.float32)]
    return np.concatenate(texts), {of: np.concatenate(empty + arrays, 1) for of, arrays in parts.items()}


def _described(texts: np.ndarray, arrays: dict[str, np.ndarray], seed: int) -> Iterator[dict[str, float]]:
    """The numbers of one measure for each head."""
    intervals = {of: _interval(texts, arrays[of], seed) for of in (VALUE, SHUFFLED)}
    for head in range(len(arrays[VALUE])):
        values, shuffled, chance = (_known(arrays[of][head]) for of in (VALUE, SHUFFLED, CHANCE))
        low, high = intervals[VALUE][:, head]
        quantiles = np.percentile(values, QUANTILES) if len(values) else [np.nan] * len(QUANTILES)
        yield {
            "n": len(values),
            "mean": _mean(values),
            "low": low,
            "high": high,
            **{f"q{at}": value for at, value in zip(QUANTILES, quantiles, strict=True)},
            "shuffled": _mean(shuffled),
            "shuffled_low": intervals[SHUFFLED][0, head],
            "shuffled_high": intervals[SHUFFLED][1, head],
            "chance": _mean(chance),
        }


def _known(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)].astype(float)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan


def _interval(texts: np.ndarray, values: np.ndarray, seed: int) -> np.ndarray:
    """The 95 % interval of each head's mean over texts; NaN without a text. (2, head)"""
    sums, counts = np.zeros((2, RESAMPLES, len(values)))
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    for block in np.unique(texts // BLOCK):
        there = texts // BLOCK == block
        draws = _draws(seed, int(block))[:, texts[there] % BLOCK]
        sums += draws @ filled[:, there].T.astype(float)
        counts += draws @ known[:, there].T.astype(float)
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    if not known.any():
        return np.full((2, len(values)), np.nan)
    # A resample without any text of a rare measure says nothing.
    with np.errstate(invalid="ignore"):
        return np.array([_percentiles(column) for column in means.T]).T


def _percentiles(means: np.ndarray) -> np.ndarray:
    means = means[~np.isnan(means)]
    return np.percentile(means, INTERVAL) if len(means) else np.full(2, np.nan)


@lru_cache(maxsize=16)  # 8 MB each; of more texts they are drawn again
def _draws(seed: int, block: int) -> np.ndarray:
    """How often each resample has each text of a block. (resample, text)"""
    return np.random.default_rng([seed, block]).poisson(1.0, (BLOCK, RESAMPLES)).T.astype(float)


def _examples(
    texts: np.ndarray, arrays: dict[str, np.ndarray], layer: int, measure: str
) -> Iterator[pd.DataFrame]:
    """The texts with the largest values of each decile, and their cells, for each head."""
    for head, values in enumerate(arrays[VALUE]):
        known = np.flatnonzero(~np.isnan(values))
        order = known[np.lexsort((-texts[known], values[known]))]  # of equal ones the first text is larger
        for decile, members in enumerate(np.array_split(order, DECILES), start=1):
            chosen = members[::-1][:EACH]
            yield pd.DataFrame(
                {
                    "layer": layer,
                    "head": head,
                    "measure": measure,
                    "decile": decile,
                    "text": texts[chosen],
                    "value": values[chosen],
                    "query": arrays[QUERY][head, chosen].astype(int),
                    "key": arrays[KEY][head, chosen].astype(int),
                }
            )


def _write_csv(path: Path, table: pd.DataFrame) -> None:
    with replacing(path) as temporary:
        table.to_csv(temporary, index=False, float_format=DIGITS, lineterminator="\n")


def _write_strings(folder: Path, names: list[str], numbers: set[int]) -> None:
    """The texts of the examples, by their numbers."""
    strings = {}
    for name in names:
        shard = read_texts(folder / TEXTS / f"{name}.parquet")
        for number, text in enumerate(shard.texts, start=shard.first):
            if number in numbers:
                strings[number] = text.text
    with replacing(folder / STRINGS) as temporary:
        temporary.write_text(json.dumps(strings, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
