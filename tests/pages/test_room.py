"""What is still loading has room: about as much as it takes, said before it is drawn."""

import pytest

import mha_core as mha
from pages._kit import room
from pages._kit.room import Room
from pages._kit.state import Scene

LABELS = ("[CLS]", *mha.words(Scene().text).labels)


@pytest.mark.parametrize(
    ("labels", "beside", "expected"),
    [
        (LABELS, 2, Room(143, 214)),  # measured in Chromium, 1440 and 390 pixels wide
        (LABELS, 1, Room(72, 214)),
        (["我", "很", "累"], 2, Room(72, 72)),
        ([*"ab"] * 200, 1, Room(room.STRIP_MOST, room.STRIP_MOST)),
    ],
)
def test_a_strip_has_room_for_its_rows(labels, beside, expected):
    assert room.strip(labels, beside) == expected


def test_a_wide_character_takes_the_room_of_two():
    assert room.strip(["語" * 40] * 3).wide > room.strip(["a" * 40] * 3).wide


def test_a_view_has_room_for_the_longest_sentence_and_on_a_phone_for_all():
    assert room.view([13, 13]) == Room(510, 991)  # measured
    assert room.view([13, 20]).wide - room.view([13, 13]).wide == 7 * room.LINE_ROW
    assert room.view([13, 20]).narrow - room.view([13, 13]).narrow == 7 * room.LINE_ROW
    assert room.view([5000]).wide == room.view([4000]).wide


def test_more_heads_need_more_room():
    assert room.grid(4).wide == room.grid(8).wide < room.grid(16).wide < room.grid(64).wide
    assert room.grid(4).narrow > room.grid(3).narrow


@pytest.mark.parametrize(
    ("counts", "expected"), [([12] * 6, Room(460, 468)), ([12] * 12, Room(712, 612))]
)  # measured
def test_an_overview_has_room_for_its_pictures_and_for_the_words_about_one(counts, expected):
    kept = room.overview(counts)
    assert abs(kept.wide - expected.wide) <= 12
    assert abs(kept.narrow - expected.narrow) <= 12


def test_the_page_keeps_room_for_its_components(opened):
    styles = "".join(str(element.proto) for element in opened().get("html"))
    for key in ("token_strip", "twin_strip", "head_view", "head_grid"):
        assert f".st-key-{key} {{ --room: " in styles


def test_many_layers_have_room_before_they_have_been_measured(opened):
    page = opened(source="random", layers=4)
    styles = "".join(str(element.proto) for element in page.get("html"))
    assert ".st-key-glance:not(:has(.st-key-overview)) { --room: " in styles
    assert ".st-key-overview { --room: " in styles
