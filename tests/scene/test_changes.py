"""Changes of What if in a link: they read back the same, and an invalid part is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mha_core as mha
from mha_core.attention.positions import POSITIONS
from mha_core.scene.changes import KINDS, OF_CACHE, change_of, fitting, read, write

MASKS = ("causal", "window:2", "prefix:3", "padding:2")


@pytest.mark.parametrize(
    "part",
    [
        *("cut,from=3-1", "cut,from=1-99999999", "cut,from=-2", "cut,to=2-", "temperature,by=inf"),
        *("divisor,by=0", "divisor,by=1e-320", "mask,mask=diagonal", "mask", "off,layer=1-2"),
        *("swap,from=3", "swap,from=3,to=3", "swap,from=3-4,to=5-6", "swap,layer=1,from=3,to=4"),
        *(
            "evict,to=3",
            "evict,to=3,since=2-4",
            "exchange,from=2,to=5,since=5",
            "exchange,from=2-3,to=1,since=9",
        ),
        *("position", "position,code=braille", "position,layer=1,code=none"),
    ],
)
def test_an_invalid_part_of_a_link_is_refused(part):
    assert read(part) == ((), (part,))


numbers = st.none() | st.integers(1, 60)
ranges = st.tuples(st.integers(1, 60), st.integers(1, 9)).map(lambda ends: range(ends[0], sum(ends) + 1))
values = st.fixed_dictionaries(
    {
        "layer": numbers,
        **dict.fromkeys(("head", "from", "to"), numbers | ranges),
        "mask": st.sampled_from(MASKS),
        "code": st.sampled_from(POSITIONS),
    }
)


@st.composite
def chosen_changes(draw):
    kind, places = draw(st.sampled_from([*KINDS])), draw(values)
    if kind == "cut" and places["from"] is places["to"] is None:
        places["to"] = 1
    if kind == "swap":
        places |= draw(st.sampled_from([{"from": 1, "to": 2}, {"from": 7, "to": 3}]))
    if kind in OF_CACHE:
        places |= {"from": 4, "to": places["to"] or 2, "since": draw(st.integers(5, 60))}
    if kind == "exchange":
        places["to"] = 2
    return change_of(kind, places | {"by": draw(st.floats(0.001, 1e6).map(lambda x: float(f"{x:.6g}")))})


@given(st.lists(chosen_changes(), max_size=70))
def test_changes_read_back_from_a_link(chosen):
    again, refused = read(write(chosen))
    once = tuple(dict.fromkeys(chosen))
    assert again == once[:64]
    assert bool(refused) == (len(once) > 64)


@given(st.text(alphabet="cutofeven,;=layrhdmpbyskiw:0123456789-.xé", max_size=40))
def test_any_text_of_a_link_is_read(link):
    chosen, refused = read(link)
    assert len(chosen) + len(refused) <= link.count(";") + 1
    assert read(write(chosen))[0] == chosen


@pytest.mark.parametrize(
    ("part", "stays"),
    [
        ("cut,from=2,to=3", True),
        ("cut,layer=1,from=2-3", True),
        ("cut,from=2,to=4", False),
        ("cut,to=6", False),  # beyond the end
        ("swap,from=2,to=4", False),
        ("even,from=5", True),
        ("row,layer=1,head=1,from=2,weights=0.5 0.5 0 0 0", False),  # it has a number for each word
        ("exchange,from=1,to=2,since=4", False),
        ("evict,to=2,since=3", True),
        *((part, True) for part in ("even", "off,head=2", "mask,mask=causal", "divisor,by=3", "same")),
    ],
)
def test_a_change_goes_with_the_words_that_it_names(part, stays):
    before, after = (
        mha.from_weights(np.full((1, 1, len(words), len(words)), 1 / len(words)), words).sides
        for words in (["a", "b", "c", "d", "e", "f"], ["a", "b", "c", "x", "e"])
    )
    chosen, _ = read(part)
    assert chosen
    assert fitting(chosen, before, after) == (chosen if stays else ())
