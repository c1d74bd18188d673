"""Saved tables and pages, as far as node can make them and Python can read them."""

import base64
import csv
import html
import io
import json
import re
import struct
import zlib

import mha_core as mha
from mha_core.export import head_view

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


def test_a_page_saved_in_the_browser_is_the_one_that_python_makes(javascript):
    view = mha.trace("__PARTS__ $& </script> __OLD__ <!-- ä", h=2, d_model=8).view()
    view.header["texts"]["old_browser"] = "<b> __PARTS__ “ä”"
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
