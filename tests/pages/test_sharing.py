"""Heads that share keys and values on the pages: framed, bracketed, drawn; and latent vectors."""

import json

import numpy as np
import pytest

from mha_core.analysis.cost import short_vectors
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface import own_code
from pages._kit import model_source
from tests.pages.conftest import figure, sent
from tests.sources import tiny

PAGE = "models/real.py"


@pytest.fixture
def on_model(on_folder, folder):
    """`on_model("bert", head=2)`: the page about a tiny model, opened by a link."""
    return lambda family, **link: on_folder(folder(family), PAGE, twin="", **link)


def lines(app) -> list[float]:
    """Where the line of each query head ends."""
    data = figure(app, "sharing")["data"]
    return [trace["x"][1] for trace in data if trace.get("hovertemplate")]


def overview(app) -> dict:
    """The input of the overview, once and after each choice."""
    _, blob = app.get_by_key("overview_blob").proto.bytes.split(b"\n", 1)
    return json.loads(blob) | sent(app, "overview")


@pytest.mark.parametrize(
    ("family", "ends", "shared", "alt"),
    [
        ("llama", [0.5, 0.5, 2.5, 2.5, 4.5, 4.5], [2, 2], {"heads": 6, "kv": 3, "size": "2"}),
        ("bert", [0, 1, 2], [1, 1], {"heads": 3, "kv": 3, "size": "1"}),
    ],
)
def test_every_query_head_is_drawn_with_its_keys_and_values(on_model, english, family, ends, shared, alt):
    app = on_model(family, layer=2, head=2)
    assert lines(app) == ends
    drawn = figure(app, "sharing")
    assert drawn["layout"]["meta"]["title"] == english("sharing.title", layer=2)
    kv = 1 if family == "llama" else 2
    assert english("sharing.head", head=2, kv=kv) in json.dumps(drawn["data"], ensure_ascii=False)
    assert english("real.look", head=2, layer=2) in [one.value for one in app.markdown]
    assert app.get_by_key("sharing").proto.alt == english("sharing.alt", **alt)
    header = overview(app)
    assert (header["shared"], header["link"]) == (shared, "to_heads")
    told = english("overview.brackets") in " ".join(caption.value for caption in app.caption)
    assert told == (family == "llama")


def test_a_layer_with_weights_only_draws_no_sharing(on_model, monkeypatch):
    monkeypatch.setattr(own_code, "try_own_code", lambda *_: None)  # as of code that is not understood
    model_source.loaded.clear()
    app = on_model("bloom")
    model_source.loaded.clear()
    assert overview(app)["shared"] == [1, 1]
    with pytest.raises(KeyError):
        app.get_by_key("sharing")


@pytest.mark.slow
def test_latent_vectors_are_drawn_and_counted(on_model, folder, drawn, heatmaps, said, english):
    app = on_model("deepseek_v3", layer=2, token=3)
    layer = huggingface.follow(huggingface.load(folder("deepseek_v3")), Scene.text).layers[1]
    for name, values in short_vectors(layer).items():
        np.testing.assert_array_equal(drawn(app, f"short-{name}"), values)
        meaning = english(f"sharing.vector_{name}", count=values.shape[1])
        assert heatmaps(app, f"short-{name}")[name]["meaning"] == meaning
    sizes = {"kept": 33, "heads": 3, "d_k": 23, "d_v": 17, "all": 120}
    assert english("real.cache_latent_sum", parts="23 + 10", **sizes) in said(app)
    numbers = english("real.cache_numbers")
    [table] = [one.value for one in app.table if numbers in one.value]
    assert table[numbers].tolist() == [3 * (23 + 17), 23 + 10, 23 + 17]
    bars = [t for t in figure(app, "sharing")["data"] if t.get("fill")]
    assert [bar["name"] for bar in bars] == [english("sharing.short"), english("sharing.position")]


def test_a_click_on_a_latent_vector_chooses_its_token(on_model, click, strip):
    app = click(on_model("deepseek_v3"), "short-kv", {"row": 4, "column": None})
    assert strip(app)["chosen"] == 4


@pytest.mark.parametrize(("kv", "marked"), [(2, 1), (6, 0)])
def test_the_kind_of_this_layer_is_ticked(on_folder, tmp_path, english, kv, marked):
    tiny.module("llama", num_key_value_heads=kv).save_pretrained(tmp_path)
    tiny.fast("sentence_piece").save_pretrained(tmp_path)
    app = on_folder(str(tmp_path), PAGE, twin="")
    here, numbers = english("real.cache_here"), english("real.cache_numbers")
    [table] = [frame.value for frame in app.table if here in frame.value]
    assert [at for at, tick in enumerate(table[here]) if tick] == [marked]
    assert table[numbers][marked] == kv * 2 * 14
    assert table[english("real.cache_share")][marked] == {2: "33.3%", 6: "100.0%"}[kv]
    assert len(table) == (3 if kv == 2 else 2)
