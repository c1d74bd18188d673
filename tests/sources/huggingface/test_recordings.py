"""`mha.record` shows of a family of transformers what a trace shows, and names the rest."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import pytest

from mha_core import LayerTrace

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
    recorded = Recorder.traces

    def plant(wrong: Callable[[LayerTrace], list[LayerTrace]]) -> list[str]:
        def traces(self):
            return [replace(one, layers=tuple(chain(*map(wrong, one.layers)))) for one in recorded.fget(self)]

        monkeypatch.setattr(Recorder, "traces", property(traces))
        return list(recordings.outcomes("gpt2", ((11, 7),)))

    def shifted(layer):
        return [replace(layer, tensors={**layer.tensors, "k": layer.tensors["k"].roll(1, dims=1)})]

    assert all(outcome.startswith("WRONG") for outcome in plant(shifted))
    left_out = plant(lambda layer: [] if layer.name.endswith("h.1.attn") else [layer])
    assert all("not named: transformer.h.1.attn" in outcome for outcome in left_out)
