"""Every page on a text that looks at another one: 7 tokens that look, 11 that are looked at."""

import json
from types import MappingProxyType

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.token import column_of
from mha_core.export import head_view
from pages._kit import components, compute, sentence
from pages.see._token.subject import word

TARGET = mha.words("the old cat saw a dog .")
SOURCE = mha.words("die alte graue Katze sah gestern im Garten einen Hund .")
N_QUERY, N_KEY, HEADS = 7, 11, 3
TOKEN = 6


@pytest.fixture(scope="module")
def cross():
    def layer(seed: int) -> mha.LayerTrace:
        draw = torch.Generator().manual_seed(seed)
        x, y = (torch.randn(count, 15, generator=draw) for count in (N_QUERY, N_KEY))
        matrices = [torch.randn(15, HEADS * width, generator=draw) / 3 for width in (5, 5, 2)]
        q, k, v = (
            (given @ matrix).unflatten(1, (HEADS, -1)).transpose(0, 1).contiguous()
            for given, matrix in zip((x, y, y), matrices, strict=True)
        )
        tensors = MappingProxyType({"q": q, "k": k, "v": v, "x": x, "x_v": y})
        sides = mha.Sides(TARGET, SOURCE)
        return mha.LayerTrace(tensors, projections=mha.Projections(*matrices), kind="cross", sides=sides)

    source = {"name": "random", "h": HEADS, "d_model": 15, "seed": 0}
    return mha.AttentionTrace(TARGET, (layer(0), layer(1)), source)


@pytest.fixture
def on_cross(opened_on, cross, monkeypatch):
    """`on_cross("see/heads.py")`: the page on that trace, at layer 2, head 3 and the sixth token."""
    monkeypatch.setattr(compute, "trace", lambda scene, **asked: cross)
    link = {"source": "random", "twin": "", "layer": 2, "head": 3, "token": TOKEN}
    return lambda page, **more: opened_on(page, **(link | more))


def plain(app) -> str:
    kinds = (app.main.markdown, app.main.caption, app.main.info)
    return "\n".join(element.value for kind in kinds for element in kind)


def strip(app, key: str) -> dict:
    return json.loads(app.get_by_key(key).proto.json)


def axes(app, key: str) -> tuple[list, list]:
    meta = json.loads(app.get_by_key(key).proto.spec)["layout"]["meta"]
    return meta["rows"], meta["columns"]


def test_both_texts_are_there_and_the_one_that_is_looked_at_is_shaded(on_cross, cross):
    app = on_cross("see/heads.py")
    row = cross.layers[1].weights(2)[TOKEN - 1]
    looks, looked_at = strip(app, "token_strip"), strip(app, "token_strip_keys")
    assert (looks["tokens"], looks["weights"], looks["chosen"]) == ([*TARGET.labels], None, TOKEN - 1)
    assert looked_at["tokens"] == [*SOURCE.labels]
    np.testing.assert_allclose(looked_at["weights"], row)
    assert looked_at["chosen"] == row.argmax()
    assert looked_at["hints"][3].startswith("“dog” → “Katze”")
    assert f"**{SOURCE.labels[row.argmax()]}** {row.max():.2f}" in plain(app)


def test_the_token_of_a_link_is_marked_in_the_text_that_is_looked_at(on_cross):
    assert strip(on_cross("see/heads.py", key_token=11), "token_strip_keys")["chosen"] == 10


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [
        ("q", TARGET, None),
        ("k", SOURCE, None),
        ("v", SOURCE, None),
        ("scores", TARGET, SOURCE),
        ("weights", TARGET, SOURCE),
        ("output", TARGET, None),
    ],
)
def test_the_matrices_have_their_own_tokens_on_each_axis(on_cross, name, rows, columns):
    app = on_cross("see/heads.py", key_token=4)
    shown = axes(app, f"matrix-{name}")
    assert shown[0] == [*rows.labels]
    if columns:
        assert shown[1] == [*columns.labels]
    start = json.loads(app.get_by_key(f"matrix-{name}").proto.spec)["layout"]["meta"]["start"]
    assert (start is None) == (name in "kv")  # a key is no token that looks
    assert "Katze" in plain(app)


def test_the_view_is_given_both_texts(on_cross, cross):
    blob = on_cross("see/heads.py").get_by_key("head_view_blob").proto
    content = blob.SerializeToString()
    assert b"Katze" in content
    assert b"saw" in content
    assert head_view.panel(cross, [0]).keys == SOURCE.labels


def test_a_heads_small_picture_names_tokens_of_both_texts(cross):
    layer = cross.layers[0]
    data = components.grid_data(layer, TARGET.labels, chosen=0, limits=[1.0] * HEADS, keys=SOURCE.labels)
    size = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + size])
    assert (header["rows"], header["columns"]) == (N_QUERY, N_KEY)
    for head, hint in enumerate(header["hints"]):
        row, column = np.unravel_index(layer.weights(head).argmax(), (N_QUERY, N_KEY))
        assert TARGET.labels[row] in hint
        assert SOURCE.labels[column] in hint


@pytest.mark.parametrize("key_token", [None, 1, 11])
def test_the_page_token_tells_who_looks_at_a_token_of_the_other_text(on_cross, cross, key_token):
    app = on_cross("see/token.py")
    if key_token is not None:
        app.number_input(key="key_token").set_value(key_token).run()
    row = cross.layers[1].weights(2)[TOKEN - 1]
    key = int(row.argmax()) if key_token is None else key_token - 1
    column = column_of(cross, key, layer=1).weights.iloc[2]
    said = plain(app)
    assert f"Who looks at “{word(SOURCE.labels[key])}”" in said
    [bar] = json.loads(app.get_by_key(f"one-seen-{key}").proto.spec)["data"]
    assert bar["y"][0] == column.idxmax()
    [bar] = json.loads(app.get_by_key(f"one-looks-{TOKEN - 1}").proto.spec)["data"]
    assert bar["y"][0] == SOURCE.labels[row.argmax()]
    heads = json.loads(app.get_by_key("one-seen-heads").proto.spec)
    assert len(heads["data"][0]["x"]) == N_QUERY
    assert f"sum to {column.sum():.2f}; 0.636 would be an even share" in said  # 7 / 11


@pytest.mark.parametrize(
    ("page", "said"), [("understand/steps.py", "made of Y"), ("understand/hops.py", "another")]
)
def test_steps_and_hops_say_what_two_texts_mean(on_cross, page, said):
    assert said in plain(on_cross(page))


def test_a_click_on_a_token_of_either_text_goes_to_it(on_cross):
    app = on_cross("see/heads.py")
    app.session_state["key_token"] = 9
    app.run()
    assert strip(app, "token_strip_keys")["chosen"] == 8
    assert "**Garten**" in plain(app)


def test_a_text_that_looks_at_itself_is_not_two(monkeypatch):
    trace = mha.trace("one two three", h=2, d_model=4)
    assert sentence.looked_at(trace, layer=0, head=0, query=2) == 2
