"""`python -m tests.browser.first_minute`: films the first minute of a visit, for the READMEs.

In each language the second sentence swings from the first one, then a word is clicked, another one is typed
over, and the pronoun is asked again. The film shows each change as long as it took in the browser. It lies
in `.github`, since the wheel has all of `assets`.
"""

import base64
import io
from itertools import pairwise

from PIL import Image
from playwright.sync_api import Locator, Page

from tests.bench import chromium

SIZE = {"width": 1280, "height": 736}
MAX_BYTES = 1.5e6
READ = 1800  # milliseconds in which a reader takes in what has changed
SHORTEST, LONGEST, LAST = 45, 2600, 3500  # milliseconds of a picture, and of the last one
# In each language: the word that is clicked, the one that is typed over, what is typed, and the pronoun.
WORDS = {"en": ("tired", "animal", "child", "it"), "zh": ("累", "动物", "小猫", "它")}
# A picture of a page has no pointer: a dot that follows the mouse stands for it.
POINTER = """() => {
    const dot = document.body.appendChild(document.createElement('div'));
    dot.style = `position: fixed; left: -50px; z-index: 9999999; width: 18px; height: 18px; margin: -11px;
        border: 2px solid #c2571a; border-radius: 50%; background: #c2571a66; pointer-events: none`;
    const follow = ({ x, y }) => Object.assign(dot.style, { left: `${x}px`, top: `${y}px` });
    addEventListener('mousemove', follow, true);
}"""


def first_minute(page: Page, language: str) -> None:
    """Look, click a word, type over another one and ask the pronoun again, as a visitor does."""
    clicked, old, new, pronoun = WORDS[language]
    sentence = page.locator(".view .sentences .strip").first
    page.locator(".turned").first.wait_for()
    page.wait_for_timeout(1000 + READ)
    page.evaluate(POINTER)
    page.mouse.click(*_reached(page, sentence.get_by_text(clicked, exact=True)))
    page.wait_for_timeout(READ)
    page.mouse.dblclick(*_reached(page, sentence.get_by_text(old, exact=True)))
    page.wait_for_timeout(400)
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type(new, delay=120)
    page.keyboard.press("Enter")
    sentence.get_by_text(new, exact=True).wait_for()
    page.wait_for_timeout(READ)
    page.mouse.click(*_reached(page, sentence.get_by_text(pronoun, exact=True)))
    page.wait_for_timeout(READ)


def _reached(page: Page, word: Locator) -> tuple[float, float]:
    """The lower edge of a word, to which the pointer moves as a hand moves it."""
    box = word.bounding_box()
    place = box["x"] + box["width"] / 2, box["y"] + box["height"] - 2
    page.mouse.move(*place, steps=12)
    page.wait_for_timeout(300)
    return place


def filmed(browser, address: str, language: str) -> list[tuple[Image.Image, float]]:
    """The pictures of a first visit that differ, from the first lines on, and when each was seen."""
    context = browser.new_context(viewport=SIZE, locale={"en": "en-GB", "zh": "zh-CN"}[language])
    page = context.new_page()
    tools, seen = context.new_cdp_session(page), []

    def keep(event: dict) -> None:
        seen.append((1000 * event["metadata"]["timestamp"], event["data"]))
        tools.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

    tools.on("Page.screencastFrame", keep)
    page.goto(address)
    page.locator(".lines canvas").first.wait_for()
    tools.send("Page.startScreencast", {"format": "png"})
    first_minute(page, language)
    tools.send("Page.stopScreencast")
    context.close()
    frames = []
    for at, data in sorted(seen):
        picture = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
        if frames and at - frames[-1][1] < SHORTEST:
            frames[-1] = picture, frames[-1][1]
        elif not frames or picture != frames[-1][0]:
            frames.append((picture, at))
    return frames


def main() -> None:
    with chromium.chromium() as browser, chromium.app() as address:
        for language in WORDS:
            frames = filmed(browser, address, language)
            times = [min(LONGEST, round(end - start)) for (_, start), (_, end) in pairwise(frames)] + [LAST]
            first, *others = (picture for picture, _ in frames)
            file = chromium.ROOT / ".github" / f"first_minute.{language}.webp"
            how = {"duration": times, "loop": 0, "quality": 70, "method": 6}
            first.save(file, save_all=True, append_images=others, **how)
            size = file.stat().st_size
            print(f"{file.name}: {len(frames)} pictures, {sum(times) / 1000:.1f} s, {size:,} bytes")
            if size > MAX_BYTES:
                raise SystemExit(f"{file.name} is larger than {MAX_BYTES:,.0f} bytes")


if __name__ == "__main__":
    main()
