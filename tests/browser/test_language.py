"""Two languages: the browser's, the switch, the link, and no English left on a Chinese page."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from mha_core.scene.page import HOME, PAGES

TEXTS = """() => {
    const found = [];
    const walk = (node) => {
        for (const child of node.childNodes) {
            if (child.nodeType === Node.TEXT_NODE) {
                const parent = child.parentElement ?? node.host;
                if (parent?.closest?.('script, style, code, pre, .katex, [data-testid*=Icon]')) continue;
                if (parent?.checkVisibility && !parent.checkVisibility()) continue;
                if (child.textContent.trim()) found.push(child.textContent.trim());
            } else if (child.nodeType === Node.ELEMENT_NODE) {
                const shown = child.checkVisibility();
                for (const name of ["aria-label", "title", "placeholder", "alt", "data-title"])
                    if (shown && child.getAttribute(name)) found.push(child.getAttribute(name));
                if (child.shadowRoot) walk(child.shadowRoot);
                walk(child);
            }
        }
    };
    walk(document.body);
    return [...found, ...window.written];
}"""
# Words on a canvas are in no element.
WRITTEN = """
    window.written = [];
    const { fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
        window.written.push(String(text));
        return fillText.call(this, text, ...place);
    };
"""
# Names that stand in Chinese texts, too: of the field, of models, papers, settings and English examples.
NAMES = set(Path(__file__).with_name("latin_names.txt").read_text(encoding="utf-8").split())
LATIN = re.compile(r"[A-Za-z][A-Za-z_\-]*[A-Za-z]")


@pytest.fixture
def chinese(tabs, app, settled):
    """`chinese("token?h=8")`: a page in a tab of a browser that speaks Chinese."""
    with tabs(viewport={"width": 1280, "height": 900}, color_scheme="light", locale="zh-CN") as page:
        page.context.add_init_script(WRITTEN)

        def open_(path: str = ""):
            page.goto(f"{app}/{path}")
            settled(page)
            return page

        yield open_


def left_in_english(page) -> dict[str, list[str]]:
    """The texts of a page with Latin words that are no names, and these words."""
    return {
        text: words
        for text in page.evaluate(TEXTS)
        if (words := [word for word in LATIN.findall(text.replace("\u2060", "")) if word not in NAMES])
        and "/" not in text.replace(" / ", "")  # the name of a model on the hub
    }


def language(page) -> str:
    return page.evaluate("document.documentElement.lang")


def test_a_chinese_browser_opens_in_chinese_and_the_switch_keeps_another_language(chinese):
    page = chinese()
    expect(page.get_by_role("heading", name="每个头看什么？")).to_be_visible()
    expect(page.locator(".turned").first).to_have_text("宽")  # a first visit swings in every language
    expect(page.locator(".answers").first).to_contain_text("可能是动物")
    expect(page.locator(".answers").nth(1)).to_contain_text("可能是马路")
    assert language(page) == "zh-CN"
    assert "lang=" not in page.url
    assert "text=" in page.url  # whoever opens the copied link sees the same sentence
    page.get_by_role("radio", name="EN").click()
    expect(page.get_by_role("heading", name="What does each head look at?")).to_be_visible()
    expect(page.locator(".answers").first).to_contain_text("animal 92%")  # the start goes with it
    assert language(page) == "en"
    assert "lang=en" in page.url  # its sharer has chosen it
    page.get_by_role("link", name="Token", exact=True).first.click()
    expect(page.get_by_role("heading", name=re.compile("in layer 2, head 1"))).to_be_visible()
    assert "lang=en" in page.url
    page = chinese("cost")  # this browser remembers it
    expect(page.get_by_role("heading", name="What do h and d_model cost?")).to_be_visible()
    page.get_by_role("radio", name="中文").click()
    expect(page.get_by_role("heading", name="h 和 d_model 带来多少开销？")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="What do h and d_model cost?")).to_be_visible()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_on_a_page_is_left_in_english(chinese, name):
    page = chinese(name.replace(HOME, ""))
    expect(page.get_by_role("navigation", name="页面")).to_be_visible()
    assert left_in_english(page) == {}


def test_what_streamlit_writes_by_itself_is_chinese_and_english_again_after_the_switch(chinese, tmp_path):
    page = chinese("?source=file")
    field = page.locator('[data-testid="stFileUploader"]')
    expect(field).to_contain_text("上传")
    expect(field).to_contain_text("每个文件不超过 200MB")
    (tmp_path / "a.txt").write_text("no trace")
    field.locator("input").set_input_files(tmp_path / "a.txt")
    expect(field).to_contain_text("不接受 text/plain 文件。")
    page.get_by_role("radio", name="EN").click()
    expect(field).to_contain_text("text/plain files are not allowed.")
    expect(page.get_by_role("button", name="Help for Model weights")).to_be_visible()


def test_words_of_a_sentence_stay_though_streamlit_writes_them_too(chinese):
    page = chinese("what-if?text=Open Search Zoom Upload&source=random")
    offered = page.locator(".st-key-change_from")
    offered.get_by_role("combobox").fill("Sea")
    expect(page.get_by_role("option", name="Search")).to_be_visible()
    offered.get_by_role("combobox").fill("nowhere")
    expect(page.get_by_text("没有匹配的项")).to_be_visible()


def test_a_refusal_and_its_repairs_are_in_chinese_and_a_typed_sentence_stays_as_it_is(chinese):
    page = chinese("?source=random&h=3&d_model=64&text=The dog was hungry.")
    expect(page.get_by_role("alert")).to_contain_text("不能平均分给 3 个头")
    page.get_by_role("button", name="改用：d_model 66").click()
    expect(page.get_by_role("spinbutton", name="d_model", exact=True)).to_have_value("66")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("radio", name="EN").click()
    expect(page.get_by_role("heading", name="What does each head look at?")).to_be_visible()
    expect(page.get_by_role("textbox", name="Sentence", exact=True)).to_have_value("The dog was hungry.")


def test_what_is_saved_speaks_chinese_too(chinese, tmp_path):
    page = chinese("what-if?edits=off,layer=2,head=3")
    page.locator(".view summary", has_text="保存").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="HTML").click()
    download.value.save_as(tmp_path / "saved.html")
    saved = page.context.new_page()
    saved.goto((tmp_path / "saved.html").as_uri())
    expect(saved.locator(".status").first).to_contain_text("看“动物”0.99")
    assert "关掉：第 2 层、头 3" in saved.locator("body").inner_text()
    assert left_in_english(saved) == {}
    assert language(saved) == "zh-CN"
    saved.close()
