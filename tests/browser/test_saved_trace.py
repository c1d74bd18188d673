"""A saved trace opened in the app: shown on two pages, and still there after coming back."""

from dataclasses import replace

import numpy as np
import torch
from playwright.sync_api import expect

import mha_core as mha
from mha_core.attention.edits import Temperature
from mha_core.traces.source import EditedSource
from tests.browser.conftest import click_cell

TOKENS = ["<s>", "Die", "*alte*", "Katze", "שלום", "動", "</s>"]


def test_a_saved_trace_is_opened_and_looked_at(visit, app, settled, eye, tmp_path):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 7, 5).unbind(0)
    trace = mha.from_tensors(q=q, k=k, v=v, tokens=TOKENS)
    edited = EditedSource(trace.source, (Temperature(temperature=2.0),))  # as an experiment's
    replace(trace, source=edited).save(tmp_path / "mine.safetensors")
    page = visit(f"{app}/?source=file&layer=2&head=3&token=4")
    expect(page.get_by_text("Open a saved trace above")).to_be_visible()

    page.locator("input[type=file]").set_input_files(tmp_path / "mine.safetensors")
    expect(page.get_by_text("A saved trace, opened from")).to_be_visible()
    settled(page)
    view = eye(page)
    assert view.token(2).locator("bdi").inner_text() == "*alte*"
    found = [weight for head, query, _, weight in view.lines() if (head, query) == (2, 3)]
    np.testing.assert_allclose(found, trace.layers[1].weights(2)[3], atol=1e-4)
    view.view.locator(".six figure button").nth(4).click()
    click_cell(view.view.locator(".large canvas.heatmap"), 3, 1)
    explanation = view.view.locator(".cell-path")
    expect(explanation.locator(".edits")).to_have_text("Changed: temperature 2.")
    explanation.get_by_text("Code that prints this number").click()
    about = '# weights: layer 2, head 3, "Katze", "Die"\n# edited: "temperature 2"\n'
    expect(explanation.locator("pre")).to_contain_text(about)
    expect(page.locator("textarea").first).to_be_disabled()

    page.get_by_role("link", name="Token", exact=True).click()
    settled(page)
    expect(page.get_by_role("heading", name="From query to weights, head 3")).to_be_visible()
