"""What is saved, as far as node can make it: lines of words, tables, whole pages."""

import base64
import csv
import html
import io
import json
import re
import struct
import zlib

import pytest

import mha_core as mha
from mha_core.export import head_view


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("one two three", 100, ["one two three"]),
        ("a verylongword b", 5, ["a", "veryl", "ongwo", "rd b"]),
        ("", 5, []),
        ("小猫没有过马路", 6, ["小猫没", "有过马", "路"]),
        ("𠀀𠀀𠀀", 3, ["𠀀", "𠀀", "𠀀"]),
        ("👍👍👍 ok", 4.9, ["👍👍", "👍", "ok"]),
    ],
)
def test_a_caption_is_cut_between_words_and_never_within_a_character(javascript, text, most, expected):
    # A wide character counts twice.
    columns = r"(text) => [...text].reduce((sum, c) => sum + (/[\p{L}\p{S}]/u.test(c) && c > 'z' ? 2 : 1), 0)"
    code = f"return wrapped({json.dumps(text)}, {most}, {columns});"
    assert javascript(["page/saving.js"], code) == expected


FORMULAS = ["=1+1", "+x", "-x", "@x", "\tx", "\nx", " =x", "\u3000-x", "\ufeff\u200b=x", *"＝＋－＠"]
NASTY = [*FORMULAS, 'a"b', "a,b", "a\nb", "小猫", "<img src=x onerror=alert(1)>", "x=1"]


def test_the_csv_is_read_back_and_formulas_are_harmless(javascript):
    rows = [[token, 0.25] for token in NASTY]
    text = javascript(["page/saving.js"], f'return csvText([["token", "weight"], ...{json.dumps(rows)}]);')
    assert text[0] == "\ufeff"
    header, *found = csv.reader(io.StringIO(text[1:], newline=""))
    assert header == ["token", "weight"]
    safe = [f"'{token}" if token in FORMULAS else token for token in NASTY]
    assert found == [[token, "0.25"] for token in safe]


def test_numbers_of_single_precision_are_written_as_short_as_they_are_right(javascript):
    code = "return csvText([[Math.fround(0.1), Math.fround(1 / 3), 1 / 3, 2, NaN, Infinity, null]]);"
    assert javascript(["page/saving.js"], code) == "\ufeff0.1,0.33333334,0.3333333333333333,2,,,\r\n"


def test_a_page_saved_in_the_browser_is_the_one_that_python_makes(javascript):
    view = mha.trace("__NUMBERS__ $& </script> __OLD__ <!-- ä", h=2, d_model=8).view()
    view.header["texts"]["old_browser"] = "<b> __NUMBERS__ “ä”"
    code = f"""
    const template = new TextDecoder().decode(file("page"));
    return pageOf(template, {json.dumps(view.header)}, file("payload"));
    """
    made = javascript(["page/saved_page.js"], code, payload=view.blob, page=head_view.page().encode())

    def parts(page):
        [written] = re.findall(r'id="numbers">([^<]*)<', page)
        data = zlib.decompress(base64.b64decode(written, validate=True))
        start = 4 + struct.unpack("<I", data[:4])[0]
        return json.loads(data[4:start]), data[start:], html.unescape(page.replace(written, ""))

    assert made.isascii()
    assert parts(made) == parts(view.html())
    assert parts(made)[:2] == (view.header, view.blob)
