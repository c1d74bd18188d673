"""The other side of Compare, read from its link among what is offered."""

import pytest

from mha_core.scene.link import HEAD, MODEL, TWIN, UNTRAINED, Other

OFFERED = {UNTRAINED: [""], HEAD: ["2", "3"], TWIN: [""], MODEL: ["a/b:c"]}


@pytest.mark.parametrize(
    "other", [Other(UNTRAINED), Other(HEAD, "3"), Other(TWIN), Other(MODEL, "a/b:c")], ids=Other.link
)
def test_an_offered_other_side_reads_back_from_its_link(other):
    assert Other.of_link(other.link(), OFFERED) == (other, False)


@pytest.mark.parametrize(
    ("link", "taken", "wrong"),
    [
        ("", Other(UNTRAINED), False),
        ("head", Other(HEAD, "2"), False),
        ("head:9", Other(HEAD, "2"), True),
        ("nonsense", Other(UNTRAINED), True),
    ],
)
def test_an_unavailable_other_side_becomes_the_first_offer(link, taken, wrong):
    assert Other.of_link(link, OFFERED) == (taken, wrong)


def test_the_second_sentence_is_never_the_first_offer():
    assert Other.of_link("", {TWIN: [""]}) == (None, False)
