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


def test_the_base_setting(open_cost, english):
    app = open_cost()
    assert tensors(app) | {"Q": "8 × 10 × 64", "W^O": "512 × 512", "S": "8 × 10 × 10"} == tensors(app)
    [html] = [one.proto.body for one in app.main.get("html") if 'class="tensors"' in one.proto.body]
    [figure] = [one for one in html.split("<figure") if "<figcaption><b>Q</b>" in one]
    assert re.findall(r"--unit\) \* (\d+)", figure) == ["512", "10"]  # wide and high, to scale
    figures = {metric.label: metric.value for metric in app.metric}
    assert figures[english("cost.parameters")] == "1,048,576"
    assert figures[english("cost.flops")] == f"{2 * 10 * 4 * 512**2 + 2 * 8 * 100 * 128:,}"
    assert figures[english("cost.cache")] == "41\u00a0kB"


ENDS = "S A Z, concat W^O output"
LATENT = f"X W^DQ c^Q, c^Q W^UQ Q, X W^DKV c^KV, X W^KR k^R, c^KV W^UK K, c^KV W^UV V, {ENDS}"


@pytest.mark.parametrize(
    ("link", "formula"),
    [({}, f"X W^Q Q, X W^K K, X W^V V, {ENDS}"), ({"kv_rank": 256, "q_rank": 128}, LATENT)],
)
def test_the_rectangles_are_in_the_order_of_the_formula(open_cost, link, formula):
    found = lines(open_cost(**link))
    assert ", ".join(" ".join(symbol for symbol, _ in line) for line in found) == formula


@pytest.mark.parametrize("model", published_sizes(), ids=lambda model: model.name)
def test_a_well_known_model_is_the_layer_that_its_controls_describe(open_cost, english, model):
    app = open_cost()
    app.selectbox(key="cost_preset").select(model.name).run()
    assert english("cost.parameters") in [metric.label for metric in app.metric]
    [kinds] = [table.value for table in app.table if english("cost.column_kept") in table.value]
    if model.kind == "mla":
        assert "512\xa0+\xa064" in set(kinds[english("cost.column_kept")])
    else:
        kept = f"{model.spec.n_kv_heads} × ({model.spec.d_k} + {model.spec.d_v})".replace(" ", "\xa0")
        assert kept in set(kinds[english("cost.column_kept")])


@pytest.mark.parametrize(
    ("link", "names"),
    [
        ({}, ["DeepSeek-V3"]),
        ({}, ["Mistral 7B", "DeepSeek-V2", "Llama 3 8B"]),
        ({"n_kv_heads": 2, "q_rank": 64}, ["DeepSeek-V3"]),
        ({"kv_rank": 512, "q_rank": 64}, ["Falcon 7B", "DeepSeek-V2"]),
    ],
)
def test_the_link_of_a_well_known_model_has_all_its_sizes(open_cost, opened_on, link, names):
    app = open_cost(**link)
    for name in names:
        app.selectbox(key="cost_preset").select(name).run()
    spec = next(model.spec for model in published_sizes() if model.name == names[-1])
    for page in (app, opened_on("understand/cost.py", **app.query_params)):
        assert page.metric[0].value == f"{cost(spec, 10).parameters:,}"


def test_latent_attention_has_controls_of_its_own_and_a_smaller_cache(open_cost, english):
    app = open_cost(kv_rank=256, n_kv_heads=2)
    assert tensors(app)["W^UK"] == "256 × 512"
    [kinds] = [table.value for table in app.table if english("cost.column_kept") in table.value]
    assert [*kinds[english("cost.column_share")]] == ["100.0%", "25.0%", "12.5%", "28.1%"]


def test_sizes_that_do_not_fit_are_refused_with_those_that_do_and_texts_are_an_axis(open_cost, english):
    app = open_cost(h=7, batch=3)
    assert "d_model 512 cannot be split into 7 heads" in app.error[0].value.replace("\\", "")
    [button] = [one for one in app.button if one.label == english("error.use", what="h 8")]
    button.click().run()
    assert not app.error
    shapes = tensors(app)
    assert (shapes["Q"], shapes["X"], shapes["W^Q"]) == ("3 × 8 × 10 × 64", "3 × 10 × 512", "512 × 512")


def test_the_caches_of_well_known_models_say_their_format(open_cost, english):
    [table] = [one.value for one in open_cost().table if english("cost.column_model") in one.value]
    deepseek = table.set_index(english("cost.column_model")).loc["DeepSeek-V3"]
    caches = [deepseek[english("cost.column_token", dtype=dtype)] for dtype in ("fp32", "bf16")]
    assert caches == ["140.54\u00a0kB", "70.272\u00a0kB"]


def test_small_models_of_each_kind_are_compared(open_cost, english):
    [table] = [one.value for one in open_cost().table if english("cost.column_numbers") in one.value]
    assert [*table[english("cost.column_numbers")]] == ["256", "128", "64", "64"]
    entry = checkpoints.manifest()["multi-query-en-h4-d64"]["scores"]
    assert table[english("cost.column_answers")][2] == f"{entry['answer']:.1%}"
    assert table[english("cost.column_shapes")][2] == f"{entry['shapes']:.1%}"
    assert table[english("cost.column_kind")][3] == "[MLA](./?architecture=latent)"
