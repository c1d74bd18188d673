"""Making an atlas: the same files however it is run and stopped, what is left out, and what is refused."""

import json
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import mha_core as mha
from mha_core import resources
from mha_core.atlases import measures, run, shard
from mha_core.atlases.texts import AtlasText
from tests.atlases.conftest import COUNT, SHARD, files
from tests.sources import tiny

SMALL = {"h": 2, "d_model": 64}
TEXTS = ["A cat saw the dog.", "The street was too wide, and the animal was tired.", "It sang.", "A bird!"]


def mini(out: Path, texts="small", **options) -> mha.Atlas:
    return mha.atlas(texts, out=out, **{"shard": SHARD, "count": COUNT, **SMALL, **options})


# The same files


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"batch": 3}, {"workers": 2}], ids=["batches", "processes"])
def test_an_atlas_has_the_same_files_however_it_is_run(options, made, tmp_path):
    mini(tmp_path / "a", **options)
    assert files(tmp_path / "a") == files(made)


def test_texts_are_measured_with_one_thread_which_others_do_not_notice(tmp_path, monkeypatch):
    """The last bit of a sum depends on the number of threads that share it."""
    used, of_trace = [], measures.of_trace
    monkeypatch.setattr(
        measures, "of_trace", lambda *given: used.append(torch.get_num_threads()) or of_trace(*given)
    )
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        mini(tmp_path / "a", count=2)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert set(used) == {1}


@pytest.mark.slow
def test_a_shard_whose_worker_dies_is_measured_again_and_counted(made, tmp_path):
    seen = []

    def kill(progress: run.Progress) -> None:
        seen.append(progress)
        if progress.done == 1:
            for worker in active_children():
                worker.kill()

    mini(tmp_path / "a", workers=2, progress=kill)
    assert seen[-1].again in (1, 2)  # one worker may still have been loading its model
    assert files(tmp_path / "a") == files(made)


def test_a_model_measures_the_same_in_batches_of_any_size(tmp_path):
    model, tokenizer = tiny.module("llama"), tiny.fast(tiny.TOKENIZER_OF["llama"])
    every = []
    for batch in (1, 3, 16):
        folder = tmp_path / str(batch)
        mha.atlas(TEXTS * 3, source=model, tokenizer=tokenizer, out=folder, batch=batch)
        every.append(mha.Atlas(folder).heads()[["layer", "head", "measure", "n", "mean", "shuffled"]])
    for other in every[1:]:  # sums of other lengths are rounded otherwise
        pd.testing.assert_frame_equal(other, every[0], atol=2e-3)


def test_other_shards_make_the_same_tables(made, tmp_path):
    one, other = mha.Atlas(made), mini(tmp_path / "a", shard=7)
    for table in ("heads", "texts"):
        query = f"SELECT * FROM {table} ORDER BY ALL"
        pd.testing.assert_frame_equal(other.sql(query), one.sql(query))
    names = ("summary.csv", "examples.csv", "examples.json")
    assert [files(other.folder)[name] for name in names] == [files(made)[name] for name in names]


KILLED = """
    import os, random, signal, sys, time
    from pathlib import Path
    import torch
    torch.set_num_threads(1)  # before anything runs in threads, which a copy of this process would not have
    import mha_core as mha
    from mha_core.atlases import run

    out, options, longest = Path(sys.argv[1]), {options}, float(sys.argv[2])
    draw = random.Random(int(sys.argv[3]))
    for attempt in range(6):
        process = os.fork()
        if not process:
            mha.atlas("small", out=out, **options)
            os._exit(0)
        if attempt < 5:
            time.sleep(draw.uniform(0.05, longest))
            os.kill(process, signal.SIGKILL)
        ended = os.waitpid(process, 0)[1]
        print(ended, len(list(out.glob("heads/*.parquet"))), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_an_atlas_that_was_killed_five_times_has_the_same_files(made, tmp_path):
    out = tmp_path / "a"
    options = {"shard": SHARD, "count": COUNT, **SMALL}
    script = textwrap.dedent(KILLED).replace("{options}", repr(options))
    done = subprocess.run(
        [sys.executable, "-c", script, str(out), "1.5", "1"], capture_output=True, text=True, check=True
    )
    ends = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert ends[-1] == (0, -(-COUNT // SHARD)), done.stderr
    assert sum(end == 9 for end, _ in ends) > 0  # by the signal, not at the end
    assert files(out) == files(made)


def test_a_finished_atlas_is_not_measured_again(made, monkeypatch, tmp_path):
    folder = shutil.copytree(made, tmp_path / "a")
    monkeypatch.setattr(run.Measurer, "__call__", lambda *_: pytest.fail("measured again"))
    assert files(mini(folder).folder) == files(made)


def test_only_what_is_missing_is_measured(made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "a")
    sorted((folder / "heads").iterdir())[1].unlink()
    seen = []
    mini(folder, progress=seen.append)
    assert [(one.done, one.shards, one.texts) for one in seen] == [(3, 4, COUNT), (4, 4, COUNT)]
    assert files(folder) == files(made)


def test_readers_do_not_see_half_an_atlas(made, tmp_path, refused):
    """Another process may read while the last shard is measured."""
    folder = tmp_path / "a"
    seen = []

    def read(progress: run.Progress) -> None:
        seen.append(str(refused(mha.Atlas, folder)))

    mini(folder, progress=read)
    assert set(seen) == {f"The atlas in {folder} is not finished; go on with the command that began it."}
    assert len(mha.Atlas(folder).heads()) == len(mha.Atlas(made).heads())


# The numbers are those of traces


def test_each_number_is_that_of_the_texts_trace(made):
    atlas = mha.Atlas(made)
    rows, texts = atlas.sql("SELECT * FROM heads"), atlas.sql("SELECT * FROM texts").set_index("text")
    for number in (0, 13, COUNT - 1):
        for column, suffix in (("string", ""), ("shuffled", "_shuffled")):
            trace = mha.trace(texts.loc[number, column], source="mini", **SMALL)
            for layer, found in enumerate(measures.of_trace(trace)):
                there = rows[(rows["text"] == number) & (rows["layer"] == layer)].sort_values("head")
                for at, measure in enumerate(measures.MEASURES):
                    values = there[measure.replace(" ", "_") + suffix].to_numpy(float)
                    np.testing.assert_allclose(values, found.value[:, at], rtol=1e-3, atol=1e-6)


def test_the_interval_holds_the_mean_as_often_as_it_says():
    """Of many samples, about 95 % of the intervals hold the true mean."""
    from mha_core.atlases import summary

    rng = np.random.default_rng(4)
    values = rng.beta(0.5, 1.5, (400, 60)).astype(np.float32)  # 400 samples of 60 texts; the true mean is 1/4
    low, high = summary._intervals(np.arange(60), values, seed=0)
    assert 0.90 <= ((low <= 0.25) & (high >= 0.25)).mean() <= 0.98


# What is left out


def test_texts_that_cannot_be_traced_are_left_out_with_their_reasons(tmp_path):
    texts = ["A cat sang.", "", " \n", "word " * 70, "我们看见了小狗。", "A dog saw it.", "x" * 999]
    atlas = mini(tmp_path / "a", texts, shard=3)
    left_out = atlas.left_out.set_index("text")["reason"]
    assert left_out.index.tolist() == [1, 2, 3, 4]
    assert left_out[1] == left_out[2]
    assert "no text" in left_out[1]
    assert "70 tokens" in left_out[3]
    assert "another language" in left_out[4]
    assert atlas.sql("SELECT DISTINCT text FROM heads ORDER BY text")["text"].tolist() == [0, 5, 6]
    assert atlas.n_texts == 7


@pytest.mark.slow
def test_a_text_that_is_much_too_long_is_left_out_of_a_model(tmp_path):
    model, tokenizer = tiny.module("bert"), tiny.fast("word_piece")
    texts = ["A cat sang.", "the street " * 30_000, "A dog saw it."]
    atlas = mha.atlas(texts, source=model, tokenizer=tokenizer, out=tmp_path / "a")
    assert atlas.left_out["text"].tolist() == [1]
    assert atlas.sql("SELECT count(DISTINCT text) AS n FROM heads")["n"].tolist() == [2]


def test_a_model_that_overflows_leaves_its_texts_out(tmp_path, refused):
    model, tokenizer = tiny.module("bert"), tiny.fast("word_piece")
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[tokenizer("bird")["input_ids"][1]] = torch.nan
    named = {"source": model, "tokenizer": tokenizer}
    atlas = mha.atlas(["The cat", "a bird", "the animal"], out=tmp_path / "a", **named)
    assert "NaN" in atlas.left_out.set_index("text").loc[1, "reason"]
    message = str(refused(mha.atlas, ["a bird"], out=tmp_path / "b", **named))
    assert "None of the 1 texts has numbers" in message


# Other models


def test_shared_keys_windows_and_half_precision_are_measured(tmp_path):
    model, tokenizer = tiny.module("gemma2").bfloat16(), tiny.fast(tiny.TOKENIZER_OF["gemma2"])
    atlas = mha.atlas(TEXTS, source=model, tokenizer=tokenizer, out=tmp_path / "a")
    rows = atlas.sql("SELECT * FROM heads WHERE text = 1 ORDER BY layer, head")
    trace = mha.trace(TEXTS[1], source=model, tokenizer=tokenizer)
    expected = mha.metrics(trace)
    for name in expected:
        ours = rows[name.replace(" ", "_")].to_numpy(float)
        np.testing.assert_allclose(ours, expected[name].to_numpy(), rtol=2e-3, atol=1e-6)
    assert atlas.manifest["heads"] == [layer.n_heads for layer in trace.layers]


def test_layers_of_two_kinds_are_refused_by_their_kinds(tmp_path, refused):
    model = tiny.module("t5", num_layers=0, num_decoder_layers=1)
    tokenizer = tiny.fast("sentence_piece")
    error = refused(mha.atlas, TEXTS, source=model, tokenizer=tokenizer, out=tmp_path / "a")
    assert "kinds decoder and cross" in str(error)
    assert not list((tmp_path / "a").iterdir())


def test_a_worker_with_other_packages_is_refused(refused):
    source = mha.trace("A cat", source="mini", **SMALL).source
    elsewhere = shard.origin(replace(source, torch="1.0", device="cuda"))
    measure = shard.Measurer("mini", SMALL, elsewhere, linked=False, batch=4)
    message = str(refused(measure, shard.Shard(0, (AtlasText("A cat", "cat A"),))))
    assert "made with device cuda, and a worker has cpu" in message


# What is refused


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"h": 4}, "settings"),
        ({"count": COUNT - 1}, "number of texts"),
        ({"texts": TEXTS * 8}, "measures"),
        ({"source": "random", "seed": 1}, "source"),
        ({"shard": 7}, "shards"),
    ],
)
def test_a_folder_with_another_atlas_is_refused_and_stays(other, said, made, tmp_path, refused):
    folder = shutil.copytree(made, tmp_path / "a")
    error = refused(mini, folder, **other)
    assert f"Its {said}: " in str(error)
    assert files(folder) == files(made)


def test_a_model_that_was_trained_on_is_refused(tmp_path, refused):
    model, tokenizer = tiny.module("bert"), tiny.fast("word_piece")
    named = {"source": model, "tokenizer": tokenizer, "out": tmp_path / "a"}
    mha.atlas(TEXTS, **named)
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight[0, 0] += 1e-3
    assert "Its model weights: " in str(refused(mha.atlas, TEXTS, **named))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"texts": []}, "no text"),
        ({"texts": ["", "  "]}, "None of the first 2 texts can be traced"),
        ({"texts": 7}, "takes several texts"),
        ({"texts": "missing.txt"}, "no file or folder"),
        ({"texts": ["a", 3]}, "Text 2"),
        ({"texts": ["a", "b \ud800"]}, "Text 2: The text has half of a character"),
        ({"count": 0}, "at least 1"),
        ({"shard": 0}, "at least 1"),
        ({"batch": 0}, "batch"),
        ({"heads": 4}, "h is"),
        ({"edits": ()}, "edits is of one text"),
        ({"source": "random", "mask": torch.ones(3, 3, dtype=torch.bool)}, "mask is of one text"),
        ({"source": "mini", "h": 3}, "h 3"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, said, tmp_path, refused):
    error = refused(mini, tmp_path / "a", **arguments)
    assert said in str(error)


def test_a_folder_with_other_files_is_refused(tmp_path, refused):
    (tmp_path / "thesis.doc").write_text("important")
    assert "is not the folder of an atlas" in str(refused(mini, tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.doc"]


def test_an_atlas_that_does_not_fit_on_the_disk_is_refused_with_figures(tmp_path, refused, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(run.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    message = str(refused(mini, tmp_path / "a"))
    assert "1,000 are free" in message
    monkeypatch.undo()
    assert mini(tmp_path / "a").n_texts == COUNT  # it goes on when there is room


def test_without_its_packages_an_atlas_says_what_to_install(tmp_path, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert resources.install("atlas") in str(refused(mini, tmp_path / "a"))


def test_the_manifest_says_how_the_atlas_was_made(made):
    manifest = json.loads((made / "atlas.json").read_text())
    assert manifest["source"] == "mini"
    assert manifest["settings"] == SMALL
    assert manifest["texts"] == COUNT
    assert manifest["versions"]["headscope"] == mha.__version__
