"""Sums, lines, sentences and tables of the focus, in node against numpy."""

import json

import numpy as np
import pytest
import torch

from mha_core.export import head_view
from mha_core.export.payload import Panel, pack

MODULES = ["numbers/payload.js", "numbers/panel.js", "scene/focus.js"]
LABELS = ["[CLS]", "the", "animal", "was", "too", "tired", "."]
TEXTS = head_view.texts("en")
NONE = "const none = { query: new Set(), key: new Set() };\n"


@pytest.fixture
def on_layer(javascript, weights):
    """As `looked`, with a `layer` of three heads over seven tokens."""
    blob = pack([Panel("a", LABELS, {1: weights})])

    def run(code: str, **values):
        constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
        start = 'const layer = (await openPayload(file("blob")))[0].layers.get(1);\n'
        return javascript(MODULES, start + constants + code, blob=blob)

    return run


@pytest.fixture(scope="module")
def weights(normal) -> np.ndarray:
    return torch.softmax(2 * normal(3, 7, 7), -1).numpy()


def pinned(side, *tokens):
    return {"side": side, "tokens": list(tokens)}


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


def lines(weights, heads, pairs, threshold, count, hidden) -> set[tuple]:
    """By numpy: for each head and (side, token) of `pairs` the lines that are drawn."""
    drawn = set()
    for head in heads:
        for side, token in pairs:
            if token in hidden:
                continue
            row = weights[head, token] if side == "query" else weights[head, :, token]
            order = [i for i in np.argsort(-row) if row[i] >= threshold and i not in hidden]
            for other in order[: count or None]:
                drawn.add((head, token, int(other)) if side == "query" else (head, int(other), token))
    return drawn


@pytest.mark.parametrize(
    ("focus", "threshold", "count", "hidden"),
    [
        (None, 0.02, 2, []),
        (None, 0.0, 0, [0, 6]),
        (pinned("key", 2, 4), 0.05, 3, [0]),
        (pinned("key", 0), 0.0, 0, [0]),
    ],
)
def test_the_lines_are_those_that_numpy_finds(on_layer, weights, focus, threshold, count, hidden):
    code = """
    const away = { query: new Set(hidden), key: new Set(hidden) };
    return linesOf(layer, [0, 2], { focus, threshold, count, hidden: away });
    """
    found = on_layer(code, focus=focus, threshold=threshold, count=count, hidden=hidden)
    pairs = (
        [("query", i) for i in range(7)] if focus is None else [(focus["side"], i) for i in focus["tokens"]]
    )
    assert {(one["head"], one["query"], one["key"]) for one in found} == lines(
        weights, [0, 2], pairs, threshold, count, hidden
    )
    for one in found:
        assert one["weight"] == pytest.approx(weights[one["head"], one["query"], one["key"]], abs=2e-5)


def test_only_visible_queries_have_lines(on_layer):
    code = NONE + "return linesOf(layer, [0], { from: 2, to: 4, threshold: 0, count: 1, hidden: none });"
    assert [line["query"] for line in on_layer(code)] == [2, 3]


# Sentences


def spoken(on_layer, heads, focus, hidden=()):
    code = """
    const away = { query: new Set(hidden), key: new Set(hidden) };
    const panel = { layers: new Map([[1, layer]]), rescaled: new Map(), special: away };
    const shown = layerOf(panel, 1, hidden.length > 0);
    return spoken({ tokens }, shown, heads, focus, away, texts);
    """
    return on_layer(code, tokens=LABELS, heads=heads, focus=focus, hidden=list(hidden), texts=TEXTS)


def named(row, hidden=()) -> str:
    order = [i for i in np.argsort(-row) if row[i] >= 0.005 and i not in hidden][:5]
    return ", ".join(f"“{LABELS[i]}” {row[i]:.2f}" for i in order)


def test_for_a_few_heads_the_sentence_names_the_largest_weight_of_each(on_layer, weights):
    best = [
        f"“{LABELS[row.argmax()]}” {row.max():.2f} (head {head})"
        for head, row in zip((1, 3), weights[[0, 2], 3], strict=True)
    ]
    assert spoken(on_layer, [0, 2], pinned("query", 3)) == f"“was” looks at {', '.join(best)}."


def test_the_sentence_names_the_weight_on_hidden_tokens(on_layer, weights):
    row = weights[0, 4] + weights[0, 5]
    away = weights[0][:, [0, 2]].sum(1, keepdims=True)
    rest = weights[0] / (1 - away)
    share = f"Hidden tokens get {row[[0, 2]].sum():.2f} of the weight; the rest is rescaled"
    expected = f"“too + tired” looks at {named(rest[4] + rest[5], [0, 2])} (head 1). {share}"
    assert spoken(on_layer, [0], pinned("query", 4, 5), [0, 2]).startswith(expected)
    rest[:, [0, 2]] = 0
    expected = f"“was” is looked at by {named(rest[:, 3], [0, 2])} (head 1). {TEXTS['rescaled']}"
    assert spoken(on_layer, [0], pinned("key", 3), [0, 2]) == expected


def test_the_sentence_says_that_nothing_is_on_or_chosen(on_layer):
    assert spoken(on_layer, [], pinned("query", 1)) == TEXTS["no_head"]
    assert spoken(on_layer, [0], None) == TEXTS["unchosen"]
    assert "line" not in TEXTS["unchosen"]  # in a matrix and in a text there are none


def test_the_sentence_says_that_weights_of_several_tokens_are_added_up(on_layer):
    for side in ("query", "key"):
        assert spoken(on_layer, [0], pinned(side, 4, 5)).endswith(f" {TEXTS['added']}")
        assert TEXTS["added"] not in spoken(on_layer, [0], pinned(side, 4))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([1 / 20_000] * 7 + [1.2 / 20_000], "“t7” 6.0e-5, “t0” "),
        ([0, 0], "nothing: its row is empty (head 1)."),
    ],
    ids=["small", "empty"],
)
def test_a_row_is_called_empty_only_where_it_is(javascript, row, said):
    code = f"""
    const layer = openPayload(file("blob"))[0].layers.get(0);
    const tokens = Array.from({{ length: layer.nKey }}, (_, i) => `t${{i}}`);
    {NONE}
    return spoken({{ tokens }}, layer, [0], {{ side: "query", tokens: [0] }}, none, {json.dumps(TEXTS)});
    """
    blob = pack([Panel("a", ["t0"], {0: np.float32([[row]])}, ["t"] * len(row))])
    assert javascript(MODULES, code, blob=blob).startswith(f"“t0” looks at {said}")


@pytest.mark.parametrize(("focus", "count"), [(None, 98), (pinned("key", 0, 3), 28)])
def test_the_table_has_every_pair_or_those_of_the_focus(on_layer, weights, focus, count):
    found = on_layer("return table({ tokens }, layer, [0, 2], focus);", tokens=LABELS, focus=focus)
    assert len(found) == count
    for layer, head, query, query_token, key, key_token, weight in found:
        assert layer == 2
        assert (query_token, key_token) == (LABELS[query - 1], LABELS[key - 1])
        assert weight == pytest.approx(weights[head - 1, query - 1, key - 1], abs=2e-5)
        if focus:
            assert (query if focus["side"] == "query" else key) - 1 in focus["tokens"]
