"""The texts of an atlas, from a list, a file, a folder or a small language, and with their words shuffled."""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import regex

from mha_core.errors import MhaError, listed, named_type, shown
from mha_core.traces.tokens import check_characters
from mha_core.training.language import MAX_WORDS, Grammar, Mix, Sentence
from mha_core.training.lexicon import Lexicon, lexicon

# A word changes places as a whole; of a script without spaces each character is a word.
WORD = regex.compile(r"\p{Han}|[\p{L}\p{M}\p{N}--\p{Han}]+(?:['’\-][\p{L}\p{M}\p{N}--\p{Han}]+)*", regex.V1)
SMALL = {"small": "en", "small-zh": "zh"}  # made-up sentences: what they are called, and their language
COUNT = 1000  # of made-up sentences, unless another number is asked for
STATEMENTS, AGREEMENT = 0.3, 0.2  # shares of the made-up sentences: without a pronoun; whose pronoun agrees
TRIES = 30  # orders of words; in Chinese some make other words of their characters
ENDINGS = (".txt", ".jsonl", ".parquet")
FIELD = "text"  # of a line of JSON, or of a table


class AtlasText(NamedTuple):
    """A text, the same with its words shuffled, and their links where the right answers are known."""

    text: str
    shuffled: str
    links: list[tuple[int, int, str]] | None = None  # query, key, name of each
    shuffled_links: list[tuple[int, int, str]] | None = None


def read(texts: Any, *, linked: bool, count: int | None = None) -> Iterator[AtlasText]:
    """The texts of an atlas one by one: at most `count`, of made-up sentences `COUNT` unless given.

    `texts` is an iterable of strings; a text file with a text on each line, lines of JSON or a Parquet table
    with a column "text"; a folder with such files, read in the order of their names; "small" or "small-zh".
    Links come with made-up sentences if they are to be `linked`. Empty lines are skipped.

    Raises `MhaError` for anything else, with the line or file.
    """
    if isinstance(texts, str) and texts in SMALL:
        made_up = islice(_made_up(SMALL[texts]), count or COUNT)
        return made_up if linked else (AtlasText(one.text, one.shuffled) for one in made_up)
    strings = _from_path(Path(texts)) if isinstance(texts, str | PathLike) else _from_iterable(texts)
    return (AtlasText(text, shuffled(text)) for text in _checked(islice(strings, count)))


def _checked(strings: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(strings, start=1):
        try:
            check_characters(text)
        except MhaError as error:
            raise MhaError("Text {number}: {reason}", number=number, reason=error.phrase) from error
        yield text


def _from_iterable(texts: Any) -> Iterator[str]:
    if not isinstance(texts, Iterable):
        raise MhaError(
            "An atlas takes several texts, as in a list, or a file with them; got {type}.",
            type=named_type(texts),
        )
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise MhaError(
                "Text {number} of the atlas must be a string; got {type}.",
                number=number,
                type=named_type(text),
            )
        yield text


def _from_path(path: Path) -> Iterator[str]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in ENDINGS)
        if not files:
            raise MhaError(
                "The folder {path} has no file that ends in {endings}.",
                path=shown(str(path)),
                endings=listed(ENDINGS, "or"),
            )
        return chain.from_iterable(map(_from_path, files))
    if not path.is_file():
        raise MhaError(
            "There is no file or folder {path} with texts; made-up sentences are called {names}.",
            path=shown(str(path)),
            names=listed(map(repr, SMALL), "and"),
        )
    readers: dict[str, Callable[[Path], Iterator[str]]] = dict(
        zip(ENDINGS, (_lines, _json_lines, _table), strict=True)
    )
    if path.suffix not in readers:
        raise MhaError(
            "Texts are read from a file that ends in {endings}; this one is {name}.",
            endings=listed(ENDINGS, "or"),
            name=shown(path.name),
        )
    return readers[path.suffix](path)


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line := line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise MhaError(
            "The file {name} is not written in UTF-8 (byte {at:,}); save it in that encoding.",
            name=shown(path.name),
            at=error.start,
        ) from None


def _lines(path: Path) -> Iterator[str]:
    return (line for _, line in _numbered_lines(path))


def _json_lines(path: Path) -> Iterator[str]:
    for number, line in _numbered_lines(path):
        try:
            text = json.loads(line)[FIELD]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise MhaError(
                'Line {number} of {name} must be an object with a string "text"; it is {line}.',
                number=number,
                name=shown(path.name),
                line=shown(line),
            )
        yield text


def _table(path: Path) -> Iterator[str]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path)
        types = {field.name: field.type for field in table.schema_arrow}
        if FIELD not in types or not (
            pa.types.is_string(types[FIELD]) or pa.types.is_large_string(types[FIELD])
        ):
            raise MhaError(
                'The table {name} must have a column "text" of strings; its columns are {columns}.',
                name=shown(path.name),
                columns=listed(types or ["–"], "comma"),
            )
        for batch in table.iter_batches(columns=[FIELD]):
            yield from (text for text in batch.column(0).to_pylist() if text is not None)
    except pa.ArrowInvalid as error:
        raise MhaError(
            "The file {name} is not a Parquet table: {reason}",
            name=shown(path.name),
            reason=str(error).splitlines()[0],
        ) from None


def shuffled(text: str) -> str:
    """The text with its words in a random order; spaces and marks stay. The same for the same text."""
    slots = list(WORD.finditer(text))
    words = [slot[0] for slot in slots]
    Random(f"shuffled {text}").shuffle(words)
    parts, end = [], 0
    for slot, word in zip(slots, words, strict=True):
        parts += [text[end : slot.start()], word]
        end = slot.end()
    return "".join([*parts, text[end:]])


def _made_up(language: str) -> Iterator[AtlasText]:
    """Sentences of a small language with pairs of nouns that its models never saw together in training."""
    words = lexicon(language)
    grammar, rng = Grammar(words, Mix(unknown=0.0)), Random("atlas")
    while True:
        draw = rng.random()
        if draw < STATEMENTS:
            sentence = grammar.statement(rng)
        else:
            kind = "agreement" if draw < STATEMENTS + AGREEMENT else rng.choice([*grammar.schemas])
            sentence = rng.choice(grammar.pair(rng, kind, "test"))
        plain = _typed(words, sentence, range(1, len(sentence.words)))
        mixed = _mixed(words, sentence, rng)
        if plain is not None and mixed is not None:
            yield AtlasText(plain[0], mixed[0], plain[1], mixed[1])


def _mixed(words: Lexicon, sentence: Sentence, rng: Random) -> tuple[str, list[tuple[int, int, str]]] | None:
    """A sentence with its words shuffled, as `_typed` returns it; None if no order can be read back."""
    slots = [at for at, word in enumerate(sentence.words) if at and WORD.search(word)]
    for _ in range(TRIES):
        order = list(range(1, len(sentence.words)))
        for slot, at in zip(slots, rng.sample(slots, len(slots)), strict=True):
            order[slot - 1] = at
        if typed := _typed(words, sentence, order):
            return typed
    return None


def _typed(
    words: Lexicon, sentence: Sentence, order: Iterable[int]
) -> tuple[str, list[tuple[int, int, str]]] | None:
    """A sentence with its words in this order, as typed, and its links; None if it cannot be read so."""
    order = list(order)
    pieces = [sentence.words[at] for at in order]
    text = "".join(pieces)
    if words.code == "en":
        names = [piece.title() if piece in words.capitalized else piece for piece in pieces]
        spaces = ["" if not WORD.search(piece) else " " for piece in pieces]
        text = "".join(chain.from_iterable(zip(spaces, names, strict=True))).strip()
        text = text[:1].upper() + text[1:]
    tokens, numbers = words.cut(text, limit=len(text) + 1)
    if len(tokens) > MAX_WORDS or numbers[1:] != [words.number[piece] for piece in pieces]:
        return None
    place = {0: 0, **{at: new for new, at in enumerate(order, start=1)}}
    return text, [
        (place[link.query], place[link.key], link.name) for link in sentence.links if link.key is not None
    ]
