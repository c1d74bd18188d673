"""The refusals of every room: a number out of range, an unknown name, and lists in messages."""

import copy
import json
import pickle

import numpy as np
import pytest

from mha_core.errors import (
    MAX_LENGTH,
    MhaError,
    Phrase,
    at_least_1,
    in_range,
    listed,
    one_of,
    shown,
    text_from_json,
    text_to_json,
)


@pytest.mark.parametrize(("number", "nearest"), [(-1, 0), (8, 7), (-100, 0), (100, 7)])
def test_a_number_out_of_range_is_refused_with_the_nearest_that_works(number, nearest, refused):
    assert in_range("seed", nearest, 0, 7) == nearest
    error = refused(in_range, "seed", number, 0, 7)
    assert str(error) == f"seed {number} is out of range; 0 to 7 work."
    assert error.fixes == ({"seed": nearest},)
    fitting = refused(in_range, "h", number, 0, 7, fits=lambda n: n in (2, 4))
    assert fitting.fixes == ({"h": 4 if number > 0 else 2},)


@pytest.mark.parametrize("number", [3.0, False])
def test_a_number_without_a_fraction_is_still_no_whole_number(number, refused):
    message = f"seed must be a whole number from 0 to 7; got {number}."
    assert str(refused(in_range, "seed", number, 0, 7)) == message


JOINED = [
    ([1], "or", "1"),
    ([1, 2], "or", "1 or 2"),
    (("a", "b", "c"), "and", "a, b and c"),
    ([1, 2], "comma", "1, 2"),
    ([1, 2], "semicolon", "1; 2"),
    ([1, 2], "space", "1 2"),
    ([], "comma", ""),
]


@pytest.mark.parametrize(("values", "word", "text"), JOINED)
def test_a_list_is_joined_with_a_word_or_a_mark(values, word, text):
    assert listed(values, word) == listed(iter(values), word) == text


def test_an_unknown_name_is_refused_with_the_known_ones(refused):
    assert one_of("mask", "causal", {"full": 1, "causal": 2}) == "causal"
    error = refused(one_of, "mask", "casual", iter(["full", "causal"]))
    assert str(error) == "There is no mask called 'casual'; full or causal can be used."
    assert error.fixes == ({"mask": "full"}, {"mask": "causal"})


@pytest.mark.parametrize("value", [0, True, 1.0, float("nan"), "1", "x" * 9999])
def test_a_limit_is_a_whole_number_from_1(value, refused):
    assert at_least_1("limit", 1, "tokens") == 1
    message = str(refused(at_least_1, "limit", value, "tokens"))
    assert message.startswith("limit is a number of tokens, at least 1; got ")
    assert len(message) < 200


@pytest.mark.parametrize("value", [np.zeros(2), ["full"], None, "x" * 9999])
def test_a_long_name_is_shortened_in_the_message(value, refused):
    assert len(str(refused(one_of, "mask", value, ["full"]))) < 200


def test_a_number_too_long_to_print_is_refused(refused):
    error = refused(in_range, "h", 10**5000, 1, 128)
    assert len(str(error)) < 200
    assert error.fixes == ({"h": 128},)


def test_a_value_is_repeated_whole_up_to_80_characters():
    assert shown("x" * 78) == repr("x" * 78)
    assert shown("x" * 79) == f"'{'x' * 79}…"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_pickled_error_keeps_its_message_and_fields(again):
    fixes = ({"h": 2}, {"h": 4})
    error = MhaError("{n:,} heads; {fits} fit {{}}.", n=3000, fits=listed([2, 4], "or"), fixes=fixes)
    other = again(error)
    assert str(other) == str(error) == "3,000 heads; 2 or 4 fit {}."
    assert (other.fixes, other.phrase.template) == (fixes, "{n:,} heads; {fits} fit {{}}.")
    assert other.phrase.fields["n"] == 3000
    assert other.phrase.fields["fits"].values == (2, 4)


def test_an_error_can_reuse_a_phrase_with_its_own_fixes():
    first = MhaError("{n} heads", n=3)
    second = MhaError(first.phrase, fixes=({"h": 2},))
    assert (str(second), second.phrase.fields, second.fixes) == ("3 heads", {"n": 3}, ({"h": 2},))
    assert str(MhaError("{n} of {}")) == "{n} of {}"  # without fields it is its template


def test_a_phrase_is_text():
    phrase = Phrase("layer {layer}", layer=1)
    assert {phrase: 1}["layer 1"] == 1


# Texts in files

IN_FILES = {
    "plain": "{n} is no template",
    "phrase": Phrase("{name!r}: {n:,} of {share:.2g}", name="h.0", n=3000, share=0.25),
    "without fields": Phrase("{n} of {}"),
    "nested": Phrase("{place}: {reason} {{}}", place="a", reason=listed([1, Phrase("layer {n}", n=2)], "or")),
    "no value": Phrase("{value}", value=None),
}


@pytest.mark.parametrize("kind", IN_FILES)
def test_a_text_comes_back_from_a_file_with_its_parts(kind):
    text = IN_FILES[kind]
    again = text_from_json(json.loads(json.dumps(text_to_json(text), allow_nan=False)))
    assert (again, type(again)) == (text, type(text))
    assert getattr(again, "template", None) == getattr(text, "template", None)
    assert getattr(again, "fields", None) == getattr(text, "fields", None)


@pytest.mark.parametrize("value", [float("inf"), 10**99, (1, 2)], ids=str)
def test_a_field_that_json_does_not_have_leaves_the_english_text(value):
    text = Phrase("{value!r} is large", value=value)
    assert text_from_json(text_to_json(text)) == text


@pytest.mark.parametrize(
    "written",
    [
        {"template": "{a.__class__}", "fields": {"a": 1}},
        {"template": "{a[0]}", "fields": {"a": "bc"}},
        {"template": "{a:>999999999}", "fields": {"a": 1}},
        {"template": "{a:{b}}", "fields": {"a": 1, "b": "9"}},
        {"template": "{0} {a}", "fields": {"a": 1}},
        {"template": "{b}", "fields": {"a": 1}},
        {"template": "{a:,}", "fields": {"a": "many"}},
        {"template": "{a:,}", "fields": {"a": None}},
        {"template": "{a}" * 17, "fields": {"a": 1}},
        {"template": "{a}{a}", "fields": {"a": "x" * MAX_LENGTH}},
        {"template": "{a}", "fields": {"a": []}},
        {"template": "a", "fields": []},
        {"template": "a"},
        {"template": "a", "fields": {}, "more": 1},
        {"values": [1, 2], "word": "nor"},
        {"values": [], "word": "or"},
        {},
        [],
        None,
        1,
    ],
    ids=lambda written: str(written)[:40],
)
def test_what_is_no_text_of_ours_is_refused(written):
    with pytest.raises((KeyError, TypeError, ValueError)):
        text_from_json(written)


def test_phrases_may_be_inside_each_other_so_often():
    text = Phrase("a")
    for _ in range(50):
        text = Phrase("{inner}", inner=text)
    assert text_to_json(text) == "a"  # and no file of ours has it
    deep = {"template": "a", "fields": {}}
    for _ in range(50):
        deep = {"template": "{inner}", "fields": {"inner": deep}}
    with pytest.raises(ValueError, match="a text is"):
        text_from_json(deep)
