"""A page shows the controls that change something on it; hidden ones keep their value."""

from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from mha_core.focus.focus import Focus
from mha_core.scene.scene import DEFAULTS
from pages._kit.state import CONTROLS
from tests.pages.conftest import PAGES

VIEWS = ("steps_view", "train_view")
SIZES = ("h", "d_model")
SENTENCE = ("text", "source")
ADVANCED = ("architecture", "layers", "seed", "mask", "position", "d_k", "d_v", "n_kv_heads", "bias")
MINI = (*SENTENCE, *SIZES, "architecture")
RANDOM = (*SENTENCE, *SIZES, *ADVANCED[1:])
# Of a page with controls those with a small model, and those with random weights.
OWN = {
    **dict.fromkeys(("see/token.py", "see/compare.py"), (MINI, RANDOM)),
    **dict.fromkeys(("understand/steps.py", "understand/what_if.py"), (MINI, RANDOM)),
    "see/heads.py": ((*MINI, "twin"), (*RANDOM, "twin")),
    "models/real.py": (("source",), ("source",)),
    "understand/steps.py?steps_view=layers": ((*SENTENCE, "twin"), (*RANDOM, "twin")),
    "understand/embeddings.py": (MINI, (*SENTENCE, "d_model", "seed")),
}


@pytest.mark.parametrize("source", ["mini", "random"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_controls_that_matter_and_what_is_next(opened_on, english, controls, page, source):
    app, settings = opened_on(page, "advanced", source=source), OWN.get(page, ((), ()))[source == "random"]
    assert controls(app).keys() == {*settings}
    assert ("example_0" in [button.key for button in app.button]) is ("text" in settings)
    if source == "mini":
        links = [link.proto for link in app.get("page_link")]
        first, second = [link for link in links if link.label != english("editor.question")][-2:]
        files = {other.partition("?")[0] for other in PAGES} - {page.partition("?")[0]}
        names = {english(f"next.{Path(file).stem}") for file in files}
        assert {first.label, second.label} < names
        assert first.page != second.page


def test_a_setting_in_the_closed_menu_keeps_its_value_and_its_place_in_the_link(opened, controls, eye):
    app = opened("advanced", source="random")
    app.number_input(key="layers").set_value(3).run()
    app.toggle(key="bias").set_value(False).run()
    app.session_state["advanced"] = False
    app.text_area(key="text").set_value("one two three").run()
    assert controls(app).keys() == {*RANDOM, "twin"} - {*ADVANCED}
    assert eye(app)[0]["layers"] == 3
    for _ in range(2):
        assert (app.query_params["layers"], app.query_params["bias"]) == ("3", "false")
        app.session_state["advanced"] = True
        app.run()
        assert (controls(app)["layers"], controls(app)["bias"]) == (3, False)


ADDRESS = "text=How are\nyou?&twin=Who are you?&source=random&architecture=standard&h=8&d_model=32&seed=0"
ADDRESS += "&layers=3&d_k=6&n_kv_heads=2&position=alibi&mask=causal&bias=false&layer=3&head=7&token=are"
LINK = dict(parse_qsl(f"{ADDRESS}&key_token=How"))
# The seed is that of a link without one.
SAID = {key: value for key, value in LINK.items() if key != "seed"}


def linked(app) -> dict[str, str]:
    """The values of the page's link: the controls, and the focus that the browser writes into it."""
    values = [(key, value) for key, value in app.query_params.items() if key not in (*vars(Focus()), *VIEWS)]
    focus, start = app.session_state.focus.link(), Focus().link()
    moved = {key: value for key, value in focus.items() if value != start[key]}
    return {key: value if isinstance(value, str) else "&".join(value) for key, value in values} | moved


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_from_its_link_and_keeps_it(opened_on, place, page):
    app = opened_on(page, **LINK)
    assert linked(app) == SAID
    app.run()
    assert linked(app) == SAID
    app.switch_page("see/heads.py").run()
    assert linked(app) == SAID
    assert app.text_area(key="text").value == LINK["text"]
    assert app.number_input(key="h").value == 8
    assert place(app) == (2, 6, 1)
    assert not app.toggle(key="bias").value


@pytest.mark.parametrize("page", ["see/heads.py", "learn/train.py", "models/atlas.py"])
def test_a_link_has_no_defaults(opened_on, page):
    values = {key: getattr(DEFAULTS, key) for key in CONTROLS} | vars(DEFAULTS.focus)
    defaults = {key: str(value) for key, value in values.items() if value is not None}
    assert linked(opened_on(page, **defaults)) == {}


# A number below the least becomes the least in the link.
@pytest.mark.parametrize("value", ["many", "-1", ""])
def test_an_invalid_value_leaves_the_link_even_if_not_shown(opened_on, value):
    left = {"h": "1", "d_k": "1"} if value == "-1" else {}
    keys = ("h", "d_k", "mask", "bias", "source", "architecture")
    app = opened_on("learn/train.py", **dict.fromkeys(keys, value))
    assert linked(app) == left
    app.switch_page("see/heads.py").run()
    assert not app.error
    assert linked(app) == left
