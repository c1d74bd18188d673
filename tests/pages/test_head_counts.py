"""The view How many heads: the manifest's numbers, without the missing ones, and true sentences."""

import pytest

from mha_core.analysis.head_count import PUBLISHED
from mha_core.sources import mini
from mha_core.training import checkpoints, evaluation
from tests.pages.conftest import figure

ACCURACY = {1: 0.5, 2: 0.98, 4: 1.0, 8: 0.99}


def entry(h: int, d_model: int = 64, **scores) -> dict:
    plan = {"architecture": "glass-box", "language": "en", "h": h, "d_model": d_model, "seed": 7}
    known = {"accuracy": ACCURACY.get(h, 0.9), "right": 0.8, "answer": 0.95, "shapes": 0.91, "resolving": 1}
    rights = {"noun": 0.98, "doer": 0.5 if h < 4 else 0.97, **({"after": 0.99} if h > 4 else {})}
    known["questions"] = {name: {"right": right} for name, right in rights.items()}
    return {"plan": plan, "scores": known | scores, "parameters": 163306, "cpu_seconds": 60 + h}


@pytest.fixture
def shipped_models(monkeypatch):
    """`shipped_models([entries])`: the entries of the manifest in this test."""

    def say(entries: list[dict]) -> None:
        monkeypatch.setattr(checkpoints, "manifest", lambda: {str(i): e for i, e in enumerate(entries)})

    say([entry(h) for h in ACCURACY])
    return say


@pytest.fixture
def open_head_counts(opened_on, shipped_models):
    def open_(entries: list[dict] | None = None, **link):
        if entries is not None:
            shipped_models(entries)
        return opened_on("learn/train.py?train_view=heads", **link)

    return open_


def sentences(app) -> list[str]:
    return [markdown.value for markdown in app.main.markdown]


@pytest.mark.slow
def test_figures_tables_and_sentences_have_the_numbers_of_the_models(open_head_counts, english):
    app = open_head_counts(text="How are you?", twin="")
    assert [line["name"] for line in figure(app, "sweep_measured")["data"]] == [
        english(f"head_counts.column_{column}") for column in ("answer", "shapes", "right")
    ]
    assert len(figure(app, "sweep_published")["data"]) == 1
    questions, ours, papers = (table.value for table in app.table)
    assert [h[1] for h in ours["h"]] == ["1", "2", "4", "8"]
    assert [*ours["h"]][1] == "[2](./?h=2&text=How+are+you%3F&twin=)"
    assert [*ours["best head"]] == ["50.0%", "98.0%", "100.0%", "99.0%"]
    assert [*ours["new shapes"]] == ["91.0%"] * 4
    assert [*ours["find it"]] == ["1 of 1", "1 of 2", "1 of 4", "1 of 8"]
    questions = questions.set_index("question")
    assert [*questions] == [english("head_counts.with_h", h=h) for h in ACCURACY]
    assert [*questions.loc[english("head_view.question_doer")]] == ["50%", "50%", "97%", "97%"]
    assert [*questions.loc[english("head_view.question_after")]] == ["–", "–", "–", "99%"]
    assert [*papers["BLEU"]] == [f"{bleu:.1f}" for bleu in PUBLISHED["bleu"]]
    assert english("head_counts.source") in [caption.value for caption in app.caption]
    said = sentences(app)
    assert (
        english("head_counts.best_uneven", maximum="100.0", maximum_at="4", minimum="50.0", minimum_at="1")
        in said
    )
    assert english("head_counts.one_coin", one="50.0", several=2, maximum="100.0", minimum="98.0") in said
    counts = {1: (1, 2), 2: (1, 2), 4: (2, 2), 8: (3, 3)}
    items = [english("head_counts.answered_item", count=n, asked=of, h=h) for h, (n, of) in counts.items()]
    assert english("head_counts.answered", share="95", list=", ".join(items)) in said
    assert english("head_counts.cost", parameters="163,306") in said
    assert english("head_counts.seed", seed="7") in said
    paper = {"maximum": 25.8, "maximum_at": "8, 16", "minimum": 24.9, "minimum_at": "1", "gap": "0.9"}
    assert english("head_counts.paper", **paper) in said


@pytest.mark.slow
def test_other_numbers_make_other_sentences(open_head_counts, english):
    entries = [entry(h, accuracy=0.9) for h in (1, 2, 4, 8)]
    entries[1] |= {"parameters": 5, "cpu_seconds": None}
    app = open_head_counts(entries)
    assert [*app.table[1].value["CPU s"]] == ["61", "", "64", "68"]
    said = sentences(app)
    assert english("head_counts.best_even", maximum="90.0") in said
    assert english("head_counts.one_able", one="90.0", maximum="90.0", minimum="90.0") in said
    assert not [words for words in said if "does not change" in words]
    said = sentences(open_head_counts([entry(h) for h in (2, 4, 8, 16)]))
    assert not [words for words in said if "h\xa0=\xa01 it is" in words]


def test_a_width_can_be_chosen_where_there_are_several(open_head_counts, english):
    entries = [entry(h, d_model) for h in ACCURACY for d_model in (32, 64)] + [entry(2, 128)]
    app = open_head_counts(entries)
    assert english("head_counts.measured", d_model=64) in [heading.value for heading in app.header]
    app = open_head_counts(entries, width="32")
    assert english("head_counts.measured", d_model=32) in [heading.value for heading in app.header]
    assert [*app.table[1].value["d_k"]] == ["32", "16", "8", "4"]


def test_what_one_head_decides_is_measured_and_drawn(open_head_counts, english):
    app = open_head_counts()
    text = " ".join(one.value for one in app.markdown)
    assert "Blocked in **all heads**, " in text
    by_h = [
        evaluation.blocking_effects(mini.model(mini.find("en", "glass-box", h, 64)).model, count=10)[
            "best_head"
        ]
        for h in (2, 8)
    ]
    assert f"{100 * by_h[0]:.0f}% with h\xa0=\xa02 and {100 * by_h[1]:.0f}% with h\xa0=\xa08" in text
    assert (english("head_counts.cuts_follows") in text) == (by_h[0] > 0.5 > by_h[1])
    assert not (english("head_counts.cuts_decides") in text and min(by_h) < 0.5)
