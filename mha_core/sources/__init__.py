"""The sources of traces. A source is a function from a text to an `AttentionTrace`.

A new source is a file here with such a function, a line in `SOURCES`, its signature in `TraceFunction`, and
its arguments in the docstring of `trace`. Any other name is the name of a Hugging Face model.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from os import PathLike
from typing import Any, ParamSpec, Protocol, TypeGuard, TypeVar, Unpack, cast, overload

from torch import nn, uint8

from mha_core import device as devices
from mha_core.errors import MhaError, Phrase, at_least_1, in_range, listed, named_type
from mha_core.sources import mini, random_weights
from mha_core.sources.huggingface import batches, model
from mha_core.sources.huggingface.tokenizer import Ids
from mha_core.traces.trace import AttentionTrace
from mha_core.training import checkpoints

Reduced = TypeVar("Reduced")
SOURCES: dict[str, Callable[..., AttentionTrace]] = {"random": random_weights.trace, "mini": mini.trace}
MAX_BATCH = 4096
# Names of our arguments in other libraries.
SYNONYMS = {
    **dict.fromkeys(("heads", "n_heads", "num_heads", "n_head", "nhead"), "h"),
    **dict.fromkeys(("n_layers", "num_layers", "n_layer"), "layers"),
    **dict.fromkeys(("embed_dim", "hidden_size", "n_embd", "dim"), "d_model"),
    **dict.fromkeys(("d_head", "head_dim"), "d_k"),
}


Random = ParamSpec("Random")
Mini = ParamSpec("Mini")


class TraceFunction(Protocol[Random, Mini]):
    """The signatures of `trace`: of the built-in sources, of a model by its name, and of one in memory."""

    @overload
    def __call__(self, *args: Random.args, **settings: Random.kwargs) -> AttentionTrace: ...

    @overload
    def __call__(self, *args: Mini.args, **settings: Mini.kwargs) -> AttentionTrace: ...

    @overload
    def __call__(
        self,
        text: str | Ids,
        *,
        source: str | PathLike[str],
        revision: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
        **reading: Unpack[model.Reading],
    ) -> AttentionTrace: ...

    @overload
    def __call__(
        self, text: str | Ids, *, source: nn.Module, tokenizer: Any = None, **reading: Unpack[model.Reading]
    ) -> AttentionTrace: ...

    def __call__(self, *args: Any, **settings: Any) -> AttentionTrace: ...


def _with_signatures(
    random: Callable[Random, AttentionTrace], mini: Callable[Mini, AttentionTrace]
) -> Callable[[Callable[..., AttentionTrace]], TraceFunction[Random, Mini]]:
    """To type checkers a function has the signatures of its sources; when it runs it is the same."""
    return cast(Any, lambda function: function)


@_with_signatures(random_weights.trace, mini.trace)
def trace(text: Any, *, source: Any = "random", **settings: Any) -> AttentionTrace:
    """Send a text through multi-head attention and record every tensor of it.

    `source` says where the weights come from, and with it which other arguments you can give:

    - "random": weights drawn from `seed`, for any words, any h and d_model;
    - "mini": a small trained model that comes with the library, for any text of up to 63 words, some h and
      d_model;
    - the id of a model on the Hugging Face hub, or a folder with one;
    - a transformers model in memory, with its tokenizer; it is not changed.

    For all of them:

    - `limit`: The largest number of tokens.
    - `device`: Where it computes, by default on CUDA, else Apple MPS, else the CPU. A model in memory stays
      where it is.
    - `edits`: Changes of attention while it is computed, as in
      ``edits=[mha.edits.Hide(rows="it", keys="animal")]``. The trace has them in `edits`.

    For random weights and small models:

    - `h`: The number of heads.
    - `d_model`: The width of a token's vector.

    For random weights:

    - `seed`: The number from which weights are drawn.
    - `layers`: The number of layers. The output of one is the input of the next, directly.
    - `d_k`, `d_v`: The widths of a head's keys and values, by default ``d_model / h``.
    - `n_kv_heads`: The number of heads of keys and values, which the h heads share; by default h.
    - `position`: none, sinusoidal, learned, rotary or alibi.
    - `mask`: A name, or a boolean (query, key) tensor that is True where a query may look.
    - `bias`: Whether the projections add a bias.
    - `max_bytes`: A limit of memory, by default 2 GB. ``random_weights.nbytes`` estimates what is needed:
      about ``4 · (layers + 1) · (W + tokens · (q + k + v + x))`` with the counts of numbers in one layer and
      for one token.
    - `max_flops`: A limit of operations, by default 2 · 10¹²; a product and a sum count as one each.

    For small models, whose traces always have `answers`, and in `questions` those about each word:

    - `architecture`: glass-box, standard, one-layer, grouped-query, multi-query, latent, decoder,
      decoder-grouped-query, decoder-multi-query or decoder-latent. A decoder reads with a causal mask, and
      its `answers` are the next word after each token.
    - `trained`: False takes the model with its weights before training.

    For transformers models, which also take the ids of tokens instead of a text or a target, and what a
    tokenizer returns, as in ``mha.trace(tokenizer(one, other), source=model)``:

    - `revision`: The commit, branch or tag of a model on the hub.
    - `dtype`: The precision of the weights, such as bfloat16.
    - `tokenizer`: The tokenizer of a model in memory. A text gets its special tokens; the output of a chat
      template has them already, so give its ids.
    - `target`: The text of the decoder of an encoder–decoder, by default what the model generates. The ids
      of a target get the decoder's start token in front.
    - `attention_mask`: For each token 1 if it is read and 0 for padding, passed to the model unchanged.
    - `position_ids`: A position for each token, passed unchanged. What positions that begin again mean is
      what they mean in a call of the model itself, ``model(ids, position_ids=…)``: transformers takes them
      for packed texts, which do not see each other, only where its config has ``use_cache=False``.
    - `text_pair`: A second text behind the first, with the separators and segments of the tokenizer.
    - `answers`: True for the model's words at hidden tokens, or for the next token, in the trace's `answers`;
      a list of tokens, as in ``answers=[-1]``, for the words at these.
    - `max_bytes`: A limit of memory for the scores of these words.

    >>> mha.trace("How are you?", h=4, d_model=64).layers[0].weights(head=2).shape
    (4, 4)

    Raises `MhaError` for a value that is not a text, for an argument that the source does not have, for
    values that do not fit together or need too much memory, and for a model that cannot be loaded or traced.
    Sources: Vaswani et al. 2017 (h 8 and d_model 512 are its base setting).
    """
    check_settings(source, settings)
    return _traced(text, source, settings)


def _traced(text: Any, source: Any, settings: dict[str, Any]) -> AttentionTrace:
    _check_text(text, source)
    with devices.memory_errors(Phrase("This trace")):
        return _function(source)(text, source=source, **settings)


@overload
def trace_many(
    texts: Iterable[str | Ids],
    *,
    source: str | PathLike[str] | nn.Module = "random",
    batch: int = 32,
    reduce: None = None,
    **settings: Any,
) -> Iterator[AttentionTrace]: ...


@overload
def trace_many(
    texts: Iterable[str | Ids],
    *,
    source: str | PathLike[str] | nn.Module = "random",
    batch: int = 32,
    reduce: Callable[[AttentionTrace], Reduced],
    **settings: Any,
) -> Iterator[Reduced]: ...


def trace_many(
    texts: Any, *, source: Any = "random", batch: int = 32, reduce: Any = None, **settings: Any
) -> Iterator[Any]:
    """The traces of many texts, in their order, each equal to the result of `trace`.

    >>> corpus = ["How are you?", "A cat sat."]
    >>> [len(trace.tokens) for trace in mha.trace_many(corpus, h=4, d_model=64)]
    [4, 4]

    `reduce` is called with each trace, and the iterator yields its result instead; the trace itself (37 kB
    for each token of a small model) is then freed. `source` and `settings` are those of `trace`; `target` is
    a list with one target for each text. Transformers models read up to `batch` texts in one pass, padded to
    the longest one, with the padding masked. Each weight differs by at most 1e-5 from that of the same text
    alone, and each other number by at most 1e-5 of the largest number of its matrix (in half precision, by
    its rounding). Texts are read one by one if a trial of two texts shows a larger difference, by sources
    that read one text at a time, and with `edits` or `answers`, which are the same for each text. At most
    four batches of texts are read ahead.

    Raises `MhaError` as `trace` does, with the number of the text, when it reaches that text.
    """
    without_axis = getattr(texts, "ndim", None) == 0  # an array of one number claims to be iterable
    if isinstance(texts, str) or not isinstance(texts, Iterable) or without_axis:
        raise MhaError(
            "trace_many takes several texts, as in a list, and trace one; got {type}.", type=named_type(texts)
        )
    check_settings(source, settings)
    for name in ("attention_mask", "position_ids", "text_pair"):
        if settings.pop(name, None) is not None:
            raise MhaError(
                "{name} is of one text; trace each by itself: mha.trace(text, {name}=…).", name=name
            )
    targets = settings.pop("target", None)
    if isinstance(targets, str) or not isinstance(targets, Iterable | None):
        raise MhaError("target has one for each text, as in a list; got {type}.", type=named_type(targets))
    in_range("batch", batch, 1, MAX_BATCH)
    if reduce is not None and not callable(reduce):
        raise MhaError(
            "reduce is a function of one trace, as in reduce=mha.metrics; got {type}.",
            type=named_type(reduce),
        )
    outcomes = outcomes_of(texts, source=source, batch=batch, reduce=reduce, targets=targets, **settings)
    return batches.numbered(outcomes)


def outcomes_of(
    texts: Iterable[str | Ids],
    *,
    source: str | PathLike[str] | nn.Module,
    batch: int,
    reduce: Callable[[AttentionTrace], Any] | None,
    targets: Iterable[str | Ids] | None = None,
    **settings: Any,
) -> Iterator[Any]:
    """As `trace_many`, with the `MhaError` of a text that cannot be traced in place of its result."""
    if _is_built_in(source):
        return _one_by_one(texts, source, settings, reduce)
    asked = {name: settings.pop(name, None) for name in ("limit", "edits", "answers", "max_bytes")}
    reading = {name: value for name, value in asked.items() if value not in (None, False)}
    ready = model.model_of(source, answers="answers" in reading, **settings)
    return batches.outcomes(ready, texts, targets=targets, batch=batch, reduce=reduce, **reading)


def weights_digest(source: str | PathLike[str] | nn.Module, **settings: Any) -> str:
    """A short text that changes with the weights behind a source: of a model in memory, or of its files."""
    if _is_built_in(source):
        return f"edition {checkpoints.edition()}" if source == "mini" else ""
    settings.pop("limit", None)
    digest = sha256()
    for name, tensor in model.model_of(source, **settings).module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(uint8).numpy().data)
    return digest.hexdigest()[:16]


def _one_by_one(texts: Iterable, source: str, settings: dict, reduce: Callable | None) -> Iterator:
    for text in texts:
        trace = batches.outcome(_traced, text, source, settings)
        yield trace if reduce is None or isinstance(trace, MhaError) else reduce(trace)


def _is_built_in(source: Any) -> TypeGuard[str]:
    return isinstance(source, str) and source in SOURCES


def _function(source: Any) -> Callable[..., AttentionTrace]:
    return SOURCES[source] if _is_built_in(source) else model.trace


def _check_text(text: Any, source: Any) -> None:
    """Raise `MhaError` for a value that is not a text, before a model is loaded."""
    if isinstance(text, str):
        return
    built_in = _is_built_in(source)
    strings = [entry for entry in text if isinstance(entry, str)] if isinstance(text, list | tuple) else []
    # Without a space they are pieces of a tokenizer.
    if strings and (built_in or any(" " in entry for entry in strings)):
        raise MhaError("mha.trace takes one text; mha.trace_many(texts) takes several.")
    has_ids = isinstance(text, Sequence) or hasattr(text, "tolist")
    if built_in or not (has_ids or (isinstance(text, Mapping) and "input_ids" in text)):
        raise MhaError(
            "The text must be a string; got {type}."
            if built_in
            else "The text must be a string, or the ids of its tokens; got {type}.",
            type=named_type(text),
        )


def check_settings(source: Any, settings: dict[str, Any]) -> None:
    """Raise `MhaError` for an argument that the source lacks, and name the right source or argument."""
    if not isinstance(source, str | PathLike | nn.Module):
        raise MhaError(
            "source is {sources}, the id or the folder of a Hugging Face model, or "
            "a model in memory; got {type}.",
            sources=listed(map(repr, SOURCES), "comma"),
            type=named_type(source),
        )
    for name, unit in (
        ("limit", Phrase("tokens")),
        ("max_bytes", Phrase("bytes")),
        ("max_flops", Phrase("operations")),
    ):
        at_least_1(name, settings.get(name, 1), unit)
    arguments = _arguments(source)
    for name, value in settings.items():
        if name in arguments:
            continue
        others = [other for other in SOURCES if other != source and name in _arguments(other)]
        owners = [f"source={other!r}" for other in others]
        if not others and _is_built_in(source) and name in _arguments(""):
            owners = [Phrase("Hugging Face models")]
        if owners:
            raise MhaError(
                "{name} is an argument of {owners}, not of {source}, which takes {arguments}.",
                name=name,
                owners=listed(owners, "and"),
                source=_description(source),
                arguments=listed(arguments, "and"),
                fixes=tuple({"source": other} for other in others),
            )
        nearest = (
            [SYNONYMS[name]] if SYNONYMS.get(name) in arguments else get_close_matches(name, arguments, 1)
        )
        if nearest:
            raise MhaError(
                "{name} is not an argument of {source}; {nearest} is.",
                name=name,
                source=_description(source),
                nearest=nearest[0],
                fixes=({nearest[0]: value},),
            )
        raise MhaError(
            "{name} is not an argument of {source}, which takes {arguments}.",
            name=name,
            source=_description(source),
            arguments=listed(arguments, "and"),
        )


def _arguments(source: Any) -> list[str]:
    """The arguments of a source besides the text; names that are not in `SOURCES` are transformers models."""
    names = [*inspect.signature(_function(source)).parameters]
    if names[-1] == "reading":
        names[-1:] = model.Reading.__annotations__
    return [name for name in names if name not in ("text", "source")]


def _description(source: Any) -> str:
    if _is_built_in(source):
        return f"source={source!r}"
    if isinstance(source, nn.Module):
        return Phrase("a model in memory ({type})", type=type(source).__name__)
    return Phrase("source={name!r} (a Hugging Face model)", name=str(source))
