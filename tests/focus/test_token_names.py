"""Names of tokens: Python and the browser write the same ones and find the same tokens."""

import json
from random import Random
from urllib.parse import parse_qs, urlencode

import numpy as np
import pytest

import mha_core as mha
from mha_core.export.payload import Panel, pack
from mha_core.focus.token_names import names, position
from mha_core.traces.tokens import spaced

WORDS = (
    *("the", "it", "The", "\u0130t", "dog", "dog's", "动", "物", "🙂", "👩‍👩‍👧"),
    *("é", "e\u0301", "ﬁ", "مرحبا"),
)
PIECES = (
    *WORDS,
    *(f"{mark}{word}" for mark in ("Ġ", "▁", "ĠĠ", "##") for word in WORDS[:6]),
    *("1", "2", "12", "007", "0", "Ġ7", "▁12", "٣", "²", "9" * 20),
    *("the~1", "the~2", "~", "~2", "it~9", "1~2", "Ġ", "▁", "Ċ"),
    *("New York", "a\u2009b", "the\u2009₁", "the\u2009₂", "\u3000x"),
    *("a\nb", "a\u00a0b", "x\ufeffy", "\u200b"),
    *("constructor", "__proto__", "toString", "a,b", "a&b=c", "a+b", "100%", "#", "<b>"),
)
SENTENCES = [
    "The animal didn't cross the street because it was too tired.",
    "the cat saw the dog and the dog saw it 2 times , 12 times",
    "动物没有过马路因为它太累了",
    "3 of 3 words are 3",
]


def drawn(count: int, seed: int = 0) -> list[mha.Tokens]:
    """Lists of any pieces, most of them with repetitions."""
    random = Random(seed)
    few = [random.choices(PIECES, k=random.randint(1, 9)) for _ in range(count)]
    return [spaced(random.choices(pieces, k=random.randint(1, 12))) for pieces in few]


LISTS = [*map(mha.words, SENTENCES), spaced(["Ġthe", "the"]), *drawn(1000)]


def test_every_name_finds_its_token_and_has_no_white_space():
    for tokens in LISTS:
        called = names(tokens)
        assert len(set(called)) == len(tokens)
        for at, name in enumerate(called):
            assert position(tokens, name) == at, tokens.pieces
            assert name.split() == [name]
            assert parse_qs(urlencode({"token": name})) == {"token": [name]}


@pytest.mark.parametrize(
    ("pieces", "called"),
    [
        (["it", "was"], ("it", "was")),
        (["the", "cat", "the"], ("the~1", "cat", "the~2")),
        (["Ġthe", "the"], ("1", "the")),
        (["▁un", "bel", "iev"], ("un", "bel", "iev")),
        (["5", "2", "3", "3"], ("5~1", "2~1", "3~1", "3~2")),
        (["New York", "x"], ("1", "x")),
    ],
)
def test_a_name_is_the_word_its_count_or_its_number(pieces, called):
    assert names(spaced(pieces)) == called


@pytest.mark.parametrize(
    ("name", "found"),
    [("1", 0), ("3", 2), ("4", 2), ("9" * 8, 2), ("9" * 400, 2), ("0", None), ("", None), ("-1", None)],
)
def test_a_name_of_digits_is_a_position_and_beyond_the_end_the_last(javascript, name, found):
    tokens = spaced(["7", "0", "4"])
    assert position(tokens, name) == found
    code = f"return positionOf({json.dumps(names(tokens))}, {json.dumps(name)});"
    assert javascript(["scene/focus_link.js"], code) == (-1 if found is None else found)


def test_the_browser_finds_each_token_by_the_name_that_python_writes(javascript):
    called = [names(tokens) for tokens in LISTS]
    numbers = [[str(at) for at in range(1, len(tokens) + 4)] for tokens in LISTS]
    code = f"""
    const through = (name) => new URLSearchParams(`token=${{encodeURIComponent(name)}}`).get("token");
    const find = (names, one) => one.map((name) => positionOf(names, through(name)));
    const [called, numbers] = {json.dumps([called, numbers])};
    return [called.map((names) => find(names, names)), called.map((names, nth) => find(names, numbers[nth]))];
    """
    by_name, by_number = javascript(["scene/focus_link.js"], code)
    assert by_name == [[*range(len(tokens))] for tokens in LISTS]
    assert by_number == [
        [position(tokens, number) for number in of_list]
        for tokens, of_list in zip(LISTS, numbers, strict=True)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_token_chosen_in_the_browser_is_found_by_the_server(javascript, seed):
    """Through the payload: a token that is chosen in the view becomes a link, and the link that token."""
    texts = drawn(80, seed + 1)
    panels = []
    for queries, keys in zip(texts[::2], texts[1::2], strict=True):
        weights = np.full((1, len(queries), len(keys)), 1 / len(keys), np.float32)
        layers = {0: weights}
        panels.append(
            Panel("a", queries.labels, layers, keys.labels, names=names(queries), key_names=names(keys))
        )
    code = """
    const panels = openPayload(new Uint8Array(await file("blob")));
    const header = { layer: 0, head: 0, layers: 1, heads: 1, on: [0], token: null };
    const picks = [];
    for (const [nth, panel] of panels.entries())
      for (const side of ["query", "key"])
        for (const at of (side === "key" ? panel.keys : panel.tokens).keys()) {
          const looked = { layer: 0, head: 0, on: [0], nth, side, tokens: [0, at], drawing: "lines" };
          const view = { looked, original: panels, two: true, header, every: [0] };
          const link = linkOf(view, { token: "", key_token: "" });
          const { nth: there, tokens } = placeOf(link, header, panels);
          picks.push([nth, side, at, side === "key" ? link.key_token : link.token, there, tokens]);
        }
    return picks;
    """
    picks = javascript(["numbers/payload.js", "scene/focus_link.js"], code, blob=pack(panels))
    assert len(picks) == sum(map(len, texts))
    for nth, side, at, name, there, tokens in picks:
        assert position(texts[2 * nth + (side == "key")], name) == at
        assert (there, tokens) == (nth, [0, at])


def test_names_in_a_further_sentence_mean_the_same_to_browser_and_server(javascript):
    """A word that stands twice, a piece with its mark: names that are not those of the payload."""
    code = """
    const ASKED = { nth: 1, query: [["the", 1]], key: [] };
    const names = ["a", "the~1", "the~2"];
    const panelOf = (of) => ({ tokens: of, keys: of, names: of, keyNames: of, layers: new Map() });
    const panels = [["x"], names].map(panelOf);
    const header = { layer: 0, head: 0, layers: 1, heads: 1, on: [0], token: 0, asked: ASKED };
    const chosen = { token: "the", pins: "the~2", sentence: "2", side: "query" };
    const focus = { ...chosen, heads: "", threshold: "", lines: "" };
    const places = [focus, { ...focus, sentence: "1" }].map((one) => placeOf(one, header, panels));
    return places.map(({ nth, tokens }) => [nth, tokens]);
    """
    assert javascript(["scene/focus_link.js"], code) == [[1, [2, 1]], [1, [2, 1]]]
