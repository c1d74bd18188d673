"""Pages without a server: from a disk without a network, below a path, in a sandboxed frame, on a phone."""

import functools
import http.server
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

import mha_core as mha
from mha_core.static import site
from mha_core.training import checkpoints

SAID = ".view .panel .status span"
SENTENCE = "The boy thanked the girl since she was so kind."  # with 40 characters and more
WEIGHTS = """(root) => root.view.selection.original.flatMap((panel) =>
  [...panel.layers.values()].flatMap((layer) => layer.heads.flatMap((head) =>
    panel.tokens.flatMap((_, query) => [...layer.row(head, query)]))))"""


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A folder with everything: site/, page.html, and numbers.html with frozen numbers."""
    folder = tmp_path_factory.mktemp("static")
    with pytest.MonkeyPatch.context() as patch:  # all models take seconds
        small = tuple(plan for plan in checkpoints.PLANS if plan.d_model <= 64 and plan.h in (2, 4))
        patch.setattr(checkpoints, "PLANS", small)
        site.save_folder(folder / "site")
    site.save_page(folder / "page.html")
    frame = '<iframe sandbox="allow-scripts" src="site/index.html" style="width:100%;height:800px">'
    (folder / "lecture.html").write_text(
        f"<!doctype html><link rel=icon href=data:,>{frame}", encoding="utf-8"
    )
    trace = mha.trace("The old cat saw the dog because it was tired.", source="mini")
    trace.view(head=1, token="cat").save(folder / "model.html", model=True)
    trace.view(head=1, token="cat").save(folder / "numbers.html")
    return folder


@pytest.fixture(scope="module")
def host(written):
    """The address of that folder on a server, which logs what is asked."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=written)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.fixture
def tab(browser):
    """`tab(offline=True)`: a blank tab; no script of it may fail, and it may ask no other site."""
    contexts, wrong = [], []

    def open_tab(**settings):
        contexts.append(browser.new_context(**{"locale": "en-US", "reduced_motion": "reduce"} | settings))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda line: (
                wrong.append(line.text)
                if line.type == "error" and "Clipboard" not in line.text  # which a sandbox blocks
                else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:", "about:"))
                else wrong.append(request.url)
            ),
        )
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert wrong == []


def test_a_file_answers_at_each_key_with_the_network_off(tab, written):
    page = tab(offline=True)
    page.goto((written / "page.html").as_uri())
    page.locator(SAID).first.wait_for()
    field = page.locator(".text textarea")
    field.fill("")
    assert page.get_by_role("status").first.inner_text().startswith("There is no text")
    for typed in range(1, len(SENTENCE) + 1):
        page.keyboard.type(SENTENCE[typed - 1])
        words = page.locator(".view .head").first.locator(".token").all_inner_texts()
        assert "".join(words).replace("[CLS]", "") == SENTENCE[:typed].replace(" ", "")
    assert page.locator(".answer b").first.inner_text().startswith(("girl", "perhaps girl"))
    page.wait_for_url("**?text=The+boy*")
    page.locator(".view .head").first.locator(".token", has_text="boy").click()
    assert "token=boy" in page.url
    page.go_back()
    page.wait_for_url(lambda url: "token=boy" not in url)
    assert field.input_value() == SENTENCE
    page.reload()
    page.locator(SAID).first.wait_for()
    assert field.input_value() == SENTENCE
    page.locator(".share summary").click()
    page.keyboard.press("Escape")
    assert page.locator(".share details[open]").count() == 0


def test_a_folder_works_below_a_path_and_fetches_a_model_when_it_is_chosen(tab, host):
    address, asked = host
    page = tab()
    page.goto(f"{address}/site/index.html?text=A+cat+sat+down.&h=2")
    page.locator(SAID).first.wait_for()
    models = [path for path in asked if "-d" in path]
    assert [path.split("/")[-1].split(".")[0] for path in models] == ["glass-box-en-h2-d64"]
    page.get_by_label("d_model").select_option("32")
    page.locator(".chip").nth(2).wait_for()
    page.wait_for_url("**d_model=32*")
    assert "glass-box-en-h2-d32" in asked[-1]
    page.locator(".text textarea").fill("小猫坐在垫子上。")
    page.locator(".view .token", has_text="垫子").first.wait_for()
    assert page.locator(".said").inner_text().startswith("Nearest model")


def test_a_sandboxed_frame_on_another_page_computes(tab, host):
    address, _ = host
    page = tab(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page.goto(f"{address}/lecture.html")
    frame = page.locator("iframe").content_frame
    frame.locator(SAID).first.wait_for()
    frame.get_by_role("button", name="中文").click()
    frame.locator(".text textarea").fill("小狗咬了[MASK]，因为它太饿了。")
    frame.locator(".view .token", has_text="小狗").first.wait_for()
    assert frame.locator("h1").inner_text() == "每个头看什么？"
    frame.locator(".share summary").click()
    menu = frame.locator(".share .inside").bounding_box()
    assert 0 <= menu["x"] < menu["x"] + menu["width"] <= 390
    frame.get_by_role("button", name="复制链接").click()
    link = parse_qs(urlsplit(frame.locator(".by-hand textarea").input_value()).query)  # it has no address
    assert (link["text"], link["lang"]) == (["小狗咬了[MASK]，因为它太饿了。"], ["zh"])


def test_the_app_what_it_saves_and_both_pages_draw_the_same_numbers(tab, written, app):
    def drawn(page, place: str) -> np.ndarray:
        page.goto(place)
        said = page.locator(SAID).first
        said.wait_for()
        assert said.inner_text().startswith("“cat” looks at")
        return np.array(page.locator(".view").first.evaluate(WEIGHTS))

    in_app, page = tab(), tab(offline=True)
    numbers = drawn(in_app, f"{app}/?text=The+old+cat+saw+the+dog+because+it+was+tired.&head=2&token=cat")
    in_app.locator(".view summary", has_text="Save").click()
    with in_app.expect_download() as saved:
        in_app.get_by_role("button", name="Page with the model").click()
    saved.value.save_as(written / "saved.html")
    for name in ("saved", "model", "numbers"):
        assert np.abs(drawn(page, (written / f"{name}.html").as_uri()) - numbers).max() < 1e-5


def test_what_if_shows_the_answer_before_and_after_and_takes_it_back(tab, written):
    page = tab(offline=True)
    page.goto((written / "page.html").as_uri())
    page.get_by_role("link", name="What if “it” could not see").click()
    after = page.locator(".view .head").nth(1)
    after.get_by_text("After").wait_for()
    assert page.locator(".view .head").first.locator(".answer b").first.inner_text() == "animal 92%"
    assert not after.locator(".answer b").first.inner_text().startswith("animal")
    assert "edits=cut%2Cfrom%3D9%2Cto%3D3" in page.url
    page.get_by_role("textbox", name="Sentence", exact=True).fill("The dog slept.")
    page.get_by_text("Removed, since its words are not in this sentence: “it” blocked").wait_for()
    page.wait_for_url(lambda url: "edits" not in url)
    page.go_back()
    page.locator(".view .head").nth(1).get_by_text("After").wait_for()
    assert "edits=cut%2Cfrom%3D9%2Cto%3D3" in page.url
    page.locator(".choice select").first.select_option("row")
    numbers = page.locator(".own-row input")
    for at in range(numbers.count()):
        numbers.nth(at).fill("1" if at == 6 else "0")
    numbers.last.press("Enter")
    page.locator(".changes li").nth(1).wait_for()
    said = page.locator(SAID).nth(1)
    assert "“street” 1.00" in said.inner_text()
    page.go_back()
    page.go_back()
    page.locator(".view .head").nth(1).locator(".token", has_text="wide").wait_for()
    assert "edits" not in page.url
    page.get_by_role("button", name="中文").press("Enter")
    page.get_by_label("修改什么").wait_for()
    assert page.locator(":focus").inner_text() == "中文"


NOT_COMPUTED = {
    "token=unicorn&layer=9": "The link says token = unicorn, which is not possible. Using “it”.",
    "source=random&h=8": 'headscope open "source=random&h=8"',
    "edits=swap,from=2,to=3": "This page cannot compute swap,from=2,to=3",
    "text=" + "word+" * 70: "70 tokens; the small models read up to 63",
}


def test_what_a_page_cannot_compute_it_says(tab, written):
    page = tab(offline=True)
    for link, said in NOT_COMPUTED.items():
        page.goto(f"{(written / 'page.html').as_uri()}?{link}")
        page.locator(".said", has_text=said).wait_for()
