"""A panel of the head view: one text looking at another, pieces joined to words; node against numpy."""

import json

import numpy as np
import pytest
import torch

from mha_core.export import head_view
from mha_core.export.payload import Panel, pack

QUERIES = ("[CLS]", "the", "ani", "##mal", "sat", "down", ".")
KEYS = tuple(f"k{at}" for at in range(11))
QUERY_WORDS = [0, 1, 2, 2, 3, 4, 5]
KEY_WORDS = [0, 1, 1, 1, 2, 3, 3, 4, 5, 6, 7]
TEXTS = head_view.texts("en")
MODULES = ["numbers/payload.js", "numbers/panel.js", "scene/focus.js", "pictures/weight_grid.js"]


@pytest.fixture(scope="module")
def weights(normal) -> np.ndarray:
    """Three heads, 7 queries, 11 keys."""
    return torch.softmax(2 * normal(3, 7, 11), -1).numpy()


@pytest.fixture
def on_panel(javascript, weights):
    """`on_panel("return …")`: the code has the `panel` of a blob and its `layer`."""
    blob = pack([Panel("a → b", QUERIES, {1: weights}, KEYS)])

    def run(code: str, **values):
        constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
        start = 'const [panel] = await openPayload(file("blob"));\nconst layer = panel.layers.get(1);\n'
        return javascript(MODULES, start + constants + code, blob=blob)

    return run


# Two lists of tokens


def test_words_of_either_direction_are_isolated_in_sentences(javascript, weights):
    keys = ["طارت", "أمس", *KEYS[2:]]
    code = f"""
    const [panel] = await openPayload(file("blob"));
    const none = {{ query: new Set(), key: new Set() }};
    return spoken(panel, panel.layers.get(0), [0], {{ side: "key", tokens: [1] }}, none, {json.dumps(TEXTS)});
    """
    said = javascript(MODULES, code, blob=pack([Panel("a", QUERIES, {0: weights}, keys)]))
    assert said.startswith("“\u2068أمس\u2069” is looked at by ")
    assert said.count("\u2068") == 1  # the others need none


def test_a_blob_has_the_tokens_of_both_texts_and_is_opened_once(on_panel, javascript, weights):
    code = "return [panel.tokens, panel.keys, layer.nQuery, layer.nKey, layer.score(0, 0, 0)];"
    assert on_panel(code) == [list(QUERIES), list(KEYS), 7, 11, "NaN"]  # of weights alone
    blob = pack([Panel("a", QUERIES, {0: weights[:, :, :7]})])
    code = """
    const bytes = file("blob");
    const [panel] = openPayload(bytes);
    let refused;
    try { openPayload(new TextEncoder().encode("PNG?....")); } catch ({ message }) { refused = message; }
    return [panel.tokens === panel.keys, openPayload(bytes)[0] === panel, refused];
    """
    same, once, refused = javascript(MODULES, code, blob=blob)
    assert (same, once) == (True, True)
    assert "not attention: PNG?" in refused


@pytest.mark.parametrize("side", ["query", "key"])
def test_the_sentence_names_the_tokens_of_both_texts(on_panel, weights, side):
    code = """
    const none = { query: new Set(), key: new Set() };
    return spoken(panel, layer, [2], { side, tokens: [4] }, none, texts);
    """
    said = on_panel(code, side=side, texts=TEXTS)
    values, names = (weights[2, 4], KEYS) if side == "query" else (weights[2, :, 4], QUERIES)
    order = [at for at in np.argsort(-values) if values[at] >= 0.005][:5]
    listed = ", ".join(f"“{names[at]}” {values[at]:.2f}" for at in order)
    verb = "looks at" if side == "query" else "is looked at by"
    assert said == f"“{(QUERIES if side == 'query' else KEYS)[4]}” {verb} {listed} (head 3)."


def test_lines_leave_out_the_special_tokens_of_their_own_side(on_panel):
    code = """
    const hidden = { query: new Set([0]), key: new Set([8, 10]) };
    return [null, { side: "key", tokens: [8] }, { side: "key", tokens: [0] }].map((focus) =>
      linesOf(layer, [0, 1], { focus, threshold: 0, count: 0, hidden })
        .map(({ query, key }) => [query, key]));
    """
    every, hidden, column = on_panel(code)
    assert {tuple(pair) for pair in every} == {
        (q, k) for q in range(1, 7) for k in range(11) if k not in (8, 10)
    }
    assert hidden == []
    assert sorted({q for q, _ in column}) == [1, 2, 3, 4, 5, 6]


# The weight on special tokens is shared out


def test_without_hidden_keys_each_row_sums_to_one_again(on_panel, weights):
    code = """
    const rest = layerOf({ ...panel, rescaled: new Map(), special: { key: new Set([0, 5]) } }, 1, true);
    const column = (key) => across(rest, 1, { side: "key", tokens: [key] });
    return [[0, 3].map((q) => rest.row(1, q)), column(4), column(5), rest.weight(1, 3, 4),
            rest.away(1, 3), rest.sees(1, 3, 5), rest.sees(1, 3, 4), table(panel, rest, [1], null).length];
    """
    rows, column, hidden, cell, away, sees_hidden, sees, n_rows = on_panel(code)
    expected = weights[1].copy()
    expected[:, [0, 5]] = 0
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(rows, expected[[0, 3]], atol=5e-4)
    np.testing.assert_allclose(column, expected[:, 4], atol=5e-4)
    assert hidden == [0] * 7
    assert cell == pytest.approx(expected[3, 4], abs=5e-4)
    assert away == pytest.approx(weights[1, 3, [0, 5]].sum(), abs=1e-4)
    assert (sees_hidden, sees, n_rows) == (False, True, 7 * 9)


# Pieces and words


def test_words_average_over_query_pieces_and_sum_over_key_pieces(on_panel, weights):
    code = """
    const groups = { query: { of: queries, labels: [] }, key: { of: keys, labels: [] } };
    const joined = prepared(panel, { groups: [groups], special: [] }, 0, true).layers.get(1);
    return [joined.nQuery, joined.nKey, Array.from({ length: joined.nQuery }, (_, q) => joined.row(2, q)),
            across(joined, 2, { side: "key", tokens: [3] }), joined.weight(2, 2, 1)];
    """
    n_query, n_key, rows, column, cell = on_panel(code, queries=QUERY_WORDS, keys=KEY_WORDS)
    summed = np.add.reduceat(weights[2], np.unique(KEY_WORDS, return_index=True)[1], axis=1)
    expected = np.stack([summed[np.array(QUERY_WORDS) == word].mean(0) for word in range(6)])
    assert (n_query, n_key) == expected.shape == (6, 8)
    np.testing.assert_allclose(rows, expected, atol=1e-4)
    np.testing.assert_allclose(column, expected[:, 3], atol=1e-4)
    assert cell == pytest.approx(expected[2, 1], abs=1e-4)
    np.testing.assert_allclose(np.sum(rows, axis=1), 1, atol=1e-3)


def test_a_prepared_panel_has_words_their_special_tokens_and_the_way_back(on_panel, weights):
    header = {
        "id": "v",
        "special": [[[0], [10]]],
        "groups": [
            {
                "query": {"of": QUERY_WORDS, "labels": ["[CLS]", "the", "animal", "sat", "down", "."]},
                "key": {"of": KEY_WORDS, "labels": [f"w{at}" for at in range(8)]},
            }
        ],
    }
    code = """
    const [words, pieces] = [true, false].map((joined) => prepared(panel, header, 0, joined));
    const rest = layerOf(words, 1, true);
    return [words.tokens, words.keys, words.special.key, words.two, words.wordOf("query", 3),
            words.pieceOf("query", 3), words.pieceOf("key", 3), rest.row(0, 2),
            rest === layerOf(words, 1, true),
            pieces.tokens, pieces.special.key, layerOf(pieces, 1, false) === layer];
    """
    tokens, keys, special, two, word, piece, key_piece, row, kept, *plain = on_panel(code, header=header)
    assert (tokens[2], keys, special, two) == ("animal", [f"w{at}" for at in range(8)], [7], True)
    assert (word, piece, key_piece, kept) == (2, 4, 5, True)
    mean = weights[0, 2:4].mean(0)
    summed = np.array([mean[np.array(KEY_WORDS) == at].sum() for at in range(8)])
    summed[7] = 0
    np.testing.assert_allclose(row, summed / summed.sum(), atol=5e-4)
    assert plain == [list(QUERIES), [10], True]
