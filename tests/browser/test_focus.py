"""The focus on pages whose numbers come from the server: a choice asks for that part of the page alone."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

# Of each page how many kilobytes and messages of the server a choice may cost; a run of the whole page takes
# 94, 78; 63, 109; 58, 53; and 80, 60.
PAGES = {
    "token": (55, 55),
    "steps?operation=softmax": (45, 85),
    "hops?architecture=standard": (32, 20),
    "embeddings": (57, 20),
}


def asked(link: str, name: str) -> str:
    return parse_qs(urlsplit(link).query).get(name, [""])[0]


def kinds(heard: list) -> set[str]:
    return {ForwardMsg.FromString(bytes(one)).WhichOneof("type") for one in heard}


@pytest.mark.parametrize("address", PAGES)
def test_a_choice_runs_a_part_of_the_page_and_moves_the_focus_of_all(visit, app, settled, address):
    page = visit(f"{app}/{address}", sent=(sent := []), heard=(heard := []))
    words = page.locator(".chooser [data-field=token]").get_by_role("radio")
    chosen = page.locator(".chooser [data-field=token] [aria-checked=true] bdi")
    expect(chosen).to_have_text("it")
    before = len(sent), len(heard)
    words.filter(has_text="animal").click()
    settled(page)
    assert asked(page.url, "token") == "animal"
    answer = heard[before[1] :]
    assert len(sent) - before[0] <= 1
    assert "navigation" not in kinds(answer)  # the frame did not run
    kilobytes, messages = PAGES[address]
    assert sum(map(len, answer)) <= 1000 * kilobytes
    assert len(answer) <= messages

    # What the frame asks for next still knows of it, and so do the history and other pages.
    words.filter(has_text="street").click()
    settled(page)
    page.go_back()
    settled(page)
    assert asked(page.url, "token") == "animal"
    expect(chosen).to_have_text("animal")
    page.reload()
    settled(page)
    expect(chosen).to_have_text("animal")
    words.filter(has_text="street").click()
    page.get_by_role("link", name="Heads", exact=True).first.click()
    expect(page.locator(".view .strip .token[aria-selected=true] bdi").first).to_have_text("street")
    assert re.search(r"[?&]token=street", page.url)
