"""What is shown of a model is what the model computes: a few families in every run, and the table.

All of them are compared by `python -m tests.parity`, which writes the table.
"""

from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("transformers", reason="Hugging Face models come with an extra")

import torch
import transformers

from mha_core.sources.huggingface import model as huggingface
from tests.parity import compare, table, tiny

# One of each way to attend: absolute, learned, rotary and T5 positions, ALiBi; shared keys, latent keys;
# windows, soft cap, sinks; two texts; state layers beside; experts; attention that is code of its own.
EVERY_RUN = {
    "albert": "exact",
    "bart": "exact",
    "bert": "exact",
    "bigbird_pegasus": "exact",
    "bloom": "exact",
    "canine": "part",
    "deberta-v2": "exact",
    "deepseek_v3": "exact",
    "diffllama": "exact",
    "falcon": "exact",
    "falcon_h1": "part",
    "gemma2": "exact",
    "gemma3n_text": "exact",
    "gpt2": "exact",
    "gpt_neox": "exact",
    "gpt_oss": "exact",
    "gptj": "exact",
    "granite_swa": "exact",
    "inkling2_text": "weights only",
    "llama": "exact",
    "mamba": "refused",
    "longt5": "part",
    "marian": "exact",
    "modernbert": "exact",
    "openai-gpt": "exact",
    "prophetnet": "part",
    "qwen3_moe": "exact",
    "t5": "exact",
    "t5gemma2": "part",
    "xlnet": "exact",
}
OWN_CODE = {
    *("bigbird_pegasus", "bloom", "canine", "deberta-v2", "falcon", "gptj", "openai-gpt", "prophetnet"),
    "xlnet",
}
DECIDED = ("exact", "part", "weights only", "refused")
PAIRS = {"exact", "part"}


@pytest.fixture(autouse=True)
def _quiet(recwarn):
    """Warnings inside of other people's models are theirs."""
    transformers.logging.set_verbosity_error()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", EVERY_RUN)
def test_shows_what_the_model_computes(family):
    row = compare.compare(family)
    assert row.verdict == EVERY_RUN[family], row
    if row.verdict == "refused":
        assert row.note
        return
    assert row.output <= table.EXACT
    assert row.weights <= table.EXACT
    if row.verdict in PAIRS:
        assert row.route == ("watch" if family in OWN_CODE else "attend")


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_picture_is_found(monkeypatch):
    """Keys that are shown for others, the causal mask forgotten: neither passes for exact."""
    own = huggingface.flow

    def without_masks(model, inputs):
        layers, skipped = own(model, inputs)
        return tuple(replace(layer, rule=replace(layer.rule, mask=None)) for layer in layers), skipped

    monkeypatch.setattr(huggingface, "flow", without_masks)
    assert compare.compare("gpt2").verdict == "WRONG"

    def without_one(model, inputs):
        layers, skipped = own(model, inputs)
        return layers[:-1], skipped

    monkeypatch.setattr(huggingface, "flow", without_one)
    assert compare.compare("gpt2").verdict == "WRONG"


def test_weights_are_far_from_even():
    """Of a model that looks at everything alike every comparison would come out well."""
    model = tiny.model("bert")
    layers, _ = huggingface.flow(huggingface.adopt(model), tiny.inputs(model))
    assert layers[0].weights().std() > 0.3 / tiny.N_TEXT


def test_the_table_has_every_family():
    rows = table.read()
    if table.version() == transformers.__version__:
        assert sorted(rows) == sorted(tiny.families())
    for row in rows.values():
        assert row.verdict in DECIDED or (row.verdict == "not built" and row.note), row
        if row.verdict in PAIRS:
            assert row.route in ("attend", "watch"), row
            assert max(row.weights, row.output) <= table.EXACT, row
            assert row.verdict == "exact" or row.note, row
    assert {family: rows[family].verdict for family in EVERY_RUN} == EVERY_RUN


def test_the_table_counts_right_and_reads_back(tmp_path, monkeypatch):
    before, rows = table.PATH.read_text(encoding="utf-8"), table.read()
    monkeypatch.setattr(table, "PATH", tmp_path / "TABLE.md")
    table.write(rows.values(), "5.0")
    assert table.read() == rows
    assert table.version() == "5.0"
    assert table.PATH.read_text(encoding="utf-8").splitlines()[9:] == before.splitlines()[9:]


def test_the_readme_says_what_the_table_does():
    said = " ".join(table.PATH.with_name("README.md").read_text(encoding="utf-8").split())
    counts = Counter(row.verdict for row in table.read().values())
    assert f"transformers {table.version().rpartition('.')[0]} a tiny" in said
    assert f"{counts['exact']} families are exact" in said
    assert f"{counts['part']} more in all layers" in said
    assert f"{counts['weights only']} give their weights alone, {counts['refused']} are refused" in said
    assert f"of {counts['not built']} others no tiny" in said
