"""Making an atlas: the plan, then one shard after the other, then the summary.

The folder is the checkpoint: a shard with a file is done.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from hashlib import sha256
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mha_core import executor, resources
from mha_core.atlases import measures, summary
from mha_core.atlases.query import HEADS, MANIFEST, TEXTS, Atlas, read_manifest
from mha_core.atlases.shard import FORMAT, Measurer, Shard, left_out, name, origin, read_texts, texts_file
from mha_core.atlases.texts import SMALL, read
from mha_core.errors import MhaError, Phrase, at_least_1, in_range, listed, shown
from mha_core.sources import MAX_BATCH, check_settings, outcomes_of, weights_digest
from mha_core.traces.storage import check_path, hidden_folder, replacing
from mha_core.traces.trace import AttentionTrace

SHARD = 256  # texts that are measured together: a stop loses at most these for each worker
BATCH = 16  # texts in one pass of a model
PROBED = 16  # texts, one of which must be readable
SEED = 0  # of the intervals
OF_ONE_TEXT = ("target", "attention_mask", "position_ids", "answers", "edits")  # settings of `trace`
ROOM = 1.2  # the bytes that must be free, relative to those an atlas is estimated to need


# What the entries of a manifest are called in a refusal.
FACTS = {
    "format": Phrase("format"),
    "source": Phrase("source"),
    "settings": Phrase("settings"),
    "origin": Phrase("model"),
    "weights": Phrase("model weights"),
    "heads": Phrase("heads"),
    "measures": Phrase("measures"),
    "seed": Phrase("seed"),
    "versions": Phrase("versions"),
    "texts": Phrase("number of texts"),
    "digest": Phrase("texts"),
    "shards": Phrase("shards"),
}


class Progress(NamedTuple):
    """How far an atlas is: `done` of `shards` shards of its `texts`.

    `bytes` of the whole atlas and `seconds` left are estimated from the shards of this run, and None before
    the first one. `again` counts shards that were measured again because their worker had died.
    """

    texts: int
    shards: int
    done: int
    bytes: int | None = None
    seconds: float | None = None
    again: int = 0


def atlas(
    texts: Any,
    *,
    source: str | PathLike[str] | nn.Module = "mini",
    out: str | PathLike[str],
    count: int | None = None,
    workers: int | None = None,
    ray: str | None = None,
    batch: int = BATCH,
    shard: int = SHARD,
    progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Atlas:
    """Measure what every head of a model does over many texts, and return the atlas in the folder `out`.

        atlas = mha.atlas("corpus.txt", source="gpt2", out="gpt2.atlas", workers=2)
        atlas.heads().query("measure == 'previous token'").nlargest(3, "mean")

    `texts` is an iterable of strings, a text file (one text on each line), lines of JSON or a Parquet table
    with a column "text", a folder of such files, or "small" or "small-zh": sentences of the small languages,
    in which the right answers are known. At most `count` are read. `source` and `settings` are those of
    `trace`. In every text each head gets the measures that `Atlas.measures` lists, a second time with the
    words of the text shuffled, and by chance, with equal weights.

    Texts are measured in shards of `shard` texts, in this process, in `workers` processes, or on a Ray
    cluster at an address (``ray="auto"`` finds that of this machine). Each worker uses one thread, so a
    worker for each processor is fastest. On processors of one type the files are the same by all of these
    and for any `batch`. A run that was stopped goes on in the same folder; a folder with an atlas of other
    texts or of another model is refused. A text that cannot be traced is left out and listed in
    `Atlas.left_out`. `progress` is called after each shard.

    Raises `MhaError` as `trace` does; for texts that cannot be read; for a model whose layers are of several
    kinds, as an encoder–decoder; and for an atlas that does not fit on the disk.
    """
    at_least_1("shard", shard, Phrase("texts"))
    at_least_1("count", 1 if count is None else count, Phrase("texts"))
    in_range("batch", batch, 1, MAX_BATCH)
    check_settings(source, settings)
    for setting, value in settings.items():
        if setting in OF_ONE_TEXT or isinstance(value, Tensor):
            raise MhaError("{name} is of one text, and an atlas has many; leave it out.", name=setting)
    _check_packages()
    folder = _folder(out)
    linked = isinstance(texts, str) and texts in SMALL and source == "mini"
    with hidden_folder(folder) as planned:
        shards = _shards(read(texts, linked=linked, count=count), shard)
        plan = _planned(shards, planned, source, settings, linked=linked)
        _check_same(folder, plan)
        with replacing(folder / MANIFEST) as temporary:
            temporary.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
        for part in (TEXTS, HEADS):
            (folder / part).mkdir(exist_ok=True)
        for file in planned.iterdir():
            os.replace(file, folder / TEXTS / file.name)
    measurer = partial(Measurer, source, settings, plan["origin"], linked=linked, batch=batch)
    _measure(folder, plan, measurer, workers=workers, ray=ray, progress=progress)
    _check_some(folder, plan)
    summary.write(folder)
    return Atlas(folder)


def _folder(out: str | PathLike[str]) -> Path:
    """The folder of an atlas, made if it is missing."""
    check_path(out)
    folder = Path(out)
    others = [] if not folder.is_dir() else [file.name for file in folder.iterdir() if file.name[0] != "."]
    if (folder.exists() and not folder.is_dir()) or (others and MANIFEST not in others):
        raise MhaError("{folder} is not the folder of an atlas; name a new one.", folder=folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _check_packages() -> None:
    try:
        import duckdb  # noqa: F401
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise MhaError(
            "An atlas needs {name}, which is not installed: {command}",
            name=error.name,
            command=resources.install("atlas"),
        ) from None


def _shards(texts: Iterable, size: int) -> Iterator[Shard]:
    first, texts = 0, iter(texts)
    while some := tuple(islice(texts, size)):
        yield Shard(first, some)
        first += len(some)


def _planned(
    shards: Iterator[Shard], folder: Path, source: Any, settings: Mapping, *, linked: bool
) -> dict[str, Any]:
    """The manifest of an atlas. Its texts are written into the folder: they are read only once."""
    plan: dict[str, Any] = {}
    names, count, digest = [], 0, sha256()
    for one in shards:
        plan = plan or _identity(one, source, settings, linked=linked)
        names.append(name(plan, one))
        (folder / f"{names[-1]}.parquet").write_bytes(texts_file(one))
        count += len(one.texts)
        for text in one.texts:
            digest.update(json.dumps(text).encode())
    if not names:
        raise MhaError("There is no text to measure; an atlas needs one at least, better a thousand.")
    return plan | {"texts": count, "digest": digest.hexdigest()[:16], "shards": names}


def _identity(some: Shard, source: Any, settings: Mapping, *, linked: bool) -> dict[str, Any]:
    """All that the numbers of an atlas depend on besides its texts, found by tracing one of these."""
    trace = _probe(some, source, settings)
    if len(trace.kinds) > 1:
        raise MhaError(
            "An atlas measures layers between the tokens of one text; this model has layers of the kinds "
            "{kinds}.",
            kinds=listed(trace.kinds, "and"),
        )
    if not trace.layers:
        raise MhaError(
            "This model has no layer with attention weights: {reasons}",
            reasons=listed(trace.source.skipped or ["–"], "space"),
        )
    import pyarrow

    return {
        "format": FORMAT,
        "source": str(source) if isinstance(source, str | PathLike) else type(source).__name__,
        "settings": {name: value for name, value in settings.items() if name != "tokenizer"},
        "origin": origin(trace.source),
        "weights": weights_digest(source, **settings),
        "heads": [layer.n_heads for layer in trace.layers],
        "measures": list(measures.columns(linked=linked)),
        "seed": SEED,
        "versions": {
            "headscope": resources.VERSION,
            "torch": str(torch.__version__),
            "pyarrow": pyarrow.__version__,
        },
    }


def _probe(some: Shard, source: Any, settings: Mapping) -> AttentionTrace:
    """The trace of the first text that can be traced; the error of the first one if none of some can."""
    texts = [one.text for one in some.texts[:PROBED]]
    first = None
    for found in outcomes_of(texts, source=source, batch=1, reduce=None, **settings):
        if not isinstance(found, MhaError):
            return found
        first = first or found.phrase
    raise MhaError(
        "None of the first {n} texts can be traced. The first one: {reason}", n=len(texts), reason=first
    )


def _check_same(folder: Path, plan: Mapping[str, Any]) -> None:
    """Raise `MhaError` if the folder has an atlas that was made otherwise."""
    if not (folder / MANIFEST).exists():
        return
    there = read_manifest(folder)
    for fact, asked in plan.items():
        if there.get(fact) != asked:
            raise MhaError(
                "The atlas in {folder} was made otherwise. Its {fact}: {there}; asked for: {asked}. "
                "Give another folder, or delete this one.",
                folder=folder,
                fact=FACTS[fact],
                there=shown(there.get(fact)),
                asked=shown(asked),
            )


class _Tasks(Sequence[Shard]):
    """The shards of an atlas that are still to be measured, each read when it is needed."""

    def __init__(self, folder: Path, names: Sequence[str]):
        self.folder = folder
        self.names = [name for name in names if not (folder / HEADS / f"{name}.parquet").exists()]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: Any) -> Any:
        return read_texts(self.folder / TEXTS / f"{self.names[number]}.parquet")


def _measure(
    folder: Path,
    plan: Mapping[str, Any],
    prepare: Callable[[], Measurer],
    *,
    workers: int | None,
    ray: str | None,
    progress: Callable[[Progress], None] | None,
) -> None:
    """Measure the shards that are missing, and write each as soon as it is done."""
    tasks, total = _Tasks(folder, plan["shards"]), len(plan["shards"])
    before, again, written = total - len(tasks), [0], 0
    report = progress or (lambda _: None)
    report(Progress(plan["texts"], total, before))
    start = time.monotonic()

    def lost(_number: int) -> None:
        again[0] += 1

    with closing(executor.run(prepare, tasks, workers=workers, ray=ray, lost=lost)) as results:
        for done, (number, content) in enumerate(results, start=1):
            with replacing(folder / HEADS / f"{tasks.names[number]}.parquet") as temporary:
                temporary.write_bytes(content)
            written += len(content)
            left = len(tasks) - done
            _check_room(folder, written // done * left, written // done * total)
            seconds = (time.monotonic() - start) / done * left
            report(Progress(plan["texts"], total, before + done, written // done * total, seconds, again[0]))


def _check_some(folder: Path, plan: Mapping[str, Any]) -> None:
    """Raise `MhaError` if all texts were left out."""
    reasons = [one.reason for file in plan["shards"] for one in left_out(folder / HEADS / f"{file}.parquet")]
    if len(reasons) == plan["texts"]:
        raise MhaError(
            "None of the {n:,} texts has numbers. The first one: {reason}", n=len(reasons), reason=reasons[0]
        )


def _check_room(folder: Path, needed: int, total: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed * ROOM > free:
        raise MhaError(
            "This atlas would have {total:,} bytes, of which {needed:,} are not written yet; "
            "{free:,} are free in {folder}. Give fewer texts, as with count=, or a folder on another disk.",
            total=total,
            needed=needed,
            free=free,
            folder=folder,
        )
