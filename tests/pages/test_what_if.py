"""What if: changes act inside the computation, are part of the link, and can be removed again."""

import numpy as np
import pytest
import streamlit

import mha_core as mha
from mha_core import edits
from mha_core.analysis.frames import WINDOW
from mha_core.attention.masks import MASKS
from mha_core.attention.positions import POSITIONS
from mha_core.scene.changes import change_of, write
from mha_core.scene.scene import Scene
from pages._kit.text import literal, number
from pages.understand._what_if.changed_answers import became
from pages.understand._what_if.changes import describe
from tests.pages.conftest import refused_by_link

PAGE = "understand/what_if.py"
CUT = "cut,layer=2,from=9,to=3"
LARGEST = "largest change of a weight"


def answers(app) -> list[str]:
    """The sentences about the answer, without the last probability."""
    said = [one.value for one in app.markdown if one.value.startswith("The answer at")]
    return [one.rpartition(" ")[0] for one in said]


def test_a_word_of_your_own_has_its_probability_before_and_after(on_page):
    app = on_page(edits=CUT)
    assert "its probability" in app.text_input(key="what_if_word").placeholder
    app.text_input(key="what_if_word").set_value("Street").run()
    cut = [edits.Hide(layer=1, rows=8, keys=2)]
    shares = [
        mha.trace(Scene.text, source="mini", edits=given).logits(words=["street"])["probability"][0]
        for given in ([], cut)
    ]
    before, after = map(number, shares)
    said = f"The probability of **street** at **it**: {before} → {after}"
    assert said in [one.value for one in app.markdown]
    app.text_input(key="what_if_word").set_value("zebra").run()
    assert "The model cannot answer with" in app.info[0].value


@pytest.fixture
def pictured(heatmaps):
    """`pictured(app, "what-if-output", before=…)`: these matrices are drawn."""

    def compare(app, key: str, **expected: np.ndarray) -> None:
        drawn = heatmaps(app, key)
        for name, values in expected.items():
            np.testing.assert_allclose(drawn[name]["values"], values, atol=1e-5, err_msg=name)

    return compare


def other() -> str:
    """The line on the answer without the edge from the pronoun to its noun."""
    cut = edits.Hide(layer=1, rows=8, keys=2)
    answers = [mha.trace(Scene.text, source="mini", edits=given).answers[8][0] for given in ([], [cut])]
    (before, share), (after, _) = answers
    assert (before, after != before) == ("animal", True)
    after = after.replace("[CLS]", "nothing")
    return f"The answer at **it** changes: **animal** {share:.0%} → perhaps {after}"


def test_an_offered_change_blocks_the_deciding_edge_and_can_be_undone(on_page):
    app = on_page()
    assert not answers(app)
    app.button(key="apply_change").click().run()
    assert app.query_params["edits"] == CUT
    assert answers(app) == [other()]
    app.button(key=f"lift_{CUT}").click().run()
    assert not answers(app)
    app = on_page(edits="temperature,by=2")
    app.button(key="try_1").click().run()
    assert app.query_params["edits"] == "cut,layer=2,head=1,from=9,to=3"
    assert "try_1" not in {button.key for button in app.button}
    app.button(key="reset_changes").click().run()  # all changes at once
    assert "edits" not in app.query_params


def test_every_mask_is_offered_and_with_sizes_where_it_has_one(on_page, english):
    app = on_page()
    app.selectbox(key="change_kind").select("mask").run()
    offered = app.selectbox(key="change_mask").options
    hiding = [english(f"option.mask.{name}") for name in MASKS if name != "full"]
    assert [*dict.fromkeys(name.partition(":")[0] for name in offered)] == hiding
    assert {"causal", "window:1", "window:3", "padding:2"} < set(offered)
    assert "causal:1" not in offered
    app.selectbox(key="change_mask").select("window:1")
    app.button(key="apply_change").click().run()  # before a run has seen the mask
    assert write([edits.Mask(layer=1, mask="window:1")]) in app.session_state["edits"]


def test_a_position_code_is_chosen_and_one_that_a_model_cannot_take_is_refused(on_page, english):
    app = on_page()
    app.selectbox(key="change_kind").select("position").run()
    offered = app.selectbox(key="change_code").options
    assert offered == [english(f"option.position.{name}") for name in POSITIONS]
    app.selectbox(key="change_code").select("rotary").run()
    app.button(key="apply_change").click().run()
    assert app.query_params["edits"] == "position,code=rotary"
    assert "have no rotary position encoding" in app.error[0].value
    app.button(key="fix_0").click().run()  # random weights
    assert not app.error
    assert "rotary position encoding" in app.button(key="lift_position,code=rotary").label


def test_invalid_changes_of_a_link_are_reported_and_the_rest_apply(on_page):
    app = on_page(edits=f"nonsense;{CUT};cut,layer=0;off,head=x")
    (line,) = refused_by_link(app)
    assert f"edits = nonsense;cut,layer=0;off,head=x, which is not possible. Using {CUT}." in line
    assert answers(app) == [other()]
    app = on_page(edits="off,layer=7")
    assert "layer 7” names a layer that is not there" in app.error[0].value
    app.button(key="reset_changes").click().run()
    assert not app.error
    app = on_page(edits="swap,from=3,to=99")
    assert "There is no word at token" in app.error[0].value
    app.button(key="lift_swap,from=3,to=99").click().run()
    assert not app.error


def test_a_change_of_words_is_taken_away_with_its_sentence(on_page):
    """Changes that name no word stay, and those of words that stand where they stood."""
    app = on_page(edits=f"{CUT};off,layer=1,head=2;cut,layer=1,to=3")
    assert not [one for one in app.caption if "Removed, since" in one.value]
    app.text_area(key="text").set_value("The animal slept.").run()
    assert app.query_params["edits"] == "off,layer=1,head=2;cut,layer=1,to=3"
    assert not app.error
    [line] = [one.value for one in app.caption if "Removed, since" in one.value]
    assert "“it” blocked from “animal”" in line
    assert "head 2" not in line
    app.text_area(key="text").set_value("A very long animal crossed the street because it slept.").run()
    assert app.query_params["edits"] == "off,layer=1,head=2"
    app.button(key="apply_change").click().run()
    app.text_area(key="text").set_value("The dog slept.").run()
    assert app.query_params["edits"] == "off,layer=1,head=2"


def test_a_change_beyond_the_sentence_of_its_link_can_be_taken_away(on_page):
    app = on_page(text="The dog slept.", edits=f"{CUT};temperature,by=2")
    assert "key 3” names rows that are not there" in app.error[0].value
    assert "Python" not in app.error[0].value
    app.button(key="take_away").click().run()
    assert not app.error
    assert app.query_params["edits"] == "temperature,by=2"


def test_a_link_names_a_block_of_cells(on_page, heatmaps):
    block = "cut,layer=2,head=1-3,from=9-10,to=3-5"
    app = on_page(edits=block)
    assert "heads 1 to 3" in app.button(key=f"lift_{block}").label
    hidden = heatmaps(app, "what-if-weights")["after"]["values"]
    assert np.argwhere(~(hidden > 0)).tolist() == [[row, key] for row in (8, 9) for key in (2, 3, 4)]


def test_painting_cells_hides_them_and_painting_again_shows_them(on_page, click):
    app = on_page()
    block = {"name": "before", "rows": [8, 9], "columns": [2, 2]}
    app = click(app, "what-if-weights", block, event="painted")
    assert app.query_params["edits"] == "cut,layer=2,from=9-10,to=3"
    assert answers(app) == [other()]
    app = click(app, "what-if-weights", {**block, "rows": [9, 9]}, event="painted")  # one of its cells
    assert "edits" not in app.query_params
    app = click(app, "what-if-heads", {"name": "heads", "rows": [0, 1], "columns": [1, 1]}, event="painted")
    assert app.query_params["edits"] == "off,layer=1,head=2;off,layer=2,head=2"
    app = click(app, "what-if-heads", {"name": "heads", "rows": [0, 1], "columns": [1, 1]}, event="painted")
    assert "edits" not in app.query_params


def test_invalid_messages_of_a_picture_change_nothing(on_page, click):
    app = on_page()
    for wrong in (
        {"name": "nobody"},
        {"rows": [3, 2]},
        {"rows": [0, 99]},
        {"columns": ["0", 1]},
        {"rows": 3},
    ):
        block = {"name": "before", "rows": [8, 8], "columns": [2, 2]} | wrong
        app = click(app, "what-if-weights", block, event="painted")
        assert "edits" not in app.query_params


def test_pictures_of_heads_show_their_contribution_and_which_are_off(on_page, heatmaps):
    app = on_page(edits="off,layer=2,head=3")
    drawn = heatmaps(app, "what-if-heads")["heads"]["values"]
    trace = mha.trace(Scene.text, source="mini", edits=[edits.Output(layer=1, heads=2)])
    expected = np.stack([np.linalg.norm(layer.output(), axis=-1).mean(-1) for layer in trace.layers])
    expected[1, 2] = np.nan
    np.testing.assert_allclose(drawn, expected, rtol=1e-5)


def test_a_part_of_a_long_text_is_drawn_and_measured(on_page, heatmaps, english):
    """Each of its matrices of all pairs would take 4 MB for each head."""
    app = on_page(source="random", twin="", text="word " * 1000, edits="temperature,by=3", h=8)
    drawn = heatmaps(app, "what-if-weights")
    assert {matrix["values"].shape for matrix in drawn.values()} == {(WINDOW, WINDOW)}
    assert any(caption.value.startswith("Measured: queries") for caption in app.caption)
    [largest] = [one.value[LARGEST] for one in app.table if LARGEST in one.value]
    assert (largest.astype(float) > 0).all()
    assert heatmaps(app, "what-if-reached")["reached"]["values"].shape == (1, WINDOW)
    assert english("what_if.effects") not in [one.value for one in app.header]  # without answers


def test_words_that_look_like_markup_stay_words_on_the_buttons():
    tokens = ["$x$", "*y*", ":red[z]"]
    trace = mha.from_weights(np.full((1, 1, 3, 3), 1 / 3), tokens)
    for at, token in enumerate(tokens, start=1):
        label = describe(change_of("cut", {"from": at, "to": at}), trace)
        assert label.count(literal(token)) == 2
        assert token not in label


def test_effects_of_all_heads_are_measured_on_request(on_page, heatmaps, english):
    app = on_page()
    assert not [one for one in app.markdown if "depends most on" in one.value]
    app.button(key="measure_effects").click().run()
    drawn = heatmaps(app, "what-if-effects")
    frame = mha.effects(mha.trace(Scene.text, source="mini"), method="both").set_index(["layer", "head"])
    for name in ("effect", "estimate"):
        expected = frame[name].unstack().to_numpy()
        np.testing.assert_allclose(drawn[name]["values"], expected, atol=1e-4)
    layer, head = frame.index[0]
    said = " ".join(one.value for one in app.markdown)
    assert f"The answer depends most on head {head + 1} of layer {layer + 1}" in said
    correlation = literal(f"{frame.attrs['rank_correlation']:.2f}".replace("-", "−"))
    assert english("what_if.effects_rank", correlation=correlation) in [one.value for one in app.caption]


def test_a_stopped_measurement_of_all_heads_stays_stopped(on_page, monkeypatch):
    """A press on Stop ends the run, as Streamlit does with any press, and the page is drawn without it."""
    begun = []

    def interrupted(*_, progress, **__):
        begun.append(progress(3, 8))
        streamlit.stop()

    monkeypatch.setattr("pages.understand._what_if.changed_answers.effects", interrupted)
    app = on_page(edits="temperature,by=1.37")  # that nothing else has measured
    app.button(key="measure_effects").click().run()
    assert [button.key for button in app.button if button.key == "stop_effects"] == ["stop_effects"]
    app.button(key="stop_effects").click().run()
    assert len(begun) == 1
    assert "stop_effects" not in {button.key for button in app.button}
    app.button(key="measure_effects").click().run()
    assert len(begun) == 2


SWAP = "swap,from=3,to=7"
SWAPPED = Scene.text.replace("animal", "x").replace("street", "animal").replace("x", "street")
PARTNERS = [0, 1, 6, 3, 4, 5, 2, *range(7, 13)]  # "animal" was token 2 and is token 6, from 0


def test_swapping_two_words_is_a_change(opened, eye, draws, english):
    app = opened().switch_page(PAGE).run()  # from Heads, which has a second sentence
    twin = app.session_state["twin"]
    app.selectbox(key="swap_one").select_index(1)
    app.selectbox(key="swap_other").select_index(5)
    app.button(key="apply_swap").click().run()
    assert app.query_params["edits"] == SWAP
    assert (app.session_state["text"], app.session_state["twin"]) == (Scene.text, twin)
    assert app.button(key=f"lift_{SWAP}").label == "“animal” and “street” swapped"
    assert english("what_if.swapped") in [one.value for one in app.caption]
    assert [SWAPPED in panel["title"] for panel in eye(app, "what_if_view")[1]] == [False, True]
    draws(app, *(mha.trace(text, source="mini") for text in (Scene.text, SWAPPED)), key="what_if_view")
    app.button(key=f"lift_{SWAP}").click().run()
    assert "edits" not in app.query_params


def test_swapped_words_are_compared_with_themselves_and_the_focus_follows(on_page, pictured, heatmaps):
    app = on_page(edits=SWAP, token="animal")
    before, after = (mha.trace(text, source="mini") for text in (Scene.text, SWAPPED))
    old, new = (trace.layers[1].weights(0) for trace in (before, after))
    expected = new - old[np.ix_(PARTNERS, PARTNERS)]
    pictured(app, "what-if-weights", before=old, after=new, difference=expected)
    drawn = heatmaps(app, "what-if-weights")
    assert drawn["difference"]["rows"] == heatmaps(app, "what-if-reached")["reached"]["columns"]
    assert drawn["difference"]["rows"] == list(after.tokens.labels)
    assert [drawn[side]["paints"] for side in ("before", "after", "difference")] == [False, True, False]
    old, new = (trace.layers[1].output(0) for trace in (before, after))
    pictured(app, "what-if-output", difference=new - old[PARTNERS])
    old, new = (trace.layers[0].concat() for trace in (before, after))
    reached = heatmaps(app, "what-if-reached")["reached"]["values"][0]
    np.testing.assert_allclose(reached, np.linalg.norm(new - old[PARTNERS], axis=-1), atol=1e-5)
    # The focus follows the word: in both pictures, in the offers for it, and by a click on its row.
    for name in ("what-if-weights", "what-if-output"):
        drawn = heatmaps(app, name)
        assert [drawn[side]["row"] for side in ("before", "after", "difference")] == [2, 6, 6]
        assert drawn["before"]["partners"] == [None, None]
        for side in ("after", "difference"):
            assert [rows[: len(PARTNERS)] for rows in drawn[side]["partners"]] == [PARTNERS, PARTNERS]
    assert "“animal”" in app.button(key="try_0").label


def test_other_changes_act_on_the_words_as_they_stand_after_a_swap(on_page, heatmaps, pictured):
    app = on_page(edits=f"{SWAP};{CUT}")
    assert "“it” blocked from “street”" in app.button(key=f"lift_{CUT}").label
    trace = mha.trace(SWAPPED, source="mini", edits=[edits.Hide(layer=1, rows=8, keys=2)])
    pictured(app, "what-if-output", after=trace.layers[1].output(0))
    app.button(key="measure_effects").click().run()
    frame = mha.effects(trace, method="ablation").set_index(["layer", "head"])
    effects = heatmaps(app, "what-if-effects")["effect"]["values"]
    np.testing.assert_allclose(effects, frame["effect"].unstack().to_numpy(), atol=1e-4)
    app.button(key="try_2").click().run()  # it leaves the words where they are
    assert app.query_params["edits"] == f"{SWAP};off,layer=2,head=1"


@pytest.mark.parametrize(("h", "said"), [(1, "z_is_head"), (4, "z_is_heads")])
def test_without_w_o_the_result_is_the_concatenated_heads(on_page, pictured, english, h, said):
    settings = {"text": "How are you?", "source": "random", "h": h, "d_model": 64}
    app = on_page(**settings, edits="concatenated")
    before = mha.trace(**settings).layers[0].result()
    after = mha.trace(**settings, edits=[edits.Concatenation()]).layers[0]
    pictured(app, "what-if-result", before=before, after=after.concat(), difference=after.concat() - before)
    gap = np.abs(after.result() - after.concat()).max()
    assert gap < 1e-6
    assert english(f"what_if.{said}", gap=literal(number(gap))) in [one.value for one in app.markdown]


BOTH, RESULT = ("output", "result"), ("result",)
CHANGES = {
    CUT: (BOTH, edits.Hide(layer=1, rows=8, keys=2)),
    "even,layer=1": (BOTH, edits.Weights(layer=0)),  # of a layer that is not looked at
    "mask,mask=causal": (BOTH, edits.Mask(mask="causal")),
    "divisor,by=1": (BOTH, edits.Scale(factor=1.0)),
    "temperature,by=3": (BOTH, edits.Temperature(temperature=3.0)),
    "position,code=none": (RESULT, edits.Position(code="none")),
    "position,code=alibi": (RESULT, edits.Position(code="alibi")),
    "concatenated": (RESULT, edits.Concatenation()),
    "same": (RESULT, edits.SameHeads()),  # head 1 stays as it is
}
OF_RANDOM_WEIGHTS = ("position,code=alibi", "same")


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_updates_all_pictures(on_page, pictured, heatmaps, change):
    """The output of the head and of the layer, before, after, and the difference."""
    source = "random" if change in OF_RANDOM_WEIGHTS else "mini"
    app, (pictures, edit) = on_page(source=source, edits=change, layer=2), CHANGES[change]
    assert app.button(key=f"lift_{change}").label
    settings = Scene(source=source).settings()
    before, after = (mha.trace(**settings, edits=given).layers[-1] for given in ([], [edit]))
    for name in pictures:
        old, new = (getattr(layer, name)(*([0] if name == "output" else [])) for layer in (before, after))
        pictured(app, f"what-if-{name}", before=old, after=new, difference=new - old)
        drawn = heatmaps(app, f"what-if-{name}")
        assert drawn["before"]["end"] == drawn["after"]["end"]
        assert np.abs(new - old).max() > 1e-3


@pytest.mark.parametrize(
    ("link", "weights", "drawn", "unchanged"),
    [
        # A head that is off still has weights; they are drawn once, for cells to hide.
        ({"edits": "off,layer=2,head=1"}, 1, {"output", "result", "reached"}, "A₁, S₁ masked"),
        ({"edits": CUT}, 3, {"output", "result", "reached"}, "S₁ masked"),
        ({"edits": CUT, "layer": 1}, 1, {"reached"}, "A₁, S₁ masked, head₁, Z"),
        ({"edits": "concatenated", "source": "random", "h": 1}, 1, {"z", "result"}, "A₁, S₁ masked, head₁"),
    ],
)
def test_an_unchanged_matrix_is_only_named(on_page, heatmaps, english, link, weights, drawn, unchanged):
    app = on_page(**link)
    assert len(heatmaps(app, "what-if-weights")) == weights
    pictures = {str(one.key).removeprefix("what-if-") for one in app.get("bidi_component")}
    assert pictures & {"masked", "output", "result", "reached", "z"} == drawn
    every = "all_unchanged" if len(unchanged) > 20 else "unchanged"
    said = [one.value for one in app.markdown]
    assert english(f"what_if.{every}", names=unchanged) in said
    assert (english("what_if.unmoved") in said) == ("reached" not in drawn)


SURE, UNSURE, OTHER = (("cat", 0.3), ("dog", 0.2)), (("cat", 0.29), ("dog", 0.2)), (("dog", 0.9),)
UNKNOWN = "**the model does not know**"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (SURE, OTHER, "The answer at **it** changes: **cat** 30% → **dog** 90%"),
        (SURE, UNSURE, f"The answer at **it** changes: **cat** 30% → {UNKNOWN} :small[(cat 29%)]"),
        (UNSURE, OTHER, f"The answer at **it** changes: {UNKNOWN} :small[(cat 29%)] → **dog** 90%"),
        (SURE, SURE, "The answer at **it** stays **cat**: 30% → 30%"),
        (UNSURE, UNSURE, f"At **it** {UNKNOWN}, before and after :small[(cat 29% → cat 29%)]"),
    ],
)
def test_an_improbable_answer_is_not_shown_as_one(before, after, said):
    assert became("it", before, after, hedged=False) == said


def test_an_answer_of_which_a_small_model_is_not_sure_is_hedged():
    unsure, sure = (("street", 0.44), ("cat", 0.4)), (("cat", 0.9),)
    told = "The answer at **it** changes: **cat** 90% → perhaps street 44%"
    assert became("it", sure, unsure, hedged=True) == told
