"""Facts about a layer: values that compare equal after saving and loading."""

import json

import pytest

from mha_core.traces.facts import Adjustments, Clip, Factor, Facts, LatentProjection, Norm, Rotary

ROTARY, NORM = Rotary("pairs", 6, 4), Norm("RMSNorm", "head")
ALL = [
    Facts(),
    Facts(rotary=ROTARY),
    Facts(rotary=ROTARY, adjustments=Adjustments((NORM, ROTARY), (NORM, ROTARY), (Clip(1.5),))),
    Facts(adjustments=Adjustments(q=(Factor(0.25),))),
    Facts(latent=LatentProjection(8), missing="It says nothing."),
    Facts(latent=LatentProjection(8, 7, 6, 5, 4), bias="It depends on the words."),
    Facts(call=3, by_hand=True, dropout=0.25),
]


@pytest.mark.parametrize("facts", ALL)
def test_facts_are_the_same_when_they_have_been_written_and_read(facts):
    assert Facts.of(json.loads(json.dumps(facts.to_json()))) == facts


def test_files_name_the_adjustments_as_they_always_did_and_no_unknown_facts():
    assert Facts().to_json() == {}
    assert Facts(latent=LatentProjection(8)).to_json() == {"latent": {"kv_rank": 8}}
    adjustments = Adjustments(q=(NORM, ROTARY), k=(Factor(0.5),), v=(Clip(2.0),))
    assert (bool(adjustments), bool(Adjustments(v=(NORM,))), bool(Adjustments())) == (True, True, False)
    assert Facts(rotary=ROTARY, adjustments=adjustments).to_json()["between"] == {
        "q": [{"step": "norm", "kind": "RMSNorm", "over": "head"}, {"step": "rotary"}],
        "k": [{"step": "scale", "by": 0.5}],
        "v": [{"step": "clip", "at": 2.0}],
    }


@pytest.mark.parametrize(
    ("to_json", "error"),
    [
        ({"rotated": True}, TypeError),
        ({"rotary": {"form": "half"}}, TypeError),
        ({"latent": 17}, TypeError),
        ({"between": {"q": [{"step": "fold"}]}}, KeyError),
    ],
)
def test_invalid_facts_are_refused(to_json, error):
    with pytest.raises(error):
        Facts.of(to_json)
