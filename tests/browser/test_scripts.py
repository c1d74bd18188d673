"""Our scripts reach the browser as modules: at every address, under a base path, new after an upgrade."""

import re
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

import mha_core as mha
from mha_core.export import scripts
from pages._kit.text import catalogue
from tests.browser.conftest import matrix_of

ROOT = Path(__file__).parents[2]
FOLDER = f"/headscope/{scripts.digest()}"


def test_all_modules_of_a_component_are_requested_at_once(browser, app):
    """None waits for another one that imports it: far from a server each such wait is a journey."""
    held, asked, needed = [], set(), set(scripts.order("view/head_view.js"))
    with browser.new_context() as context:
        page = context.new_page()
        page.on("request", lambda request: asked.add(request.url.partition(f"{FOLDER}/")[2]))
        page.route(re.compile(r"/headscope/\w+/view/head_view\.js$"), lambda route: held.append(route))
        page.goto(app)
        for _ in range(600):
            if needed <= asked:
                break
            page.wait_for_timeout(100)
        assert needed <= asked
        held[0].continue_()
        page.locator(".six canvas").first.wait_for()


def test_scripts_are_cached_until_they_change(app):
    with urllib.request.urlopen(f"{app}{FOLDER}/page/wording.js") as answer:
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert "immutable" in answer.headers["cache-control"]
        assert answer.read() == scripts.asset("page/wording.js").encode()
    with urllib.request.urlopen(f"{app}{FOLDER}/saved_page.html") as answer:
        assert answer.headers["content-type"].startswith("text/html")
        assert b"__PARTS__" in answer.read()
    with pytest.raises(urllib.error.HTTPError, match=r"400|404"):
        urllib.request.urlopen(f"{app}{FOLDER}/../app.py")


def test_a_link_to_a_page_shows_it_whole_on_a_fresh_server_under_a_base_path(
    serve, visit, eye, tmp_path, alone
):
    address = serve(base="class/one")
    sizes = {"h": 2, "d_model": 6, "seed": 7, "layers": 3, "mask": "causal", "text": "humpty dumpty sat on"}
    asked = sizes | {"source": "random", "layer": 2, "head": 2, "operation": "softmax"}
    page = visit(f"{address}/steps?{urlencode(asked)}")
    layer = mha.trace(**sizes).layers[1]
    expected = np.where(layer.allowed(1), layer.weights(1), np.nan)
    np.testing.assert_allclose(matrix_of(page, "weights A₂"), expected, atol=1e-6)
    assert page.get_by_role("link", name="Steps", exact=True).is_visible()  # the frame is there too
    assert page.get_by_role("dialog").count() == 0  # and no "Page not found" over it
    names = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    ours = [name for name in names if "/headscope/" in name]
    assert all(name.startswith(f"{address}{FOLDER}/") for name in ours)
    assert len(ours) == len(set(ours)) > 0
    view = eye(visit(address))
    view.token(2).hover()
    assert {line[1] for line in view.lines()} == {2}
    menu = view.menu("Save")
    with view.page.expect_download() as download:
        menu.get_by_role("button", name="Page that works offline").click()
    download.value.save_as(tmp_path / "view.html")
    assert eye(alone(tmp_path / "view.html")).on() == view.on()


def test_without_served_scripts_each_component_shows_a_message(serve, browser):
    # Started some other way: the frame alone, without what app.py puts beside it.
    address = serve(script=ROOT / "pages" / "frame.py")
    page = browser.new_page()
    page.goto(address)
    said = page.get_by_text(catalogue("en")["components.not_served"])
    said.nth(2).wait_for()  # they come one after another
    page.close()
