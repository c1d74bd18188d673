"""The page Shapes and cost: tensors to scale, counts for the sizes in the controls, refusals."""

import re

import pytest

from mha_core.analysis.cost import cost
from mha_core.analysis.published import published_sizes
from mha_core.training import checkpoints


@pytest.fixture
def open_cost(opened_on):
    return lambda **link: opened_on(
        "understand/cost.py", **{f"cost_{name}": value for name, value in link.items()}
    )


def lines(app) -> list[list[tuple[str, str]]]:
    """Symbol and shape of each rectangle, in each line of the formula."""
    [html] = [one.proto.body for one in app.main.get("html") if 'class="tensors"' in one.proto.body]
    _, *found = html.split('<div class="line">')
    return [
        [
            (re.sub("<sup>(.*)</sup>", r"^\1", symbol), shape)
            for symbol, shape in re.findall(r"<figcaption><b>(.*?)</b><span>(.*?)</span>", line)
        ]
        for line in found
    ]


def tensors(app) -> dict[str, str]:
    return {symbol: shape for line in lines(app) for symbol, shape in line}


def formula(app) -> str:
    """The rectangles, in the order in which they are drawn."""
    return ", ".join(" ".join(symbol for symbol, _ in line) for line in lines(app))


def table_with(app, column: str):
    [found] = [one.value for one in app.table if column in one.value]
    return found


ENDS = "S A headᵢ, concat W^O Z"
LATENT = f"X W^DQ c^Q, c^Q W^UQ Q, X W^DKV c^KV, X W^KR k^R, c^KV W^UK K, c^KV W^UV V, {ENDS}"


def test_the_base_setting_and_the_tables(open_cost, english):
    app = open_cost()
    assert formula(app) == f"X W^Q Q, X W^K K, X W^V V, {ENDS}"
    assert tensors(app) | {"Q": "8 × 10 × 64", "W^O": "512 × 512", "S": "8 × 10 × 10"} == tensors(app)
    [html] = [one.proto.body for one in app.main.get("html") if 'class="tensors"' in one.proto.body]
    [figure] = [one for one in html.split("<figure") if "<figcaption><b>Q</b>" in one]
    assert re.findall(r"--unit\) \* (\d+)", figure) == ["512", "10"]  # wide and high, to scale
    figures = {metric.label: metric.value for metric in app.metric}
    assert figures[english("cost.parameters")] == "1,048,576"
    assert figures[english("cost.flops")] == f"{2 * 10 * 4 * 512**2 + 2 * 8 * 100 * 128:,}"
    assert figures[english("cost.cache")] == "41\u00a0kB"
    models = table_with(app, english("cost.column_model")).set_index(english("cost.column_model"))
    caches = [models.loc["DeepSeek-V3"][english("cost.column_token", dtype=one)] for one in ("fp32", "bf16")]
    assert caches == ["140.54\u00a0kB", "70.272\u00a0kB"]
    small = table_with(app, english("cost.column_numbers"))
    assert [*small[english("cost.column_numbers")]] == ["256", "128", "64", "64"]
    scores = checkpoints.manifest()["multi-query-en-h4-d64"]["scores"]
    assert small[english("cost.column_answers")][2] == f"{scores['answer']:.1%}"
    assert small[english("cost.column_shapes")][2] == f"{scores['shapes']:.1%}"
    assert small[english("cost.column_kind")][3] == "[MLA](./?architecture=latent)"


@pytest.mark.parametrize(
    ("name", "kept"),
    [("DeepSeek-V3", "512 + 64"), ("Falcon 7B", "1 × (64 + 64)"), ("Llama 3 8B", "8 × (128 + 128)")],
)
def test_a_well_known_model_is_the_layer_that_its_controls_describe(open_cost, english, name, kept):
    app = open_cost()
    app.selectbox(key="cost_preset").select(name).run()
    assert english("cost.parameters") in [metric.label for metric in app.metric]
    kinds = table_with(app, english("cost.column_kept"))
    assert kept.replace(" ", "\xa0") in set(kinds[english("cost.column_kept")])


@pytest.mark.parametrize(
    ("link", "names"),
    [
        ({"n_kv_heads": 2, "q_rank": 64}, ["DeepSeek-V3"]),
        ({"kv_rank": 512, "q_rank": 64}, ["Falcon 7B", "DeepSeek-V2", "Llama 3 8B"]),
    ],
)
def test_the_link_of_a_well_known_model_has_all_its_sizes(open_cost, opened_on, link, names):
    app = open_cost(**link)
    for name in names:
        app.selectbox(key="cost_preset").select(name).run()
    spec = next(model.spec for model in published_sizes() if model.name == names[-1])
    for page in (app, opened_on("understand/cost.py", **app.query_params)):
        assert page.metric[0].value == f"{cost(spec, 10).parameters:,}"


def test_more_heads_are_said_to_cost_no_more_only_beside_a_layer_that_has_more(open_cost):
    for sizes, said in (({"d_model": 511, "h": 7}, []), ({"d_model": 6, "h": 3}, ["2 rows"])):
        told = [one.value for one in open_cost(**sizes).markdown if "More heads cost no more" in one.value]
        assert [text for text, rows in zip(told, said, strict=True) if rows not in text] == []


def test_latent_attention_has_controls_of_its_own_and_a_smaller_cache(open_cost, english):
    app = open_cost(kv_rank=256, q_rank=128, n_kv_heads=2)
    assert (formula(app), tensors(app)["W^UK"]) == (LATENT, "256 × 512")
    kinds = table_with(app, english("cost.column_kept"))
    assert [*kinds[english("cost.column_share")]] == ["100.0%", "25.0%", "12.5%", "28.1%"]


def test_sizes_that_do_not_fit_are_refused_with_those_that_do_and_texts_are_an_axis(open_cost, english):
    app = open_cost(h=7, batch=3)
    assert "d_model 512 cannot be split into 7 heads" in app.error[0].value.replace("\\", "")
    [button] = [one for one in app.button if one.label == english("error.use", what="h 8")]
    button.click().run()
    shapes = tensors(app)
    assert (shapes["Q"], shapes["X"], shapes["W^Q"]) == ("3 × 8 × 10 × 64", "3 × 10 × 512", "512 × 512")
