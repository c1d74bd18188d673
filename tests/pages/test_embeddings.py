"""The page Embeddings: the vectors of the weights in use, and sentences about computed facts only."""

import re
from itertools import combinations

import numpy as np
import pytest

from mha_core.analysis.embeddings import agreement, chance, nearest, project, table
from mha_core.sources import mini
from mha_core.sources.random_weights import word_vectors
from mha_core.training.lexicon import lexicon
from pages._kit import compute
from pages._kit.text import literal, signed
from pages.understand._embeddings.words import SHOWN
from tests.pages.conftest import figure, numbers, random_trace

PAGE = "understand/embeddings.py"
GENDER = (("man", "woman"), ("king", "queen"), ("boy", "girl"))


@pytest.fixture(scope="module")
def vectors():
    words, matrix = mini.vectors(mini.model(mini.find("en", "glass-box", 4, 64)))
    return table(words, matrix.numpy())


def points(app, key: str = "words_map") -> dict[str, tuple]:
    """Each word on a map, with its coordinates."""
    found = {}
    for trace in figure(app, key)["data"]:
        if trace["mode"] == "markers" and trace.get("customdata"):
            axes = [numbers(trace[letter]) for letter in "xyz" if letter in trace]
            found |= dict(zip(trace["customdata"], zip(*axes, strict=True), strict=True))
    return found


def written_words(app, key: str = "words_map", *, small: bool = False) -> set[str]:
    """The words of the sentence and of pairs, or those in small letters."""
    [text] = [trace["text"] for trace in figure(app, key)["data"] if "text" in trace["mode"]]
    found = [word for word in text if word.startswith("<b>") != small]
    return {word.removeprefix("<b>").removesuffix("</b>") for word in found}


def test_the_map_has_the_shown_classes_and_the_sentence_where_the_weights_put_them(on_page, vectors):
    app, kinds = on_page(), lexicon().kinds
    along = [word for word in vectors.index if kinds[word] in SHOWN]
    own = {"[CLS]", "the", "animal", "didn't", "cross", "street", "because", "it", "was", "too", "tired", "."}
    found = points(app)
    assert set(found) == {*along, *own}
    expected = project(vectors, axes=2, along=along).points
    for word in ("queen", "bread", "it"):
        np.testing.assert_allclose(found[word], expected.loc[word], rtol=1e-5)
    assert {"it", "animal", "street"} <= written_words(app) <= own  # a word without room has its point alone
    assert len(written_words(app, small=True) & {*along}) > 30
    titles = [figure(app, "words_map")["layout"][f"{axis}axis"]["title"]["text"] for axis in "xy"]
    share = f"{sum(float(re.search(r'[0-9.]+(?=%)', title)[0]) for title in titles):.1f}"
    assert any(f"shows {share}% of the variance" in one.value for one in app.main.markdown)


def test_other_classes_make_another_map_and_three_axes_have_a_third_number(on_page):
    app = on_page(classes="cue", axes="3-D")
    found, kinds = points(app), lexicon().kinds
    assert {len(place) for place in found.values()} == {3}
    assert {len(place) for place in points(app, "pairs_map").values()} == {2}
    cues = {word for word, kind in kinds.items() if kind == "cue"}
    assert {word for word in found if kinds[word] == "cue"} == cues
    assert ("queen" in found, "it" in found) == (False, True)


def test_both_maps_know_which_of_their_words_a_token_is(on_page):
    """Which is lit where the token is pointed at: the browser only looks it up."""
    app = on_page(text="The cat saw the dog.")
    for key in ("words_map", "pairs_map"):
        same = {word: word for word in ("[CLS]", "cat", "saw", "the", "dog", ".")}
        assert figure(app, key)["layout"]["meta"]["words"] == same | {"The": "the"}
    assert {"the", "cat", "dog"} <= written_words(app)


@pytest.mark.parametrize(
    ("link", "word", "near"),
    [({}, "it", ["they", "she", "he"]), ({"token": 3, "word": "tired"}, "tired", None)],
)
def test_the_nearest_words_are_those_of_the_chosen_one_that_are_nearer_than_chance(
    on_page, english, vectors, link, word, near
):
    app = on_page(**link)
    assert english("words.nearest", word=literal(word)) in [heading.value for heading in app.header]
    table, cosine = app.table[0].value, chance(*vectors.shape).nearest
    expected = nearest(vectors, word)
    expected = expected[expected > cosine]
    assert near in (None, [*expected.index])
    assert [*table["word"]] == [literal(near) for near in expected.index]
    assert [*table["cosine"]] == [f"{cosine:.3f}" for cosine in expected]
    assert english("words.by_chance", cosine=f"{cosine:.2f}", count=f"{len(lexicon().known) + 2:,}") in [
        c.value for c in app.caption
    ]


def test_without_words_nearer_than_chance_the_page_says_so(on_page, english, vectors):
    limit = chance(*vectors.shape).nearest
    assert nearest(vectors, "[CLS]").max() < limit
    app = on_page(token=1)
    assert not app.table
    said = english("words.none_nearer", cosine=f"{limit:.2f}", count=f"{len(lexicon().known) + 2:,}")
    assert said in [one.value for one in app.main.markdown]


def test_the_differences_and_their_reading_are_computed_now(on_page, english, vectors, heatmaps):
    app = on_page()
    cosines = agreement(vectors, [("he", "his"), ("she", "her"), ("they", "their"), *GENDER])
    picture = heatmaps(app, "pairs_cosines")["pairs"]
    np.testing.assert_allclose(picture["values"], cosines, atol=1e-5)
    assert (picture["rows"], picture["end"]) == ([*cosines], 1.0)
    values = [cosines.loc[f"{a}→{b}", f"{c}→{d}"] for (a, b), (c, d) in combinations(GENDER, 2)]
    low, high = (signed(end, "z.2f") for end in (min(values), max(values)))
    spread = english("words.cosines_several", low=low, high=high)
    gender = f"**{english('words.relation_gender')}"
    [said] = [m.value for m in app.main.markdown if m.value.startswith(gender)]
    limit = chance(*vectors.shape).pair
    assert spread in said
    assert f"±{limit / len(values) ** 0.5:.2f}" in said  # of a mean of so many
    assert literal("man→woman") in said
    assert len(figure(app, "pairs_map")["layout"]["annotations"]) == 6
    # A relation no better than chance is named last and not drawn.
    [[cosine]] = agreement(vectors, [("walking", "walked"), ("swimming", "swam")]).to_numpy()[:1, 1:]
    assert cosine < limit
    assert not written_words(app, "pairs_map") & {"walking", "walked", "swimming", "swam"}
    *_, last = read = [m.value for m in app.main.markdown if "±" in m.value]
    assert (len(read), "no shared direction" in last, "average" in last) == (3, True, False)
    assert last.startswith(f"**{english('words.relation_tense')}**")


def test_the_page_says_that_random_vectors_mean_nothing(on_page, english):
    app = on_page(source="random", text="How are you?", twin="", d_model=32, seed=5, token=1)
    assert english("words.intro_random", d_model=32, count="20") in [c.value for c in app.caption]
    assert set(points(app)) >= {"how", "are", "you", "?", "queen"}
    assert written_words(app) == {"how", "are", "you", "?"}
    assert "queen" in written_words(app, small=True)
    said = [m.value for m in app.main.markdown if "any agreement is chance" in m.value]
    assert len(said) == 3
    assert not app.multiselect
    assert "pairs_map" not in {one.key for one in app.get("plotly_chart")}
    how, you = word_vectors(("how", "you"), 32, seed=5).numpy()
    assert how @ you / np.linalg.norm(how) / np.linalg.norm(you) < chance(20, 32).nearest
    assert not app.table or "you" not in {*app.table[0].value["word"]}


@pytest.mark.slow
def test_a_chinese_sentence_has_its_own_words_and_pairs(on_page):
    app = on_page(text="小猫没有过马路，因为它太累了。", twin="", token=2)
    assert "小猫" in written_words(app)
    assert written_words(app, "pairs_map") >= {"男人", "女人", "国王", "女王", "男孩", "女孩"}


def test_the_vocabulary_of_a_model_is_cached_once(on_page):
    """Otherwise the sentences of a class would push everything else out of the shared cache."""
    app = on_page(text="The animal was tired.")
    before = compute.caches["results"].bytes
    app.text_area("text").set_value("The street was wide.").run()
    _, matrix = mini.vectors(mini.model(mini.find("en", "glass-box", 4, 64)))
    assert 0 < compute.caches["results"].bytes - before < matrix.nbytes / 2


def test_two_heads_show_the_keys_of_the_sentence(on_page):
    app = on_page(source="random", text="the cat saw the dog", h=8, d_model=16)
    layer = random_trace(text="the cat saw the dog", h=8, d_model=16).layers[0]
    for head in (0, 1):  # of two numbers each: the map has the same distances
        found = np.array([*points(app, f"head_map_{head + 1}").values()])
        assert list(points(app, f"head_map_{head + 1}")) == [*layer.sides.keys.labels]
        keys = layer.k[head]
        apart = [np.linalg.norm(rows[:, None] - rows[None], axis=-1) for rows in (found, keys)]
        np.testing.assert_allclose(*apart, atol=1e-4)
    assert "two_numbers" not in {button.key for button in app.button}
