"""The page Token: one token's row, column, scores and mixture, as numbers and in words."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.token import against_keys, column_of, mixture, over_layers, row_of
from mha_core.focus.focus import Focus
from mha_core.scene.scene import Scene
from pages._kit.text import literal, number
from pages.see._token import weights
from pages.see._token.subject import Subject, filed, word
from tests.pages.conftest import figure, numbers, sent, texts

PAGE = "see/token.py"
PICTURES = ("heads", "layers", "vectors", "products", "mixture")
HOTEL = "He booked a room at a hotel."
RANDOM = {"source": "random", "twin": "", "layer": 1, "head": 1}


@pytest.fixture
def on_token(opened_on):
    return partial(opened_on, PAGE, "exactly")


@pytest.fixture
def on_random(opened_on):
    """The page on random weights, and the trace of the same settings."""

    def open_(**link: object):
        asked = {"token": 1, **RANDOM, **link}
        app = opened_on(PAGE, "exactly", **asked)
        settings = {key: value for key, value in asked.items() if key in Scene.__dataclass_fields__}
        return app, mha.trace(**Scene(**settings).settings())

    return open_


@pytest.fixture
def looks(heatmaps):
    """`looks(app, "heads")`: the weights from and to the token, NaN where hidden."""

    def read(app, lines="heads"):
        drawn = heatmaps(app, f"one-{lines}")
        return drawn["looks"]["values"], drawn["seen"]["values"]

    return read


def bars(app, key: str) -> dict[str, str]:
    """The names of the bars and the numbers written at their ends."""
    [bar] = figure(app, key)["data"]
    return dict(zip(bar["y"], bar["text"], strict=True))


def ranked(weights) -> dict[str, str]:
    order = weights.sort_values(ascending=False, kind="stable")
    return {label: number(value) for label, value in order.items() if value}


def test_the_first_visit_shows_the_pronoun(on_token, heatmaps, looks, english, strip, component):
    app = on_token()
    trace = mha.trace(Scene.text, source="mini", h=4, d_model=64)
    assert [header.value for header in app.title] == [english("one.heading", token="it", layer=2, head=1)]
    assert strip(app)["chosen"] == 8
    titles = [english("one.layers"), english("one.query", head=1), english("one.output_title", head=1)]
    assert {*titles} <= {heading.value for heading in app.header}
    row, column = row_of(trace, 8, layer=1), column_of(trace, 8, layer=1)
    for shown, expected in zip(looks(app), (row.weights, column.weights), strict=True):
        np.testing.assert_array_equal(shown, expected)
    assert bars(app, "one-looks-8") == ranked(row.weights.loc[1])
    assert bars(app, "one-seen-8") == ranked(column.weights.loc[1])
    assert next(iter(bars(app, "one-looks-8"))) == "animal"
    for shown, of in zip(looks(app, "layers"), ("row", "column"), strict=True):
        np.testing.assert_allclose(shown, over_layers(trace, 8, of=of).mean, rtol=1e-6)
    products, numbers = against_keys(trace, 8, layer=1, head=0)
    way = heatmaps(app, "one-products")
    np.testing.assert_array_equal(way["products"]["values"], products)
    np.testing.assert_array_equal(way["scores"]["values"], numbers[["score", "masked"]])
    np.testing.assert_array_equal(way["weights"]["values"], numbers[["weight"]])
    assert english("one.sum_row") in texts(app)
    for _ in range(2):  # what a click does is said once
        hints = [component(app, f"one-{key}")["texts"]["how"] for key in PICTURES]
        assert hints == ["Hover over a cell to see its value. Click to see where it comes from.", *[""] * 4]
        app.run()


@pytest.mark.parametrize(
    "link",
    [
        {"h": 8, "n_kv_heads": 2, "mask": "causal", "layers": 3, "layer": 2, "head": 7, "token": 4},
        {"text": "alone", "h": 1, "d_k": 5, "d_v": 9, "position": "alibi"},
    ],
)
def test_random_weights_of_every_kind(on_random, heatmaps, drawn, looks, link):
    app, trace = on_random(**({"text": HOTEL} | link))
    layer, head, token = (link.get(name, 1) - 1 for name in ("layer", "head", "token"))
    row = row_of(trace, token, layer=layer)
    np.testing.assert_array_equal(looks(app)[0], np.where(row.hidden, np.nan, row.weights.to_numpy()))
    assert bars(app, f"one-looks-{token}") == ranked(row.weights.loc[head + 1])
    column = column_of(trace, token, layer=layer).weights.loc[head + 1]
    assert bars(app, f"one-seen-{token}") == ranked(column)
    [bar] = figure(app, f"one-seen-{token}")["data"]
    places = numbers(bar["customdata"])  # by which a click on a bar finds its token
    assert [trace.tokens.labels[place] for place in places.astype(int)] == list(bar["y"])
    if len(trace.layers) > 1:
        mean, hidden, _ = over_layers(trace, token, of="column")
        np.testing.assert_allclose(looks(app, "layers")[1], np.where(hidden, np.nan, mean), rtol=1e-6)
    products = against_keys(trace, token, layer=layer, head=head).products
    np.testing.assert_array_equal(heatmaps(app, "one-products")["products"]["values"], products)
    made = mixture(trace, token, layer=layer, head=head)
    shown = drawn(app, "one-mixture")
    np.testing.assert_array_equal(shown[-1], made.output)
    np.testing.assert_allclose(shown[:-1].sum(axis=0), shown[-1], atol=1e-5)


def test_the_row_of_booked_is_a_sentence_of_weights_and_its_output_that_mixture(on_random, english):
    app, trace = on_random(text=HOTEL, h=8, d_model=512, token=2, component=3)
    assert english("one.layers") not in [heading.value for heading in app.header]  # there is one
    layer = trace.layers[0]
    weights, values, labels = layer.weights(0)[1], layer.v[0], trace.tokens.labels
    order = np.argsort(-weights, kind="stable")
    assert len(order) == 8
    told = " + ".join(f"{literal(number(weights[n]))}\u00a0·\u00a0**{literal(labels[n])}**" for n in order)
    assert f"**booked** = {told}" in texts(app)
    assert sum(float(number(weights[n])) for n in order) == pytest.approx(1, abs=1e-3)

    [equation] = [said for said in texts(app) if said.startswith("Dimension 3")]
    total = literal(number(layer.output(0)[1, 2]).replace("-", "−"))
    assert equation.endswith(f"= **{total}**")
    for n in order:
        assert f"{literal(number(weights[n]))} · " in equation
        assert literal(number(values[n, 2]).replace("-", "−")) in equation
    difference = mixture(trace, 1, layer=0, head=0).difference
    assert difference < 1e-6
    assert english("one.sum_check", difference=literal(number(difference))) in texts(app)


def test_small_weights_are_summed_in_one_entry(on_token, english):
    app = on_token(layer=1)
    made = mixture(mha.trace(Scene.text, source="mini", h=4, d_model=64), 8, layer=0, head=0)
    [sentence] = [said for said in texts(app) if said.startswith("**it** = ")]
    count = 13 - sentence.count("**") // 2 + 1  # it begins with the token itself
    assert 2 < count < 13
    rest = made.weights.nsmallest(count).to_numpy().sum(dtype=np.float64)
    assert sentence.endswith(f"{literal(number(rest))}\u00a0·\u00a0{english('one.others', count=count)}")


def test_a_fully_hidden_row_is_reported_and_not_drawn(on_random, heatmaps, english):
    app, _ = on_random(text="two words", mask="padding")
    for text in ("one.looks_nowhere", "one.seen_nowhere"):
        assert texts(app).count(english(text, token="two")) == 2
    assert english("token.looks_nowhere", head=1, query="two") in texts(app)
    assert not app.get("plotly_chart")
    # The products are there whatever the mask says.
    assert np.isnan(heatmaps(app, "one-products")["scores"]["values"][:, 1]).all()
    assert english("one.click") not in texts(app)
    assert english("one.hidden_note", count=2) in texts(app)


def test_a_long_text_shows_its_largest_weights_and_says_so(on_random, english, drawn, heatmaps, looks):
    words = " ".join(f"word{i}" for i in range(256))
    app, trace = on_random(text=words, token=200, h=8)
    row = row_of(trace, 199, layer=0).weights
    largest = row.max().sort_values(ascending=False)
    kept = [label for label in row.columns if label in set(largest.index[:40])]
    np.testing.assert_array_equal(looks(app)[0], row[kept])
    note = english("one.partly", shown=40, count=256, maximum=number(largest.iloc[40]))
    assert note in texts(app)
    found = bars(app, "one-looks-199")
    assert len(found) == 15
    assert list(found)[-1] == english("one.others", count=242)
    rest = np.sort(row.loc[1].to_numpy())[:242].sum(dtype=np.float64)
    assert found[list(found)[-1]] == number(rest)
    assert heatmaps(app, "one-products")["products"]["values"].shape == (24, 8)
    assert drawn(app, "one-mixture").shape[0] <= 11


def test_with_a_sink_weights_are_not_said_to_sum_to_1(on_random, english, monkeypatch):
    trace = mha.trace(HOTEL, h=4, d_model=64)
    layer = replace(trace.layers[0], rule=mha.ScoreRule(sinks=torch.ones(4)))
    with_sinks = mha.AttentionTrace(trace.tokens, (layer,), trace.source)
    monkeypatch.setattr("pages._kit.compute.trace", lambda scene, **more: with_sinks)
    app, _ = on_random(text=HOTEL)
    total = layer.weights(0)[0].sum()
    assert total < 0.99
    told = english("one.sum_less", total=f"{total:.2f}")
    assert sum(told in said for said in texts(app)) == 2
    assert not any(english("one.sum_row") in said for said in texts(app))


def test_words_from_right_to_left_do_not_turn_the_numbers_around_them(on_random):
    app, trace = on_random(text="قرأ الولد الكتاب", token=2)
    [sentence] = [said for said in texts(app) if said.startswith("**\u2068الولد\u2069** = ")]
    for label in trace.tokens.labels:
        assert f"·\u00a0**\u2068{label}\u2069**" in sentence
    [looks] = [said for said in texts(app) if said.startswith("In head 1")]
    assert looks.count("\u2068") == looks.count("\u2069") == 4
    assert not any("\u2068" in said for said in texts(on_random(text=HOTEL)[0]))  # other words have no marks


def test_the_chosen_component_is_framed_and_clamped_when_values_get_narrower(on_random, heatmaps):
    app, _ = on_random(text=HOTEL, d_v=20, component=20)
    assert heatmaps(app, "one-mixture")["mixture"]["framed"] == [19, 20]
    app.number_input(key="d_v").set_value(6).run()
    assert app.number_input(key="component").value == 6
    app.number_input(key="component").set_value(3).run()
    assert any(said.startswith("Dimension 3,") for said in texts(app))


@pytest.mark.parametrize(("points", "token"), [([{"customdata": 3}], 4), ([{"customdata": [0]}], 1),
                                               ([{"customdata": -1}], 2), ([], 2)])  # fmt: skip
def test_a_click_on_a_bar_goes_to_its_token(monkeypatch, points, token):
    state = {"bars": {"selection": {"points": points}}, "focus": Focus(token="2")}
    monkeypatch.setattr(weights.st, "session_state", state)
    weights.clicked("bars", "token")
    assert state["focus"].token == str(token)


def test_a_link_splits_a_small_models_answer_and_marks_the_part_that_was_clicked(opened_on, component, click):
    trace = mha.trace(Scene.text, source="mini", architecture="standard")
    found = mha.ledger(trace, word="animal", other="street")
    link = {"architecture": "standard", "ledger": "true", "ledger_word": "animal", "ledger_other": "street"}
    app = opened_on(PAGE, **link)
    drawn = component(app, "ledger_bars")
    assert [part["share"] for part in drawn["parts"]] == found.shares.tolist()
    assert [part["norm"] for part in drawn["parts"]] == found.norms.tolist()
    assert (drawn["logit"], drawn["chosen"], drawn["label"]) == (found.logit, None, "it")
    head = int(found.shares.argmax())
    assert drawn["parts"][head]["name"] == "head 1 of layer 2"
    bias = next(at for at, writer in enumerate(found.writers) if writer.kind == "bias")
    app = click(app, "ledger_bars", {"at": bias})
    words = component(app, "ledger_bars")["words"]
    assert app.query_params["ledger_part"] == str(bias + 1)
    assert words == component(opened_on(PAGE, **link, ledger_part=bias + 1), "ledger_bars")["words"]
    assert words["raised"][0][1] > 0 > words["lowered"][0][1]
    app = click(opened_on(PAGE, **link, layer=1, head=3), "ledger_bars", {"at": head})
    assert component(app, "address")["focus"]["head"] == "1"
    assert component(app, "address")["focus"]["layer"] == "2"
    drawn = component(app, "ledger_bars")
    assert (drawn["chosen"], drawn["words"]) == (head, None)
    assert "ledger_part" not in click(app, "ledger_bars", {"at": head}).query_params
    app = opened_on(PAGE, **link, layer=1, head=3, ledger_part=head + 1)  # the page has left that head
    assert component(app, "ledger_bars")["chosen"] is None
    app = opened_on(PAGE, **link, ledger_part=99)
    assert component(app, "ledger_bars")["chosen"] is None
    assert any("ledger_part" in said for said in texts(app))


def test_plotly_and_tables_are_sent_once_their_fold_is_open(opened_on):
    app = opened_on(PAGE)
    assert not app.get("plotly_chart")
    assert not app.dataframe
    app = opened_on(PAGE, "exactly", *(f"{name}_table" for name in ("heads", "layers", "scores", "mixture")))
    for element in app.get("plotly_chart"):
        assert len(element.proto.alt) > 30
        assert "**" not in element.proto.alt
    assert len(app.get("plotly_chart")) == 2
    tables = [frame.value for frame in app.dataframe]
    first_three, heads, layers, scores, mixed = tables
    assert first_three.shape == (4, 7)
    weight = mha.trace(Scene.text, source="mini", h=4, d_model=64).layers[1].weights(0)[8, 2]
    assert f"animal {weight:.2f}" in first_three.iloc[0].to_list()
    assert heads.shape == (4 * 13, 5)
    assert layers.shape == (2 * 13, 5)
    assert scores.shape == (13, 6 + 16)
    assert mixed.shape == (13 + 1, 3 + 16)
    np.testing.assert_allclose(mixed.iloc[:-1, 3:].sum(), mixed.iloc[-1, 3:].astype(float), atol=1e-6)


@pytest.mark.parametrize("two_texts", [False, True])
def test_the_files_have_the_columns_of_all_files_of_weights(
    opened_on, translation, two_texts, monkeypatch, request
):
    folds = [f"{name}_table" for name in ("heads", "layers", "scores", "mixture")]
    opened = request.getfixturevalue("on_translation") if two_texts else opened_on
    app = opened(PAGE, "exactly", *folds)
    trace = translation if two_texts else mha.trace(Scene.text, source="mini", h=4, d_model=64)
    _, *tables = [frame.value for frame in app.dataframe]
    at = Subject(trace, 1, 2, 5) if two_texts else Subject(trace, 1, 0, 8)
    key = int(at.of_layer.weights(at.head)[at.token].argmax()) if two_texts else at.token
    monkeypatch.setattr(Subject, "key", key)
    heads, layers, scores, mixed = (filed(at, table.rename(columns=str)) for table in tables)
    for head, row in heads.groupby("head"):
        for one in row.to_dict("records"):
            assert one["layer"] == 2
            query, key = one["query_position"] - 1, one["key_position"] - 1
            assert (one["query"], one["key"]) == (
                trace.sides.queries.labels[query],
                trace.sides.keys.labels[key],
            )
            assert one["weights"] == pytest.approx(at.of_layer.weights(head - 1)[query, key], abs=1e-6)
    assert [*layers][:2] == ["layer", "query_position"]
    assert [*scores][:8] == [*[*heads][:6], "score", "scaled"]
    assert [*mixed][:7] == [*heads]
    assert "weights" in scores


@pytest.mark.parametrize("key", [None, 10])
def test_the_other_text_has_columns(on_translation, translation, key, main_text, choose, heatmaps):
    app = on_translation("see/token.py", "exactly")
    row = translation.layers[1].weights(2)[5]
    if key is not None:
        choose(app, key_token=key)
    key = int(row.argmax()) if key is None else key
    column = column_of(translation, key, layer=1).weights.iloc[2]
    said = main_text(app)
    assert f"Which tokens look at “{word(translation.sides.keys.labels[key])}”" in said
    [bar] = figure(app, f"one-seen-{key}")["data"]
    assert bar["y"][0] == column.idxmax()
    [bar] = figure(app, "one-looks-5")["data"]
    assert bar["y"][0] == translation.sides.keys.labels[row.argmax()]
    assert len(heatmaps(app, "one-heads")["seen"]["columns"]) == 7
    assert f"sums to {column.sum():.2f}; an even share is 0.636" in said  # 7 / 11


def test_a_masked_score_of_a_hidden_key_is_explained(on_random, click):
    app, _ = on_random(text="one two three four", h=2, d_model=8, mask="causal", token=2)
    asked = {"name": "scores", "row": 3, "column": 1, "id": "hidden"}
    click(app, "one-products", {"row": None, "column": None, "explained": asked})
    sent = app.get_by_key("one-products").proto.json
    assert "Infinity" not in sent  # which a browser cannot read
    explanation = json.loads(sent)[0]["explanation"]
    assert (explanation["value"], explanation["steps"][-1]["name"]) == (None, "mask")


@pytest.mark.slow
def test_each_picture_names_the_source_of_its_numbers(on_random, heatmaps, click):
    """Also with only the densest columns and with heads as rows; an answer is shown only at its token."""
    text = " ".join(f"word{at}" for at in range(50))  # more than are drawn
    app, _ = on_random(text=text, h=3, d_model=24, mask="causal", token=45, head=2)

    def explained(key: str, name: str, row: int, column: int) -> tuple[float, float]:
        """The number in the picture, and the one that is explained."""
        matrix = heatmaps(app, f"one-{key}")[name]
        assert matrix["explains"]
        asked = {"name": name, "row": row, "column": column, "id": f"{name} {row} {column}"}
        click(app, f"one-{key}", {"row": None, "column": None, "explained": asked})
        answer = sent(app, f"one-{key}")["explanation"]
        assert answer["id"] == asked["id"]
        return matrix["values"][row, column], answer["value"]

    places = [("heads", "looks", 0, 30), ("heads", "seen", 2, 38), ("vectors", "q", 0, 3)]
    places += [("vectors", "k", 0, 3), ("vectors", "v", 0, 7), ("mixture", "mixture", 10, 5)]
    places += [("products", "scores", 20, 0), ("products", "scores", 2, 1), ("products", "weights", 21, 0)]
    for place in places:
        drawn, said = explained(*place)
        assert drawn != 0
        assert said == pytest.approx(drawn, rel=1e-5), place
    click(app, "chooser", {"token": 40})
    assert sent(app, "one-products")["explanation"] is None
