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
    names, measures = manifest["shards"], manifest["measures"]
    files = [folder / HEADS / f"{name}.parquet" for name in names]
    fixed = fixed_distances(read_texts(folder / TEXTS / f"{name}.parquet") for name in names)
    rows, examples = [], []
    for layer, n_heads in enumerate(manifest["heads"]):
        texts, numbers = _read(files, layer, measures, n_heads)
        intervals = [_intervals(texts, numbers[of], manifest["seed"]) for of in (VALUE, SHUFFLED)]
        for head in range(n_heads):
            for at, measure in enumerate(measures):
                place = {"layer": layer, "head": head, "measure": measure}
                of_head = {of: array[at, head] for of, array in numbers.items()}
                ends = [interval[:, at, head] for interval in intervals]
                described = _described(of_head, *ends) | {"fixed": fixed.get(measure, np.nan)}
                rows.append(place | described)
                examples += [place | one for one in _examples(texts, of_head)]
    _write_csv(folder / SUMMARY, pd.DataFrame(rows))
    _write_csv(folder / EXAMPLES, pd.DataFrame(examples))
    _write_strings(folder, names, {one["text"] for one in examples})


def fixed_distances(shards: Iterable[Shard]) -> dict[str, float]:
    """The share of the most frequent distance among the links of each kind in the texts."""
    distances: dict[str, Counter[int]] = {}
    for shard in shards:
        for text in shard.texts:
            for query, key, name in text.links or ():
                distances.setdefault(name, Counter())[key - query] += 1
    return {name: max(counts.values()) / counts.total() for name, counts in distances.items()}


def _read(
    files: list[Path], layer: int, measures: list[str], n_heads: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The texts with numbers, and the columns of all measures in one layer. (measure, head, text) each"""
    from pyarrow import parquet

    texts = [np.empty(0, np.int64)]
    parts = {
        of: [np.empty((len(measures), n_heads, 0), np.float32)]
        for of in (VALUE, SHUFFLED, CHANCE, QUERY, KEY)
    }
    for path in files:
        file = parquet.ParquetFile(path)
        if not file.num_row_groups:
            continue  # all texts of this shard were left out
        table = file.read_row_group(layer)
        texts.append(table["text"].to_numpy().reshape(n_heads, -1)[0].astype(np.int64))
        for of, arrays in parts.items():
            numbers = [table[column(measure, of)].to_numpy().astype(np.float32) for measure in measures]
            arrays.append(np.reshape(numbers, (len(measures), n_heads, -1)))
    return np.concatenate(texts), {of: np.concatenate(arrays, 2) for of, arrays in parts.items()}


def _described(
    numbers: dict[str, np.ndarray], interval: np.ndarray, shuffled_interval: np.ndarray
) -> dict[str, float]:
    """The row of one measure and head."""
    values, shuffled, chance = (_known(numbers[of]) for of in (VALUE, SHUFFLED, CHANCE))
    quantiles = np.percentile(values, QUANTILES) if len(values) else [np.nan] * len(QUANTILES)
    return {
        "n": len(values),
        "mean": _mean(values),
        "low": interval[0],
        "high": interval[1],
        **{f"q{at}": value for at, value in zip(QUANTILES, quantiles, strict=True)},
        "shuffled": _mean(shuffled),
        "shuffled_low": shuffled_interval[0],
        "shuffled_high": shuffled_interval[1],
        "chance": _mean(chance),
    }


def _known(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)].astype(float)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan


def _intervals(texts: np.ndarray, values: np.ndarray, seed: int) -> np.ndarray:
    """The 95 % intervals of means over texts, NaN without a text. (…, text) → (end, …)"""
    *shape, _ = values.shape
    values = values.reshape(-1, len(texts))
    known = ~np.isnan(values)
    filled = np.where(known, values, np.float32(0))
    sums, counts = np.zeros((2, RESAMPLES, len(values)))
    for block in np.unique(texts // BLOCK):
        there = slice(*np.searchsorted(texts, [block * BLOCK, (block + 1) * BLOCK]))
        draws = _draws(seed, int(block))[:, texts[there] % BLOCK]
        sums += draws @ filled[:, there].T
        counts += draws @ known[:, there].T.astype(np.float32)
    # A resample without any text of a rare measure says nothing.
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0).T
    whole = ~np.isnan(means).any(1)
    ends = np.full((2, len(values)), np.nan)
    if whole.any():
        ends[:, whole] = np.percentile(means[whole], INTERVAL, axis=1)
    for row in np.flatnonzero(~whole & known.any(1)):
        ends[:, row] = np.percentile(_known(means[row]), INTERVAL)
    return ends.reshape(2, *shape)


@lru_cache(maxsize=16)  # 4 MB each; of more texts they are drawn again
def _draws(seed: int, block: int) -> np.ndarray:
    """How often each resample has each text of a block. (resample, text)"""
    drawn = np.random.default_rng([seed, block]).poisson(1.0, (BLOCK, RESAMPLES))
    return np.ascontiguousarray(drawn.T, np.float32)


def _examples(texts: np.ndarray, numbers: dict[str, np.ndarray]) -> Iterator[dict[str, float]]:
    """The texts with the largest values of each decile, and their cells."""
    values = numbers[VALUE]
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.lexsort((-texts[known], values[known]))]  # of equal ones the first text is larger
    for decile, members in enumerate(np.array_split(order, DECILES), start=1):
        for at in members[::-1][:EACH]:
            cell = {"query": int(numbers[QUERY][at]), "key": int(numbers[KEY][at])}
            yield {"decile": decile, "text": int(texts[at]), "value": values[at], **cell}


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
