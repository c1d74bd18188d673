"""A text as the numbers that a model reads, and as tokens that a person reads, by the model's tokenizer.

Tokenizers write a space as Ġ or ▁, a byte as a letter that stands for it or as <0xE5>, and cut
characters into bytes. Here a space before a piece is left away, other white space gets a sign, and
each part of a cut character is that character with the number of the part.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import index

import regex
import torch
from torch import Tensor, nn

from mha_core.errors import MhaError
from mha_core.traces.tokens import MAX_TOKENS, Tokens
from mha_core.traces.tokens import words as cut_into_words

MOST_NEW = 32  # tokens of a target that the model writes itself
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
Ids = Sequence[int] | Sequence[str] | Tensor  # of the tokens of one text, or the tokenizer's own pieces

_one_at_a_time = threading.Lock()  # tokenizers in Rust refuse two callers at once


def encoded(tokenizer, typed: str | Ids, *, limit: int, name: str) -> tuple[Tokens, dict[str, list[int]]]:
    """The tokens and the model's inputs of a text, or of ids that stand for one.

    Raises `MhaError` for a text that is empty or too long, for a text without a tokenizer, and for what is
    neither a text nor ids.
    """
    if not isinstance(typed, str):
        ids = numbers(tokenizer, typed)
        _within(len(ids), limit, name)
        return tokens_of(tokenizer, ids), {"input_ids": ids}
    if not typed.strip():
        raise MhaError("There is no text to look at; type at least one word.")
    _needed(tokenizer, name)
    fast = bool(getattr(tokenizer, "is_fast", False))
    with _one_at_a_time:
        found = tokenizer(typed, return_offsets_mapping=fast, verbose=False)
        ids = list(found["input_ids"])
        raw = [str(piece) for piece in tokenizer.convert_ids_to_tokens(ids)]
        special, letters = _special(tokenizer, ids, found), _letters(tokenizer)
    offsets = found["offset_mapping"] if fast else None
    tokens = readable_tokens(typed, raw, special=special, letters=letters, offsets=offsets)
    if all(special):
        raise MhaError(f"The tokenizer of {name} finds nothing in this text; type another word.")
    if len(tokens) > limit:
        kept = max(0, limit - sum(special) - 1)
        raise MhaError(
            f"The text has {len(tokens):,} tokens and {name} takes {limit:,}; "
            f"remove {len(tokens) - limit:,} or keep the first {limit:,}.",
            fixes=({"text": tokens.text[: tokens.spans[kept][1]]},),
        )
    return tokens, {key: list(found[key]) for key in INPUTS if key in found}


def _needed(tokenizer, name: str) -> None:
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


def _within(n: int, limit: int, name: str, what: str = "text") -> None:
    if n > limit:
        raise MhaError(f"The {what} has {n:,} tokens and {name} takes {limit:,}.")


def numbers(tokenizer, given: Ids) -> list[int]:
    """The ids of tokens that were given as numbers, or as the tokenizer's own pieces.

    Raises `MhaError` for an empty list, more than one row, and for what stands for no token.
    """
    if isinstance(given, Tensor) or hasattr(given, "tolist"):
        shape = tuple(given.shape)
        if len(shape) == 2 and shape[0] == 1:
            given, shape = given[0], shape[1:]
        if len(shape) != 1:
            raise MhaError(f"Ids of the shape {shape} are no single text; one row (token) can be traced.")
        given = given.tolist()
    if not isinstance(given, Sequence):
        raise MhaError(
            f"A text is a string, or the ids of its tokens, and this is of the type {type(given).__name__}."
        )
    if not given:
        raise MhaError("There are no tokens to look at; give at least one.")
    if all(isinstance(piece, str) for piece in given):
        _needed(tokenizer, "The model")
        known = set(tokenizer.get_vocab())
        if unknown := [piece for piece in given if piece not in known]:
            raise MhaError(f"The tokenizer has no piece {unknown[0]!r}; a text is given as one string.")
        return [int(number) for number in tokenizer.convert_tokens_to_ids(list(given))]
    wrong = [n for n in given if isinstance(n, bool) or not hasattr(n, "__index__")]
    if wrong or min(given) < 0:
        told = wrong[0] if wrong else min(given)
        raise MhaError(f"{told!r} is no id of a token; ids are whole numbers from 0 on.")
    return [index(number) for number in given]


def tokens_of(tokenizer, ids: Sequence[int], typed: str | None = None, *, start: bool = False) -> Tokens:
    """The tokens that ids stand for; without a tokenizer their labels are the ids.

    `typed` is their text if that is known, and `start` says that the first one stands for none.
    """
    if tokenizer is None:
        pieces = [str(number) for number in ids]
        ends = list(accumulate(len(piece) + 1 for piece in pieces))
        spans = tuple((end - len(piece) - 1, end - 1) for end, piece in zip(ends, pieces, strict=True))
        return Tokens(" ".join(pieces), tuple(pieces), spans, special=(0,) if start else ())
    _needed(tokenizer, "The model")
    with _one_at_a_time:
        found = tokenizer.convert_ids_to_tokens(list(ids))
        special, letters = _special(tokenizer, ids), _letters(tokenizer)
        typed = tokenizer.decode(list(ids), skip_special_tokens=True) if typed is None else typed
    # A model can have more numbers than its tokenizer has pieces, and write one of them.
    raw = [f"<{number}>" if piece is None else str(piece) for number, piece in zip(ids, found, strict=True)]
    special = [known or piece is None for known, piece in zip(special, found, strict=True)]
    special[0] |= start
    return readable_tokens(typed, raw, special=special, letters=letters)


def encoded_target(tokenizer, typed: str | Ids, *, start: int, limit: int, name: str) -> list[int]:
    """What the decoder reads for a target: the start token, then the target without its end."""
    if isinstance(typed, str):
        if not typed.strip():
            raise MhaError("The target is empty; type at least one word, or leave it out.")
        _needed(tokenizer, name)
        with _one_at_a_time:
            ids = list(tokenizer(text_target=typed, verbose=False)["input_ids"])
        if ids and ids[-1] == tokenizer.eos_token_id:
            ids = ids[:-1]
    else:
        ids = numbers(tokenizer, typed)
    ids = ids if ids and ids[0] == start else [start, *ids]
    _within(len(ids), limit, name, "target")
    return ids


def written_target(module: nn.Module, inputs: Mapping[str, Tensor], *, name: str) -> list[int]:
    """What the decoder reads while it writes a target by itself, the likeliest token each time."""
    if not module.can_generate():
        raise MhaError(f"{name} cannot write a target itself; type one.")
    with torch.no_grad():
        ids = module.generate(**inputs, max_new_tokens=MOST_NEW, do_sample=False, num_beams=1)
    # The last token is written, but never read.
    return ids[0].tolist()[: max(1, ids.shape[1] - 1)]


def check_ids(module: nn.Module, ids: list[int], *, name: str) -> None:
    """Raises `MhaError` for tokens that the model has no vectors for."""
    embedding = getattr(module.get_input_embeddings(), "num_embeddings", None)
    if embedding is not None and max(ids) >= embedding:
        raise MhaError(
            f"{name} has no vector for the token {max(ids):,}: it has {embedding:,}, from 0 on. "
            f"The tokenizer, or the ids, belong to another model."
        )


def limit(config, tokenizer) -> int:
    """The most tokens that a model takes: what its tokenizer and its positions say, and never above ours."""
    said = [MAX_TOKENS]
    if isinstance(most := getattr(tokenizer, "model_max_length", None), int):
        said.append(most)
    config = config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"):
        if isinstance(most := getattr(config, name, None), int) and most > 0:
            # Positions of RoBERTa start behind that of the filling.
            behind = most in (514, 1026, 4098, 8194) and getattr(config, "pad_token_id", None) == 1
            said.append(most - 2 if behind else most)
    return min(said)


def _special(tokenizer, ids: Sequence[int], found=None) -> list[bool]:
    encodings = getattr(found, "encodings", None)
    marks = encodings[0].special_tokens_mask if encodings else [0] * len(ids)
    stand_for_nothing = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return [bool(mark) or number in stand_for_nothing for mark, number in zip(marks, ids, strict=True)]


def _letters(tokenizer) -> Mapping[str, int] | None:
    """Which letters of this tokenizer stand for bytes; None where they stand for themselves."""
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
UNSEEN = regex.compile(r"[\p{Cc}\p{Cf}\p{Zs}\p{Zl}\p{Zp}]")
PART = regex.compile(r"(U\+[0-9A-F]{4,6}|.)·([1-4])", regex.DOTALL)  # of a character that was cut


def readable_tokens(
    text: str,
    raw: Sequence[str],
    *,
    special: Sequence[bool],
    letters: Mapping[str, int] | None,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> Tokens:
    """The pieces of a text as `Tokens`: readable, with their places in the text and their words.

    `raw` are the tokenizer's own pieces, `letters` the byte for which each letter stands where letters
    stand for bytes: `BYTES`, `LATIN`. Without `offsets` (a tokenizer in Python) the pieces are looked
    for in the text.
    """
    shown = readable(raw, special=special, letters=letters)
    spans = _trimmed(text, offsets, special) if offsets is not None else _searched(text, shown, special)
    return Tokens(
        text,
        tuple(shown),
        tuple(spans),
        _words(text, spans, special),
        tuple(at for at, is_special in enumerate(special) if is_special),
    )


def readable(raw: Sequence[str], *, special: Sequence[bool], letters: Mapping[str, int] | None) -> list[str]:
    """Each piece as it can be read: no space, no byte, never an empty one.

    A piece that has only some bytes of a character is shown as that character, "·" and the number of
    the part; bytes that are no character at all are shown in hexadecimal digits.
    """
    shown = [""] * len(raw)
    for start, stop, contents in _runs(raw, special, letters):
        shown[start:stop] = _of_bytes(contents)
    for at, is_special in enumerate(special):
        if is_special:
            shown[at] = raw[at]
    return [_signed(piece, is_special) for piece, is_special in zip(shown, special, strict=True)]


def _runs(
    raw: Sequence[str], special: Sequence[bool], letters: Mapping[str, int] | None
) -> Iterator[tuple[int, int, list[bytes]]]:
    """Neighbouring pieces that are text, as bytes: a character may be spread over several of them."""
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
    """Each piece's own characters; where a character is spread over pieces, its part of it."""
    whole = b"".join(contents)
    owner = [at for at, content in enumerate(contents) for _ in content]
    shown = [""] * len(contents)
    position = 0
    while position < len(whole):
        character, size = _character(whole, position)
        owners = list(dict.fromkeys(owner[position : position + size]))
        for number, at in enumerate(owners, start=1):
            # One that cannot be seen would leave its number alone on the screen.
            shown[at] += character if len(owners) == 1 else f"{_signed(character, False)}·{number}"
        position += size
    return shown


def _character(whole: bytes, position: int) -> tuple[str, int]:
    """The character that starts at a byte and how many bytes it has; a byte that starts none as digits."""
    for size in range(1, 5):
        try:
            return whole[position : position + size].decode(), size
        except UnicodeDecodeError:
            continue
    return f"0x{whole[position]:02X}", 1


def _signed(piece: str, is_special: bool) -> str:
    """A piece without the space before it; all else that cannot be seen gets a sign or its number."""
    if is_special and piece.strip() and not regex.search(r"\s", piece):
        return piece
    if piece.startswith(" ") and len(piece) > 1 and piece.strip(" "):
        piece = piece[1:]
    piece = piece.translate(SIGNS)
    if not piece:
        return "∅"
    if UNSEEN.search(piece) and not regex.search(r"[\p{L}\p{N}\p{S}\p{P}]", UNSEEN.sub("", piece)):
        return "".join(f"U+{ord(letter):04X}" if UNSEEN.match(letter) else letter for letter in piece)
    return UNSEEN.sub("", piece) if regex.search(r"\p{Z}|\p{Cc}", piece) else piece


def _trimmed(text: str, offsets: Sequence[tuple[int, int]], special: Sequence[bool]) -> list[tuple[int, int]]:
    """Places in the text without the white space around them; a special piece has a place of no width."""
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


def _searched(text: str, shown: list[str], special: Sequence[bool]) -> list[tuple[int, int]]:
    """Places found by looking for each piece after the one before; of no width where it is not found."""
    spans, reached = [], 0
    plain = text.casefold() if len(text.casefold()) == len(text) else text
    for piece, is_special in zip(shown, special, strict=True):
        looked_for, start = piece.removeprefix("##").casefold(), reached
        at = -1 if is_special or not looked_for else plain.find(looked_for, start)
        if at < 0 and not is_special and (part := PART.match(piece)):  # every part is where its character is
            looked_for = PART.sub(_whole, piece).casefold()
            start -= part[2] != "1" and len(_whole(part))
            at = plain.find(looked_for, max(start, 0))
        if 0 <= at <= start + 8:  # far away it would be another one
            spans.append((at, at + len(looked_for)))
            reached = at + len(looked_for)
        else:
            spans.append((reached, reached))
    return spans


def _whole(part: regex.Match) -> str:
    """The character that a part was cut from."""
    return chr(int(part[1][2:], 16)) if len(part[1]) > 2 else part[1]


def _words(text: str, spans: list[tuple[int, int]], special: Sequence[bool]) -> tuple[int, ...]:
    """The number of each piece's word. Words are those of `tokens.words`: of Chinese, the characters."""
    starts = [0] * (len(text) + 1)
    if text.strip():
        for number, (start, end) in enumerate(_house_spans(text), start=1):
            starts[start:end] = [number] * (end - start)
    numbers, last, number = [], None, -1
    for at, ((start, end), is_special) in enumerate(zip(spans, special, strict=True)):
        # A piece that is nowhere in the text is a word of its own.
        word = ("alone", at) if is_special or start == end else starts[start] or ("alone", at)
        if word != last:
            number += 1
        numbers.append(number)
        last = word
    return tuple(numbers)


def _house_spans(text: str) -> tuple[tuple[int, int], ...]:
    try:
        return cut_into_words(text, limit=len(text) + 1).spans
    except MhaError:  # nothing but white space and invisible characters
        return ()


def _byte_letters() -> dict[str, int]:
    """The letter that stands for each byte, as GPT-2 chose them: itself if it can be seen, else Ā and on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {chr(byte): byte for byte in seen}
    unseen = (byte for byte in range(256) if byte not in seen)
    return letters | {chr(256 + at): byte for at, byte in enumerate(unseen)}


BYTES = _byte_letters()  # GPT-2 and those after it
LATIN = {chr(byte): byte for byte in range(256)}  # ByT5
