"""The drawing of shared keys and values: every head has a line to the key/value head it uses."""

import pytest

from mha_core.figures.grouped_query import COLOURS, HALF, KEY, QUERY, grouped_query, latent

WORDS = {"queries": "<b>query", "keys": "key & value"}


def hover_texts(count: int) -> list[str]:
    return [f"<i>{head}" for head in range(count)]


def lines(figure, count: int):
    """Of each head the ends of its lines, (x above, x below)."""
    ends = []
    for trace in figure.data[:count]:
        assert set(trace.y[::3]) == {QUERY}
        assert set(trace.y[1::3]) == {KEY + HALF}
        assert set(trace.x[2::3]) == {None}
        ends.append(list(zip(trace.x[::3], trace.x[1::3], strict=True)))
    return ends


@pytest.mark.parametrize(
    ("of", "below"),
    [([0, 1, 2], [0, 1, 2]), ([0, 0, 1, 1], [0.5, 2.5]), ([0, 0, 0], [1])],
    ids=["MHA", "GQA", "MQA"],
)
def test_each_head_has_a_line_to_the_middle_of_its_group(of, below):
    figure = grouped_query(of, hover=hover_texts(len(of)), **WORDS)
    assert lines(figure, len(of)) == [[(head, below[kv])] for head, kv in enumerate(of)]
    squares = figure.data[-1]
    assert (list(squares.x), list(squares.text)) == (below, [str(kv + 1) for kv in range(len(below))])
    assert len(figure.data) == len(of) + 1


def test_colours_repeat_with_other_dashes():
    figure = grouped_query([head // 4 for head in range(24)], hover=hover_texts(24), **WORDS)
    looks = [(trace.line.color, trace.line.dash) for trace in figure.data[:24]]
    assert looks[:2] == [("#000001", "solid"), ("#000002", "solid")]
    assert looks[COLOURS] == ("#000001", "dash")
    assert len(set(looks)) == 24
    named = [trace.text[0] for trace in figure.data[:24] if trace.text[0]]
    assert named == ["1", "4", "8", "12", "16", "20", "24"]
    assert figure.data[0].hovertemplate == "&lt;i&gt;0<extra></extra>"  # texts are no markup
    assert {note.text for note in figure.layout.annotations} == {"&lt;b&gt;query", "key &amp; value"}


def test_in_latent_attention_all_heads_use_both_cached_vectors():
    figure = latent(4, [(30, "short"), (10, "<position>")], hover=hover_texts(4), **WORDS)
    short, position = figure.data[4:]
    widths = [max(bar.x) - min(bar.x) for bar in (short, position)]
    assert widths[0] == pytest.approx(3 * widths[1])
    assert max(short.x) == min(position.x)
    middles = [(max(bar.x) + min(bar.x)) / 2 for bar in (short, position)]
    for head, ends in enumerate(lines(figure, 4)):
        assert ends == [(head, pytest.approx(middles[0])), (head, pytest.approx(middles[1]))]
    assert position.name == "&lt;position&gt;"
    assert {"30", "10"} <= {note.text for note in figure.layout.annotations}
