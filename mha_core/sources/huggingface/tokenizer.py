"""Turns a text, or the ids of its tokens, into a model's inputs and `Tokens`, by the model's tokenizer."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from typing import Any

import torch
from torch import Tensor, nn

from mha_core.errors import MhaError, Phrase, named_type
from mha_core.sources.huggingface import PreTrainedModel
from mha_core.sources.huggingface.loading import first_line
from mha_core.sources.huggingface.token_labels import BYTES, LATIN, readable_tokens
from mha_core.traces.tokens import EMPTY, Tokens, check_characters, spaced, too_long

MAX_ID = 2**31 - 1
POSITIONS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"),
    "max_target_positions",  # of Whisper's decoder, which can read a text without audio
)
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")  # a number for each token
# The ids of the tokens of one text, the tokenizer's own pieces, or all that a tokenizer returns for one text.
Ids = Sequence[int] | Sequence[str] | Tensor | Mapping[str, Any]
PerToken = Sequence[int] | Tensor  # a number for each token of one text

_tokenizer_lock = threading.Lock()  # tokenizers in Rust raise an error for two callers at once


def encoded(
    tokenizer: Any, text: str | Ids, pair: str | None = None, *, limit: int, most: int = MAX_ID, name: str
) -> tuple[Tokens, dict[str, list[int]]]:
    """The tokens and the model's inputs of a text, of a pair of texts, or of the ids of one.

    `most` is the largest number of tokens that the model takes, `limit` that of the caller. Raises `MhaError`
    for a text that is empty, too long or has a lone surrogate, for a text without a tokenizer, for a pair
    that is no text, and for a value that is neither a text nor ids.
    """
    if pair is not None and not (isinstance(text, str) and isinstance(pair, str)):
        raise MhaError(
            "text_pair is a second text beside a first one; ids of a pair are given as the tokenizer returns "
            "them: mha.trace(tokenizer(one, other), source=model)."
        )
    if not isinstance(text, str):
        inputs = _given_inputs(tokenizer, text) if isinstance(text, Mapping) else None
        ids = token_ids(tokenizer, text) if inputs is None else inputs["input_ids"]
        check_length(len(ids), name, limit=limit, most=most)
        return tokens_of(tokenizer, ids), inputs or {"input_ids": ids}
    if not text.strip():
        raise MhaError(EMPTY)
    whole = text if pair is None else f"{text} {pair}"
    check_characters(whole)
    check_tokenizer(tokenizer, name)
    fast = bool(getattr(tokenizer, "is_fast", False))
    with using_tokenizer(name):
        encoding = tokenizer(text, pair, return_offsets_mapping=fast, verbose=False)
        ids = list(encoding["input_ids"])
        raw = [str(piece) for piece in tokenizer.convert_ids_to_tokens(ids)]
        special, letters = _special(tokenizer, ids, encoding), letters_of(tokenizer)
    offsets = encoding["offset_mapping"] if fast else None
    if offsets and pair is not None:
        behind = [(len(text) + 1) * (of == 1) for of in encoding.sequence_ids()]
        offsets = [(start + by, end + by) for (start, end), by in zip(offsets, behind, strict=True)]
    tokens = readable_tokens(whole, raw, special=special, letters=letters, offsets=offsets)
    if all(special):
        raise MhaError("The tokenizer of {name} finds nothing in this text; type another word.", name=name)
    if len(tokens) > min(limit, most):
        last = max(0, min(limit, most) - sum(special) - 1)
        raise too_long(
            len(tokens),
            min(limit, most),
            rule=Phrase("the limit is") if limit < most else Phrase("{name} takes", name=name),
            fix=tokens.text[: tokens.spans[last][1]],
        )
    return tokens, {key: list(encoding[key]) for key in INPUTS if key in encoding}


def _given_inputs(tokenizer: Any, given: Mapping[str, Any]) -> dict[str, list[int]]:
    """The inputs of one text that a tokenizer has returned. Raises `MhaError` for those of several."""
    ids = given["input_ids"]
    if isinstance(ids, list) and len(ids) == 1 and isinstance(ids[0], list):  # of a list of one text
        ids = ids[0]
    ids = token_ids(tokenizer, ids)
    others = {name: given[name] for name in INPUTS[1:] if name in given}
    return {"input_ids": ids} | {
        name: per_token(name, numbers, len(ids), largest=1 if name == "attention_mask" else MAX_ID)
        for name, numbers in others.items()
    }


@contextmanager
def using_tokenizer(name: str) -> Iterator[None]:
    """Hold the lock of tokenizers; an error in one becomes an `MhaError` with that error as its cause."""
    with _tokenizer_lock:
        try:
            yield
        except Exception as error:  # each kind of tokenizer has its own errors
            raise MhaError(
                "The tokenizer of {name} cannot read this text ({reason}).",
                name=name,
                reason=first_line(error),
            ) from error


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Raise `MhaError` without a tokenizer, and for one that is not of transformers."""
    if tokenizer is None:
        raise MhaError(
            "{name} has no tokenizer, so it cannot read a text; give it one (tokenizer=), "
            "or the ids of the tokens instead of the text.",
            name=name,
        )
    if not callable(tokenizer) or not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise MhaError(
            "tokenizer is of the type {type}; a tokenizer of transformers can be used, "
            "such as AutoTokenizer.from_pretrained(…) gives.",
            type=type(tokenizer).__name__,
        )


def check_length(n: int, name: str, what: str = Phrase("text"), *, limit: int, most: int) -> None:
    """Raise `MhaError` for more tokens than the model takes (`most`), or than the caller's `limit`."""
    if n > most:
        raise MhaError(
            "The {what} has {n:,} tokens and {name} takes {limit:,}.", what=what, n=n, name=name, limit=most
        )
    if n > limit:
        raise MhaError(
            "The {what} has {n:,} tokens and the limit is {limit:,}; {name} reads it with limit={n}.",
            what=what,
            n=n,
            limit=limit,
            name=name,
        )


def token_ids(tokenizer: Any, ids: Any) -> list[int]:
    """The ids of tokens, which may also be the tokenizer's own pieces.

    Raises `MhaError` for an empty list, more than one row, and for an entry that is no token.
    """
    if hasattr(ids, "tolist"):  # from torch, numpy, pandas or the module array
        shape = tuple(ids.shape) if hasattr(ids, "shape") else (len(ids),)
        if len(shape) == 2 and shape[0] == 1:
            ids, shape = ids[0], shape[1:]
        if len(shape) != 1:
            raise MhaError(
                "Ids of the shape {shape} are no single text; one row (token) can be traced.", shape=shape
            )
        ids = ids.tolist()
    if not isinstance(ids, Sequence) or isinstance(ids, bytes | bytearray):
        raise MhaError(
            "A text is a string, or the ids of its tokens, and this is of the type {type}.",
            type=type(ids).__name__,
        )
    if not ids:
        raise MhaError("There are no tokens to look at; give at least one.")
    if all(isinstance(piece, str) for piece in ids):
        check_tokenizer(tokenizer, "The model")
        vocabulary = set(tokenizer.get_vocab())
        if unknown := [piece for piece in ids if piece not in vocabulary]:
            raise MhaError(
                "The tokenizer has no piece {piece!r}; a text is given as one string.", piece=unknown[0]
            )
        return [int(number) for number in tokenizer.convert_tokens_to_ids(list(ids))]
    for number in ids:
        if isinstance(number, bool) or not hasattr(number, "__index__") or not 0 <= number <= MAX_ID:
            raise MhaError(
                "{number!r} is no id of a token; ids are whole numbers from 0 to {limit:,}.",
                number=number,
                limit=MAX_ID,
            )
    return [index(number) for number in ids]


def tokens_of(tokenizer: Any, ids: Sequence[int], text: str | None = None, *, start: bool = False) -> Tokens:
    """The tokens of ids; without a tokenizer their labels are the ids.

    `text` is their text if it is known. With `start` the first token is the start token.
    """
    if tokenizer is None:
        return spaced([str(number) for number in ids], special=(0,) if start else ())
    check_tokenizer(tokenizer, "The model")
    with _tokenizer_lock:
        pieces = tokenizer.convert_ids_to_tokens(list(ids))
        special, letters = _special(tokenizer, ids), letters_of(tokenizer)
        text = tokenizer.decode(list(ids), skip_special_tokens=True) if text is None else text
    # A model can have more ids than its tokenizer has pieces, and generate one of these.
    raw = [f"<{number}>" if piece is None else str(piece) for number, piece in zip(ids, pieces, strict=True)]
    special = [known or piece is None for known, piece in zip(special, pieces, strict=True)]
    special[0] |= start
    return readable_tokens(text, raw, special=special, letters=letters)


def check_ids(module: PreTrainedModel, ids: list[int], *, name: str) -> None:
    """Raise `MhaError` for ids without an embedding in the model."""
    embedding = _table_size(module)
    if embedding is not None and max(ids) >= embedding:
        raise MhaError(
            "{name} has no vector for the token {number:,}: it has {n_known:,}, from 0 on. "
            "The tokenizer, or the ids, belong to another model.",
            name=name,
            number=max(ids),
            n_known=embedding,
        )


def _table_size(module: PreTrainedModel) -> int | None:
    """The number of ids with an embedding; None where every id has one: CANINE hashes characters.

    If transformers does not name the embedding table, it is the size of the model's largest table.
    """
    if module.config.model_type == "canine":
        return None
    try:
        return getattr(module.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:
        tables = [part for part in module.modules() if isinstance(part, nn.Embedding)]
        return max((table.num_embeddings for table in tables), default=None)


def per_token(name: str, numbers: PerToken, n: int, *, largest: int) -> list[int]:
    """The caller's numbers for the `n` tokens of a text, (token,) or (1, token), from 0 to `largest`.

    `name` is the name of the argument. Raises `MhaError` for another shape and for other numbers.
    """
    try:
        table = torch.as_tensor(numbers)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # rows of several lengths, words, an object
        table = None
    if table is None or tuple(table.shape) not in ((n,), (1, n)):
        got = named_type(numbers) if table is None else Phrase("the shape {shape}", shape=tuple(table.shape))
        raise MhaError(
            "{name} has a number for each of the {n} tokens of the text, ({n},) or (1, {n}); got {got}.",
            name=name,
            n=n,
            got=got,
        )
    for number in table.flatten().tolist():
        if number not in range(largest + 1):
            raise MhaError(
                "{name} has whole numbers from 0 to {largest:,}; got {number}.",
                name=name,
                largest=largest,
                number=repr(number),
            )
    return table.flatten().long().tolist()


def max_position(module: PreTrainedModel) -> int:
    """The largest position that a token of a text may have."""
    config = module.config.get_text_config()
    limits = [limit for name in POSITIONS if isinstance(limit := getattr(config, name, None), int)]
    return min((limit - 1 for limit in limits if limit > 0), default=MAX_ID)


def max_tokens(module: PreTrainedModel, tokenizer: Any, *, side: str = "encoder") -> int:
    """The largest number of tokens: the lowest limit of the tokenizer and the positions.

    `side` is "encoder" for a text and "decoder" for a target.
    """
    config, names = module.config.get_text_config(), (*POSITIONS, f"max_{side}_position_embeddings")
    given = [getattr(tokenizer, "model_max_length", None), *(getattr(config, name, None) for name in names)]
    limits = [MAX_ID, *(number for number in given if isinstance(number, int) and number > 0)]
    for name, part in module.named_modules():
        table, padding = getattr(part, "weight", None), getattr(part, "padding_idx", None)
        if "position" in name.rpartition(".")[2] and table is not None and padding is not None:
            limits.append(table.shape[0] - padding - 1)  # RoBERTa's positions start after the padding
    return min(limits)


def _special(tokenizer: Any, ids: Sequence[int], encoding: Any = None) -> list[bool]:
    """For each token whether it is special, without text of its own; the unknown token is not special."""
    encodings = getattr(encoding, "encodings", None)
    marks = encodings[0].special_tokens_mask if encodings else [0] * len(ids)
    special_ids = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return [bool(mark) or number in special_ids for mark, number in zip(marks, ids, strict=True)]


def letters_of(tokenizer: Any) -> Mapping[str, int] | None:
    """The byte of each letter in this tokenizer's pieces; None if it writes plain letters."""
    if type(tokenizer).__name__ == "ByT5Tokenizer":
        return LATIN
    if getattr(tokenizer, "is_fast", False):
        backend = tokenizer.backend_tokenizer
        parts = [part for part in (backend.decoder, backend.pre_tokenizer) if part is not None]
        return BYTES if any(b"ByteLevel" in part.__getstate__() for part in parts) else None
    return BYTES if hasattr(tokenizer, "byte_decoder") else None
