"""What `mha.record` shows of a family of transformers is what a trace of it shows, and the rest is named."""

import pytest

pytest.importorskip("transformers", reason="Hugging Face models come with an extra")

from mha_core.sources.recorder import Recorder
from tests.sources.huggingface import recordings

# Shared keys and a window, two texts, sinks, blocks, a layer without softmax beside, and none with it.
FAMILIES = {
    "gemma2": {"exact"},
    "gpt_oss": {"exact"},
    "t5": {"exact"},
    "canine": {"part"},
    "qwen3_next": {"part"},
    "rwkv": {"refused"},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_recorded_layer_is_the_traced_one(family):
    outcomes = list(recordings.outcomes(family))
    assert {outcome.partition(":")[0].partition(" (")[0] for outcome in outcomes} == FAMILIES[family], (
        outcomes
    )


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_recording_is_found(monkeypatch):
    """Keys of other tokens, and a layer that is left out without a word."""
    settled = Recorder._settled

    def shifted(self, forward, call):
        call.k = call.k.roll(1, dims=1)
        return settled(self, forward, call)

    monkeypatch.setattr(Recorder, "_settled", shifted)
    assert all(outcome.startswith("WRONG") for outcome in recordings.outcomes("gpt2", ((11, 7),)))

    def without_one(self, forward, call):
        return call if call.name.endswith("h.1.attn") else settled(self, forward, call)

    monkeypatch.setattr(Recorder, "_settled", without_one)
    assert all("not named: transformer.h.1.attn" in each for each in recordings.outcomes("gpt2", ((11, 7),)))
