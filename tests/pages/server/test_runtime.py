"""The start of the server: no extra garbage collection, and models that open."""

import tomllib
from pathlib import Path

import pytest

from mha_core.sources import mini
from mha_core.training import checkpoints
from pages._server import runtime

ROOT = Path(__file__).parents[3]


def test_streamlit_collects_no_garbage_after_a_run_and_watches_no_files():
    """Both would slow a class down. The config file beside app.py is always used (test_wheel.py)."""
    options = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert (options["runner"]["postScriptGC"], options["server"]["fileWatcherType"]) == (False, "none")


def test_a_server_without_its_models_is_not_ready(monkeypatch, tmp_path):
    assert runtime.ready()
    monkeypatch.setattr(checkpoints, "load_model", lambda path: pytest.fail("read again"))
    assert runtime.ready()
    monkeypatch.undo()
    mini.loaded_model.cache_clear()
    monkeypatch.setattr(checkpoints, "path", lambda plan: tmp_path / "none")
    assert not runtime.ready()
