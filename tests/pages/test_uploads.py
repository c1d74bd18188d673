"""A saved trace opens in the app and is shown on every page; missing parts are named as unknown."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core import resources
from mha_core.traces.source import ArraySource, FileSource
from mha_core.traces.tokens import Sides
from pages._kit import refusals, uploads
from pages._kit.answers import in_words
from pages._kit.text import isolated, literal
from tests.pages.conftest import PAGES, codes, go_to, infos, refused_by_link

pytestmark = pytest.mark.slow

TEXT = ["<s>", "Die", "*alte*", "Katze", "שלום", "動", "</s>"]  # 7
TARGET = ["the", "old", "cat", "saw", "it"]  # 5


def content(trace, path) -> bytes:
    trace.save(path)
    return path.read_bytes()


def tensors_file(seed=0, tokens=TEXT, keys=None, layers=2):
    draw = torch.Generator().manual_seed(seed)
    n_key = len(tokens if keys is None else keys)
    q, k, v = (torch.randn(layers, 3, n, 5, generator=draw) for n in (len(tokens), n_key, n_key))
    return mha.from_tensors(q=q, k=k, v=v, tokens=tokens, keys=keys, source={"name": "my *model*", "step": 3})


def translation():
    parts = [tensors_file(1), tensors_file(2, TARGET), tensors_file(3, TARGET, TEXT)]
    kinds = ("encoder", "decoder", "cross")
    text, target = (part.tokens for part in parts[:2])
    sides = Sides(text, text), Sides(target, target), Sides(target, text)
    layers = [
        replace(layer, kind=kind, name=f"{kind}.{at}", sides=of_kind)
        for kind, part, of_kind in zip(kinds, parts, sides, strict=True)
        for at, layer in enumerate(part.layers)
    ]
    return mha.AttentionTrace(parts[0].tokens, tuple(layers), {"name": "t"})


def weights_file():
    return mha.from_weights(torch.softmax(torch.randn(2, 3, 7, 7), -1), TEXT)


@pytest.fixture
def open_file(opened, tmp_path):
    """`open_file(trace)`: the app with that trace opened from a file; `folds` are open on its pages."""

    def open_(trace, app=None, name="mine.safetensors", folds=(), **link):
        app = opened(*folds, source="file", **link) if app is None else app
        given = trace if isinstance(trace, bytes) else content(trace, tmp_path / "t.safetensors")
        app.file_uploader(key="trace_file").set_value((name, given, "application/octet-stream")).run()
        return app

    return open_


def test_compare_says_the_first_difference_of_two_opened_files(open_file, opened_on, tmp_path):
    text = "How are you today?"
    right = mha.trace(text, h=4, d_model=32)
    wrong = mha.trace(text, h=4, d_model=32, edits=[mha.edits.Scale(factor=1.0)])
    app = open_file(wrong, opened_on("see/compare.py", source="file", against="file"), "mine.safetensors")
    given = ("right.safetensors", content(right, tmp_path / "r.safetensors"), "application/octet-stream")
    app.file_uploader(key="file_beside").set_value(given).run()
    [said] = [one.value for one in app.caption if "first difference" in one.value]
    assert "scaled scores" in said
    assert "The scores are not scaled" in said
    app.file_uploader(key="file_beside").set_value(
        ("no.safetensors", b"no", "application/octet-stream")
    ).run()
    assert any("no\\.safetensors" in one.value for one in app.info)


def test_every_page_shows_the_opened_file(open_file, eye, draws, shows, place, said, english):
    trace = tensors_file()
    app = open_file(trace, layer=2, head=3, token=4)
    shows(app, trace, layer=1, head=2)
    assert place(app) == (1, 2, 3)
    draws(app, trace)
    header, _ = eye(app)
    assert header["source"].startswith("my *model* (file)")
    names = {"file": literal("mine.safetensors"), "name": literal("my *model*")}
    assert english("file.about", **names, layers=2, heads=3) in said(app)
    assert (header["layers"], header["heads"]) == (2, 3)
    area = app.text_area(key="file_text")
    assert (area.value, area.disabled, area.help) == (" ".join(TEXT), True, english("file.text_help"))
    assert "text" not in {widget.key for widget in app.text_area}
    app.switch_page("understand/steps.py").run()
    assert english("file.partly", count=2) in infos(app)  # steps whose inputs are missing
    assert len([head for head in app.header if head.value[:1].isdigit()]) == 7


def edits_file():
    """As many edits as there can be."""
    edits = [mha.edits.Hide(layer=0, rows=row, keys=0) for row in range(1, 5)] * 16
    return mha.trace("the old cat saw it", h=2, d_model=6, layers=2, edits=edits)


@pytest.mark.parametrize("make", [weights_file, translation, edits_file])
def test_every_page_works_with_any_file(open_file, make):
    app = open_file(make())
    for page in PAGES:
        go_to(app, page)
        assert not app.error, page


@pytest.fixture
def in_chinese(monkeypatch):
    """From this call on the pages are Chinese: the tester reads the names in boxes outside of a run."""
    return lambda: monkeypatch.setattr("pages._kit.text.language", lambda: "zh")


def test_the_edits_of_a_file_are_said(open_file, eye, said, in_chinese):
    trace = mha.trace("the old cat", h=2, d_model=6, edits=[mha.edits.Output(layer=0, heads=1)])
    app = open_file(trace)
    [edit] = trace.source.edits
    assert edit.describe() in eye(app)[0]["source"]
    assert any(literal(edit.describe()) in line for line in said(app))
    in_chinese()
    header, _ = eye(open_file(trace))
    assert header["edits"] == [["关掉：第 1 层、头 2"]]
    assert header["source"].endswith("、修改（关掉：第 1 层、头 2）")


def test_why_something_is_missing_is_said_in_the_language_of_the_page(open_file, said, english, in_chinese):
    def attend(x):
        torch.nn.functional.scaled_dot_product_attention(x, x, x)
        return torch.softmax(torch.sigmoid(x @ x.mT), -1) @ x

    with mha.record(tokens=["the", "old", "cat"], batch=1) as recorder:
        attend(torch.randn(1, 2, 3, 4))
    lines = [literal(line) for line in (*recorder.trace.source.skipped, *recorder.trace.source.notes)]
    app = open_file(recorder.trace)
    assert set(lines) <= set(said(app))
    assert english("real.skipped", count=1) in [fold.label for fold in app.expander]
    in_chinese()
    chinese = said(open_file(recorder.trace))
    assert any("没能追踪到底：它的分数经过了 sigmoid。" in line for line in chinese)
    assert any("没有检查列出的注意力之外" in line for line in chinese)


def test_the_typed_text_is_kept_for_other_sources(open_file, opened):
    app = opened()
    app.text_area(key="text").set_value("The dog was tired.")
    app.text_area(key="twin").set_value("The dog was old.").run()
    app.selectbox(key="shown_source").set_value("file").run()
    app = open_file(tensors_file(), app)
    app.selectbox(key="shown_source").set_value("mini").run()
    assert app.text_area(key="text").value == "The dog was tired."
    assert app.text_area(key="twin").value == "The dog was old."
    app.selectbox(key="shown_source").set_value("file").run()
    assert app.text_area(key="file_text").value == " ".join(TEXT)  # and the file is still open


def test_a_file_with_weights_only_shows_them(open_file, english, six):
    trace = weights_file()
    app = open_file(trace, folds=["numbers"])
    drawn = six(app)
    assert set(drawn) == {"weights"}
    np.testing.assert_allclose(drawn["weights"], trace.layers[1].weights(0), atol=2e-5)
    assert app.selectbox(key="table").options == [app.selectbox(key="table").options[0]]
    for page in ("see/token.py", "understand/steps.py"):
        app.switch_page(page).run()
        assert english("file.unknown") in infos(app)


def test_a_wrong_file_is_refused_by_name_and_nothing_is_lost(open_file, tokens):
    app = open_file(tensors_file())
    app = open_file(b"not a trace", app, name="bad <b>.safetensors")
    assert "bad" in app.error[0].value
    assert "/" not in app.error[0].value
    assert tokens(app)[0] == list(tensors_file().tokens.labels)
    app = open_file(tensors_file(), app)
    assert not app.error


def test_a_removed_upload_stays_open_until_closed(open_file, english, tokens, said):
    app = open_file(tensors_file())
    stays = english("file.open", name=literal("mine.safetensors"))
    assert stays not in said(app)  # its name stands in the control
    app.file_uploader(key="trace_file").set_value([]).run()
    assert tokens(app)[0] == list(tensors_file().tokens.labels)
    assert stays in said(app)
    app.button(key="close_file").click().run()
    assert english("file.empty") in infos(app)
    assert codes(app)[0] == refusals.EXAMPLE.strip()


def test_claims_of_a_file_about_itself_are_not_trusted(tmp_path, english):
    tokens, layers = tensors_file().tokens, tensors_file().layers
    source = {"name": "mini", "h": "x" * 999, "language": "xx"}
    trace = mha.AttentionTrace(tokens, layers, source, ((("a", 0.5),),) * 7)
    found = uploads.read("a.safetensors", content(trace, tmp_path / "t.safetensors"))
    [part] = found.parts.values()
    assert part.source == FileSource("a.safetensors", ArraySource("mini", {"h": "x" * 100, "language": "xx"}))
    assert part.answers == ((("a", 0.5),),) * 7
    for [said], word in zip(in_words(part), part.tokens.labels, strict=True):
        assert said[:2] == (english("answer.any", query=isolated(word)), "a 50%")  # nothing of ours hedges it


def test_a_saved_trace_of_a_small_model_is_shown_as_it_was(open_file, eye):
    trace = mha.trace("The animal was tired because it was old.", source="mini", h=4, d_model=64)
    app = open_file(trace, token=7)
    header, _ = eye(app)
    [_, words, *_], *_ = header["answers"][0][6]
    assert "animal " in words
    assert "(file)" in header["source"]


def test_answers_of_a_third_party_model_are_shown_at_its_tokens(open_file, eye, english):
    """A link chooses the decoder's text; long words are cut, and none is looked up."""
    words = [((f"<b>{at}", 0.5), ("y" * 999, 0.25)) for at in range(len(TARGET) - 1)]
    trace = replace(translation(), answers=(*words, None))
    app = open_file(trace, kind="decoder", token=2)
    said = eye(app)[0]["answers"][0]
    [[asked, answered, *_]] = said[1]
    assert (asked, answered) == (english("answer.any", query=TARGET[1]), f"<b>1 50%, {'y' * 100} 25%")
    assert said[-1] == []
    assert eye(open_file(trace, kind="encoder"))[0]["answers"] == [[]]
    cross = eye(open_file(trace, kind="cross"))[0]["answers"][0]
    assert cross[0][0][0] == english("answer.next", query=TARGET[0])  # who looks at another text writes


@pytest.fixture
def started_with(monkeypatch, tmp_path):
    """`started_with(trace)`: the server of `headscope open` with that trace on disk."""

    def start(trace):
        trace.save(path := tmp_path / "own.safetensors")
        monkeypatch.setenv(resources.OPENED, str(path))
        return path

    return start


def test_the_trace_of_the_command_is_the_first_page_for_everybody(started_with, opened, tokens, shows):
    started_with(trace := tensors_file())
    for _ in range(2):
        app = opened()
        assert app.session_state.source == "file"
        assert tokens(app)[0] == list(trace.tokens.labels)
        shows(app, trace, layer=1, head=0)
    app.button(key="close_file").click().run()  # and it stays closed
    assert app.session_state.opened_trace is None


def test_a_link_to_another_source_keeps_the_file(started_with, opened, tokens):
    started_with(tensors_file())
    app = opened(source="random", text="one two", twin="")
    assert tokens(app)[0] == ["one", "two"]
    app.selectbox(key="shown_source").set_value("file").run()
    assert len(tokens(app)[0]) == len(TEXT)


def test_a_link_to_a_missing_kind_or_to_a_file_of_another_visit_is_reported(started_with, opened):
    said = "The link says {} = {}, which is not possible. Using {}."
    assert refused_by_link(opened(source="file", file="0123")) == [said.format("file", "0123", "none")]
    started_with(translation())
    for kind, taken in (("nobody", "encoder"), ("cross", "cross")):
        app = opened(source="file", kind=kind)
        assert app.segmented_control(key="shown_kind").value == taken
        assert refused_by_link(app) == [said.format("kind", kind, taken)] * (kind != taken)
    assert app.text_area(key="file_keys").value == " ".join(TEXT)  # of the link's kind from the first run
    for kind, side, text in (("decoder", "file_text", TARGET), ("cross", "file_keys", TEXT)):
        app.segmented_control(key="shown_kind").set_value(kind).run()
        assert app.text_area(key=side).value == " ".join(text)


def test_a_dropped_file_is_reported(started_with, opened):
    started_with(tensors_file()).unlink()
    app = opened(source="file")
    assert "No such file" in app.error[0].value


def amplified(path, layers=512):
    """A file of a few numbers that many layers share: 512 heads and 256 tokens in each."""
    q, k, v = (torch.zeros(heads, 256, 1) for heads in (512, 1, 1))
    trace = mha.from_tensors(q=q, k=k, v=v, tokens=["a"] * 256)
    mha.AttentionTrace(trace.tokens, trace.layers * layers, trace.source).save(path)
    return path.read_bytes()


def test_an_upload_has_the_limits_of_a_trace(tmp_path, monkeypatch, refused):
    monkeypatch.setenv("HEADSCOPE_HOSTED", "1")
    file = amplified(tmp_path / "t.safetensors")
    assert len(file) < 2 * 2**20
    message = str(refused(uploads.read, "mine", file))
    assert message.startswith("mine cannot be opened: the scores of its layers (512) take 1,168.2 billion")
    assert uploads.read("mine", amplified(tmp_path / "t.safetensors", layers=2)).parts
    amplified(path := tmp_path / "t.safetensors", layers=20)
    assert uploads.on_disk(str(path), 0).parts  # the file of the command is the owner's


def test_a_file_as_long_and_wide_as_the_hosted_app_traces_opens(tmp_path, monkeypatch, refused):
    monkeypatch.setenv("HEADSCOPE_HOSTED", "1")
    draw = torch.Generator().manual_seed(0)
    for layers, heads, d in ((12, 12, 64), (6, 64, 1), (6, 8, 64)):
        q, k, v = (torch.randn(layers, heads, 512, d, generator=draw).half() for _ in "qkv")
        trace = mha.from_tensors(q=q, k=k, v=v, tokens=["a"] * 512)
        assert uploads.read("mine", content(trace, tmp_path / "t.safetensors")).parts
    bare = content(mha.AttentionTrace(trace.tokens, (), {"name": "t"}), tmp_path / "t.safetensors")
    assert "a.safetensors holds no layer" in str(refused(uploads.read, "a.safetensors", bare))
