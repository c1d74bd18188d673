"""The numbers shown for a model are those it computes: a few families in every run, and the tables.

All of them are compared by `python -m tests.parity`, which writes the tables.
"""

from collections import Counter
from dataclasses import replace

import pytest
import torch
import transformers

from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface import trial
from tests.parity import compare, table, tiny

# One of each way to attend: absolute, learned, rotary and T5 positions, ALiBi; shared keys, latent keys;
# windows, chunks, soft cap, sinks; a top-k of keys, of blocks; two texts; state layers beside; experts;
# attention that is code of its own; parts of larger models, one a decoder
# with the configuration of both; one that reads a text and writes sounds.
EVERY_RUN = {
    family: verdict
    for verdict, families in {
        "exact": "gpt2 bart bert bloom deberta-v2 deepseek_v3 deepseek_v32 diffllama falcon falcon_h1 gemma2 "
        "gemma3n_text gpt_oss gptj llama4_text mamba led fnet minimax_m3_vl_text modernbert "
        "qwen3_moe t5 xlnet",
        "weights only": "big_bird canine inkling2_text reformer",
        "part": "mobilebert musicgen pegasus_x prophetnet t5gemma2",
    }.items()
    for family in families.split()
}
# Those with halves, edits and a ledger, and what the norms of their heads in it are.
WHOLE = dict.fromkeys(("gpt2", "gpt_oss", "bloom", "t5", "deepseek_v32", "falcon_h1"), "same")
WHOLE |= dict.fromkeys(("gemma2", "mobilebert"), "normed")
OWN_CODE = {"big_bird", "bloom", "canine", "deberta-v2", "falcon", "gptj", "led", "prophetnet", "xlnet"}
DECIDED = ("exact", "part", "weights only", "refused")
PAIRS = {"exact", "part"}


def largest(row: table.Row) -> float:
    """The largest difference of any number that was compared."""
    gaps = (row.weights, row.output, row.long_weights, row.long_output, row.mixing)
    return max(gap for gap in gaps if gap is not None)


@pytest.fixture(autouse=True)
def _quiet(recwarn):
    """Warnings inside of other people's models are theirs."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", EVERY_RUN)
def test_shows_what_the_model_computes(family):
    row = compare.compare(family, halves=family in WHOLE)
    assert row.verdict == EVERY_RUN[family], row
    assert largest(row) <= table.EXACT
    assert "WRONG" not in row.bf16 + row.fp16 + row.edits + row.beside + row.ledger
    if family in WHOLE:
        assert row.ledger.partition(", ")[2] == WHOLE[family]
        assert row.edits.startswith("same" if row.route == "attend" else "")
        assert row.beside == "nothing" or (row.beside, row.verdict) == ("named", "part")
    if row.verdict in PAIRS:
        assert row.route == ("mixing" if not row.known else "watch" if family in OWN_CODE else "attend")


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_picture_is_found(monkeypatch):
    """Keys that are shown for others, the causal mask forgotten: neither passes for exact."""
    own = huggingface.flow

    def without_masks(model, inputs):
        layers, *others = own(model, inputs)
        return tuple(replace(layer, rule=replace(layer.rule, mask=None)) for layer in layers), *others

    monkeypatch.setattr(huggingface, "flow", without_masks)
    assert compare.compare("gpt2", halves=False).verdict == "WRONG"

    def without_one(model, inputs):
        layers, *others = own(model, inputs)
        return layers[:-1], *others

    monkeypatch.setattr(huggingface, "flow", without_one)
    assert compare.compare("gpt2", halves=False).verdict == "WRONG"


@pytest.mark.filterwarnings("ignore")
def test_unnamed_token_mixing_is_found(monkeypatch):
    """MobileBERT's embeddings are of three neighbours each."""
    monkeypatch.setattr(trial, "checked", lambda route, *_: route)
    assert compare.compare("mobilebert").beside == "WRONG: embeddings"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n", [length for length, _ in tiny.LENGTHS])
def test_weights_are_far_from_even(n):
    """With uniform weights every comparison would succeed."""
    model = huggingface.adopt(tiny.model("bert"))
    layers, *_ = huggingface.flow(model, {"input_ids": torch.arange(5, 5 + n)[None]})
    assert layers[0].weights().std() > 0.3 / n


def test_the_table_has_every_family():
    known = table.read()
    if known.version == transformers.__version__:
        assert sorted(known.families) == sorted(tiny.families())
    for row in known.families.values():
        if row.verdict not in DECIDED:
            assert (row.verdict, bool(row.missing)) == ("not built", True), row
        assert "WRONG" not in row.bf16 + row.fp16 + row.edits + row.beside + row.ledger
        assert row.edits.startswith("same" if row.route == "attend" else "")
        if row.verdict in PAIRS:
            assert row.beside == "nothing" or (row.beside, row.verdict) == ("named", "part"), row
            assert row.route in ("attend", "watch", "mixing"), row
            if "rounded" not in row.missing:
                assert largest(row) <= table.EXACT, row
            if row.verdict == "part":
                assert row.missing, row
    assert {family: known.families[family].verdict for family in EVERY_RUN} == EVERY_RUN
    ledgers = [row.ledger for row in known.families.values() if row.ledger]
    assert sum(cell[0].isdigit() for cell in ledgers) >= 0.9 * len(ledgers)  # others have their reason
    assert sorted(known.long) == sorted(compare.LONG)
    assert {row.verdict for row in known.long.values()} <= PAIRS | {"weights only"}


def test_the_tables_count_right_and_read_back(tmp_path, monkeypatch):
    before, known = table.PATH.read_text(encoding="utf-8"), table.read()
    monkeypatch.setattr(table, "PATH", tmp_path / "TABLE.md")
    table.write(known)
    assert table.read() == known
    assert table.PATH.read_text(encoding="utf-8") == before


def test_the_readmes_agree_with_the_table():
    page = table.PATH.with_name("README.md")
    text = " ".join(page.read_text(encoding="utf-8").split())
    known = table.read()
    counts = Counter(row.verdict for row in known.families.values())
    front = (page.parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"on tiny random models: {counts['exact']} families are exact" in front
    assert f"transformers {known.version.rpartition('.')[0]} a tiny" in text
    assert f"{counts['exact']} families are exact" in text
    assert f"{counts['part']} more in all layers" in text
    assert f"{counts['weights only']} give their weights alone, {counts['refused']} are refused" in text
    assert f"of {counts['not built']} others no tiny" in text
