"""The texts of an atlas: every kind of file, made-up sentences, and the order of shuffled words."""

import json
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from mha_core.atlases.texts import SMALL, WORD, read, shuffled
from mha_core.training.lexicon import lexicon
from mha_core.training.questions import LINKS

LINES = ["The cat sat, quietly.", "“Why?” asked Zoë.", "我们去北京。"]


def strings(texts, **options) -> list[str]:
    return [one.text for one in read(texts, linked=False, **options)]


@pytest.fixture
def folder(tmp_path):
    """The same lines in a file of each kind; the names say in which order they are read."""
    (tmp_path / "a.txt").write_text("\ufeff" + "\n\n".join(LINES) + "\n", encoding="utf-8")
    lines = [json.dumps({"text": line, "year": 1999}) for line in LINES]
    (tmp_path / "b.jsonl").write_text("\n".join(lines), encoding="utf-8")
    parquet.write_table(pa.table({"year": [1, 2, 3, 4], "text": [*LINES, None]}), tmp_path / "c.parquet")
    (tmp_path / "notes.md").write_text("not a text")
    return tmp_path


@pytest.mark.parametrize("name", ["a.txt", "b.jsonl", "c.parquet"])
def test_every_kind_of_file_has_the_same_texts(name, folder):
    assert strings(folder / name) == LINES
    assert strings(str(folder / name)) == LINES


def test_the_files_of_a_folder_are_read_in_the_order_of_their_names(folder):
    assert strings(folder) == LINES * 3
    assert strings(folder, count=4) == [*LINES, LINES[0]]


def test_texts_of_an_iterator_are_read_once_and_no_more_than_asked():
    lines = iter(LINES)
    assert strings(lines, count=2) == LINES[:2]
    assert list(lines) == LINES[2:]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"text\nhello", "'.txt', '.jsonl' or '.parquet'|.txt, .jsonl or .parquet"),
        ("a.jsonl", b'{"text": "a"}\n{"words": "b"}', "Line 2"),
        ("a.jsonl", b"[1, 2]", "Line 1"),
        ("a.jsonl", b"[" * 100_000, "Line 1"),
        ("a.txt", b"\xff\xfe\x00", "UTF-8"),
        ("a.parquet", b"PAR1 nonsense", "not a Parquet table"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(name, content, said, tmp_path, refused):
    (tmp_path / name).write_bytes(content)
    message = str(refused(strings, tmp_path / name))
    assert any(part in message for part in said.split("|"))


def test_a_table_without_texts_is_refused_with_its_columns(tmp_path, refused):
    parquet.write_table(pa.table({"sentence": ["a"], "text": [7]}), tmp_path / "a.parquet")
    assert "sentence, text" in str(refused(strings, tmp_path / "a.parquet"))


def test_an_empty_folder_is_refused(tmp_path, refused):
    assert ".parquet" in str(refused(strings, tmp_path))


# Shuffled words


def test_words_change_places_and_marks_stay():
    text = "The animal didn't cross the street, because it was too tired."
    mixed = shuffled(text)
    assert mixed != text
    assert Counter(WORD.findall(mixed)) == Counter(WORD.findall(text))
    assert WORD.sub("_", mixed) == WORD.sub("_", text)
    assert shuffled(text) == mixed
    assert shuffled("我们去北京。")[-1] == "。"  # each character by itself, before its mark
    assert shuffled("我们去北京。") != "我们去北京。"


@given(st.text())
def test_any_text_keeps_its_length_and_characters(text):
    assert Counter(shuffled(text)) == Counter(text)


# Made-up sentences


@pytest.mark.parametrize("name", SMALL)
def test_made_up_sentences_are_read_as_they_were_made(name):
    """What a link says of the words of a sentence is said of the same words when they are shuffled."""
    texts = list(read(name, linked=True, count=100))
    assert len({one.text for one in texts}) > 90
    found = set()
    for one in texts:
        tokens, mixed = (lexicon(SMALL[name]).cut(text, limit=63)[0] for text in (one.text, one.shuffled))
        words, order = ([piece.lower() for piece in each.pieces] for each in (tokens, mixed))
        assert Counter(words) == Counter(order)
        assert not tokens.unknown
        for (query, key, link), (query_mixed, key_mixed, same) in zip(
            one.links, one.shuffled_links, strict=True
        ):
            assert link == same
            assert (words[query], words[key]) == (order[query_mixed], order[key_mixed])
            found.add(link)
    # Some kinds of links are not in Chinese.
    missing = {"word before", "word after"} | (set() if name == "small" else {"preposition to object"})
    assert found >= set(LINKS) - missing - {"auxiliary to subject", "object to preposition"}


def test_there_are_as_many_made_up_sentences_as_asked_for():
    every = strings("small", count=9)
    assert len(every) == 9
    assert strings("small", count=7) == every[:7]
