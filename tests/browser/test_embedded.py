"""The app in a frame of another site, which blocks its cookies; and the menu that copies such a frame."""

import io
import re
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from PIL import Image
from playwright.sync_api import expect

README = Path(__file__).parents[2] / "assets" / "deploy" / "README.md"
FRAME, GROWS = re.findall(r"```html\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
GROUND = (160, 240, 200)
LEFT_OUT = ".st-key-corner, .st-key-next, .st-key-choices, .st-key-sizes, [data-testid=stHeader] *"
OPEN = "Open in Headscope"
MAX_MOMENTS = 200
TOO_HIGH = "() => innerHeight - document.querySelector('[data-testid=stMainBlockContainer]').offsetHeight"


@pytest.fixture
def course(strict, host, settled, app):
    """`course("token?token=it")`: a page of a course with that scene in a frame, as the README has it."""

    def show(link: str = "", code: str = FRAME):
        path, _, query = link.partition("?")
        address = f"{app}/{path}?embed=true{'&amp;' if query else ''}{query.replace('&', '&amp;')}"
        code = re.sub('src="[^"]*"', f'src="{address}"', code) if code == FRAME else code
        strict.goto(host(f"<style>body {{ background: rgb{GROUND} }}</style>{code}{GROWS}"))
        frame = strict.frames[1]
        frame.wait_for_selector("[data-testid=stApp]")
        settled(frame)
        return frame

    return show


def drawn_alone(frame) -> None:
    for element in frame.locator(LEFT_OUT).all():
        expect(element).not_to_be_visible()
    expect(frame.get_by_role("link", name=OPEN)).to_be_visible()


def corner_of(frame) -> tuple[int, ...]:
    """The colour of the ground in a corner of the frame."""
    box = frame.page.locator("iframe").bounding_box()
    corner = {"x": box["x"] + 2, "y": box["y"] + 2, "width": 1, "height": 1}
    return Image.open(io.BytesIO(frame.page.screenshot(clip=corner))).convert("RGB").getpixel((0, 0))


def test_a_page_in_a_frame_of_another_site_has_its_scene_alone_on_its_ground_and_the_frame_grows(course):
    frame = course("cost")
    drawn_alone(frame)
    assert corner_of(frame) == GROUND
    for _ in range(MAX_MOMENTS):  # the page says how high it is when it has been drawn
        if abs(too_high := frame.evaluate(TOO_HIGH)) <= 1:
            break
        frame.wait_for_timeout(50)
    assert abs(too_high) <= 1
    assert max(corner_of(course("cost?embed_options=dark_theme"))) < 60  # below light letters


def test_a_sentence_is_typed_in_the_frame_and_the_same_scene_opens_whole(course, settled, eye):
    frame = course("?h=8&twin=")
    field = frame.get_by_role("textbox", name="Sentence", exact=True)
    expect(frame.get_by_role("textbox", name="Second sentence")).not_to_be_visible()
    field.fill("The dog chased the cat because it was hungry.")
    field.press("Enter")
    settled(frame)
    view = eye(frame)
    view.word(2).click()
    assert view.chosen_word() == "dog"
    with frame.page.expect_popup() as popup:
        frame.get_by_role("link", name=OPEN).click()
    page = popup.value
    page.wait_for_selector("[data-testid=stTopNav]")
    settled(page)
    whole = eye(page)
    assert whole.words() == view.words()
    assert whole.chosen_word() == "dog"
    assert whole.pictures().count() == 8
    assert not {"embed", "lang"} & parse_qs(urlsplit(page.url).query).keys()


def test_links_inside_stay_in_the_frame_as_it_was_embedded(course, settled, eye):
    frame = course("?embed_options=light_theme&lang=en")

    def is_embedded(path: str) -> None:
        settled(frame)
        drawn_alone(frame)
        assert urlsplit(frame.url).path == path
        query = parse_qs(urlsplit(frame.url).query)
        assert (query["embed"], query["embed_options"]) == (["true"], ["light_theme"])

    eye(frame).view.get_by_role("link", name=re.compile("^What if")).click()
    frame.wait_for_url("**/what-if?**")
    is_embedded("/what-if")
    frame.evaluate("history.back()")
    frame.wait_for_url(lambda url: urlsplit(url).path == "/")
    settled(frame)
    frame.get_by_role("link", name=re.compile("^Z: all heads")).click()
    frame.wait_for_url("**/steps?**")
    is_embedded("/steps")
    frame = course("positions?embed_options=light_theme")  # which has become a view of another page
    is_embedded("/steps")
    frame = course("cases?embed_options=light_theme")
    frame.get_by_role("link").and_(frame.locator("[href*='case=']")).first.click()
    frame.wait_for_url("**case=**")
    is_embedded(urlsplit(frame.url).path)


def test_the_menu_copies_the_code_of_a_frame_in_the_chosen_language(visit, app, course, eye, settled):
    page = visit(f"{app}/?{urlencode({'text': '大狗看见了它。', 'twin': '', 'head': 3})}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    menu = page.get_by_label("Share", exact=True)

    def copied(name: str) -> str:
        menu.click()
        page.get_by_role("button", name=name).click()
        expect(page.get_by_role("button", name=re.compile("copied|已复制"))).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name=name)).not_to_be_visible()
        return page.evaluate("navigator.clipboard.readText()")

    assert "lang=" not in copied("Copy embed code")  # the reader's
    page.get_by_role("radio", name="中文").click()
    settled(page)
    menu = page.get_by_label("分享", exact=True)
    code = copied("复制嵌入代码")
    assert re.findall(r' (\w+)="', code) == ["src", "width", "height", "title", "allow", "loading", "style"]
    frame = course(code=code)
    expect(frame.get_by_role("link", name="在 Headscope 中打开")).to_be_visible()
    assert eye(frame).words() == eye(page).words()
    assert frame.locator(".under h2").inner_text() == page.locator(".under h2").inner_text()
    assert "light_theme" in code
    assert min(corner_of(frame)) > 240  # its own ground: a slide may be dark


def test_where_nothing_can_be_copied_the_text_is_shown_and_selected(visit, app):
    page = visit(f"{app}/cost", theme="dark")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")  # as without HTTPS
    page.get_by_label("Share", exact=True).click()
    page.get_by_role("button", name="Copy embed code").click()
    field = page.get_by_role("textbox", name="Copy this yourself")
    expect(field).to_be_focused()
    assert field.evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)") == field.input_value()
    theme = "embed=true&amp;embed_options=dark_theme"
    assert field.input_value().startswith(f'<iframe src="{app}/cost?{theme}"')
    page.get_by_role("heading", level=1).click()
    expect(field).not_to_be_visible()
