"""Bytes as letters: those of the standard library, harmless in a page, and read again by the browser."""

import base64
import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_core.export.base85 import LETTERS, encoded

STANDARD = str.maketrans(",.[]", "<>&_")
SAMPLES = [b"", b"\0", b"\xff" * 4, b"\xff" * 7, bytes(range(256)), b"mha1" + bytes(range(255)) * 3]


@given(st.binary(max_size=40))
def test_it_is_the_standard_librarys_in_other_letters(data):
    assert encoded(data).translate(STANDARD) == base64.b85encode(data).decode()


def test_every_letter_is_harmless():
    letters = LETTERS.decode()
    assert len(set(letters)) == 85
    assert not set("<>&_\"'\\/ \n") & set(letters)
    assert html.escape(letters) == letters


@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_the_browser_reads_it(data, javascript):
    code = 'return Array.from(fromLetters(new TextDecoder().decode(file("text"))));'
    assert bytes(javascript(["base85.js"], code, text=encoded(data).encode())) == data


@pytest.mark.parametrize("letter", ["<", "_", "é", "\n"])
def test_what_is_no_letter_of_it_is_refused_in_the_browser(letter, javascript):
    code = """
    try { fromLetters(new TextDecoder().decode(file("text"))); } catch (error) { return error.message; }
    """
    found = javascript(["base85.js"], code, text=f"0123{letter}567".encode())
    assert found == f"not base85: {letter}"
