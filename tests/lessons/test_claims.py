"""What the shipped lessons say of their numbers holds for these numbers, in both languages.

A lesson of before heated two layers and said "the scores were the same". The other sentences of lessons say
nothing of numbers, or the key of their question says it, and were read by hand.
"""

from dataclasses import replace

import numpy as np
import pytest

from mha_core.attention.edits import Hide, Output, Weights
from mha_core.lessons.lesson import Screen, shipped
from mha_core.lessons.question import Estimate


def plain(item):
    """The item without the edits of its scene."""
    return replace(item, scene=replace(item.scene, edits=""))


def weights(item):
    layer, head, _ = item.place
    return item.trace.layers[layer].weights(head)


def ratios(item):
    """The largest weight of the row over each weight."""
    return item.row.max() / item.row


def says(item, *edits):
    return item.answer_in(item.tracer(item.scene, edits))[0][0]


def has_the_scores_of_the_plain_scene(item):
    layer, head, _ = item.place
    scores = [
        each.trace.layers[layer].q[head] @ each.trace.layers[layer].k[head].T for each in (item, plain(item))
    ]
    return np.array_equal(*scores)


def keeps_the_order(item):
    return np.array_equal(weights(item).argsort(1), weights(plain(item)).argsort(1))


def takes_the_root_of_ratios(item):
    return np.allclose(ratios(item) ** 2, ratios(plain(item)), rtol=1e-3)


def begins_with_nearly_everything(item):
    return plain(item).row.max() > 0.9


def is_three_above_the_next(item):
    first, second = np.sort(np.log(item.row))[:-3:-1]
    return first == np.log(item.row[item.looked_at]) and abs(first - second - 3) < 0.5


def gives_a_half_and_a_third(item):
    noun, decides = np.sort(item.row)[:-3:-1]
    return 0.4 < noun < 0.5 and 0.28 < decides < 0.38 and item.row[item.looked_at] == decides


def differs_in_few_rows(item):
    other = item.question.pictures(item)
    one, two = map(weights, other)
    return (np.abs(one - two).max(1) > 0.5).sum() <= 2


def answers_as_before_from_more_than_half(item):
    row = item.row * 0.45 / np.delete(item.row, item.looked_at).sum()
    row[item.looked_at] = 0.55
    layer, head, token = item.place
    return says(item, Weights(values=row, heads=head, rows=token, layer=layer)) == says(item)


def stays_whatever_word_is_blocked(item):
    return {says(item, Hide(rows=item.place[2], keys=key)) for key in range(len(item.words))} == {says(item)}


def stays_without_the_head_and_not_without_its_twin(item):
    layer, head, _ = item.place
    alike = [item.trace.layers[layer].weights(one)[item.place[2]].argmax() for one in (head, head + 1)]
    answers = [says(item, Output(heads=one, layer=layer)) for one in (head, head + 1)]
    return alike[0] == alike[1] and answers[0] == says(item) != answers[1]


def looks_away_from_its_answer(item):
    return item.words[int(item.row.argmax())] != says(item)


def gives_nearly_one_weight(item):
    return item.row.max() > 0.95


def gives_every_word_something(item):
    return item.row.max() > 0.5 and item.row.min() > 0


def gives_the_other_noun_a_little(item):
    first, second = np.sort(item.row)[:-3:-1]
    return first > 0.8 and 0.05 < second < 0.2


def has_one_word_that_can_be_blocked(item):
    return [
        key for key in range(len(item.words)) if says(item, Hide(rows=item.place[2], keys=key)) != says(item)
    ] == [item.row.argmax()]


def has_the_row_of_the_other_ending(item):
    other = {"sweet": "hungry", "饿": "甜"}
    (old,) = [word for word in other if word in item.scene.text]
    same = replace(item, scene=replace(item.scene, text=item.scene.text.replace(old, other[old])))
    return np.allclose(item.row, same.row, atol=1e-6)


def keeps_as_much_as_one_shared_head(item):
    kept = [
        Estimate("cache").number(replace(item, scene=replace(item.scene, architecture=one)))
        for one in ("latent", "multi-query")
    ]
    return kept[0] == kept[1] and item.trace.layers[-1].n_kv_heads == 4


def is_as_wide_as_its_input(item):
    layer = item.trace.layers[0]
    return layer.concat().shape[1] == 80 and layer.result().shape == layer.x.shape


def finds_the_noun_with_w_o_alone(item):
    return plain(item).row.max() > 0.9 > 0.6 > item.row[plain(item).row.argmax()]


def changes_by_more_than_one_head_of_the_first_layer(item):
    before, place = item.trace.layers[1], item.place
    edit = next(
        Output(heads=head, layer=0)
        for head in range(4)
        if says(item, Output(heads=head, layer=0)) != says(item)
    )
    after = item.tracer(item.scene, [edit]).layers[1]
    flips = [head for head in range(4) if says(item, Output(heads=head, layer=0)) != says(item)]
    same = np.array_equal(before.projections.w_q, after.projections.w_q)
    return len(flips) > 1 and same and not np.allclose(before.x[place[2]], after.x[place[2]])


def has_equal_heads(item):
    layer, was = item.trace.layers[-1], plain(item).trace.layers[-1]
    alike = all(np.allclose(layer.output(head), was.output(0), atol=1e-5) for head in range(4))
    return alike and was.weights(2)[item.place[2]].argmax() != item.row.argmax()


# The lesson, the number of the screen, words of it, and what they say.
CLAIMS = [
    ("heads", 5, "The other noun gets a little", gives_the_other_noun_a_little),
    ("query-key-value", 2, "no word gets exactly none", gives_every_word_something),
    ("scores-to-weights", 1, "never the order", keeps_the_order),
    ("scores-to-weights", 2, "The scores were the same", has_the_scores_of_the_plain_scene),
    ("scores-to-weights", 3, "gives nearly everything", begins_with_nearly_everything),
    ("scores-to-weights", 3, "the square root of the ratio", takes_the_root_of_ratios),
    ("scores-to-weights", 4, "about 3 larger than the next one", is_three_above_the_next),
    ("several-heads", 1, "about half of it, the word that decides about a third", gives_a_half_and_a_third),
    ("several-heads", 3, "almost every other row is the same", differs_in_few_rows),
    ("order-and-masks", 5, "so the row is the same", has_the_row_of_the_other_ending),
    ("one-number", 4, "Where one weight is nearly 1", gives_nearly_one_weight),
    ("does-a-weight-decide", 1, "more than half is enough", answers_as_before_from_more_than_half),
    ("does-a-weight-decide", 2, "Only one word will do", has_one_word_that_can_be_blocked),
    ("does-a-weight-decide", 3, "a word that is not the noun", looks_away_from_its_answer),
    ("does-a-weight-decide", 4, "no single word can be blocked", stays_whatever_word_is_blocked),
    (
        "does-a-weight-decide",
        5,
        "without the other it stays",
        stays_without_the_head_and_not_without_its_twin,
    ),
    ("what-is-kept", 6, "as small as with one shared head", keeps_as_much_as_one_shared_head),
    ("one-output", 1, "as wide as the input was", is_as_wide_as_its_input),
    ("one-output", 3, "only lie side by side are another language", finds_the_noun_with_w_o_alone),
    ("one-output", 4, "More than one will do", changes_by_more_than_one_head_of_the_first_layer),
    ("one-output", 5, "Equal matrices, equal rows, equal outputs", has_equal_heads),
]


def texts(screen: Screen) -> str:
    return " ".join([screen.ask["en"], screen.notice["en"], *screen.hints["en"]])


@pytest.mark.parametrize(("lesson", "number", "words", "holds"), CLAIMS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_sentence_of_a_lesson_holds(lesson, number, words, holds, language):
    screen = shipped()[lesson].screens[number - 1]
    assert words in texts(screen)
    assert holds(screen.item(language))
