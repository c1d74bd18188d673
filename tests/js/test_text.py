"""Words and digits: templates, weights as they are written, titles apart, which way a text runs."""

import json

import pytest


@pytest.fixture
def words(javascript):
    """`words("return …", value=…)`; values are constants of the code."""

    def run(code: str, **values):
        constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
        return javascript(["page/wording.js"], constants + code)

    return run


@pytest.mark.parametrize(
    ("titles", "shown"),
    [
        (["It was too tired.", "It was too wide."], ["… too tired.", "… too wide."]),
        (["It was", "It was too"], ["It was", "It was too"]),  # one word left out would be no gain
        (["It was too", "It was too wide"], ["… was too", "… was too wide"]),
        (["We went home", "It went home"], ["We went home", "It went home"]),
        (["It was too tired."], ["It was too tired."]),
        (["我累了。", "我困了。"], ["我累了。", "我困了。"]),
        (["It is so.", "It is so."], ["… is so.", "… is so."]),
    ],
)
def test_two_sentences_are_told_apart_by_where_they_differ(words, titles, shown):
    assert words("return apart(titles);", titles=titles) == shown


def test_what_is_filled_in_is_no_template_itself(words):
    code = """return [fill("{tokens} looks at {list}", { tokens: "{list}", list: "$& {tokens} $1" }),
                       fill("{who} {what}", { who: 0 })];"""
    assert words(code) == ["{list} looks at $& {tokens} $1", "0 {what}"]


def test_digits(words):
    code = (
        """return [[0, 0.004, 0.0051, 0.955, 1].map(short), [0, 0.00004, 0.00012, 0.95507, 1].map(exact)];"""
    )
    assert words(code) == [
        ["0.00", "<0.01", "0.01", "0.95", "1.00"],
        ["0.0000", "4.0e-5", "0.0001", "0.9551", "1.0000"],
    ]


@pytest.mark.parametrize(
    ("tokens", "rtl"),
    [
        (["القط", "sat"], True),
        (["[CLS]", "القط", "نام", "[SEP]"], True),  # what a tokenizer adds is not of the text
        (["<s>", "שלום", "</s>"], True),
        (["1", ".", "القط"], True),
        (["the", "القط"], False),
        (["[a]", "小猫"], False),
        ([], False),
    ],
)
def test_the_first_letter_of_the_text_says_which_way_it_runs(javascript, tokens, rtl):
    assert javascript(["page/wording.js"], f"return isRtl({json.dumps(tokens)});") is rtl
