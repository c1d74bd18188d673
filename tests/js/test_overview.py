"""The overview's script, without a browser: orders, places, the finger and the keys."""

import itertools
import json

import numpy as np
import pytest

MODULES = ["pictures/overview_plan.js"]


@pytest.fixture
def call(javascript):
    """`call("hit", plan, 3, 4)`: what the function of the script returns; NaN may be among the arguments."""

    def run(function: str, *arguments, before: str = ""):
        written = ", ".join(a if isinstance(a, str) else json.dumps(a) for a in arguments)
        return javascript(MODULES, f"{before} return {function}({written});")

    return run


# Orders

VALUES = [0.3, float("nan"), 0.9, 0.3, 0.1, float("nan")]


def test_heads_are_sorted_by_a_measure_both_ways_and_those_without_it_come_last(call):
    assert call("ranking", VALUES, False) == [4, 0, 3, 2, 1, 5]
    assert call("ranking", VALUES, True) == [2, 0, 3, 4, 1, 5]
    assert call("ranking", [], True) == []


def test_sorting_thousands_of_heads_agrees_with_numpy(call):
    values = np.random.default_rng(0).random(5120).round(3)
    assert call("ranking", values.tolist(), False) == np.argsort(values, kind="stable").tolist()
    assert call("ranking", values.tolist(), True) == np.argsort(-values, kind="stable").tolist()


def test_heads_that_do_the_same_stand_together_the_surest_first(call):
    roles = ["b", "", "a", "b", "a", ""]
    scores = [0.6, float("nan"), 0.7, 0.9, 0.8, float("nan")]
    assert call("byRole", roles, scores, False) == [4, 2, 3, 0, 1, 5]
    assert call("byRole", roles, scores, True) == [3, 0, 4, 2, 1, 5]


# Places


def test_a_row_of_the_grid_is_a_layer_and_a_column_a_head(call):
    plan = call("arrange", [3, 2, 3], 900)
    assert (plan["columns"], plan["rows"]) == (3, 3)
    assert plan["slots"] == [0, 1, 2, 3, 4, -1, 5, 6, 7]
    assert call("headsOf", [3, 2])[3:] == [{"layer": 1, "head": 0}, {"layer": 1, "head": 1}]


@pytest.mark.parametrize(("layers", "heads"), [(2, 4), (12, 12), (80, 64), (128, 1), (1, 128)])
@pytest.mark.parametrize("width", [302, 360, 1100])
def test_the_pictures_fit_the_width_and_a_screen(call, layers, heads, width):
    plan = call("arrange", [heads] * layers, width)
    if heads * 3 + 26 <= width:  # three pixels a picture is the least
        assert plan["width"] <= width + 2
    assert plan["height"] <= max(720, 10 * layers) + 22
    assert 1 <= plan["size"] < plan["pitch"] <= 96
    corners = np.array(call("[0, 1].map", f"(at) => corner({json.dumps(plan)}, at)"))
    if heads > 1:
        assert (corners[1] - corners[0]).tolist() == [plan["pitch"], 0]


def test_5120_pictures_on_a_wide_screen_are_9_pixels_and_144_are_54(call):
    assert call("arrange", [64] * 80, 900)["size"] == 9
    assert call("arrange", [12] * 12, 900)["size"] == 54


def test_a_ranking_is_as_wide_as_the_grid_and_has_captions_where_there_is_room(call):
    grid = call("arrange", [12] * 12, 900)
    ranked = call("arrange", [12] * 12, 900, list(range(143, -1, -1)))
    assert (ranked["pitch"], ranked["width"], ranked["columns"]) == (grid["pitch"], grid["width"], 12)
    assert ranked["slots"][:2] == [143, 142]
    assert (ranked["left"], ranked["top"]) == (0, 0)
    assert ranked["caption"] > 0
    assert ranked["down"] == ranked["pitch"] + ranked["caption"]
    assert call("arrange", [64] * 80, 900, list(range(5120)))["caption"] == 0


# The finger


@pytest.mark.parametrize("ranked", [None, [4, 3, 2, 1, 0]])
def test_the_finger_finds_the_picture_that_stands_there_and_no_other(call, ranked):
    plan = call("arrange", [3, 2], 500, ranked)
    places = json.dumps(plan)
    for slot, head in enumerate(plan["slots"]):
        corner = call("corner", plan, slot)
        for dx, dy in ((0.5, 0.5), (plan["size"] - 0.5, plan["size"] - 0.5)):
            found = call("placeAt", places, corner[0] + dx, corner[1] + dy)
            assert found == (slot if head >= 0 else -1)
    for x, y in ((-1, 50), (plan["width"] + 40, 50), (50, -1), (50, plan["height"] + 40)):
        assert call("placeAt", places, x, y) == -1


# The keys


def walk(call, plan: dict, start: int, *keys: str) -> int:
    for key in keys:
        start = call("stepTo", plan, start, json.dumps(key))
    return start


def test_arrows_lead_from_head_to_head_and_stop_at_the_edges(call):
    plan = call("arrange", [3, 2, 3], 900)
    assert walk(call, plan, 0, "ArrowRight", "ArrowDown") == 4
    assert walk(call, plan, 0, "ArrowLeft") == 0
    assert walk(call, plan, 1, "ArrowUp") == 1
    assert walk(call, plan, 8, "ArrowRight") == 8
    assert walk(call, plan, 7, "ArrowDown") == 7
    assert walk(call, plan, 4, "Home") == 0
    assert walk(call, plan, 4, "End") == 8
    assert walk(call, plan, 4, "a") == 4


def test_arrows_step_over_heads_that_a_layer_lacks(call):
    plan = call("arrange", [3, 2, 3], 900)
    assert walk(call, plan, 2, "ArrowDown") == 8  # the second layer has no third head
    assert walk(call, plan, 4, "ArrowRight") == 6
    assert walk(call, plan, 6, "ArrowLeft") == 4


# The axes


@pytest.mark.parametrize(
    ("count", "pitch", "shown"),
    [
        (4, 30, [0, 1, 2, 3]),
        (8, 18, [1, 3, 5, 7]),
        (12, 6, [3, 7, 11]),
        (16, 4, [4, 9, 14]),
        (1, 5, [0]),
    ],
)
def test_numbers_of_an_axis_never_stand_closer_than_their_room(call, count, pitch, shown):
    found = call("numbered", count, pitch, 20)
    assert found == shown
    assert all((b - a) * pitch >= 20 for a, b in itertools.pairwise(found))


# Another page

# A page that is drawn while time goes by: `rest` moments until it is at rest, and only then its link.
PAGE = """
    const [waiting, clicks] = [[], []];
    let moments = 0;
    globalThis.setTimeout = (act) => waiting.push(act);
    const link = { click: () => clicks.push(moments) };
    const found = (asked) => (asked.includes("stApp") ? {} : link);
    globalThis.document = { querySelector: (asked) => (moments < rest ? null : found(asked)) };
    const pass = () => { while (waiting.length) { moments += 1; waiting.shift()(); } };
    const [root, chosen, chose] = [{}, { layer: 0, head: 1 }, []];
"""


@pytest.mark.parametrize("rest", [0, 1, 150])
@pytest.mark.parametrize("new", [True, False])
def test_a_head_that_is_opened_is_followed_once_the_page_is_drawn_to_its_end(javascript, rest, new):
    head = "{ layer: 0, head: 2 }" if new else "chosen"
    again = "leads(root, 'there', root.leaving);" if new else ""  # the server has moved the scene
    done = f"""
        const rest = {rest};
        {PAGE}
        leads(root, "there", chosen).open({head}, () => chose.push(1));
        {again}
        pass();
        leads(root, "there", chosen);
        pass();
        return [chose.length, clicks];
    """
    assert javascript(["pictures/overview.js"], done) == [int(new), [rest + 1]]


def test_a_head_is_only_chosen_where_no_link_leads_on(javascript):
    done = f"const rest = 0; {PAGE} leads(root, null, chosen).open(chosen, () => chose.push(1)); pass();"
    assert javascript(["pictures/overview.js"], f"{done} return [chose.length, clicks];") == [1, []]
