"""Figures can be clicked, and carry what their files need to say."""

import json

import pytest

import mha_core as mha
from mha_core.analysis import frames
from mha_core.traces.source import ArraySource
from pages._kit import charts
from pages._kit.state import Scene

pytestmark = pytest.mark.slow

STEPS = "understand/steps.py"
WEIGHTS = "softmax-1-weights"
SIX = ("split-0-q", "split-1-k", "split-2-v", "scores-2-scores", WEIGHTS, "mix-2-output")  # keys of figures
NASTY = "<img src=x onerror=alert(1)> </script> &amp; =1+1"


@pytest.fixture
def on_steps(opened_on):
    """`on_steps(head=2)`: the page Steps on random weights, whose matrices are figures."""
    start = {"source": "random", "twin": "", "layer": 1, "head": 1, "token": 8}
    return lambda **link: opened_on(STEPS, **start | link)


def trace(**settings) -> mha.AttentionTrace:
    return mha.trace(**(Scene(source="random").settings() | settings))


def layout(app, key: str) -> dict:
    return json.loads(app.get_by_key(key).proto.spec)["layout"]


def pick(click, app, row: object, column: object, chart: str = WEIGHTS):
    return click(app, "charts", {"chart": chart, "row": row, "column": column})


def focus(app) -> tuple[str, str]:
    held = app.session_state.focus
    return held.token, held.key_token


# A click on a cell


def test_a_click_on_a_cell_moves_the_token_and_the_key(on_steps, click, choose):
    app = pick(click, on_steps(head=2), row=4, column=9)
    assert not app.exception
    assert focus(app) == ("5", "10")
    # The click is spent: what is asked for next is not overruled by it.
    choose(app, token=1)
    assert focus(app) == ("animal", "10")


def test_a_click_on_vectors_chooses_the_token_of_the_row_alone(on_steps, click):
    app = pick(click, on_steps(key_token=3), row=6, column=None, chart="split-0-q")
    assert focus(app) == ("7", "3")


@pytest.mark.parametrize("place", [-1, "2", 1.5])
def test_what_no_figure_can_have_sent_changes_nothing(on_steps, click, strip, place):
    app = pick(click, on_steps(), row=place, column=place)
    assert not app.exception
    assert strip(app)["chosen"] == 7
    assert focus(app)[1] == ""


def test_a_cell_beyond_the_sentence_becomes_its_last(on_steps, click, strip):
    app = pick(click, on_steps(), row=10**9, column=10**9)
    assert not app.exception
    assert strip(app)["chosen"] == 11


@pytest.mark.parametrize("key", SIX)
def test_figures_frame_the_row_of_the_token_and_say_which_cells_a_click_reports(on_steps, key):
    app = on_steps(token=3)
    of_tokens = key in (WEIGHTS, "scores-2-scores")
    assert layout(app, key)["meta"]["start"] == ([0, 0] if of_tokens else [0, None])
    rows = {(shape["y0"], shape["y1"]) for shape in layout(app, key).get("shapes", [])}
    assert ((1.5, 2.5) in rows) == (key not in ("split-1-k", "split-2-v"))


def test_colours_of_weights_end_at_the_largest_of_all_heads(on_steps):
    """Equal colours are equal weights, whichever head is chosen."""
    largest = float(trace().layers[0].weights().max())
    for head in (1, 3):
        cells = json.loads(on_steps(head=head).get_by_key(WEIGHTS).proto.spec)["data"][0]
        assert (cells["zmin"], cells["zmax"]) == (0, pytest.approx(largest))


def test_colours_end_somewhere_where_a_mask_hides_everything(on_steps):
    app = on_steps(text="two words", mask="padding")
    cells = json.loads(app.get_by_key(WEIGHTS).proto.spec)["data"][0]
    assert cells["zmax"] == 1.0


# What a figure carries into its files


@pytest.mark.parametrize("key", SIX)
def test_a_figure_carries_its_sentence_weights_layer_and_head(on_steps, key):
    name = key.split("-")[-1]
    meta = layout(on_steps(text=NASTY, layers=2, layer=2, head=3, h=4, seed=7), key)["meta"]
    assert meta["caption"] == [
        f"“{NASTY}”",
        "random weights, h 4, d_model 64, seed 7 · layer 2 · head 3 · Headscope",
    ]
    frame = trace(text=NASTY, layers=2, seed=7).frame(name, layer=1, head=2)
    assert meta["rows"] == [*map(str, frame.index)]
    assert meta["columns"] == [*map(str, frame.columns)]
    symbols = {"q": "Q₃", "k": "K₃", "v": "V₃", "scores": "S₃", "weights": "A₃", "output": "head₃"}
    assert meta["title"].split()[0] == symbols[name]
    assert meta["file"].startswith(f"headscope-{key}-layer-2-head-3-img-src-x-onerror")


def test_a_trained_model_is_named_with_its_training():
    found = mha.trace("the cat saw the dog", source="mini", h=4, d_model=32)
    said = charts.caption(frames.origin(found, layer=1, head=0))
    assert said == [
        "“the cat saw the dog”",
        f"small glass-box model, h 4, d_model 32, {found.source.step:,} training steps"
        " · layer 2 · head 1 · Headscope",
    ]
    before = mha.trace("the cat saw the dog", source="mini", h=4, d_model=32, trained=False)
    assert "before training" in charts.caption(frames.origin(before))[1]


def test_a_long_sentence_is_cut_in_the_caption():
    text = "word " * 1000
    [sentence, _] = charts.caption(frames.Origin(ArraySource("mine"), text))
    assert len(sentence) == charts.MAX_TEXT + 2
    assert sentence.endswith("…”")


@pytest.mark.parametrize(
    "page",
    [
        *("understand/steps.py", "understand/hops.py", "understand/embeddings.py"),
        *("learn/before_after.py", "learn/sweep.py"),
    ],
)
def test_every_figure_of_every_page_can_be_saved_under_a_name(opened_on, page):
    app = opened_on(page, source="mini", layer=2)
    figures = list(app.get("plotly_chart"))
    names = [json.loads(figure.proto.spec)["layout"]["meta"]["file"] for figure in figures]
    assert names
    assert len(set(names)) == len(names)
    for figure in figures:
        meta = json.loads(figure.proto.spec)["layout"]["meta"]
        assert meta["title"]
        assert meta["caption"][-1].endswith("Headscope")
