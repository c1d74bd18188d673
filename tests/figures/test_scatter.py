"""Scatter plots: words at their coordinates, written as typed, in distinguishable groups."""

import html

import numpy as np
import pandas as pd
import pytest

from mha_core.figures.scatter import REST_COLOUR, scatter

WORDS = ["cat", "dog", "bread", "the"]
KINDS = pd.Series(["animal", "animal", "food", "rest"], WORDS)


def random_points(axes: int = 2, words=WORDS) -> pd.DataFrame:
    values = np.random.default_rng(3).standard_normal((len(words), axes))
    return pd.DataFrame(values, words, range(1, axes + 1))


def draw(axes: int = 2, words=WORDS, groups=KINDS, **options):
    return scatter(
        random_points(axes, words), axes=[f"axis {i}" for i in range(axes)], groups=groups, **options
    )


def marks(figure) -> dict:
    return {trace.name: trace for trace in figure.data if trace.mode == "markers" and trace.name}


@pytest.mark.parametrize(("axes", "kind"), [(2, "scatter"), (3, "scatter3d")])
def test_every_word_is_where_its_row_says(axes, kind):
    points, seen = random_points(axes), {}
    figure = draw(axes, chosen="bird", arrows=[("cat", "dog")])  # "bird" is no word of these
    assert len(figure.data) == 3  # nothing is written or ringed that was not asked for
    if axes == 2:
        [arrow] = figure.layout.annotations
        assert (arrow.ax, arrow.ay, arrow.x, arrow.y) == (*points.loc["cat"], *points.loc["dog"])
        assert (arrow.axref, arrow.ayref, figure.layout.yaxis.scaleanchor) == ("x", "y", "x")
    space = figure.layout if axes == 2 else figure.layout.scene
    assert axes == 2 or space.aspectmode == "data"
    assert [space[f"{letter}axis"].title.text for letter in "xyz"[:axes]] == [
        f"axis {n}" for n in range(axes)
    ]
    for trace in marks(figure).values():
        assert trace.type == kind
        rows = zip(*(getattr(trace, letter) for letter in "xyz"[:axes]), strict=True)
        seen |= dict(zip(trace.customdata, rows, strict=True))
    assert set(seen) == set(WORDS)
    for word, row in seen.items():
        np.testing.assert_array_equal(row, points.loc[word])


def test_each_group_has_its_own_mark_and_only_the_rest_a_colour_of_its_own():
    by_group = marks(draw(rest="rest"))
    assert [*by_group] == ["animal", "food", "rest"]
    assert by_group["animal"].marker.symbol != by_group["food"].marker.symbol
    assert [by_group[name].marker.color for name in by_group] == [None, None, REST_COLOUR]
    assert [*by_group["animal"].customdata] == ["cat", "dog"]
    for trace in by_group.values():
        assert trace.unselected.marker.opacity == trace.marker.opacity  # a click fades nothing


@pytest.mark.parametrize("axes", [2, 3])
def test_labelled_words_are_written_and_the_chosen_one_is_ringed(axes):
    figure = draw(axes, labelled={"dog", "the"}, chosen="dog")
    if axes == 2:
        [text] = [trace for trace in figure.data if "text" in trace.mode]
        assert [*text.text] == ["<b>dog</b>", "<b>the</b>"]
    else:  # over all points, as no text of a point is
        dog, the = figure.layout.scene.annotations
        assert [dog.text, the.text] == ["<b>dog</b>", "<b>the</b>"]
        assert (dog.x, dog.y, dog.z) == tuple(random_points(3).loc["dog"])
    [ring] = [trace for trace in figure.data if trace.mode == "markers" and not trace.name]
    assert ring.marker.symbol == "circle-open"
    assert ring.x[0] == random_points(axes).loc["dog", 1]


def test_small_words_are_written_where_the_others_leave_room_and_take_none_from_them():
    words = [f"w{i}" for i in range(12)]
    points = pd.DataFrame([[0, 0]] * 11 + [[9, 9]], words, [1, 2], dtype=float)
    options = {"axes": ["a", "b"], "groups": pd.Series("g", words), "labelled": words[4:8]}

    def written(**more) -> dict[str, float]:
        [text] = [trace for trace in scatter(points, **options, **more).data if "text" in trace.mode]
        return dict(zip(text.text, text.textfont.size, strict=True))

    alone, beside = written(), written(small=words)
    assert beside.items() > alone.items()
    assert [*alone] == ["<b>w4</b>", "<b>w5</b>", "<b>w6</b>", "<b>w7</b>"]
    small = {word: size for word, size in beside.items() if word not in alone}
    assert "w11" in small
    assert max(small.values()) < min(alone.values())
    assert len(beside) < 12


def test_words_that_look_like_tags_are_shown_as_typed_and_clicked_as_they_are():
    words = ["<b>", "a&b", "x"]
    figure = draw(words=words, groups=pd.Series("<i>", words), labelled=words, chosen="<b>")
    [trace] = marks(figure).values()
    assert [html.unescape(text) for text in trace.text] == words
    assert "<b>" not in [*trace.text]
    assert trace.name == "&lt;i&gt;"
    assert "<i>" not in trace.hovertemplate
    assert [*trace.customdata] == words
    [text] = [trace for trace in figure.data if "text" in trace.mode]
    assert text.text[0] == "<b>&lt;b&gt;</b>"


def test_a_word_without_room_is_left_out_and_the_chosen_one_never():
    words = [f"w{i}" for i in range(12)]
    points = pd.DataFrame(np.zeros((12, 2)), words, [1, 2])
    figure = scatter(points, axes=["a", "b"], groups=pd.Series("g", words), labelled=words, chosen="w11")
    [text] = [trace for trace in figure.data if "text" in trace.mode]
    assert len({*text.textposition}) == len(text.text) < 12
    assert text.text[0] == "<b>w11</b>"


def test_words_are_written_where_they_have_room_in_every_width():
    words = [f"a long word {i}" for i in range(12)]
    points = pd.DataFrame([[i % 4, i // 4] for i in range(12)], words, [1, 2], dtype=float)

    def written(*widths: int) -> int:
        options = {"axes": ["a", "b"], "groups": pd.Series("g", words), "labelled": words}
        return len(scatter(points, **options, widths=widths).data[-1].text)

    assert written(600) == 12
    assert 3 <= written(60) < 12
    assert written(600, 60) <= written(60)


def test_chinese_words_get_the_room_that_their_characters_take():
    def sides(*words: str) -> set[str]:
        # 30 pixels apart three letters fit beside each other, three characters do not.
        points = pd.DataFrame([[0, 0], [0.3, 0], [6, 1]], [*words, "end"], [1, 2], dtype=float)
        figure = scatter(
            points, axes=["a", "b"], groups=pd.Series("g", points.index), labelled=words, widths=[660]
        )
        return {*figure.data[-1].textposition}

    assert sides("one", "two") == {"top center"}
    assert len(sides("中学生", "加油站")) == 2
