"""Every family at its limits of length, as a user traces it: only an `MhaError` may be raised.

    python -m tests.sources.huggingface.lengths            # all families, about two minutes
    python -m tests.sources.huggingface.lengths bart canine

Each model is traced from memory, with ids of 1 and 2 tokens, of as many as it takes, one less and one more,
the same for the target of an encoder–decoder, and with texts; afterwards it is what it was before.
"""

import warnings
from collections.abc import Iterator

import transformers

import mha_core as mha
from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny
from tests.sources.tiny import fast, state

LONGEST = 70  # tokens of a family whose positions have no end
TEXT, TARGET = "the animal", "the street"


def cases(limit: int, has_target: bool) -> Iterator[tuple[object, object]]:
    """Texts and targets; None is no target, which an encoder–decoder then writes itself."""
    short = [7, 8, 9]
    for n in (1, 2, limit - 1, limit, limit + 1):
        ids = [7 + i % 80 for i in range(n)]
        yield ids, short if has_target else None
        if has_target:
            yield short, ids
    yield TEXT, None
    if has_target:
        yield TEXT, TARGET


def outcomes(family: str) -> list[str]:
    """The result of each case of a family: "trace", or the message of its `MhaError`."""
    model, tokenizer = tiny.model(family), fast("word_piece")
    tokenizer.model_max_length = LONGEST
    before = state(model)
    try:
        adopted = huggingface.adopt(model, tokenizer)
    except mha.MhaError as error:
        assert state(model) == before, "the model is no longer what it was"
        return [str(error)]
    found = []
    for text, target in cases(adopted.limit, adopted.has_target):
        settings = {} if target is None else {"target": target}
        try:
            trace = mha.trace(text, source=model, tokenizer=tokenizer, **settings)
            found.append("trace")
        except mha.MhaError as error:
            found.append(str(error))
        else:
            if not isinstance(text, str):
                assert len(trace.tokens) == len(text)
    assert state(model) == before, "the model is no longer what it was"
    return found


def main(families: list[str]) -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    counts = {"traced": 0, "refused": 0, "not built": 0}
    for family in families:
        try:
            tiny.model(family)
        except Exception as error:
            counts["not built"] += 1
            print(f"{family}: not built ({type(error).__name__})")
            continue
        for outcome in outcomes(family):
            counts["traced" if outcome == "trace" else "refused"] += 1
            if outcome != "trace":
                print(f"{family}: {outcome[:150]}")
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main(tiny.named(__doc__))
