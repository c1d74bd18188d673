"""Reading an atlas: its heads and strongest texts agree with its numbers, also in a mere summary."""

import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core import resources
from mha_core.atlases import library
from mha_core.atlases.query import DECILES, EXAMPLES, MANIFEST, STRINGS, SUMMARY
from mha_core.training import checkpoints
from tests.atlases.conftest import COUNT


@pytest.fixture(scope="module")
def atlas(made) -> mha.Atlas:
    return mha.Atlas(made)


@pytest.fixture(scope="module")
def summary(made, tmp_path_factory) -> mha.Atlas:
    """The atlas without the numbers of single texts."""
    folder = tmp_path_factory.mktemp("summary")
    for name in (MANIFEST, SUMMARY, EXAMPLES, STRINGS):
        shutil.copy(made / name, folder)
    return mha.Atlas(folder)


def numbers(atlas: mha.Atlas, measure: str, layer: int, head: int) -> pd.DataFrame:
    name = measure.replace(" ", "_").replace(":", "")
    columns = ", ".join(
        f"{name}{suffix} AS {suffix.strip('_') or 'value'}"
        for suffix in ("", "_shuffled", "_chance", "_query", "_key")
    )
    return atlas.sql(
        f"SELECT text, {columns} FROM heads WHERE layer = {layer} AND head = {head} AND {name} IS NOT NULL "
        "ORDER BY text"
    )


def test_every_head_has_a_row_for_each_measure(atlas):
    heads = atlas.heads()
    assert len(heads) == 2 * 2 * len(atlas.measures)
    assert heads.groupby(["layer", "head"])["measure"].apply(list).map(lambda m: m == atlas.measures).all()


@pytest.mark.parametrize("measure", ["entropy", "pronoun to noun"])
def test_the_summary_is_that_of_all_numbers(measure, atlas):
    for layer in range(2):
        rows = numbers(atlas, measure, layer, 1)
        found = atlas.head(layer, 1).loc[measure]
        assert found["n"] == len(rows)
        values = rows["value"].to_numpy(float)
        assert found["mean"] == pytest.approx(values.mean(), rel=1e-3)
        assert found["shuffled"] == pytest.approx(rows["shuffled"].astype(float).mean(), rel=1e-3)
        assert found["chance"] == pytest.approx(rows["chance"].astype(float).mean(), rel=1e-3)
        assert found["q50"] == pytest.approx(np.median(values), rel=1e-3)
        assert found["low"] <= found["mean"] <= found["high"]
        assert found["shuffled_low"] <= found["shuffled"] <= found["shuffled_high"]


def test_a_measure_that_no_text_has_is_unknown(tmp_path):
    atlas = mha.atlas(["A cat.", "A dog."], source="mini", h=1, d_model=64, out=tmp_path / "a")
    row = atlas.head(0, 0).loc["duplicate token"]
    assert row["n"] == 0
    assert row[["mean", "low", "high", "q50", "shuffled", "chance"]].isna().all()
    assert atlas.top("duplicate token", layer=0, head=0).empty


def test_heads_are_a_copy(atlas):
    heads = atlas.heads()
    heads["mean"] = 0.0
    assert atlas.heads()["mean"].max() > 0


# The strongest texts


@pytest.mark.parametrize("measure", ["distance", "pronoun to noun"])
def test_the_strongest_texts_are_those_with_the_largest_numbers(measure, atlas):
    rows = numbers(atlas, measure, 1, 0).sort_values(["value", "text"], ascending=[False, True])
    top = atlas.top(measure, layer=1, head=0, n=5)
    assert top["text"].tolist() == rows["text"].tolist()[:5]
    np.testing.assert_array_equal(
        top[["value", "query", "key"]].to_numpy(), rows[["value", "query", "key"]].to_numpy()[:5]
    )


def test_the_deciles_are_all_texts_once_from_small_to_large(atlas):
    parts = [atlas.top("entropy", layer=0, head=1, n=COUNT, decile=at) for at in range(1, DECILES + 1)]
    assert sorted(pd.concat(parts)["text"]) == list(range(COUNT))
    for low, high in pairwise(parts):
        assert low["value"].max() <= high["value"].min()


def test_a_cell_is_where_the_head_looks(atlas):
    row = atlas.top("previous token", layer=1, head=1, n=1).iloc[0]
    weights = mha.trace(row["string"], source="mini", h=2, d_model=64).layers[1].weights(1)
    diagonal = np.diagonal(weights, -1)
    assert row["query"] == 1 + diagonal.argmax()
    assert row["key"] == row["query"] - 1
    assert row["value"] == pytest.approx(diagonal.mean(), rel=1e-3)


@pytest.mark.parametrize("decile", [1, 6, 10])
def test_a_summary_has_the_same_strongest_texts_of_each_decile(decile, atlas, summary):
    for measure in ("entropy", "pronoun to noun"):
        whole = atlas.top(measure, layer=1, head=0, n=2, decile=decile)
        pd.testing.assert_frame_equal(
            summary.top(measure, layer=1, head=0, n=2, decile=decile), whole, check_dtype=False, rtol=1e-3
        )


def test_a_summary_has_the_same_heads(atlas, summary):
    pd.testing.assert_frame_equal(summary.heads(), atlas.heads())
    assert summary.is_summary
    assert not atlas.is_summary
    assert summary.left_out.empty


# What is refused


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda a: a.head(2, 0), "layers 0 to 1"),
        (lambda a: a.head(0, 5), "heads 0 to 1"),
        (lambda a: a.top("grammar", layer=0, head=0), "no measure called"),
        (lambda a: a.top("entropy", layer=0, head=0, decile=11), "1 to 10"),
        (lambda a: a.top("entropy", layer=0, head=0, n=0), "at least 1"),
        (lambda a: a.sql("SELECT nothing FROM heads"), "nothing"),
        (lambda a: a.sql("DROP VIEW heads; SELECT * FROM heads"), "heads"),
    ],
)
def test_what_an_atlas_does_not_have_is_refused(call, said, made, refused):
    assert said in str(refused(call, mha.Atlas(made)))


def test_a_summary_has_no_sql(summary, refused):
    assert "only a summary" in str(refused(summary.sql, "SELECT * FROM heads"))


def test_a_folder_without_an_atlas_is_refused(tmp_path, refused):
    assert "it has no atlas.json" in str(refused(mha.Atlas, tmp_path))
    assert "it has no atlas.json" in str(refused(mha.Atlas, tmp_path / "missing"))
    (tmp_path / MANIFEST).write_text("{}")
    assert "is damaged" in str(refused(mha.Atlas, tmp_path))


# The atlases that come with Headscope


def test_the_shipped_atlases_are_of_the_shipped_models():
    """Made again after a training: the edition of the weights is that of the atlases."""
    found = list(library.atlases())
    assert {"zh" in atlas.folder.name for atlas in found} == {True, False}
    for atlas in found:
        assert atlas.manifest["weights"] == f"edition {checkpoints.edition()}"
        settings = atlas.manifest["settings"]
        text = "我们" if "zh" in atlas.folder.name else "A cat"
        assert library.of(mha.trace(text, source="mini", **settings).source).folder == atlas.folder
        assert atlas.n_texts == 1000


def test_the_shipped_atlases_are_small():
    files = resources.path(*library.FOLDER).rglob("*.*")
    assert sum(file.stat().st_size for file in files) < 2e6


def test_shipped_numbers_and_texts_are_those_of_a_run(tmp_path):
    """The first sentences measured again give the values of the examples that are among them."""
    shipped = next(library.atlases())
    again = mha.atlas("small", count=20, out=tmp_path / "a", **shipped.manifest["settings"])
    query = "SELECT text, layer, head, entropy, string FROM heads JOIN texts USING (text)"
    rows = again.sql(query).set_index(["text", "layer", "head"])
    compared = 0
    for layer, n_heads in enumerate(shipped.manifest["heads"]):
        for head in range(n_heads):
            top = shipped.top("entropy", layer=layer, head=head, n=100)
            for _, one in top[top["text"] < 20].iterrows():
                row = rows.loc[(one["text"], layer, head)]
                assert one["value"] == pytest.approx(row["entropy"], rel=1e-3)
                assert one["string"] == row["string"]
                compared += 1
    assert compared


@pytest.mark.parametrize(
    ("text", "settings"),
    [("A cat", {"h": 2, "d_model": 64}), ("A cat", {"h": 4, "d_model": 64, "trained": False})],
)
def test_another_model_has_no_atlas(text, settings):
    assert library.of(mha.trace(text, source="mini", **settings).source) is None


def test_an_own_atlas_comes_first(made, monkeypatch):
    monkeypatch.setenv(resources.ATLAS, str(made))
    assert library.of(mha.trace("A cat", source="mini", h=2, d_model=64).source).folder == made


def test_the_model_of_an_atlas_is_the_same_on_another_machine(made):
    source = mha.trace("A cat", source="mini", h=2, d_model=64).source
    assert mha.Atlas(made).is_of(replace(source, device="cuda", torch="9.9"))
    assert not mha.Atlas(made).is_of(replace(source, step=source.step - 1))


def test_random_weights_of_other_sizes_are_not_taken_for_those_of_an_atlas(tmp_path):
    mha.atlas(["A cat sat.", "A dog ran."], source="random", h=2, d_model=16, out=tmp_path / "atlas")
    other = mha.trace("A cat sat.", source="random", h=4, d_model=16)
    assert not mha.Atlas(tmp_path / "atlas").is_of(other.source)
