"""The shipped weights can be made again: the documented command gives the manifest's scores."""

import json

import pytest

from mha_core.training import checkpoints
from mha_core.training.__main__ import main

# One of the smallest, which all have d_model 32 and as many parameters. It takes a few minutes.
SMALLEST = "glass-box-en-h4-d32"
# 20,000 steps carry every difference in rounding on, between machines and releases of torch: shares of
# right answers agree within this, mean weights within that.
SHARES, WEIGHTS = 0.02, 0.08


def test_no_shipped_model_is_smaller():
    sizes = {name: entry["parameters"] for name, entry in checkpoints.manifest().items()}
    assert sizes[SMALLEST] == min(sizes.values())


@pytest.mark.slow
def test_the_documented_command_gives_the_scores_of_the_manifest(tmp_path, capsys):
    main([SMALLEST, "--out", str(tmp_path)])
    capsys.readouterr()
    made = json.loads((tmp_path / checkpoints.MANIFEST).read_text(encoding="utf-8"))[SMALLEST]["scores"]
    told = checkpoints.manifest()[SMALLEST]["scores"]
    for key in ("answer", "accuracy", "both", "agreement"):
        assert made[key] == pytest.approx(told[key], abs=SHARES if key != "agreement" else 0.05), key
    for key in ("right", "wrong"):
        assert made[key] == pytest.approx(told[key], abs=WEIGHTS), key
    assert made["famous_right"] == told["famous_right"]
