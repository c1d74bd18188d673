"""What an atlas costs: its speed, its memory, its bytes, and how fast it answers.

Run it with ``python tests/bench/bench_atlas.py [part …]``; its last lines are JSON objects. The model
has the shape of all-MiniLM-L6-v2 (6 layers, 12 heads, d_model 384) and random weights; texts have 128 tokens.

- speed: texts that an atlas measures in a second, against a plain batched forward pass with eager attention
  over the same texts and the same texts shuffled; in one process, in turns, in processor seconds.
- workers: wall seconds of the same shards in one process and in a pool of two, beginning when the workers
  are ready; from it the minutes and the bytes of 10,000 texts of 128 tokens × 72 heads.
- memory: the largest memory of a process that measures 256 and 2,048 made-up sentences with the mini model.
- ray: the memory of Ray's own processes, idle and with two actors, and the seconds until they are up.
- answers: seconds of each answer over 10,000 texts × 144 heads of random numbers.
"""

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import mha_core as mha
from mha_core import executor
from mha_core.atlases import measures, run, summary
from mha_core.atlases.measures import MEASURES, TextMeasures
from mha_core.atlases.query import HEADS, MANIFEST, TEXTS
from mha_core.atlases.shard import Measurer, Shard, _file, origin, texts_file
from mha_core.atlases.texts import AtlasText, shuffled
from tests.bench import bench_many

TOKENS, HEADS_OF_MODEL = 128, 72
PARTS = ("speed", "workers", "memory", "ray", "answers")


def result(name: str, value: float, target: float | None, **facts: object) -> None:
    print(json.dumps({"name": name, "value": round(value, 3), "target": target, **facts}), flush=True)


def texts(count: int, tokens: int = TOKENS) -> list[AtlasText]:
    draw = random.Random(7)
    lines = (
        " ".join(f"w{draw.randrange(bench_many.WORDS)}" for _ in range(tokens - 2)) for _ in range(count)
    )
    return [AtlasText(line, shuffled(line)) for line in lines]


def saved(folder: Path) -> str:
    """The model in a folder, so that workers can load it."""
    module, tokenizer = bench_many.model()
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def measurer(source: str) -> partial:
    trace = mha.trace("w1 w2", source=source)
    return partial(Measurer, source, {}, origin(trace.source), linked=False, batch=run.BATCH)


def speed(rounds: int = 8, count: int = 64) -> None:
    torch.set_num_threads(1)
    module, tokenizer = bench_many.model()
    some = texts(count)
    trace = mha.trace("w1 w2", source=module, tokenizer=tokenizer)
    measure = Measurer(module, {"tokenizer": tokenizer}, origin(trace.source), linked=False, batch=run.BATCH)
    lines = [one.text for one in some] + [one.shuffled for one in some]

    def ours() -> None:
        measure(Shard(0, tuple(some)))

    def theirs() -> None:
        for start in range(0, len(lines), run.BATCH):
            inputs = tokenizer(lines[start : start + run.BATCH], padding=True, return_tensors="pt")
            with torch.no_grad():
                module(**inputs)

    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(rounds + 1):
        for way in (ours, theirs) if turn % 2 else (theirs, ours):
            start = time.process_time()
            way()
            if turn:  # the first turn is a warm-up
                seconds[way.__name__].append(time.process_time() - start)
    ratio = statistics.median(b / a for a, b in zip(seconds["ours"], seconds["theirs"], strict=True))
    each = {name: round(statistics.median(values) / len(lines), 4) for name, values in seconds.items()}
    result("texts a second, of a plain forward pass", ratio, 0.8, seconds_a_text=each)


def workers(shards: int = 8, size: int = 16) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prepare = measurer(saved(Path(folder)))
        some = texts(shards * size)
        tasks = [Shard(at, tuple(some[at : at + size])) for at in range(0, len(some), size)]
        seconds = {}
        for count in (1, 2):
            # The first shard of each worker includes its start and is not counted.
            results = executor.run(prepare, tasks[:count] + tasks, workers=count)
            for _ in range(count):
                next(results)
            start = time.monotonic()
            for _ in results:
                pass
            seconds[count] = time.monotonic() - start
        size_of = len(prepare()(Shard(0, tuple(texts(run.SHARD)))))
    result("two workers, times one", seconds[1] / seconds[2], 1.6, seconds=seconds)
    minutes = seconds[2] / len(some) * 10_000 / 60
    result(f"10,000 texts × {TOKENS} tokens × {HEADS_OF_MODEL} heads, minutes", minutes, 8)
    megabytes = size_of / run.SHARD / HEADS_OF_MODEL * 10_000 / 1e6
    result("megabytes of a head in 10,000 texts", megabytes, 0.5)


def memory() -> None:
    code = (
        "import resource, sys, mha_core as mha; "
        "mha.atlas('small', count=int(sys.argv[1]), h=1, d_model=32, out=sys.argv[2]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = {}
    for count in (256, 2048):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", code, str(count), f"{folder}/a"]
            peaks[count] = (
                int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1024
            )
    result("memory of 2,048 texts, times that of 256", peaks[2048] / peaks[256], 1.1, bytes=peaks)


def ray() -> None:
    import ray

    before = _memory_of_ray()
    start = time.monotonic()
    ray.init("local", include_dashboard=False, num_cpus=2, logging_level="ERROR")
    up = time.monotonic() - start
    idle = _memory_of_ray() - before
    with tempfile.TemporaryDirectory() as folder:
        prepare = measurer(saved(Path(folder)))
        tasks = [Shard(0, tuple(texts(4)))] * 4
        start = time.monotonic()
        results = executor.run(prepare, tasks, ray="local", workers=2)
        next(results)
        first = time.monotonic() - start
        busy = _memory_of_ray() - before
        list(results)
    ray.shutdown()
    facts = {"seconds_init": round(up, 1), "seconds_first_shard": round(first, 1)}
    result("Ray's processes with two actors, gigabytes", busy / 1e9, None, idle=round(idle / 1e9, 2), **facts)


def _memory_of_ray() -> int:
    """The resident bytes of all processes of Ray."""
    total = 0
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                if b"ray" in (process / "cmdline").read_bytes():
                    pages = int((process / "statm").read_text().split()[1])
                    total += pages * resource.getpagesize()
            except OSError:  # it has ended
                continue
    return total


def answers(count: int = 10_000, layers: int = 12, heads: int = 12, size: int = 256) -> None:
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for part in (HEADS, TEXTS):
            (folder / part).mkdir()
        names = []
        for first in range(0, count, size):
            names.append(f"shard{first:08}")
            some = tuple(AtlasText(f"text {n}", f"{n} text") for n in range(first, min(first + size, count)))
            kept = [
                (first + n, *([_random(rng, heads) for _ in range(layers)] for _ in range(2)))
                for n in range(len(some))
            ]
            (folder / HEADS / f"{names[-1]}.parquet").write_bytes(_file(kept, [], MEASURES))
            (folder / TEXTS / f"{names[-1]}.parquet").write_bytes(texts_file(Shard(first, some)))
        source = mha.trace("a", source="mini").source
        manifest = {
            "origin": origin(source),
            "source": "random numbers",
            "heads": [heads] * layers,
            "measures": list(measures.columns(linked=False)),
            "texts": count,
            "shards": names,
            "seed": 0,
        }
        (folder / MANIFEST).write_text(json.dumps(manifest))
        start = time.monotonic()
        summary.write(folder)
        result("summary, seconds", time.monotonic() - start, None)
        atlas = mha.Atlas(folder)
        asked = {
            "opened and all heads": lambda: mha.Atlas(folder).heads(),
            "one head": lambda: atlas.head(3, 4),
            "top": lambda: atlas.top("entropy", layer=3, head=4),
            "top of a decile": lambda: atlas.top("punctuation", layer=7, head=1, decile=4),
            "mean and median of every head": lambda: atlas.sql(
                "SELECT layer, head, avg(entropy), median(entropy) FROM heads GROUP BY ALL"
            ),
        }
        for name, call in asked.items():
            call()
            seconds = []
            for _ in range(5):
                start = time.monotonic()
                call()
                seconds.append(time.monotonic() - start)
            result(f"answer, seconds: {name}", statistics.median(seconds), 0.2)


def _random(rng: np.random.Generator, heads: int) -> TextMeasures:
    shape = heads, len(MEASURES)
    chance = np.repeat(rng.random((1, len(MEASURES))), heads, 0)
    return TextMeasures(
        rng.beta(0.3, 2, shape), chance, rng.integers(0, TOKENS, shape), rng.integers(0, TOKENS, shape)
    )


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        globals()[part]()
