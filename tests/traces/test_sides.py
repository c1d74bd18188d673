"""The two texts of a layer, of its queries and of its keys, in a trace and its parts."""

from dataclasses import replace

import pytest

import mha_core as mha
from tests.traces.conftest import SIDES, TARGET, TEXT


def test_each_kind_has_the_tokens_that_look_and_those_that_are_looked_at(translation, known_by_weights):
    assert {layer.kind: layer.sides for layer in translation.layers} == SIDES
    assert [layer.sides.same for layer in translation.layers] == [True, True, True, False]
    assert translation.sides == SIDES["encoder"]
    assert translation.kinds == ("encoder", "decoder", "cross")
    assert known_by_weights.part("self") is known_by_weights  # the only kind


@pytest.mark.parametrize("kind", SIDES)
def test_a_part_has_the_layers_of_its_kind_and_their_tokens(translation, kind):
    part = translation.part(kind)
    assert [layer.name for layer in part.layers] == [
        layer.name for layer in translation.layers if layer.kind == kind
    ]
    assert part.sides == SIDES[kind]
    assert part.kinds == (("cross",) if kind == "cross" else ("self",))
    assert part.tokens is part.sides.queries


def test_answers_stay_with_the_text_that_they_are_about(by_kind):
    answers = ((("cat", 0.9),),) + (None,) * (len(TARGET) - 1)
    layers = (by_kind("encoder"), by_kind("decoder"), by_kind("cross"))
    trace = mha.AttentionTrace(TEXT, layers, {"name": "by hand"}, answers)
    assert trace.answered is TARGET
    assert trace.part("encoder").answers == ()
    assert trace.part("decoder").answers == answers
    assert trace.part("cross").answers == answers
    alone = mha.AttentionTrace(TEXT, layers[:1], {"name": "by hand"}, answers[:1] * len(TEXT))
    assert alone.part("encoder").answers == answers[:1] * len(TEXT)


def test_values_that_do_not_fit_are_refused(by_kind, translation, refused):
    cross = by_kind("cross")

    def told(**changed) -> str:
        return str(refused(mha.AttentionTrace, TEXT, (replace(cross, **changed),), "by hand"))

    assert "sides=Sides(queries, keys)" in told(sides=None)
    assert "7 tokens that look at 5" in told(sides=mha.Sides(TEXT, TARGET))
    assert "kind cross has one text" in told(sides=SIDES["encoder"])
    assert "kind encoder has two texts" in told(kind="encoder")
    assert "sideways" in told(kind="sideways")
    assert "cross" in told(kind="sideways")
    assert "encoder" in str(refused(translation.part, "self"))
