"""Training as a person meets it: press Start, watch, stop, go on, scrub, and look at the result elsewhere."""

import re

from playwright.sync_api import expect

LONG = 240_000  # milliseconds: a training takes half a minute on an idle machine
SMALL = "train?train_h=2&train_d_model=32"


def button(page, name: str):
    return page.get_by_role("button", name=name, exact=True)


def step(page) -> int:
    """The step that the progress line names."""
    said = page.get_by_text(re.compile(r"^(Step|Stopped at step) [\d,]+ of")).first.inner_text()
    return int(re.search(r"[\d,]+", said)[0].replace(",", ""))


def row_of_it(page) -> dict[str, str]:
    """The tokens that "it" looks at in the first sentence, with the first head's number."""
    keys = page.locator(".st-key-train_view .panel").first.locator(".key")
    found = {}
    for text in keys.all_inner_texts():
        word, *numbers = text.split()
        if numbers:
            found[word] = numbers[0]
    return found


def test_a_training_is_watched_stopped_continued_and_scrubbed(visit, serve, settled):
    page = visit(f"{serve()}/{SMALL}", height=1400)
    button(page, "Start").click()
    expect(page.get_by_text(re.compile(r"^Step [1-9][\d,]* of 1,600"))).to_be_visible(timeout=LONG)
    early = step(page)
    page.wait_for_function(
        "(early) => Number(document.body.innerText.match(/Step ([\\d,]+) of/)?.[1].replace(',', '')) > early",
        arg=early,
        timeout=LONG,
    )  # it gets on without a click
    assert page.locator(".st-key-train_view svg path").count() > 0

    button(page, "Stop").click()
    expect(page.get_by_text(re.compile("^Stopped at step"))).to_be_visible(timeout=LONG)
    stopped = step(page)
    page.reload()  # a reload loses nothing
    expect(button(page, "Continue")).to_be_visible(timeout=LONG)
    assert step(page) == stopped

    button(page, "Continue").click()
    expect(button(page, "Look at its heads")).to_be_visible(timeout=LONG)
    settled(page)
    after = row_of_it(page)
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("Home")
    expect(page.get_by_text(re.compile("^At step 0 "))).to_be_visible()
    settled(page)
    assert row_of_it(page) != after
    assert float(after["animal"]) > 0.3

    button(page, "Look at its heads").click()
    settled(page)
    page.get_by_role("link", name="Heads", exact=True).click()
    settled(page)
    assert "source=run" in page.url
    expect(page.locator(".st-key-head_view .chip")).to_have_count(3)  # two heads and "all"
