"""The cost of many traces: `mha.trace_many` against transformers' own batches with their weights.

Run it with ``python tests/bench/bench_many.py``; the last line is one JSON object. The model has the shape of
all-MiniLM-L6-v2 (6 layers, 12 heads, d_model 384) and random weights; the 256 texts have 10 to 30 tokens.
Both ways start from text, read batches of 32 and use one thread: transformers in the given order, with
`padding=True` and eager attention with `output_attentions`, without keeping results; ours groups texts of
similar length and makes a trace of each, of which one number is kept. They take turns in one process, in
alternating order; the ratio is the median over turns. Seconds are processor seconds, so that other programs
of the machine do not count.
"""

import json
import random
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mha_core.sources import trace_many

TEXTS, SHORTEST, LONGEST, BATCH = 256, 10, 30, 32
WORDS = 1000
ROUNDS = 16
MAX_RATIO = 1.10  # multiple of the seconds of transformers


def model():
    """A model as transformers makes it, and a tokenizer with `WORDS` words."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    known = {
        word: n
        for n, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", *map("w{}".format, range(WORDS))])
    }
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    )
    shape = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=30522, **shape)
    return transformers.BertModel._from_config(config, attn_implementation="eager").eval(), tokenizer


def texts() -> list[str]:
    draw = random.Random(7)
    return [
        " ".join(
            f"w{draw.randrange(WORDS)}" for _ in range(draw.randint(SHORTEST, LONGEST) - 2)
        )  # and two special tokens
        for _ in range(TEXTS)
    ]


def theirs(module, tokenizer, sentences: list[str]) -> None:
    for start in range(0, len(sentences), BATCH):
        inputs = tokenizer(sentences[start : start + BATCH], padding=True, return_tensors="pt")
        with torch.no_grad():
            module(**inputs, output_attentions=True)


def ours(module, tokenizer, sentences: list[str]) -> None:
    counts = trace_many(
        sentences, source=module, tokenizer=tokenizer, batch=BATCH, reduce=lambda trace: len(trace.layers)
    )
    assert list(counts) == [module.config.num_hidden_layers] * len(sentences)


def main() -> None:
    torch.set_num_threads(1)
    (module, tokenizer), sentences = model(), texts()
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(ROUNDS + 1):
        for way in (ours, theirs) if turn % 2 else (theirs, ours):
            start = time.process_time()
            way(module, tokenizer, sentences)
            if turn:  # the first turn is a warm-up
                seconds[way.__name__].append(time.process_time() - start)
    ratio = statistics.median(a / b for a, b in zip(seconds["ours"], seconds["theirs"], strict=True))
    medians = {name: round(statistics.median(values), 3) for name, values in seconds.items()}
    print(
        json.dumps(
            {
                "name": "traces of many texts, seconds of transformers' batches",
                "value": round(ratio, 3),
                "target": MAX_RATIO,
                "texts": TEXTS,
                "batch": BATCH,
                **medians,
            }
        )
    )


if __name__ == "__main__":
    main()
