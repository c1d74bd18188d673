"""A server for strangers: its limits hold on every page, and the table in the docs is the same."""

import os
from dataclasses import fields
from pathlib import Path

import pytest
import streamlit as st

import mha_core as mha
from mha_core.scene.scene import Scene
from pages._kit import compute, uploads
from pages._server import limits
from tests.pages.conftest import refused_by_link

ROOT = Path(__file__).parents[3]


@pytest.fixture
def hosted(monkeypatch):
    monkeypatch.setenv(limits.HOSTED, "1")


def test_a_slow_trace_is_refused_for_strangers(hosted):
    sizes = {"h": 64, "d_model": 256, "n_kv_heads": 1, "d_k": 16, "d_v": 128, "layers": 6}
    limit = r"at least [\d.]+ s on this processor \(layers 6, tokens 512\); the limit is 30\.0 billion"
    with pytest.raises(mha.MhaError, match=limit) as error:
        compute.trace(Scene(source="random", text="a " * 512, **sizes))
    assert {"layers": 4} in error.value.fixes


def test_the_table_in_the_docs_is_that_of_the_limits():
    rows = [("what", "your own machine", f"`{limits.HOSTED}=1`"), ("---", "---", "---")]
    for one in fields(limits.Limits):
        values = (written(getattr(figures, one.name)) for figures in (limits.OWN, limits.STRANGERS))
        rows.append((one.metadata["meaning"], *values))
    rows += ((f"bytes of {name}", written(own), written(other)) for name, own, other in limits.KEPT.values())
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    docs = (ROOT / "assets" / "deploy" / "README.md").read_text(encoding="utf-8")
    assert table in docs, f"write this there:\n{table}"


def written(value: float | bool | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "no limit" if value is None else f"{value:,.15g}"


def test_a_file_is_accepted_up_to_the_limit_of_the_server(hosted):
    assert uploads.megabytes() == limits.STRANGERS.upload_megabytes
    del os.environ[limits.HOSTED]
    assert uploads.megabytes() == limits.OWN.upload_megabytes == st.get_option("server.maxUploadSize")


@pytest.mark.slow
def test_a_link_beyond_the_limits_is_reduced_to_them_and_says_so(hosted, opened_on_random, eye):
    link = {"h": 64, "d_model": 1024, "d_k": 1024, "layers": 16, "text": "old " * 3000}
    (line,) = refused_by_link(opened_on_random(**link))
    for name in ("d_model", "d_k", "layers"):
        assert f"{name} = {link[name]}, but the limit is {getattr(limits.STRANGERS, name)}. " in line
    assert f"the limit is {limits.STRANGERS.characters:,} characters. " in line
    app = opened_on_random(text="old " * 600)
    assert len(eye(app)[1][0]["tokens"]) == compute.max_tokens("random") == limits.STRANGERS.tokens
    assert app.number_input(key="d_model").proto.max == limits.STRANGERS.d_model
