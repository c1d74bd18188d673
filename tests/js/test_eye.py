"""The head view's own arithmetic, run by node and compared with numpy: choices, sums, sentences, tables."""

import base64
import csv
import io
import json
import re
import struct
import zlib

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.export import head_view, utf16
from mha_core.export.payload import Panel, pack
from mha_core.export.rounding import TOLERANCE

LABELS = ["[CLS]", "the", "animal", "was", "too", "tired", "."]
TEXTS = head_view.texts("en")
NONE = "const none = { query: new Set(), key: new Set() };\n"


@pytest.fixture
def eye(javascript):
    """`eye("return …", value=…)`: what the view's scripts make of it; values are constants of the code."""

    def run(code: str, **values):
        constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
        return javascript(["attention.js", "direction.js", "eye.js", "sides.js"], constants + code)

    return run


@pytest.fixture
def on_layer(javascript, weights):
    """As `eye`, with a `layer` of three heads over seven tokens."""
    blob = pack([Panel("a", LABELS, {1: weights})])

    def run(code: str, **values):
        constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
        start = 'const layer = (await openBlob(file("blob")))[0].layers.get(1);\n'
        return javascript(
            ["attention.js", "direction.js", "eye.js", "sides.js"], start + constants + code, blob=blob
        )

    return run


@pytest.fixture(scope="module")
def weights(normal) -> np.ndarray:
    return torch.softmax(2 * normal(3, 7, 7), -1).numpy()


# Which heads are on


@pytest.mark.parametrize(
    ("on", "head", "how", "last", "after"),
    [
        ([2, 3], 1, "toggle", None, [1, 2, 3]),
        ([2, 3], 3, "toggle", None, [2]),
        ([3], 3, "toggle", None, []),
        ([2, 3], 1, "solo", None, [1]),
        ([1], 1, "solo", None, [0, 1, 2, 3, 5]),
        ([1], 2, "solo", None, [2]),
        ([0], 3, "range", 1, [0, 1, 2, 3]),
        ([0], 1, "range", 3, [0, 1, 2, 3]),
        ([0], 5, "range", 2, [0, 2, 3, 5]),  # 4 is not loaded
        ([0], 2, "range", None, [0, 2]),
    ],
)
def test_a_click_on_a_chip(eye, on, head, how, last, after):
    code = "return afterClick(new Set(on), head, how, [0, 1, 2, 3, 5], last);"
    assert sorted(eye(code, on=on, head=head, how=how, last=last)) == after


@pytest.mark.parametrize(
    ("on", "by", "after"),
    [([0], 1, 2), ([2], 1, 5), ([5], 1, 0), ([0], -1, 5), ([2, 5], 1, 2), ([2, 5], -1, 0), ([], 1, 0)],
)
def test_the_next_head(eye, on, by, after):
    assert eye("return nextHead(new Set(on), [0, 2, 5], by);", on=on, by=by) == [after]


def test_a_head_that_is_on_and_not_loaded_leads_to_the_first_that_is(eye):
    assert eye("return nextHead(new Set([7]), [8, 9], 1);") == [9]


# Which tokens are chosen


def pinned(side, *tokens):
    return {"side": side, "tokens": list(tokens)}


@pytest.mark.parametrize(
    ("before", "side", "token", "more", "after"),
    [
        (None, "query", 2, False, pinned("query", 2)),
        (None, "query", 2, True, pinned("query", 2)),
        (pinned("query", 2), "query", 2, False, None),
        (pinned("query", 2), "key", 2, False, pinned("key", 2)),
        (pinned("query", 2), "query", 4, False, pinned("query", 4)),
        (pinned("query", 4), "query", 2, True, pinned("query", 2, 4)),
        (pinned("query", 2, 4), "query", 4, True, pinned("query", 2)),
        (pinned("query", 2, 4), "query", 4, False, pinned("query", 4)),
        (pinned("query", 2), "query", 2, True, None),
        (pinned("query", 2, 3), "key", 3, True, pinned("key", 3)),
    ],
)
def test_a_click_on_a_token(eye, before, side, token, more, after):
    code = "return afterPick(before, side, token, more);"
    assert eye(code, before=before, side=side, token=token, more=more) == after


# Sums and lines


def test_the_weights_between_a_focus_and_the_others_are_numpys(on_layer, weights):
    code = """
    return [across(layer, 1, one), across(layer, 1, several), across(layer, 2, key),
            meanAcross(layer, [0, 2], several), meanAcross(layer, [], one)];
    """
    found = on_layer(code, one=pinned("query", 3), several=pinned("query", 1, 5), key=pinned("key", 0, 6))
    expected = [
        weights[1, 3],
        weights[1, 1] + weights[1, 5],
        weights[2, :, 0] + weights[2, :, 6],
        (weights[[0, 2]][:, [1, 5]].sum(1)).mean(0),
        np.zeros(7),
    ]
    for shown, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(shown, wanted, atol=5e-5)


def lines(weights, heads, pairs, least, most, hidden) -> set[tuple]:
    """By numpy: for each head and (side, token) of `pairs` the lines that are drawn."""
    drawn = set()
    for head in heads:
        for side, token in pairs:
            if token in hidden:
                continue
            row = weights[head, token] if side == "query" else weights[head, :, token]
            order = [i for i in np.argsort(-row) if row[i] >= least and i not in hidden]
            for other in order[: most or None]:
                drawn.add((head, token, int(other)) if side == "query" else (head, int(other), token))
    return drawn


@pytest.mark.parametrize(
    ("focus", "least", "most", "hidden"),
    [
        (None, 0.02, 0, []),
        (None, 0.02, 2, []),
        (None, 0.0, 0, [0, 6]),
        (pinned("query", 2), 0.1, 0, []),
        (pinned("key", 2, 4), 0.05, 3, [0]),
        (pinned("key", 0), 0.0, 0, [0]),
    ],
)
def test_the_lines_are_those_that_numpy_finds(on_layer, weights, focus, least, most, hidden):
    code = """
    const away = { query: new Set(hidden), key: new Set(hidden) };
    return linesOf(layer, [0, 2], { focus, least, most, hidden: away });
    """
    found = on_layer(code, focus=focus, least=least, most=most, hidden=hidden)
    pairs = (
        [("query", i) for i in range(7)] if focus is None else [(focus["side"], i) for i in focus["tokens"]]
    )
    assert {(one["head"], one["query"], one["key"]) for one in found} == lines(
        weights, [0, 2], pairs, least, most, hidden
    )
    for one in found:
        assert one["weight"] == pytest.approx(weights[one["head"], one["query"], one["key"]], abs=2e-5)


def test_only_the_queries_in_sight_have_lines(on_layer):
    code = NONE + "return linesOf(layer, [0], { from: 2, to: 4, least: 0, most: 1, hidden: none });"
    assert [line["query"] for line in on_layer(code)] == [2, 3]


def test_the_strongest_are_the_largest_first_and_of_equals_the_earlier(eye):
    code = """
    const w = [0.1, 0.4, 0.1, 0, 0.4];
    return [strongest(w), strongest(w, { least: 0.1 }), strongest(w, { most: 3 }),
            strongest(w, { least: 0.1, most: 2, hidden: new Set([1]) })];
    """
    assert eye(code) == [[1, 4, 0, 2, 3], [1, 4, 0, 2], [1, 4, 0], [4, 0]]


# What is said


def spoken(on_layer, heads, focus, hidden=()):
    code = """
    const away = { query: new Set(hidden), key: new Set(hidden) };
    const shown = hidden.length ? new Rescaled(layer, away.key) : layer;
    return spoken({ tokens }, shown, heads, focus, away, texts);
    """
    return on_layer(code, tokens=LABELS, heads=heads, focus=focus, hidden=list(hidden), texts=TEXTS)


def named(row, hidden=()) -> str:
    order = [i for i in np.argsort(-row) if row[i] >= 0.005 and i not in hidden][:5]
    return ", ".join(f"{LABELS[i]} {row[i]:.2f}" for i in order)


# The other sentence

ONE, OTHER = ["the", "animal", "was", "tired"], ["the", "street", "animal", "was"]


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ([0], {"side": "query", "tokens": [0]}),
        ([1], {"side": "query", "tokens": [2]}),  # the same word stands elsewhere
        ([3], {"side": "query", "tokens": [], "absent": ["tired"]}),
        ([2, 1], {"side": "query", "tokens": [2, 3]}),
        ([0, 3], {"side": "query", "tokens": [0]}),
    ],
)
def test_what_is_chosen_in_one_sentence_is_chosen_in_the_other_where_it_is(eye, chosen, found):
    code = "return everywhere(panels, 0, focus);"
    panels = [{"tokens": ONE}, {"tokens": OTHER}]
    focus = {"side": "query", "tokens": chosen}
    assert eye(code, panels=panels, focus=focus) == [focus, found]
    assert eye(code, panels=panels, focus=None) == [None, None]


@pytest.mark.parametrize("side", ["query", "key"])
def test_a_sentence_without_the_chosen_word_says_so_and_has_no_lines(on_layer, side):
    focus = {"side": side, "tokens": [], "absent": ["street", "wide"]}
    code = f"""{NONE} return [
      spoken({{ tokens: labels }}, layer, [0, 1], focus, none, texts),
      linesOf(layer, [0, 1], {{ focus, least: 0, most: 0, hidden: none }}),
      meanAcross(layer, [0, 1], focus),
      table({{ tokens: labels }}, layer, [0], focus),
    ];"""
    said, lines, weights, rows = on_layer(code, focus=focus, labels=LABELS, texts=TEXTS)
    assert said == "This sentence has no “street + wide”."
    assert (lines, weights, rows) == ([], [0] * 7, [])


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
def test_two_sentences_are_told_apart_by_where_they_differ(eye, titles, shown):
    assert eye("return apart(titles);", titles=titles) == shown


def test_the_sentence_names_whom_a_token_looks_at(on_layer, weights):
    row = weights[1, 3]
    assert spoken(on_layer, [1], pinned("query", 3)) == f"was looks at {named(row)} (head 2)."


def test_the_sentence_names_who_looks_at_a_token(on_layer, weights):
    column = weights[[0, 2]].mean(0)[:, 2]
    expected = f"animal is looked at by {named(column)} (mean of heads 1, 3)."
    assert spoken(on_layer, [0, 2], pinned("key", 2)) == expected


def test_the_sentence_says_how_much_goes_to_hidden_tokens(on_layer, weights):
    row = weights[0, 4] + weights[0, 5]
    away = weights[0][:, [0, 2]].sum(1, keepdims=True)
    rest = weights[0] / (1 - away)
    share = f"Hidden tokens take {row[[0, 2]].sum():.2f}; here that is shared out"
    expected = f"too + tired looks at {named(rest[4] + rest[5], [0, 2])} (head 1). {share}"
    assert spoken(on_layer, [0], pinned("query", 4, 5), [0, 2]).startswith(expected)
    rest[:, [0, 2]] = 0
    expected = f"was is looked at by {named(rest[:, 3], [0, 2])} (head 1). {TEXTS['rescaled']}"
    assert spoken(on_layer, [0], pinned("key", 3), [0, 2]) == expected


def test_the_sentence_says_that_nothing_is_on_or_chosen(on_layer):
    assert spoken(on_layer, [], pinned("query", 1)) == TEXTS["no_head"]
    assert spoken(on_layer, [0], None) == TEXTS["nothing_chosen"]


@pytest.mark.parametrize(("length", "said"), [(900, "0.0013"), (20_000, "6.0e-5")])
def test_a_row_whose_weights_are_all_small_is_not_called_empty(javascript, length, said):
    weights = np.full((1, 1, length), 1 / length, np.float32)
    weights[0, 0, 7] *= 1.2
    code = """
    const layer = (await openBlob(file("blob")))[0].layers.get(0);
    const tokens = Array.from({ length: layer.nKey }, (_, i) => `t${i}`);
    return spoken({ tokens }, layer, [0], { side: "query", tokens: [0] }, none, TEXTS);
    """
    code = f"{NONE}const TEXTS = {json.dumps(TEXTS)};\n{code}"
    blob = pack([Panel("a", ["t"] * length, {0: weights})])
    found = javascript(["attention.js", "direction.js", "eye.js"], code, blob=blob)
    assert re.match(rf"t0 looks at t7 {re.escape(said)}, t0 ", found)


def test_an_empty_row_is_said_to_be_empty(javascript):
    code = f"""
    const layer = (await openBlob(file("blob")))[0].layers.get(0);
    const focus = {{ side: "query", tokens: [0] }};
    {NONE}
    return spoken({{ tokens: ["a", "b"] }}, layer, [0], focus, none, {json.dumps(TEXTS)});
    """
    blob = pack([Panel("a", ["a", "b"], {0: np.zeros((1, 2, 2), np.float32)})])
    assert javascript(["attention.js", "direction.js", "eye.js"], code, blob=blob) == (
        "a looks at nothing: its row is empty (head 1)."
    )


def test_what_is_filled_in_is_no_template_itself(eye):
    code = """return [fill("{tokens} looks at {list}", { tokens: "{list}", list: "$& {tokens} $1" }),
                       fill("{who} {what}", { who: 0 })];"""
    assert eye(code) == ["{list} looks at $& {tokens} $1", "0 {what}"]


def test_digits(eye):
    code = (
        """return [[0, 0.004, 0.0051, 0.955, 1].map(short), [0, 0.00004, 0.00012, 0.95507, 1].map(exact)];"""
    )
    assert eye(code) == [
        ["0.00", "<0.01", "0.01", "0.95", "1.00"],
        ["0.0000", "4.0e-5", "0.0001", "0.9551", "1.0000"],
    ]


@pytest.mark.parametrize(
    ("focus", "count"), [(None, 98), (pinned("query", 2, 3), 28), (pinned("key", 0), 14)]
)
def test_the_table_has_every_pair_or_those_of_the_focus(on_layer, weights, focus, count):
    found = on_layer("return table({ tokens }, layer, [0, 2], focus);", tokens=LABELS, focus=focus)
    assert len(found) == count
    for layer, head, query, query_token, key, key_token, weight in found:
        assert layer == 2
        assert (query_token, key_token) == (LABELS[query - 1], LABELS[key - 1])
        assert weight == pytest.approx(weights[head - 1, query - 1, key - 1], abs=2e-5)
        if focus:
            assert (query if focus["side"] == "query" else key) - 1 in focus["tokens"]


# Curves


def bezier(points, t):
    p = np.array(points).reshape(4, 2)
    return (
        (1 - t) ** 3 * p[0] + 3 * (1 - t) ** 2 * t * p[1] + 3 * (1 - t) * t**2 * p[2] + t**3 * p[3]
    ).tolist()


def test_the_distance_to_a_curve_is_the_nearest_of_its_points(javascript):
    curve = [0, 12, 45, 12, 55, 108, 100, 108]
    every = np.array([bezier(curve, t) for t in np.linspace(0, 1, 4001)])
    places = [(0, 12), (100, 108), (50, 60), (50, 66), (20, 19), (97, 100), (30, 60)]
    code = f"return {json.dumps(places)}.map(([x, y]) => distance({curve}, x, y, 1000));"
    found = javascript(["curves.js"], code)
    for (x, y), d in zip(places, found, strict=True):
        assert d == pytest.approx(np.hypot(*(every - (x, y)).T).min(), abs=0.15)


def test_what_is_clearly_elsewhere_is_not_computed(javascript):
    code = (
        "return [distance([0,0,45,0,55,50,100,50], 50, 80, 8), distance([0,0,45,0,55,50,100,50], -9, 0, 8)];"
    )
    assert javascript(["curves.js"], code) == ["Infinity", "Infinity"]


def test_under_the_pointer_is_the_nearest_curve_and_of_equals_the_strongest(javascript):
    code = """
    const flat = (y, weight, head) => ({ points: between(0, y, 100, y), weight, head });
    const name = (curve) => curve?.head ?? null;
    const curves = [flat(10, 0.2, 0), flat(10.5, 0.9, 1), flat(20, 0.1, 2)];
    return [name(under(curves, 50, 9.8)), name(under(curves, 50, 18)), name(under(curves, 50, 40)),
            name(under(curves, 50, 14.9)), name(under([], 50, 10))];
    """
    assert javascript(["curves.js"], code) == [1, 2, None, 1, None]


def test_an_arc_rises_with_the_distance_up_to_a_limit_and_a_tokens_own_is_a_loop(javascript):
    code = "return [[10, 60], [10, 900], [10, 10], [60, 10]].map(([from, to]) => arc(from, to, 200, 150));"
    near, far, own, back = javascript(["curves.js"], code)
    tops = [min(bezier(one, t)[1] for t in np.linspace(0, 1, 101)) for one in (near, far, own, back)]
    assert tops[0] == pytest.approx(200 - (14 + 0.45 * 50), abs=0.1)
    assert tops[1] == pytest.approx(50, abs=0.1)
    assert 175 < tops[2] < 195
    assert tops[3] == tops[0]
    assert (near[:2], near[-2:]) == ([10, 200], [60, 200])
    assert own[0] < 10 < own[-2]


def test_heads_beyond_the_colours_have_dashes(javascript):
    code = "return Array.from({ length: 7 }, (_, head) => lookOf(['#1', '#2', '#3'], head));"
    looks = javascript(["curves.js"], code)
    assert [look["colour"] for look in looks] == ["#1", "#2", "#3", "#1", "#2", "#3", "#1"]
    assert len({json.dumps(look) for look in looks}) == 7


# The matrix


@pytest.fixture
def window(javascript):
    """`window("…")`: the code may use `w`, a window of 100 cells of 4 pixels in 400 × 400."""
    scripts = ["common.js", "attention.js", "direction.js", "eye.js", "curves.js", "drawing.js", "window.js"]
    start = "const w = new Window(100, 400, 400);\n"
    return lambda code: javascript(scripts, start + code)


def test_zooming_keeps_the_place_under_the_pointer(window):
    code = """
    const under = (x, y) => [(x - w.x) / w.cell, (y - w.y) / w.cell];
    const found = [];
    for (const [by, x, y] of [[2, 100, 300], [3, 250, 20], [0.7, 333, 333], [1.5, 10, 390]]) {
      const before = under(x, y);
      w.zoom(by, x, y);
      found.push([before, under(x, y), w.zoomed]);
    }
    return found;
    """
    for before, after, zoomed in window(code):
        assert after == pytest.approx(before)
        assert zoomed


def test_the_zoom_has_its_bounds_and_the_matrix_never_leaves_the_view(window):
    code = """
    const all = [];
    w.zoom(1000, 0, 0); all.push([w.cell, w.x, w.y]);
    w.pan(50, 50); all.push([w.x, w.y]);
    w.pan(-1e6, -1e6); all.push([w.x, w.y]);
    w.zoom(1e-6, 200, 200); all.push([w.cell, w.x, w.y, w.zoomed]);
    w.zoom(4, 200, 200); w.whole(); all.push([w.cell, w.x, w.y, w.zoomed]);
    return all;
    """
    far = 400 - 7200
    assert window(code) == [[72, 0, 0], [0, 0], [far, far], [4, 0, 0, False], [4, 0, 0, False]]


def test_the_cell_at_a_place_is_one_that_is_in_sight(window):
    code = """
    const whole = [w.at(0, 0), w.at(5, 399), w.at(-1, 5), w.at(5, 400), w.seen("x")];
    w.zoom(10, 0, 0); w.pan(-85, -1000);
    const places = [[0, 0], [39, 399], [-10, 5], [10, -1], [400, 5]];
    return [whole, [...places.map(([x, y]) => w.at(x, y)), w.seen("x"), w.seen("y")]];
    """

    def cell(query, key):
        return {"query": query, "key": key}

    assert window(code) == [
        [cell(0, 0), cell(99, 1), None, None, [0, 100]],
        [cell(25, 2), cell(34, 3), None, None, None, [2, 13], [25, 35]],
    ]


def test_a_few_tokens_fill_the_view(window):
    assert window("const s = new Window(3, 300, 300); s.zoom(5, 1, 1); return [s.least, s.cell];") == [
        100,
        100,
    ]


def test_a_cell_is_brought_into_sight_and_no_farther(window):
    code = """
    w.zoom(10, 0, 0);
    w.reveal(3, 4); const same = [w.x, w.y];
    w.reveal(50, 4); const down = [w.x, w.y];
    w.reveal(20, 99); const back = [w.x, w.y];
    return [same, down, back];
    """
    assert window(code) == [[0, 0], [0, 400 - 51 * 40], [400 - 4000, -20 * 40]]


@pytest.mark.parametrize("slices", [1, 7], ids=["at once", "in slices"])
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_a_pooled_cell_is_the_largest_of_its_block(javascript, slices, mask):
    trace = mha.trace(" ".join(["w"] * 1000), h=2, d_model=8, mask=mask)  # in blocks of 2 × 2
    layer = trace.layers[0]
    blob = pack([Panel("a", trace.tokens.labels, {0: layer})])
    scripts = ["common.js", "attention.js", "direction.js", "eye.js", "curves.js", "drawing.js", "window.js"]
    code = f"""
    const layer = (await openBlob(file("blob")))[0].layers.get(0);
    const pooled = new Pooled(layer, [0, 1]);
    let clock = 0, turns = 0;
    while (!pooled.done) {{ pooled.advance(clock + 1000, () => (clock += {slices})); turns += 1; }}
    return [pooled.step, pooled.columns, turns, pooled.most, pooled.values];
    """
    step, side, turns, most, values = javascript(scripts, code, blob=blob)
    expected = layer.weights().mean(0)
    expected[~layer.allowed()[0]] = -1
    blocks = expected.reshape(500, 2, 500, 2).max((1, 3))
    found = np.array([[float(v) for v in values]]).reshape(500, 500)
    assert (step, side) == (2, 500)
    assert turns == (1 if slices == 1 else 7)
    assert most == pytest.approx(expected.max(), abs=TOLERANCE)
    np.testing.assert_array_equal(np.isnan(found), blocks < 0)
    np.testing.assert_allclose(found[blocks >= 0], blocks[blocks >= 0], atol=TOLERANCE)


def test_the_last_block_may_be_smaller_and_heads_may_have_masks_of_their_own(javascript, normal):
    mask = torch.ones(2, 801, 801, dtype=torch.bool)
    mask[0, :, 800] = False
    mask[:, :, 10:12] = False
    tensors = {name: normal(2, 801, 4, seed=seed) for seed, name in enumerate("qkv")}
    mask[0, :, 20:22] = False  # hidden from one head, and of no weight to the other
    tensors["q"][1, :, 0], tensors["k"][1, 20:22, 0] = 1, -1e5
    layer = mha.LayerTrace(tensors, mha.ScoreRule(mask=mask))
    blob = pack([Panel("a", [""] * 801, {0: layer})])
    scripts = ["common.js", "attention.js", "direction.js", "eye.js", "curves.js", "drawing.js", "window.js"]
    code = """
    const layer = (await openBlob(file("blob")))[0].layers.get(0);
    const pooled = new Pooled(layer, [0, 1]);
    pooled.advance(Infinity);
    const alone = new Pooled(layer, [0]);
    alone.advance(Infinity);
    const places = [400, 401 * 400 + 400, 5, 10];
    return [pooled, alone].map(({ columns, values }) => [columns, ...places.map((place) => values[place])]);
    """
    both, alone = javascript(scripts, code, blob=blob)
    weights = layer.weights()
    assert (both[0], alone[0]) == (401, 401)
    assert both[1] == pytest.approx(weights.mean(0)[:2, 800].max(), abs=1e-6)
    assert both[2] == pytest.approx(weights.mean(0)[800, 800], abs=1e-6)
    assert alone[1:] == ["NaN"] * 4
    assert both[4] == 0
    assert both[3] == "NaN"


# What is saved


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
    assert javascript(["save.js"], f"return wrapped({json.dumps(text)}, {most});") == expected


NASTY = ["=1+1", "+x", "-x", "@x", "\tx", 'a"b', "a,b", "a\nb", "小猫", "<img src=x onerror=alert(1)>", "x=1"]


def test_the_csv_is_read_back_and_formulas_are_harmless(javascript):
    rows = [[token, 0.25] for token in NASTY]
    text = javascript(["save.js"], f'return csvOf(["token", "weight"], {json.dumps(rows)});')
    assert text[0] == "\ufeff"
    header, *found = csv.reader(io.StringIO(text[1:], newline=""))
    assert header == ["token", "weight"]
    safe = [f"'{token}" if token[0] in "=+-@\t" else token for token in NASTY]
    assert found == [[token, "0.25"] for token in safe]


def test_a_page_saved_in_the_browser_is_the_one_that_python_makes(javascript):
    trace = mha.trace("__NUMBERS__ $& </script> __OLD__ <!-- a", h=2, d_model=8)
    view = trace.view()
    template = head_view.page(view.header["texts"]["old_browser"])
    code = f"""
    const template = new TextDecoder("utf-16le").decode(file("page"));
    const page = await pageOf(template, {json.dumps(view.header)}, file("blob"));
    return btoa(String.fromCharCode(...new Uint8Array(await utf16(page).arrayBuffer())));
    """
    files = {"blob": view.blob, "page": utf16.file(template)}
    found = base64.b64decode(javascript(["save_page.js"], code, **files)).decode("utf-16")
    made = head_view.filled(view.header, view.blob)

    def parts(page):
        [written] = re.findall(r'id="numbers">([^<]*)<', page)
        units = iter(memoryview(written.encode("utf-16-le")).cast("H"))
        data = b"".join(struct.pack("<H", unit if unit != 0x21 else next(units) ^ 0x8000) for unit in units)
        start = 4 + struct.unpack("<I", data[:4])[0]
        return json.loads(zlib.decompress(data[4:start])), data[start : -data[-1]], page.replace(written, "")

    assert parts(found) == parts(made)
    assert parts(found)[:2] == (view.header, view.blob)


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
    assert javascript(["direction.js"], f"return isRtl({json.dumps(tokens)});") is rtl
