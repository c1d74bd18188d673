"""A saved page wherever it is opened: from a disk, in a notebook, in an old browser, from a server."""

import http.server
import threading

import numpy as np
import pytest

import mha_core as mha
from mha_core.export import head_view

TEXT = "小猫 حيوان two ! < three"
DRAWN = ".view .panel .status span"


@pytest.fixture(scope="module")
def trace():
    return mha.trace(TEXT, h=2, d_model=8)


@pytest.fixture
def tab(browser):
    """A blank tab without a network; no script of it may fail."""
    context, failures = browser.new_context(offline=True), []
    page = context.new_page()
    page.on("pageerror", lambda error: failures.append(str(error)))
    yield page
    context.close()
    assert failures == []


def weights(frame) -> np.ndarray:
    code = """({ view: { selection } }) => {
        const layer = selection.layer(selection.panels[0]);
        return [0, 1].map((head) => [...layer.row(head, 1)]);
    }"""
    return np.array(frame.locator(".view").evaluate(code))


def test_a_page_names_sentence_model_and_layer(alone, tmp_path):
    trace = mha.trace(TEXT, h=2, d_model=8, layers=2)
    source = "random, h=2, d_model=8, seed=0, mask=full, position=sinusoidal"
    trace.view(layer=0).save(tmp_path / "view.html")
    page = alone(tmp_path / "view.html")
    assert page.locator(".caption").inner_text() == f"{TEXT} · {source} · layer 1 of 2"
    page.locator(".segments button", has_text="2").click()
    assert page.locator(".caption").inner_text().endswith("· layer 2 of 2")


def test_a_notebook_shows_the_page_in_a_frame(tab, trace):
    notebook = f"<!doctype html><meta charset=utf-8><body>{trace.view(token=1)._repr_html_()}"
    tab.set_content(notebook)
    frame = tab.locator("iframe").content_frame
    frame.locator(DRAWN).first.wait_for()
    np.testing.assert_allclose(weights(frame), trace.layers[0].weights()[:, 1], atol=2e-5)


def test_an_old_browser_shows_a_message(tab, trace, tmp_path):
    trace.view().save(tmp_path / "view.html")
    tab.add_init_script("delete window.DecompressionStream")
    tab.goto((tmp_path / "view.html").as_uri())
    said = tab.get_by_text(head_view.texts("en")["old_browser"])
    said.wait_for()
    assert tab.locator(DRAWN).count() == 0


class Served(http.server.SimpleHTTPRequestHandler):
    """A server that declares a wrong charset for all pages."""

    extensions_map = {".html": "text/html; charset=windows-1252"}  # noqa: RUF012 (as the base class has it)

    def log_message(self, *_):
        pass


def test_a_page_with_a_wrong_charset_still_works(browser, trace, tmp_path):
    trace.view(token=1).save(tmp_path / "view.html")

    def handler(*how):
        return Served(*how, directory=str(tmp_path))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context()
        page = context.new_page()
        answer = page.goto(f"http://127.0.0.1:{server.server_port}/view.html")
        assert answer.header_value("content-type") == "text/html; charset=windows-1252"
        page.locator(DRAWN).first.wait_for()
        np.testing.assert_allclose(weights(page), trace.layers[0].weights()[:, 1], atol=2e-5)
        context.close()
        server.shutdown()
