"""The start of the server: few memory arenas, rare garbage collection, and models that open."""

import gc
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mha_core.sources import mini
from mha_core.training import checkpoints
from pages._server import runtime

ROOT = Path(__file__).parents[3]
ARENAS = """
import ctypes, threading
from pages._server import runtime
runtime.begin()
libc, barrier = ctypes.CDLL(None), threading.Barrier(8)
def take():
    libc.free(ctypes.c_void_p(libc.malloc(1000)))
    barrier.wait()
libc.malloc.restype = ctypes.c_void_p
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are those of glibc")
def test_the_threads_of_a_class_share_two_arenas_of_memory():
    told = subprocess.run(
        [sys.executable, "-c", ARENAS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert 1 <= told.stdout.count("<heap nr=") <= 2


def test_garbage_collection_skips_imports_and_is_rare():
    before = gc.get_threshold()
    runtime.tune_garbage_collection()
    try:
        assert gc.get_freeze_count() > 100_000
        assert len(gc.get_objects()) < 1000
        assert gc.get_threshold()[0] > 5 * runtime.OBJECTS_PER_RUN
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


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
