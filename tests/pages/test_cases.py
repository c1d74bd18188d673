"""The gallery: every case opens as its link says, and the claim of its card holds there."""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, urljoin, urlsplit
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import mha_core as mha
from mha_core.analysis.derivation import STEPS, steps
from mha_core.analysis.embeddings import RELATIONS, agreement, chance, table, verdict
from mha_core.analysis.explanation import symbolic_scores
from mha_core.analysis.head_count import PUBLISHED
from mha_core.analysis.roles import labels, shipped
from mha_core.scene.page import HOME, parts
from mha_core.scene.places import indices
from mha_core.scene.scene import DEFAULTS, Scene
from mha_core.sources import mini
from pages._kit.cases import cases
from pages._kit.text import number, t
from pages.learn._cases.pictures import picture
from tests.pages.conftest import FILES, refused_by_link, texts

CASES = {case.name: case for case in cases()}
SVG = "{http://www.w3.org/2000/svg}"


@dataclass
class OpenedCase:
    """What a link has opened, read from the app's state and from the page."""

    app: AppTest
    heatmaps: Callable
    scene: Scene  # as the link says
    section: str
    notice: str  # of the card

    def trace(self, text: str | None = None, **other) -> mha.AttentionTrace:
        """The trace of the scene or of another text, without the changes."""
        return mha.trace(**self.scene.settings(text), **other)

    def place(self, trace: mha.AttentionTrace) -> tuple[mha.LayerTrace, int, int]:
        """The layer, the head and the token in focus."""
        layer, head, token = indices(trace, self.scene.focus)
        return trace.layers[layer], head, token

    @property
    def heads(self) -> list[int]:
        """The heads that are drawn, from 1."""
        return [int(head) for head in self.scene.focus.heads.split(",") if head]

    def row(self, trace: mha.AttentionTrace, head: int | None = None) -> pd.Series:
        """The row of the token in focus by words, of the head in focus or of another one, from 1."""
        layer, chosen, token = self.place(trace)
        weights = layer.weights(chosen if head is None else head - 1, rows=[token])[0]
        return pd.Series(weights, trace.tokens.labels)

    @property
    def step(self) -> str:
        """The step that the page Steps shows."""
        [style] = [h.body for h in self.app.get("html") if "st-key-step-" in h.body]
        [shown] = [step.__name__ for step in STEPS if f"st-key-step-{step.__name__} " in style]
        return shown

    def opens_at(self, section: str) -> bool:
        return self.section == section and section in [heading.proto.anchor for heading in self.app.header]

    def table(self, column: str) -> dict[str, list[str]]:
        """The table with a column of that name."""
        return next(one.value for one in self.app.table if t(column) in one.value).to_dict("list")


@pytest.fixture
def opened(opened_on, heatmaps):
    """`opened("masks")`: what the link of a case opens."""

    def open_(name: str) -> OpenedCase:
        path, query, section = urlsplit(CASES[name].address)[2:]
        app = opened_on(FILES[path.removeprefix("./") or HOME], **dict(parse_qsl(query)))
        assert not [*app.error, *refused_by_link(app)]
        notice = t(f"case.{name}.notice")
        return OpenedCase(app, lambda key: heatmaps(app, key), CASES[name].scene, section, notice)

    return open_


def drawn_shapes(opened: OpenedCase) -> dict[str, str]:
    """The labels below the rectangles on the page Cost."""
    [html] = [h.body for h in opened.app.get("html") if 'class="tensors"' in h.body]
    pairs = re.findall(r"<figcaption><b>(.*?)</b><span>(.*?)</span>", html)
    return {re.sub(r"<sup>(.*)</sup>", r"^\1", symbol): shape for symbol, shape in pairs}


def base(opened: OpenedCase) -> None:
    shown, held = drawn_shapes(opened), opened.app.session_state
    assert (shown["X"], shown["Q"], shown["K"], shown["V"]) == ("10 × 512", *["8 × 10 × 64"] * 3)
    assert mha.AttentionSpec(held["cost_d_model"], 4).d_k == 128


def widths(opened: OpenedCase) -> None:
    shapes = {"X": "2 × 512", "Q": "8 × 2 × 64", "K": "8 × 2 × 64", "S": "8 × 2 × 2", "A": "8 × 2 × 2"}
    shapes |= {"V": "8 × 2 × 100", "headᵢ": "8 × 2 × 100", "concat": "2 × 800", "W^O": "800 × 512"}
    shapes |= {"Z": "2 × 512"}
    assert shapes.items() <= drawn_shapes(opened).items()


def pronoun(opened: OpenedCase) -> None:
    assert (opened.scene.focus.token, opened.heads) == ("it", [1, 6])
    sentences = ((opened.scene.text, "animal", "tired"), (opened.scene.twin, "street", "wide"))
    for text, noun, cue in sentences:
        trace = opened.trace(text)
        asked = trace.source.questions
        assert asked[:1] + asked[5:6] == ("noun", "decider")
        assert [opened.row(trace, head).idxmax() for head in (1, 6)] == [noun, cue]


def mixture(opened: OpenedCase) -> None:
    assert opened.opens_at("mixture")
    trace = opened.trace()
    _, head, token = opened.place(trace)
    assert f"head {head + 1}" in opened.notice
    row = opened.row(trace)
    assert row.index[token] == "booked"
    assert (row.idxmax(), row.max() > 0.5) == ("room", True)
    sentence = re.sub("[\u2060\\\\*]", "", " ".join(texts(opened.app))).replace("\xa0", " ")
    assert f"booked = {number(row.max())} · room + " in sentence


def symbols(opened: OpenedCase) -> None:
    assert opened.step == "scores"
    trace = opened.trace()
    written = symbolic_scores(opened.place(trace)[0])
    assert written in [formula.value.strip("$\n") for formula in opened.app.latex]
    assert len(re.findall(r"humpty.{,20}\\cdot.{,20}dumpty", written)) >= 1


def one_head(opened: OpenedCase) -> None:
    [layer] = opened.scene.trace().layers
    assert layer.n_heads == 1
    np.testing.assert_array_equal(layer.result(), layer.output(head=0))
    shown = opened.heatmaps("what-if-z")
    assert [*shown] == ["output", "result"]
    assert shown["output"]["end"] == shown["result"]["end"]
    np.testing.assert_array_equal(shown["output"]["values"], shown["result"]["values"])


def equal_cost(opened: OpenedCase) -> None:
    assert opened.opens_at("by-heads")
    shown = opened.table("cost.column_h")
    assert shown[t("cost.column_h")] == ["1", "2", "4", "8", "16", "32"]
    assert len({*shown[t("cost.parameters")]}) == len({*shown[t("cost.flops")]}) == 1


def published(opened: OpenedCase) -> None:
    assert t("head_counts.published") in [heading.value for heading in opened.app.header]
    bleu = PUBLISHED["bleu"]
    assert bleu.idxmin() == 1
    assert bleu[32] < bleu.max()


def every_pair(opened: OpenedCase) -> None:
    assert opened.scene.focus.drawing == "matrix"
    trace = opened.trace()
    layer, head, _ = opened.place(trace)
    assert trace.tokens.labels == ("How", "are", "you", "?")
    assert layer.weights(head).shape == (4, 4)
    assert (layer.weights(head) > 0).all()


def search(opened: OpenedCase) -> None:
    assert opened.opens_at("search")
    trace = opened.trace()
    _, head, token = opened.place(trace)
    assert trace.tokens.labels[token] == "it"
    assert f"head {head + 1}" in opened.notice


def relations(opened: OpenedCase) -> None:
    scene, roles = opened.scene, labels(shipped(mini.find("en", "glass-box", 8, 64)))
    named = {roles.get((scene.focus.layer - 1, head - 1), ("", 0))[0]: head for head in opened.heads}
    assert {*named} == {"previous token", "next token", "pronoun to cue"}
    assert {int(head) for head in re.findall(r"head (\d+)", opened.notice)} == {*named.values()}
    assert scene.focus.head == named["pronoun to cue"]
    assert scene.focus.token == "it"
    for text, cue in ((scene.text, "tired"), (scene.twin, "wide")):
        trace = opened.trace(text)
        _, _, it = opened.place(trace)
        before, _, after = trace.tokens.labels[it - 1 : it + 2]
        for role, word in (("previous token", before), ("next token", after), ("pronoun to cue", cue)):
            assert opened.row(trace, named[role]).idxmax() == word
            assert f"head {named[role]}" in opened.notice


def stacking(opened: OpenedCase) -> None:
    assert opened.step == "project"
    layer, head, _ = indices(opened.trace(), opened.scene.focus)
    project = steps(opened.trace(), layer=layer, head=head)[0]
    assert layer == 1
    assert "stacked" in project.notes
    assert project.facts["gap"] <= 1e-6
    assert t("steps.project.stacked", previous=1, gap="0") in " ".join(texts(opened.app))


def learned(opened: OpenedCase) -> None:
    assert opened.scene.against == ""  # the weights before training
    before, after = (opened.row(opened.trace(trained=trained)) for trained in (False, True))
    assert before.max() < 0.4
    assert (after.idxmax(), after.max() > 0.5) == ("animal", True)
    assert opened.scene.focus.token == "it"


def masks(opened: OpenedCase) -> None:
    assert opened.opens_at("matrices")
    before, after = opened.trace(), opened.scene.trace()
    layer, head, token = opened.place(after)
    assert opened.scene.focus.drawing == "matrix"
    assert after.tokens.labels[token] == "are"
    later = np.triu(np.ones((4, 4), bool), 1)
    np.testing.assert_array_equal(opened.place(before)[0].allowed(head), ~later)
    assert not layer.allowed(head)[:, -1].any()  # padding
    assert (layer.weights(head)[token] == 0).all()
    assert (layer.output(head)[token] == 0).all()
    assert (layer.output(head)[token + 1] != 0).any()


def latent(opened: OpenedCase) -> None:
    assert opened.opens_at("sharing")
    shown = opened.table("cost.column_kept")
    kept = dict(zip(shown[t("cost.column_kind")], shown[t("cost.column_kept")], strict=True))
    assert (kept["MLA"], kept["MHA"]) == ("256\xa0+\xa032", "8\xa0×\xa0(64\xa0+\xa064)")
    assert all(kind in kept for kind in ("GQA", "MQA"))


def words(opened: OpenedCase) -> None:
    assert opened.opens_at("relations")
    model = mini.model(mini.find("en", opened.scene.architecture, opened.scene.h, opened.scene.d_model))
    vocabulary, matrix = mini.vectors(model)
    vectors, limit = table(vocabulary, matrix.numpy()), chance(*matrix.shape).pair
    says = {"possession": "all", "gender": "all", "tense": "none"}
    for relation, pairs in RELATIONS["en"].items():
        cosines = agreement(vectors, pairs).to_numpy()
        above = cosines[np.triu_indices(len(pairs), 1)]
        assert verdict(above, limit) == says[relation]
        assert t(f"words.relation_{relation}") in " ".join(texts(opened.app))
        words = re.sub(r"\*", "", opened.notice)
        assert [pair for pair in pairs if f"{pair[0]} to {pair[1]}" not in words] == []


def chinese(opened: OpenedCase) -> None:
    assert opened.scene.focus.token == "它"
    assert (opened.heads, "Head 1" in opened.notice, "Head 2" in opened.notice) == ([1, 2], True, True)
    sentences = ((opened.scene.text, "动物", "累"), (opened.scene.twin, "马路", "宽"))
    for text, noun, cue in sentences:
        trace = opened.trace(text)
        rows = [opened.row(trace, head) for head in opened.heads]
        assert [(row.idxmax(), row.max() > 0.5) for row in rows] == [(noun, True), (cue, True)]


FACTS: dict[str, Callable[[OpenedCase], None]] = {
    fact.__name__: fact
    for fact in (
        *(base, widths, pronoun, mixture, symbols, one_head, equal_cost, published, every_pair, search),
        *(relations, stacking, learned, masks, latent, words, chinese),
    )
}


def test_there_are_seventeen_cases_and_each_has_its_fact():
    assert len(CASES) == 17
    assert CASES.keys() == FACTS.keys()


@pytest.mark.parametrize("name", FACTS)
def test_the_claim_of_each_card_holds_for_its_link(opened, name):
    FACTS[name](opened(name))


def test_no_link_names_a_default():
    """Streamlit would take it out of the address, and Back would find the address with it."""
    start = vars(DEFAULTS)
    for case in CASES.values():
        values = parts(case.link).values.items()
        assert [name for name, value in values if value == str(start.get(name))] == []


def test_the_page_has_a_card_for_each_with_its_picture_and_its_link(opened_on, english):
    app = opened_on("learn/cases.py")
    links = re.findall(r"\]\((\./[^)]*)\)", " ".join(one.value for one in app.main.header))
    assert len(links) == len(CASES)
    for address, case in zip(links, CASES.values(), strict=True):
        assert Scene.of_link(urljoin("http://localhost:8501/cases", address)).scene == case.scene
    assert app.main.header[0].value == f"1. [{english('case.base.title')}](./cost?case=1)"
    pictures = [html.body for html in app.main.get("html") if "<img" in html.body]
    assert [body.split('"')[1].replace("&amp;", "&") for body in pictures] == links
    assert len({*pictures}) == len(CASES)


def test_the_pictures_are_in_the_language_of_the_page_whoever_opened_it_first(opened_on):
    for language in ("zh", "en"):
        bodies = [html.body for html in opened_on("learn/cases.py", lang=language).main.get("html")]
        pictures = [body for body in bodies if "<img" in body]
        body = pictures[CASES["pronoun"].number - 1]
        svg = base64.b64decode(re.search('base64,([^"]*)', body)[1]).decode()
        assert ("动物" in svg) is (language == "zh")


def drawn(name: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture(CASES[name]))


def shades(svg: ElementTree.Element, scale: str) -> list[int]:
    """The shades of the cells, in their order."""
    of = [rect.get("class", "") for rect in svg.iter(f"{SVG}rect")]
    return [int(shade[1:]) for shade in of if re.fullmatch(rf"{scale}\d", shade)]


@pytest.mark.parametrize("name", CASES)
def test_a_picture_is_valid_svg_with_all_its_parts(name):
    svg = drawn(name)
    _, _, wide, tall = map(float, svg.get("viewBox").split())
    for rect in svg.iter(f"{SVG}rect"):
        x, y, width, height = (float(rect.get(side)) for side in ("x", "y", "width", "height"))
        assert min(x, y) >= 0
        assert x + width <= wide + 1
        assert y + height <= tall
    assert len([*svg.iter()]) > 8


def test_a_picture_has_the_numbers_of_its_scene():
    [layer] = CASES["every_pair"].scene.trace().layers
    assert shades(drawn("every_pair"), "s") == [round(9 * w) for w in layer.weights(0).ravel().tolist()]
    [layer] = CASES["one_head"].scene.trace().layers
    both = shades(drawn("one_head"), "d")
    assert both[: len(both) // 2] == both[len(both) // 2 :]
    assert len(both) == 2 * layer.result().size


def test_the_page_names_its_case_and_links_to_the_neighbours(opened_on, component, english):
    case = CASES["relations"]
    texts = {}  # the first case has none before it, and the last one none after it
    for nth in (1, 17):
        beside = component(opened_on("understand/cost.py", case=nth), "case")["beside"]
        texts[nth] = [one["text"] for one in beside]
    assert texts == {1: ["next ›"], 17: ["‹ previous"]}
    app = opened_on(FILES[HOME], case=11, **parts(case.link).values)
    said = component(app, "case")
    assert said["place"] == "Case 11 of 17"
    assert "".join(said["title"]) == english("case.relations.title")
    assert "".join(said["notice"]) == english("case.relations.notice").replace("*", "")
    assert [one["href"] for one in said["beside"]] == [CASES[n].address for n in ("search", "stacking")]
    app.number_input(key="h").set_value(4).run()  # while one explores
    assert component(app, "case")["place"] == "Case 11 of 17"
