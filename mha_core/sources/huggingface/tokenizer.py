"""A text as a model's inputs and as readable tokens, by the model's tokenizer.

Tokenizers write a space as Ġ or ▁ and a byte as a letter or as <0xE5>, and cut characters into bytes. Here
the space before a piece is dropped, other white space gets a sign, and each part of a cut character is that
character with the number of the part.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index

import regex
import torch
from torch import Tensor, nn

from mha_core.errors import MhaError
from mha_core.sources.huggingface.loading import first_line
from mha_core.traces.tokens import MAX_TOKENS, Tokens, check_characters, spaced
from mha_core.traces.tokens import words as cut_into_words

MAX_NEW_TOKENS = 32  # of a target that the model writes itself
MAX_ID = 2**31 - 1
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
Ids = Sequence[int] | Sequence[str] | Tensor  # of the tokens of one text, or the tokenizer's own pieces

_tokenizer_lock = threading.Lock()  # tokenizers in Rust refuse two callers at once


def encoded(tokenizer, text: str | Ids, *, limit: int, name: str) -> tuple[Tokens, dict[str, list[int]]]:
    """The tokens and the model's inputs of a text, or of the ids of one.

    Raises `MhaError` for a text that is empty, too long or has half of a character, for a text without a
    tokenizer, and for a value that is neither a text nor ids.
    """
    if not isinstance(text, str):
        ids = token_ids(tokenizer, text)
        _check_length(len(ids), limit, name)
        return tokens_of(tokenizer, ids), {"input_ids": ids}
    if not text.strip():
        raise MhaError("There is no text to look at; type at least one word.")
    check_characters(text)
    _check_tokenizer(tokenizer, name)
    fast = bool(getattr(tokenizer, "is_fast", False))
    with _using_tokenizer(name):
        encoding = tokenizer(text, return_offsets_mapping=fast, verbose=False)
        ids = list(encoding["input_ids"])
        raw = [str(piece) for piece in tokenizer.convert_ids_to_tokens(ids)]
        special, letters = _special(tokenizer, ids, encoding), _letters(tokenizer)
    offsets = encoding["offset_mapping"] if fast else None
    tokens = readable_tokens(text, raw, special=special, letters=letters, offsets=offsets)
    if all(special):
        raise MhaError(f"The tokenizer of {name} finds nothing in this text; type another word.")
    if len(tokens) > limit:
        last = max(0, limit - sum(special) - 1)
        raise MhaError(
            f"The text has {len(tokens):,} tokens and {name} takes {limit:,}; "
            f"remove {len(tokens) - limit:,} or keep the first {limit:,}.",
            fixes=({"text": tokens.text[: tokens.spans[last][1]]},),
        )
    return tokens, {key: list(encoding[key]) for key in INPUTS if key in encoding}


@contextmanager
def _using_tokenizer(name: str) -> Iterator[None]:
    """The lock of tokenizers; an error in one as an `MhaError`, with the error itself as its cause."""
    with _tokenizer_lock:
        try:
            yield
        except Exception as error:  # each kind of tokenizer raises others
            raise MhaError(f"The tokenizer of {name} cannot read this text ({first_line(error)}).") from error


def _check_tokenizer(tokenizer, name: str) -> None:
    if tokenizer is None:
        raise MhaError(
            f"{name} has no tokenizer, so it cannot read a text; give it one (tokenizer=), "
            f"or the ids of the tokens instead of the text."
        )
    if not callable(tokenizer) or not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise MhaError(
            f"tokenizer is of the type {type(tokenizer).__name__}; a tokenizer of transformers can be used, "
            f"such as AutoTokenizer.from_pretrained(…) gives."
        )


def _check_length(n: int, limit: int, name: str, what: str = "text") -> None:
    if n > limit:
        raise MhaError(f"The {what} has {n:,} tokens and {name} takes {limit:,}.")


def token_ids(tokenizer, ids: Ids) -> list[int]:
    """The ids of tokens, which may also be the tokenizer's own pieces.

    Raises `MhaError` for an empty list, more than one row, and for an entry that is no token.
    """
    if hasattr(ids, "tolist"):  # of torch, numpy, pandas or the module array
        shape = tuple(ids.shape) if hasattr(ids, "shape") else (len(ids),)
        if len(shape) == 2 and shape[0] == 1:
            ids, shape = ids[0], shape[1:]
        if len(shape) != 1:
            raise MhaError(f"Ids of the shape {shape} are no single text; one row (token) can be traced.")
        ids = ids.tolist()
    if not isinstance(ids, Sequence) or isinstance(ids, bytes | bytearray):
        raise MhaError(
            f"A text is a string, or the ids of its tokens, and this is of the type {type(ids).__name__}."
        )
    if not ids:
        raise MhaError("There are no tokens to look at; give at least one.")
    if all(isinstance(piece, str) for piece in ids):
        _check_tokenizer(tokenizer, "The model")
        vocabulary = set(tokenizer.get_vocab())
        if unknown := [piece for piece in ids if piece not in vocabulary]:
            raise MhaError(f"The tokenizer has no piece {unknown[0]!r}; a text is given as one string.")
        return [int(number) for number in tokenizer.convert_tokens_to_ids(list(ids))]
    for number in ids:
        if isinstance(number, bool) or not hasattr(number, "__index__") or not 0 <= number <= MAX_ID:
            raise MhaError(f"{number!r} is no id of a token; ids are whole numbers from 0 to {MAX_ID:,}.")
    return [index(number) for number in ids]


def tokens_of(tokenizer, ids: Sequence[int], text: str | None = None, *, start: bool = False) -> Tokens:
    """The tokens of ids; without a tokenizer their labels are the ids.

    `text` is their text if that is known. With `start` the first token is that of the beginning.
    """
    if tokenizer is None:
        return spaced([str(number) for number in ids], special=(0,) if start else ())
    _check_tokenizer(tokenizer, "The model")
    with _tokenizer_lock:
        pieces = tokenizer.convert_ids_to_tokens(list(ids))
        special, letters = _special(tokenizer, ids), _letters(tokenizer)
        text = tokenizer.decode(list(ids), skip_special_tokens=True) if text is None else text
    # A model can have more numbers than its tokenizer has pieces, and write one of them.
    raw = [f"<{number}>" if piece is None else str(piece) for number, piece in zip(ids, pieces, strict=True)]
    special = [known or piece is None for known, piece in zip(special, pieces, strict=True)]
    special[0] |= start
    return readable_tokens(text, raw, special=special, letters=letters)


def decoder_ids(module: nn.Module, tokenizer, target: str | Ids, *, limit: int, name: str) -> list[int]:
    """What the decoder reads for a target: its tokens moved to the right by one, as in training.

    The model's own shift is used where it has one: mBART and PLBart put the language, which the tokenizer
    writes last, in front. Ids without an end get the start token in front; ids that begin with it stay.
    Raises `MhaError` for a target that is empty or too long, and where the start token is not known.
    """
    start = start_token(module)
    if isinstance(target, str):
        if not target.strip():
            raise MhaError("The target is empty; type at least one word, or leave it out.")
        check_characters(target)
        _check_tokenizer(tokenizer, name)
        with _using_tokenizer(name):
            labels = list(tokenizer(text_target=target, verbose=False)["input_ids"])
    else:
        labels = token_ids(tokenizer, target)
    shift = getattr(module, "prepare_decoder_input_ids_from_labels", None)
    if labels and labels[0] == start and (shift is None or not isinstance(target, str)):
        ids = labels[:-1] if isinstance(target, str) and _is_end(module, tokenizer, labels[-1]) else labels
    elif not (labels and _is_end(module, tokenizer, labels[-1])):
        ids = [start, *labels]
    elif (shifted := _shifted(shift, labels)) is not None:
        ids = shifted
    else:
        ids = [start, *labels[:-1]]
    if None in ids:
        raise MhaError(
            f"It is not known with which token a target of {name} begins: neither its config nor its "
            f"generation config has a decoder_start_token_id. Set it there."
        )
    _check_length(len(ids), limit, name, "target")
    return ids


def start_token(module: nn.Module) -> int | None:
    """The id that the decoder reads first, as `generate` of transformers chooses it; None where unknown."""
    settings = (module.config, getattr(module, "generation_config", None))
    for name in ("decoder_start_token_id", "bos_token_id"):
        for each in settings:
            if isinstance(number := getattr(each, name, None), int):
                return number
    return None


def _is_end(module: nn.Module, tokenizer, number: int) -> bool:
    """Whether a token stands for the end of a target or, behind that, for its language."""
    ends = getattr(module.config.get_text_config(decoder=True), "eos_token_id", None)
    special = getattr(tokenizer, "all_special_ids", ())
    return number in special or number in (ends if isinstance(ends, list | tuple) else (ends,))


def _shifted(shift: Callable[[Tensor], Tensor] | None, labels: list[int]) -> list[int] | None:
    """The labels moved by the model's own function; None where it has none or lacks the start token."""
    if shift is None:
        return None
    try:
        return shift(torch.tensor([labels]))[0].tolist()
    except (AttributeError, ValueError, TypeError):
        return None


def written_target(module: nn.Module, inputs: Mapping[str, Tensor], *, name: str) -> list[int]:
    """What the decoder reads while the model writes a target, the most probable token each time."""
    if not module.can_generate():
        raise MhaError(f"{name} cannot write a target itself; type one.")
    with torch.no_grad():
        # Without a cache: some models lay it out for as many layers as the encoder has.
        ids = module.generate(
            **inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False, num_beams=1, use_cache=False
        )
    # The last token is written, but never read.
    return ids[0].tolist()[: max(1, ids.shape[1] - 1)]


def check_ids(module: nn.Module, ids: list[int], *, name: str) -> None:
    """Raise `MhaError` for tokens that the model has no vectors for."""
    embedding = _table_size(module)
    if embedding is not None and max(ids) >= embedding:
        raise MhaError(
            f"{name} has no vector for the token {max(ids):,}: it has {embedding:,}, from 0 on. "
            f"The tokenizer, or the ids, belong to another model."
        )


def _table_size(module: nn.Module) -> int | None:
    """How many tokens have a vector; None where every number has one: CANINE hashes those of characters.

    Where transformers names no table of vectors it is the size of the largest table of the model.
    """
    if module.config.model_type == "canine":
        return None
    try:
        return getattr(module.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:
        tables = [part for part in module.modules() if isinstance(part, nn.Embedding)]
        return max((table.num_embeddings for table in tables), default=None)


POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")


def limit(module: nn.Module, tokenizer, *, side: str = "encoder") -> int:
    """The largest number of tokens: that of the tokenizer, of the positions, and never above ours.

    `side` is "encoder" for a text and "decoder" for a target.
    """
    config, limits = module.config.get_text_config(), [MAX_TOKENS]
    for settings, name in [
        (tokenizer, "model_max_length"),
        *((config, name) for name in (*POSITIONS, f"max_{side}_position_embeddings")),
    ]:
        if isinstance(number := getattr(settings, name, None), int) and number > 0:
            limits.append(number)
    for name, part in module.named_modules():
        table, padding = getattr(part, "weight", None), getattr(part, "padding_idx", None)
        if "position" in name.rpartition(".")[2] and table is not None and padding is not None:
            limits.append(table.shape[0] - padding - 1)  # RoBERTa's positions start behind the padding
    return min(limits)


def _special(tokenizer, ids: Sequence[int], encoding=None) -> list[bool]:
    """For each token whether it stands for no text; the one for unknown words does."""
    encodings = getattr(encoding, "encodings", None)
    marks = encodings[0].special_tokens_mask if encodings else [0] * len(ids)
    special_ids = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return [bool(mark) or number in special_ids for mark, number in zip(marks, ids, strict=True)]


def _letters(tokenizer) -> Mapping[str, int] | None:
    """The byte of each letter of this tokenizer's pieces; None where letters are letters."""
    if type(tokenizer).__name__ == "ByT5Tokenizer":
        return LATIN
    if getattr(tokenizer, "is_fast", False):
        backend = tokenizer.backend_tokenizer
        parts = [part for part in (backend.decoder, backend.pre_tokenizer) if part is not None]
        return BYTES if any(b"ByteLevel" in part.__getstate__() for part in parts) else None
    return BYTES if hasattr(tokenizer, "byte_decoder") else None


SIGNS = str.maketrans({" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\u00a0": "␣", "\u3000": "␣"})
SPACE = "▁"  # what sentencepiece writes for a space
BYTE = regex.compile(r"<0x([0-9A-Fa-f]{2})>")
INVISIBLE = regex.compile(r"[\p{Cc}\p{Cf}\p{Zs}\p{Zl}\p{Zp}]")
PART = regex.compile(r"(U\+[0-9A-F]{4,6}|.)·([1-4])", regex.DOTALL)  # of a cut character


def readable_tokens(
    text: str,
    raw: Sequence[str],
    *,
    special: Sequence[bool],
    letters: Mapping[str, int] | None,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> Tokens:
    """The pieces of a text as `Tokens`: readable, with their spans in the text and their words.

    `raw` are the tokenizer's pieces, and `letters` the byte of each letter where letters stand for bytes:
    `BYTES` or `LATIN`. Without `offsets` (a tokenizer in Python) the pieces are searched in the text.
    """
    pieces = readable(raw, special=special, letters=letters)
    spans = _trimmed(text, offsets, special) if offsets is not None else _searched(text, pieces, special)
    return Tokens(
        text,
        tuple(pieces),
        tuple(spans),
        _words(text, spans, special),
        tuple(at for at, is_special in enumerate(special) if is_special),
    )


def readable(raw: Sequence[str], *, special: Sequence[bool], letters: Mapping[str, int] | None) -> list[str]:
    """The pieces in readable form: without spaces and bytes, none of them empty.

    A piece with some bytes of a character becomes that character, "·" and the number of the part; bytes that
    are no character become hexadecimal digits.
    """
    pieces = [""] * len(raw)
    for start, stop, contents in _runs(raw, special, letters):
        pieces[start:stop] = _of_bytes(contents)
    for at, is_special in enumerate(special):
        if is_special:
            pieces[at] = raw[at]
    return [_signed(piece, is_special) for piece, is_special in zip(pieces, special, strict=True)]


def _runs(
    raw: Sequence[str], special: Sequence[bool], letters: Mapping[str, int] | None
) -> Iterator[tuple[int, int, list[bytes]]]:
    """Runs of neighbouring pieces of text, as bytes: a character may be spread over several pieces."""
    start, contents = 0, []
    for at, piece in enumerate(raw):
        if special[at]:
            if contents:
                yield start, at, contents
            contents = []
            continue
        if not contents:
            start = at
        contents.append(_letters_to_bytes(piece, letters) if letters else _marks_to_bytes(piece))
    if contents:
        yield start, len(raw), contents


def _letters_to_bytes(piece: str, letters: Mapping[str, int]) -> bytes:
    if all(letter in letters for letter in piece):
        return bytes(letters[letter] for letter in piece)
    return piece.encode(errors="replace")  # an added token, which is written as it is


def _marks_to_bytes(piece: str) -> bytes:
    byte = BYTE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(SPACE, " ").encode(errors="replace")


def _of_bytes(contents: list[bytes]) -> list[str]:
    """The characters of each piece; of a character that is spread over pieces, the number of the part."""
    whole = b"".join(contents)
    owner = [at for at, content in enumerate(contents) for _ in content]
    pieces = [""] * len(contents)
    position = 0
    while position < len(whole):
        character, size = _character(whole, position)
        owners = list(dict.fromkeys(owner[position : position + size]))
        for number, at in enumerate(owners, start=1):
            # An invisible character would leave its number alone on the screen.
            pieces[at] += character if len(owners) == 1 else f"{_signed(character, False)}·{number}"
        position += size
    return pieces


def _character(whole: bytes, position: int) -> tuple[str, int]:
    """The character that starts at a byte, and its number of bytes; else the byte in hexadecimal digits."""
    for size in range(1, 5):
        try:
            return whole[position : position + size].decode(), size
        except UnicodeDecodeError:
            continue
    return f"0x{whole[position]:02X}", 1


def _signed(piece: str, is_special: bool) -> str:
    """A piece without the space before it; other invisible characters get a sign or their code point."""
    if is_special and piece.strip() and not regex.search(r"\s", piece):
        return piece
    if piece.startswith(" ") and len(piece) > 1 and piece.strip(" "):
        piece = piece[1:]
    piece = piece.translate(SIGNS)
    if not piece:
        return "∅"
    if INVISIBLE.search(piece) and not regex.search(r"[\p{L}\p{N}\p{S}\p{P}]", INVISIBLE.sub("", piece)):
        return "".join(f"U+{ord(letter):04X}" if INVISIBLE.match(letter) else letter for letter in piece)
    return INVISIBLE.sub("", piece) if regex.search(r"\p{Z}|\p{Cc}", piece) else piece


def _trimmed(text: str, offsets: Sequence[tuple[int, int]], special: Sequence[bool]) -> list[tuple[int, int]]:
    """Spans in the text without the white space around them; a special piece has a span of width 0."""
    spans, reached = [], 0
    for (start, end), is_special in zip(offsets, special, strict=True):
        if is_special and (start, end) == (0, 0):
            spans.append((reached, reached))
            continue
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        spans.append((start, end))
        reached = max(reached, end)
    return spans


def _searched(text: str, pieces: list[str], special: Sequence[bool]) -> list[tuple[int, int]]:
    """Spans by searching each piece behind the one before; of width 0 where it does not occur."""
    spans, reached = [], 0
    folded = text.casefold() if len(text.casefold()) == len(text) else text
    for piece, is_special in zip(pieces, special, strict=True):
        target, start = piece.removeprefix("##").casefold(), reached
        at = -1 if is_special or not target else folded.find(target, start)
        if at < 0 and not is_special and (part := PART.match(piece)):  # a part has the span of its character
            target = PART.sub(_whole, piece).casefold()
            start -= part[2] != "1" and len(_whole(part))
            at = folded.find(target, max(start, 0))
        if 0 <= at <= start + 8:  # farther away it is another occurrence
            spans.append((at, at + len(target)))
            reached = at + len(target)
        else:
            spans.append((reached, reached))
    return spans


def _whole(part: regex.Match) -> str:
    """The character of a part."""
    return chr(int(part[1][2:], 16)) if len(part[1]) > 2 else part[1]


def _words(text: str, spans: list[tuple[int, int]], special: Sequence[bool]) -> tuple[int, ...]:
    """The number of each piece's word. Words are those of `traces.tokens.words`: in Chinese, characters."""
    starts = [0] * (len(text) + 1)
    if text.strip():
        for number, (start, end) in enumerate(_word_spans(text), start=1):
            starts[start:end] = [number] * (end - start)
    numbers, last, number = [], None, -1
    for at, ((start, end), is_special) in enumerate(zip(spans, special, strict=True)):
        # A piece without a span is a word by itself.
        word = ("alone", at) if is_special or start == end else starts[start] or ("alone", at)
        if word != last:
            number += 1
        numbers.append(number)
        last = word
    return tuple(numbers)


def _word_spans(text: str) -> tuple[tuple[int, int], ...]:
    try:
        return cut_into_words(text, limit=len(text) + 1).spans
    except MhaError:  # nothing but white space and invisible characters
        return ()


def _byte_letters() -> dict[str, int]:
    """The byte of each letter, as in GPT-2: visible characters stand for themselves, Ā and on for others."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {chr(byte): byte for byte in visible}
    others = (byte for byte in range(256) if byte not in visible)
    return letters | {chr(256 + at): byte for at, byte in enumerate(others)}


BYTES = _byte_letters()  # GPT-2 and those after it
LATIN = {chr(byte): byte for byte in range(256)}  # ByT5
