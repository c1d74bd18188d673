"""The cost of an atlas: the speed of its passes, of two workers and of its summary, and the bytes it keeps.

Run it with ``python tests/bench/bench_atlas.py``; the lines are one JSON object each. The model has the shape
of all-MiniLM-L6-v2 (6 layers, 12 heads, d_model 384) and random weights; texts have 128 tokens. The pass of
each text is compared with a plain one, with eager attention over the same texts and the same texts shuffled.
The seconds of one worker and of two begin when the workers are ready.
"""

import json
import random
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measuring import in_turns, median_ratio, report

import mha_core as mha
from mha_core import executor
from mha_core.atlases import query, run, summary
from mha_core.atlases.measures import MEASURES, TextMeasures, columns
from mha_core.atlases.shard import Measurer, Shard, _file, origin, texts_file
from mha_core.atlases.texts import AtlasText, read

TOKENS, HEADS, WORDS = 128, 72, 1000
TURNS, TEXTS, SHARDS, TOGETHER = 8, 64, 8, 16


def saved(folder: Path):
    """The model as transformers makes it, with a tokenizer of `WORDS` words, in a folder for the workers."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *map("w{}".format, range(WORDS))]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")
    shape = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=30522, **shape)
    module = transformers.BertModel._from_config(config, attn_implementation="eager").eval()
    for part in (module, tokenizer):
        part.save_pretrained(folder)
    return module, tokenizer


def texts(count: int) -> list[AtlasText]:
    draw = random.Random(7)
    lines = [" ".join(f"w{draw.randrange(WORDS)}" for _ in range(TOKENS - 2)) for _ in range(count)]
    return list(read(lines, linked=False))


def passes(measure, module, tokenizer) -> None:
    some = texts(TEXTS)
    lines = [line for one in some for line in (one.text, one.shuffled)]

    @torch.no_grad()
    def plain() -> None:
        for start in range(0, len(lines), run.BATCH):
            module(**tokenizer(lines[start : start + run.BATCH], padding=True, return_tensors="pt"))

    taken = in_turns({"atlas": lambda: measure(Shard(0, tuple(some))), "plain": plain}, TURNS)
    each = {name: round(statistics.median(seconds) / len(lines), 4) for name, seconds in taken.items()}
    ratio = median_ratio(taken["plain"], taken["atlas"])
    report("texts a second, of a plain forward pass", ratio, 0.8, seconds_a_text=each)
    size = len(measure(Shard(0, tuple(texts(run.SHARD)))))
    report("megabytes of a head in 10,000 texts", size / run.SHARD / HEADS * 10_000 / 1e6, 0.5)


def workers(prepare) -> None:
    some = texts(SHARDS * TOGETHER)
    tasks = [Shard(at, tuple(some[at : at + TOGETHER])) for at in range(0, len(some), TOGETHER)]
    seconds = {}
    for count in (1, 2):
        # The first shard of each worker includes its start and is not counted.
        results = executor.run(prepare, tasks[:count] + tasks, workers=count)
        for _ in range(count):
            next(results)
        start = time.monotonic()
        list(results)
        seconds[count] = time.monotonic() - start
    report("two workers, times one", seconds[1] / seconds[2], 1.6, seconds=seconds)
    minutes = seconds[2] / len(some) * 10_000 / 60
    report(f"10,000 texts × {TOKENS} tokens × {HEADS} heads, minutes", minutes, 8)


def write_summary(folder: Path, of_model: dict, count: int = 10_000, layers: int = 6) -> None:
    """The summary of random numbers of 10,000 texts."""
    rng, heads, names = np.random.default_rng(3), HEADS // layers, []
    shape = heads, len(MEASURES)
    for part in (query.HEADS, query.TEXTS):
        (folder / part).mkdir()
    for first in range(0, count, run.SHARD):
        names.append(f"shard{first:08}")
        numbers = range(first, min(first + run.SHARD, count))
        some = tuple(AtlasText(f"text {n}", f"{n} text") for n in numbers)
        drawn = [[[_random(rng, shape) for _ in range(layers)] for _ in range(2)] for _ in some]
        rows = [(n, *both) for n, both in zip(numbers, drawn, strict=True)]
        (folder / query.HEADS / f"{names[-1]}.parquet").write_bytes(_file(rows, [], MEASURES))
        (folder / query.TEXTS / f"{names[-1]}.parquet").write_bytes(texts_file(Shard(first, some)))
    manifest = {"origin": of_model, "source": "random numbers", "heads": [heads] * layers, "seed": 0}
    manifest |= {"measures": list(columns(linked=False)), "texts": count, "shards": names}
    (folder / query.MANIFEST).write_text(json.dumps(manifest))
    start = time.monotonic()
    summary.write(folder)
    report(f"summary of {count:,} texts × {HEADS} heads, seconds", time.monotonic() - start)


def _random(rng: np.random.Generator, shape: tuple[int, int]) -> TextMeasures:
    places = (rng.integers(0, TOKENS, shape) for _ in range(2))
    return TextMeasures(rng.beta(0.3, 2, shape), rng.random(shape), *places)


def main() -> None:
    torch.set_num_threads(1)
    start = time.monotonic()
    texts(10_000)
    report("10,000 texts read and shuffled, seconds", time.monotonic() - start)
    with tempfile.TemporaryDirectory() as folder:
        module, tokenizer = saved(Path(folder, "model"))
        source = mha.trace("w1 w2", source=module, tokenizer=tokenizer).source
        settings = {"linked": False, "batch": run.BATCH}
        passes(Measurer(module, {"tokenizer": tokenizer}, origin(source), **settings), module, tokenizer)
        name = str(Path(folder, "model"))
        workers(partial(Measurer, name, {}, origin(mha.trace("w1 w2", source=name).source), **settings))
        write_summary(Path(folder), origin(source))


if __name__ == "__main__":
    main()
