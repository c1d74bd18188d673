"""Where traces come from. A source is a function from a text to an `AttentionTrace`.

A new source is a file here with such a function, and a line in `SOURCES`. Any other name is that of
a Hugging Face model.
"""

from collections.abc import Callable

from mha_core.errors import one_of
from mha_core.sources import mini, random_weights
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.trace import AttentionTrace

SOURCES: dict[str, Callable[..., AttentionTrace]] = {"random": random_weights.trace, "mini": mini.trace}


def trace(text: str, *, source: str = "random", **settings) -> AttentionTrace:
    """Send a text through multi-head attention and keep everything that flowed.

    ``trace("How are you?", h=4, d_model=64)``; `source` names where the weights come from, and
    `settings` are that source's own: those of `sources.toy.trace` for "random", of
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
