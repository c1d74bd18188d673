"""Bytes as characters of UTF-16: every one comes back, here and in a browser, and a page keeps each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_core.export.utf16 import encoded, file

EVERY = np.arange(1 << 16, dtype="<u2").tobytes()  # each pair of bytes
SAMPLES = [b"", b"\0", b"<", b"!" * 5, b"mha1\r\n", bytes(range(256)), EVERY, EVERY + b"\1"]


def decoded(text: str) -> bytes:
    units = iter(memoryview(text.encode("utf-16-le")).cast("H"))
    found = [unit if unit != ord("!") else next(units) ^ 0x8000 for unit in units]
    data = np.array(found, "<u2").tobytes()
    return data[: -data[-1]]


@given(st.binary(max_size=40))
def test_what_was_encoded_comes_back(data):
    assert decoded(encoded(data)) == data


def test_every_pair_of_bytes_is_a_character_that_a_page_keeps():
    text = encoded(EVERY)
    assert decoded(text) == EVERY
    assert not {"<", "\r", "\0"} & set(text)
    assert not any(0xD800 <= ord(letter) < 0xE000 for letter in text)  # halves of pairs
    text.encode("utf-8")


def test_a_file_says_of_itself_how_it_is_written():
    assert file("aé") == b"\xff\xfea\0\xe9\0"
    assert file("小").decode("utf-16") == "小"


def test_random_bytes_take_three_percent_more():
    data = np.random.default_rng(0).bytes(1 << 16)
    assert 1.02 < len(file(encoded(data))) / len(data) < 1.04


@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_the_browser_reads_it_and_writes_the_same(data, javascript):
    code = """
    const text = new TextDecoder("utf-16le", { ignoreBOM: true }).decode(file("text"));
    const made = new Uint8Array(await utf16(toLetters(file("data"))).arrayBuffer());
    return [Array.from(fromLetters(text)), Array.from(made)];
    """
    text = encoded(data)
    read, written = javascript(["utf16.js", "save_page.js"], code, data=data, text=text.encode("utf-16-le"))
    assert bytes(read) == data
    assert bytes(written) == file(text)
