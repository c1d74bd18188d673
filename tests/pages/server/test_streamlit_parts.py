"""The app's use of Streamlit's private parts is in three files, and this Streamlit has them."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import streamlit as st
from streamlit import net_util
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext
from streamlit.runtime.uploaded_file_manager import UploadedFileRec
from streamlit.web.server import server_util

from mha_core.export import scripts
from pages._kit.text import catalogue
from pages._server import streamlit_parts

ROOT = Path(__file__).parents[3]
BUNDLE = Path(st.__file__).parent / "static" / "static" / "js"
PRIVATE = re.compile(  # `st-key-` is public: the class of whatever has a key
    r"data-testid|[.\"']st[A-Z]\w+|emotion|_stcore|from streamlit import"
    r"|streamlit\.(runtime|proto|elements|web|config|logger|navigation)"
)


@pytest.fixture(scope="module")
def bundle() -> str:
    return "".join(file.read_text(encoding="utf-8") for file in BUNDLE.glob("*.js"))


def names() -> set[str]:
    """The names, classes and attributes of Streamlit's elements in both modules."""
    parts = (scripts.asset(f"streamlit/{name}") for name in ("adapter.js", "app.css"))
    module = "".join((Path(streamlit_parts.__file__).read_text(encoding="utf-8"), *parts))
    return set(
        re.findall(r"\bst(?:-key-|[A-Z]\w+)|data-(?!testid|typed)[a-z-]+\b", module)
    )  # "typed" is ours


def test_streamlit_still_has_the_private_parts(bundle):
    assert len(names()) > 12
    missing = [name for name in sorted(names()) if not re.search(rf"{name}(?![A-Za-z])", bundle)]
    assert missing == []
    kinds = ("primary", "tertiary")  # of buttons, whose names end with them
    assert "stBaseButton-" in bundle
    assert [kind for kind in kinds if not re.search(rf"""["'`]{kind}["'`]""", bundle)] == []
    folder = Path(server_util.__file__).parent
    server = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
    assert [path for path in ("_stcore/agent/", "{BASE_ROUTE_CORE}/metrics") if path not in server] == []
    assert "is_history_navigation" in {field.name for field in fields(ScriptRunContext)}


def test_streamlit_still_writes_these_words_by_itself(bundle):
    english = catalogue("en")
    words = {
        name: english[f"streamlit.{name}"]
        for line in streamlit_parts.OWN_WORDS.values()
        for name in line.split()
    }
    # What it puts together of pieces, as "Press ⌘+Enter to apply".
    pieces = {
        name: re.split(r"\{\w+\}|(?<=to )(?=apply)|options(?=\.)|(?=\. Running)|Ctrl|⌘|\w+(?= icon$)", text)
        for name, text in words.items()
    }
    assert {name for name, parts in pieces.items() for part in parts if part not in bundle} == set()
    assert {f"streamlit.{name}" for name in words} == {key for key in english if key.startswith("streamlit.")}


def test_private_parts_are_used_in_no_other_file():
    patterns = ("pages/**/*.py", "app.py", "assets/components/**/*.js", "assets/components/**/*.css")
    files = [file for pattern in patterns for file in ROOT.glob(pattern)]
    private = [file.relative_to(ROOT).as_posix() for file in files if PRIVATE.search(file.read_text("utf-8"))]
    folder = "assets/components/streamlit"
    assert private == ["pages/_server/streamlit_parts.py", f"{folder}/adapter.js", f"{folder}/app.css"]


def test_the_latest_files_of_a_page_are_kept(monkeypatch):
    manager = MemoryUploadedFileManager("/files")
    monkeypatch.setattr(MemoryUploadedFileManager, "add_file", MemoryUploadedFileManager.add_file)
    streamlit_parts.hold_few_uploads(None)
    most = streamlit_parts.MAX_UPLOADS
    for page in ("one", "other"):
        for nth in range(most + 3):
            manager.add_file(page, UploadedFileRec(str(nth), "a.safetensors", "", b"abc"))
    names = [str(nth) for nth in range(most + 3)]
    for page in ("one", "other"):
        assert [file.file_id for file in manager.get_files(page, names)] == names[-most:]


def test_the_latest_files_of_all_pages_are_kept(monkeypatch):
    manager = MemoryUploadedFileManager("/files")
    monkeypatch.setattr(MemoryUploadedFileManager, "add_file", MemoryUploadedFileManager.add_file)
    streamlit_parts.hold_few_uploads(10)
    for page in "abcdef":  # three bytes each
        manager.add_file(page, UploadedFileRec(f"file of {page}", "a.safetensors", "", b"abc"))
        if page == "d":
            manager.remove_session_files("d")
    assert [page for page in "abcdef" if manager.get_files(page, [f"file of {page}"])] == ["c", "e", "f"]
    manager.add_file("g", UploadedFileRec("large", "a.safetensors", "", b"a" * 99))
    assert manager.get_files("g", ["large"])  # the latest one is always there
    assert not any(manager.get_files(page, [f"file of {page}"]) for page in "abcdef")


def test_a_page_of_another_site_is_refused(monkeypatch):
    monkeypatch.setattr(net_util, "get_external_ip", net_util.get_external_ip)
    monkeypatch.setattr(net_util, "_make_blocking_http_get", lambda *_, **__: pytest.fail("asked"))
    streamlit_parts.ask_no_other_site()
    assert not server_util.is_url_from_allowed_origins("http://evil.example")
    assert server_util.is_url_from_allowed_origins("http://localhost:8501")


def test_streamlit_still_has_each_preloaded_font_once():
    assert len(streamlit_parts.early_fonts()) == len(streamlit_parts.FONTS)
