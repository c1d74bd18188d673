"""Where traces come from. A source is a function from a text to an `AttentionTrace`.

A new source is a file here with such a function, and a line in `SOURCES`. Any other name is that of
a Hugging Face model.
"""

from collections.abc import Callable, Iterable, Iterator

from torch import nn

from mha_core.errors import MhaError, in_range, one_of
from mha_core.sources import mini, random_weights
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.trace import AttentionTrace

SOURCES: dict[str, Callable[..., AttentionTrace]] = {"random": random_weights.trace, "mini": mini.trace}


def trace(text: str, *, source: str = "random", **settings) -> AttentionTrace:
    """Send a text through multi-head attention and keep everything that flowed.

    ``trace("How are you?", h=4, d_model=64)``; `source` names where the weights come from, and
    `settings` are that source's own: those of `sources.random_weights.trace` for "random", of
    `sources.mini.trace` for "mini", trained weights that come with the library. Any other source is a
    folder with a model or an id of the Hugging Face hub, with the settings of
    `sources.huggingface.model.trace`.

    Raises `MhaError` for an unknown source and for settings that do not fit together.
    """
    if settings.keys() - huggingface.SETTINGS:  # those of a built-in source: which one was meant?
        one_of("source", source, SOURCES)
    if source in SOURCES:
        return SOURCES[source](text, **settings)
    return huggingface.trace(text, source=source, **settings)


def trace_many(
    texts: Iterable[str],
    *,
    source: str | nn.Module = "random",
    batch: int = 32,
    reduce: Callable[[AttentionTrace], object] | None = None,
    **settings,
) -> Iterator:
    """The traces of many texts, one after another in their order: each what `trace` gives of it.

    >>> corpus = ["How are you?", "A cat sat."]
    >>> [len(trace.tokens) for trace in trace_many(corpus, h=4, d_model=64)]
    [4, 4]

    `reduce` is given each trace, and what it returns is what the iterator gives: the trace itself (37 kB for
    each token of a small model) is then let go. `source` and `settings` are those of `trace`. Models of
    transformers read up to `batch` texts in one pass, filled up to the longest one and hidden from one
    another; each number is within 1e-5 of that of its text alone (in half precision within the rounding of
    that). Where a trial of two texts shows otherwise, and for sources that read one text at a time, they
    go one by one. Texts are read ahead, four batches at most.

    Raises `MhaError` as `trace` does, for one text at its turn, with its number.
    """
    if isinstance(texts, str):
        raise MhaError("trace_many takes several texts, such as a list; trace takes one.")
    batch = in_range("batch", batch, 1, 4096)
    if source in SOURCES:
        return _one_by_one(texts, SOURCES[source], settings, reduce)
    limit = {"limit": settings.pop("limit")} if "limit" in settings else {}
    model = huggingface.at_hand(source, **settings)
    return huggingface.follow_many(model, texts, batch=batch, reduce=reduce, **limit)


def _one_by_one(texts: Iterable[str], source: Callable, settings: dict, reduce: Callable | None) -> Iterator:
    for number, text in enumerate(texts, start=1):
        try:
            trace = source(text, **settings)
        except MhaError as error:
            raise MhaError(f"Text {number}: {error}") from error
        yield trace if reduce is None else reduce(trace)
