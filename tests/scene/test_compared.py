"""The other side of Compare, read from its link among what is offered."""

import pytest

from mha_core.scene.link import HEAD, MODEL, TWIN, UNTRAINED, Other

OFFERED = {UNTRAINED: [""], HEAD: ["2", "3"], TWIN: [""], MODEL: ["a/b:c"]}


@pytest.mark.parametrize(
    ("link", "offered", "taken", "wrong"),
    [
        *((one.link(), OFFERED, one, False) for one in (Other(UNTRAINED), Other(HEAD, "3"), Other(TWIN))),
        (Other(MODEL, "a/b:c").link(), OFFERED, Other(MODEL, "a/b:c"), False),
        ("", OFFERED, Other(UNTRAINED), False),
        ("head", OFFERED, Other(HEAD, "2"), False),
        ("head:9", OFFERED, Other(HEAD, "2"), True),
        ("nonsense", OFFERED, Other(UNTRAINED), True),
        ("", {TWIN: [""]}, None, False),  # the second sentence is never the first offer
    ],
)
def test_an_other_side_reads_back_from_its_link_or_becomes_the_first_offer(link, offered, taken, wrong):
    assert Other.of_link(link, offered) == (taken, wrong)
