"""The Heads page shows one head's matrices and all heads, lets both be chosen, and gives the numbers away."""

import json
import struct
from io import BytesIO

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core.analysis import patterns
from mha_core.analysis.frames import long_table
from mha_core.export import head_view as exported_view
from mha_core.export.payload import size
from pages._kit import components, head_view, matrices
from pages._kit.matrices import ENDS, OF_ONE_HEAD, csv, file_name
from pages._kit.state import Scene
from pages._kit.text import literal, number
from pages.see._heads import all_heads

PAGE = "pages/see/heads.py"
SIX = ("q", "k", "v", "scores", "weights", "output")


@pytest.fixture
def opened(opened_on_random):
    return opened_on_random


def trace(**settings) -> mha.AttentionTrace:
    return mha.trace(**(Scene(source="random").settings() | settings))


def spec(app, key: str) -> dict:
    return json.loads(app.get_by_key(key).proto.spec)


def grid(app) -> tuple[dict, np.ndarray]:
    """What the component of all heads is given: its header, and a byte for each cell."""
    data = app.get_by_key("head_grid").proto.bytes
    (size,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + size])
    cells = np.frombuffer(data[4 + size :], np.uint8)
    return header, cells.reshape(len(header["names"]), header["rows"], header["columns"])


def test_all_heads_find_their_weights_where_the_head_view_has_them(opened):
    app = opened()
    numbers = grid(app)[0]["numbers"]
    drawn = json.loads(app.get_by_key("head_view").proto.json)
    assert numbers == {name: drawn[name] for name in ("name", "digest", "layer")}


def test_no_table_is_offered_of_heads_that_the_browser_has_only_some_of(opened, monkeypatch):
    monkeypatch.setattr(head_view, "BUDGET", 1000)
    assert grid(opened())[0]["numbers"] is None


@pytest.mark.slow
@pytest.mark.parametrize("longer", ["text", "twin"])
def test_what_travels_of_two_sentences_is_what_fits_of_the_longer_one(opened, eye, monkeypatch, longer):
    texts = {"layers": 2, "text": "It was too tired", "twin": "It was too wide"}
    app = opened(**texts)
    assert [len(panel["layers"]) for panel in eye(app)[1]] == [2, 2]
    room = sum(map(size, trace(layers=2, text=texts["text"]).layers))
    monkeypatch.setattr(head_view, "BUDGET", 2 * room)  # each has its half
    assert [len(panel["layers"]) for panel in eye(opened(**texts))[1]] == [2, 2]
    texts[longer] += " to cross the street"
    assert [len(panel["layers"]) for panel in eye(opened(**texts))[1]] == [1, 1]


@pytest.mark.slow
def test_no_table_is_offered_that_a_spreadsheet_has_no_room_for(opened, monkeypatch):
    _, cells = grid(opened())
    for most, there in ((cells.size + 1, True), (cells.size, False)):
        monkeypatch.setattr(all_heads, "MAX_LINES", most)
        assert (grid(opened())[0]["numbers"] is not None) is there


@pytest.mark.parametrize(
    ("where", "head", "rows"), [("in the frame", "₁", 12), ("alone", "₄", 13)], ids=["in the frame", "alone"]
)
def test_one_head_is_shown_by_six_matrices_each_with_its_name(opened, alone, english, where, head, rows):
    app = alone(PAGE) if where == "alone" else opened()
    assert not app.exception
    captions = [caption.value for caption in app.main.caption]
    symbols = {"q": "Q", "k": "K", "v": "V", "scores": "S", "weights": "A", "output": "head"}
    for name, symbol in symbols.items():
        assert f"**{symbol}{head}** {english(f'matrix.{name}')}" in captions
        figure = app.get_by_key(f"matrix-{name}")
        assert f"{symbol}{head}" in figure.proto.alt
        assert f"{rows} rows" in figure.proto.alt


def test_the_page_runs_alone_with_the_defaults(alone, drawn):
    app = alone(PAGE)
    assert not app.exception
    assert not app.error
    trained = mha.trace(**Scene().settings())
    np.testing.assert_array_equal(drawn(app, "matrix-weights"), trained.layers[1].weights(3))


def test_the_numbers_are_compared_with_torch_before_the_readers_eyes(opened, english):
    [badge] = [m.value for m in opened().markdown if "badge" in m.value]
    assert badge.startswith(":green-badge[:material/check: ")
    assert english("check.passed", difference="").strip() in badge


def test_a_difference_to_torch_is_said_in_red(opened, english, monkeypatch):
    monkeypatch.setattr(matrices, "against_torch", lambda layer, rows: mha.Check(0.25))
    [badge] = [m.value for m in opened().markdown if "badge" in m.value]
    assert badge.startswith(":red-badge[")
    assert english("check.failed", difference=literal("0.25")) in badge


def test_what_cannot_be_compared_is_said_in_grey(opened, english, monkeypatch):
    monkeypatch.setattr(matrices, "against_torch", lambda layer, rows: mha.Check(None, reason="a reason"))
    [badge] = [m.value for m in opened().markdown if "badge" in m.value]
    assert badge.startswith(":gray-badge[")
    assert english("check.impossible", reason="a reason") in badge


def test_random_weights_are_said_to_carry_no_meaning(opened, english):
    assert english("model.random") in [caption.value for caption in opened().caption]


@pytest.mark.slow
def test_a_later_layer_says_where_its_input_comes_from(opened, english):
    app = opened(layers=3, layer=2)
    app.run()
    assert english("heads.stacked", layer=2, layers=3, before=1) in [c.value for c in app.caption]
    app.number_input(key="layer").set_value(1).run()
    assert not [c for c in app.caption if "residual" in c.value]


@pytest.mark.slow
def test_a_layer_in_which_all_tokens_have_become_alike_says_so(opened, english):
    app = opened(layers=6, layer=4)
    apart = patterns.collapse(trace(layers=6).layers[3])
    said = english("heads.collapsed", share=f"{100 * apart:.2g}")
    assert [c.value for c in app.caption if said in c.value]
    app.number_input(key="layer").set_value(2).run()
    assert not [c.value for c in app.caption if "rank collapse" in c.value]


def test_shared_keys_are_said_to_be_shared(opened, english):
    app = opened(h=4, n_kv_heads=2, head=3)
    captions = [caption.value for caption in app.caption]
    assert english("heads.shares", head=3, kv=2) in captions
    assert f"**K₂** {english('matrix.k')}" in captions
    assert f"**Q₃** {english('matrix.q')}" in captions


# The chosen token


def test_the_chosen_token_says_whom_it_looks_at(opened, english):
    app = opened(head=2, token=3)
    labels, row = trace().tokens.labels, trace().layers[0].weights(1)[2]
    order = np.argsort(-row)[:4]
    items = [english("token.looks_item", key=literal(labels[i]), weight=f"{row[i]:.2f}") for i in order]
    said = english("token.looks", head=2, query=literal(labels[2]), list=", ".join(items))
    assert app.markdown[0].value == said


def test_the_strip_shows_the_weights_of_the_chosen_row(opened, strip):
    app = opened(mask="causal", head=3, token=4)
    shown, recorded = strip(app), trace(mask="causal")
    weights = recorded.layers[0].weights(2)[3]
    assert tuple(shown["tokens"]) == recorded.tokens.labels
    assert shown["chosen"] == 3
    np.testing.assert_allclose(shown["weights"][:4], weights[:4], rtol=1e-5)
    assert shown["weights"][4:] == [None] * 8
    assert len(shown["hints"]) == 12


def test_a_token_that_may_look_at_nobody_says_so(opened, english, drawn, strip):
    # With two tokens that are both padding nobody is left.
    app = opened(text="two words", mask="padding", token=1)
    assert not app.exception
    assert app.markdown[0].value == english("token.looks_nowhere", head=1, query="two")
    assert strip(app)["weights"] == [None, None]
    assert np.isnan(drawn(app, "matrix-weights")).all()


def test_choosing_a_token_in_the_strip_moves_the_control(opened, click, strip):
    app = click(opened(), "token_strip", 1)
    assert not app.exception
    assert app.number_input(key="token").value == 2
    assert strip(app)["chosen"] == 1
    assert "**animal**" in app.markdown[0].value
    app.run()
    assert app.number_input(key="token").value == 2


# All heads


def test_the_grid_shows_every_head_up_to_the_largest_weight_of_all(opened):
    app = opened(h=8, head=5)
    header, cells = grid(app)
    weights = trace(h=8).layers[0].weights()
    assert (header["rows"], header["columns"], header["chosen"]) == (12, 12, 4)
    assert len(header["names"]) == len(header["hints"]) == 8
    np.testing.assert_allclose(cells / 254, weights / weights.max(), atol=0.5 / 254 + 1e-6)


def test_the_grid_marks_hidden_cells(opened):
    _, cells = grid(opened(mask="causal"))
    np.testing.assert_array_equal(cells == 255, np.broadcast_to(np.triu(np.ones((12, 12)), 1), (4, 12, 12)))


def test_the_hints_of_the_grid_name_the_largest_weight(opened, english):
    header, _ = grid(opened())
    recorded = trace()
    weights, labels = recorded.layers[0].weights(2), recorded.tokens.labels
    row, column = np.unravel_index(weights.argmax(), weights.shape)
    assert header["hints"][2] == english(
        "heads.grid_hint",
        head=3,
        weight=number(weights[row, column]),
        query=labels[row],
        key=labels[column],
    )


def test_choosing_a_head_in_the_grid_moves_the_control_and_the_matrices(opened, click, drawn):
    app = click(opened(), "head_grid", 2)
    assert not app.exception
    assert app.number_input(key="head").value == 3
    assert grid(app)[0]["chosen"] == 2
    np.testing.assert_array_equal(drawn(app, "matrix-q"), trace().layers[0].q[2])
    # The click is spent: what is asked for next is not overruled by it.
    app.number_input(key="head").set_value(1).run()
    assert app.number_input(key="head").value == 1


def test_the_components_work_where_the_page_runs_alone(alone, click):
    app = click(alone(PAGE), "head_grid", 1)
    assert not app.exception
    assert grid(app)[0]["chosen"] == 1


# The colour scale


def ends(app, strip) -> tuple[float, float, str]:
    """Where the colours end: in the large picture of A, in the strip, and as the page says it."""
    cells = spec(app, "matrix-weights")["data"][0]
    assert cells["zmin"] == 0
    [note] = [c.value for c in app.main.caption if c.value.startswith("Colours run")]
    return cells["zmax"], strip(app)["limit"], note


@pytest.mark.parametrize("by", ["control", "link"])
@pytest.mark.parametrize("end", ENDS)
def test_colours_end_where_the_scale_says_and_the_page_says_so(opened, english, end, by, strip):
    weights = trace().layers[0].weights()
    if by == "link":
        app = opened(head=2, scale=end)
    else:
        app = opened(head=2)
        app.segmented_control(key="scale").set_value(end).run()
    limit = {"shared": weights.max(), "per head": weights[1].max(), "0 to 1": 1.0}[end]
    said = (
        english("heads.scale_each")
        if end == "per head"
        else english("heads.scale_now", limit=number(float(limit)))
    )
    figure, in_strip, note = ends(app, strip)
    assert note == said
    assert (figure, in_strip) == pytest.approx((limit, limit))
    assert app.segmented_control(key="scale").value == end


def test_a_layer_that_is_hidden_altogether_has_a_scale_too(opened, strip):
    app = opened(text="two words", mask="padding", scale="per head")
    assert not app.exception
    assert ends(app, strip)[0] == 1.0


# The numbers


@pytest.mark.parametrize("name", OF_ONE_HEAD)
def test_every_matrix_of_a_head_can_be_read_as_a_table(opened, name):
    app = opened(mask="causal", head=2)
    app.selectbox(key="table").set_value(name).run()
    assert not app.exception
    expected = trace(mask="causal").frame(name, layer=0, head=1)
    shown = app.dataframe[-1].value
    np.testing.assert_allclose(shown.to_numpy(), expected.to_numpy())
    assert [*shown.index] == [*expected.index]


def test_the_menu_of_tables_names_shared_keys_as_the_pictures_do(opened):
    app = opened(h=4, n_kv_heads=2, head=4)
    options = app.selectbox(key="table").options
    written = [option.split()[0] for option in options[:3]]
    assert written == ["Q₄", "K₂", "V₂"]


def read(table: bytes) -> pd.DataFrame:
    words = {"query": str, "key": str}
    return pd.read_csv(BytesIO(table), encoding="utf-8-sig", dtype=words, lineterminator="\n")


def test_a_table_for_spreadsheets_starts_with_the_mark_of_utf8():
    assert csv(pd.DataFrame({"word": ["小猫"]})) == b"\xef\xbb\xbfword\n" + "小猫\n".encode()


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_a_word_that_a_spreadsheet_would_run_is_made_harmless(start):
    word = f"{start}cmd|'/c calc'!A1"
    table = pd.DataFrame({"head": [1, -1], "key": [word, "plain"], "weights": [-0.5, 0.5]})
    before = table.copy()
    back = read(csv(table))
    assert [*back["key"]] == [f"'{word}", "plain"]
    # Numbers stay numbers, also below zero.
    assert [*back["weights"]] == [-0.5, 0.5]
    assert [*back["head"]] == [1, -1]
    pd.testing.assert_frame_equal(table, before)


def test_the_numbers_of_a_sentence_of_signs_survive_the_spreadsheet():
    recorded = mha.trace('=1+1 @x -y "quoted, twice" 小猫', h=2, d_model=4)
    table = long_table(recorded, "scores", layer=0, heads=range(2))
    back = read(csv(table))
    assert [*back.columns] == [*table.columns]
    np.testing.assert_array_equal(back["scores"].to_numpy(np.float32), table["scores"].to_numpy())
    assert not back["key"].str.startswith(("=", "+", "-", "@")).any()
    harmless = ["'" + word if word[0] in "=+-@" else word for word in recorded.tokens.labels]
    assert [*back["key"][: len(harmless)]] == harmless


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("weights", "layer", 1, "How are you?"), "headscope-weights-layer-1-How-are-you"),
        (("a/b\\c:d*e",), "headscope-a-b-c-d-e"),
        (("../../etc",), "headscope-etc"),
        (("小猫。",), "headscope-小猫"),
    ],
)
def test_a_file_has_a_name_that_every_system_takes(parts, name):
    assert file_name(*parts) == name


def test_the_download_can_be_pressed(opened):
    app = opened()
    app.main.download_button[0].click().run()
    assert not app.exception


@pytest.mark.parametrize(
    "change",
    [{"d_model": 96}, {"d_k": 5}, {"mask": "causal"}, {"n_kv_heads": 2}, {"position": "none"}],
    ids=str,
)
def test_the_head_view_has_the_numbers_of_its_own_settings(opened_on_random, eye, change):
    """The same sentence and seed are not the same weights."""
    one, other = (eye(opened_on_random(**link))[1][0]["layers"][0]["weights"] for link in ({}, change))
    assert one.shape == other.shape
    assert not np.allclose(one, other, atol=1e-3)


# One text that looks at another


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [
        ("q", "queries", None),
        ("k", "keys", None),
        ("v", "keys", None),
        ("scores", "queries", "keys"),
        ("weights", "queries", "keys"),
        ("output", "queries", None),
    ],
)
def test_the_matrices_have_their_own_tokens_on_each_axis(
    on_translation, name, rows, columns, translation, main_text
):
    app = on_translation("see/heads.py", key_token=4)
    meta = json.loads(app.get_by_key(f"matrix-{name}").proto.spec)["layout"]["meta"]
    shown = (meta["rows"], meta["columns"])
    assert shown[0] == [*getattr(translation.sides, rows).labels]
    if columns:
        assert shown[1] == [*getattr(translation.sides, columns).labels]
    assert (meta["start"] is None) == (name in "kv")  # a key is no token that looks
    assert "Katze" in main_text(app)


def test_the_view_is_given_both_texts(on_translation, translation):
    blob = on_translation("see/heads.py").get_by_key("head_view_blob").proto
    content = blob.SerializeToString()
    assert b"Katze" in content
    assert b"saw" in content
    assert exported_view.panel(translation, [0]).keys == translation.sides.keys.labels


def test_a_heads_small_picture_names_tokens_of_both_texts(translation):
    layer = translation.layers[0]
    data = components.grid_data(
        layer,
        translation.sides.queries.labels,
        chosen=0,
        limits=[1.0] * 3,
        keys=translation.sides.keys.labels,
    )
    size = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + size])
    assert (header["rows"], header["columns"]) == (7, 11)
    for head, hint in enumerate(header["hints"]):
        row, column = np.unravel_index(layer.weights(head).argmax(), (7, 11))
        assert translation.sides.queries.labels[row] in hint
        assert translation.sides.keys.labels[column] in hint
