"""What the pages know of the inside of Streamlit stands in one file, and the installed Streamlit has it."""

import asyncio
import re
import threading
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit import config, net_util
from streamlit.elements.widgets.number_input import NumberInputSerde
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.NewSession_pb2 import CustomThemeConfig
from streamlit.proto.NumberInput_pb2 import NumberInput
from streamlit.runtime import app_session
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.runtime import Runtime
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext
from streamlit.runtime.state.session_state import SessionState
from streamlit.runtime.uploaded_file_manager import UploadedFileRec
from streamlit.web.server import server_util

from mha_core.export import scripts
from pages._kit.state import CONTROLS
from pages._server import streamlit_parts

ROOT = Path(__file__).parents[3]
BUNDLE = Path(st.__file__).parent / "static" / "static" / "js"
PRIVATE = re.compile(r"data-testid|st-key-|[.\"']st[A-Z]\w+|emotion|streamlit\.runtime")


@pytest.fixture(scope="module")
def bundle() -> str:
    return "".join(file.read_text(encoding="utf-8") for file in BUNDLE.glob("*.js"))


def names() -> set[str]:
    """What both modules say of Streamlit's elements: their names, classes and attributes."""
    module = Path(streamlit_parts.__file__).read_text(encoding="utf-8") + scripts.asset("streamlit.js")
    return set(re.findall(r"\bst(?:-key-|[A-Z]\w+)|data-(?!testid)[a-z-]+\b", module))


def test_streamlit_still_calls_its_parts_so(bundle):
    assert len(names()) > 12
    missing = [name for name in sorted(names()) if not re.search(rf"{name}(?![A-Za-z])", bundle)]
    assert missing == []


def test_buttons_still_have_their_names(bundle):
    assert "stBaseButton-" in bundle  # and the kind
    for kind in ("primary", "tertiary"):
        assert re.search(rf"""["'`]{kind}["'`]""", bundle)


def test_a_run_still_says_whether_it_follows_the_history():
    assert "is_history_navigation" in {field.name for field in fields(ScriptRunContext)}


def test_each_part_is_named_in_the_rules():
    parts = [
        value for name, value in vars(streamlit_parts).items() if name.isupper() and isinstance(value, str)
    ]
    assert parts
    rules = streamlit_parts._rules() + streamlit_parts._navigation({1: "See"}, "Menu")
    rules += streamlit_parts._one_alone([".a"], "b")
    assert [part for part in parts if part not in rules] == []


@pytest.mark.parametrize("pattern", streamlit_parts.EARLY)
def test_streamlit_still_has_each_file_that_is_named_early(pattern):
    assert len(list(streamlit_parts.STATIC.glob(pattern))) == 1


def test_no_other_file_knows_them():
    patterns = ("pages/**/*.py", "app.py", "assets/components/*.js", "assets/components/*.css")
    files = [file for pattern in patterns for file in ROOT.glob(pattern)]
    private = [file.relative_to(ROOT).as_posix() for file in files if PRIVATE.search(file.read_text("utf-8"))]
    assert private == ["pages/_server/streamlit_parts.py", "assets/components/streamlit.js"]


def test_what_a_session_holds_is_the_same_when_each_value_is_read_by_itself(opened, monkeypatch):
    """The controls of a page are drawn alike, and read no component's value."""
    whole = SessionState.filtered_state
    app = opened(h=8, token="street")
    state = app._session_state._state
    values = whole.fget(state)
    assert {"h", "address", "head_view"} <= values.keys()
    lazy = streamlit_parts.LazyState(state)
    assert dict(lazy) == values
    assert {name: lazy.get(name, "absent") for name in CONTROLS} == {
        name: values.get(name, "absent") for name in CONTROLS
    }
    monkeypatch.setattr(SessionState, "filtered_state", whole)
    streamlit_parts.read_lazily()
    again = opened(h=8, token="street")
    assert not again.exception
    assert [element.proto for element in again.main] == [element.proto for element in app.main]


def run(loop: asyncio.AbstractEventLoop) -> None:
    """Until it stops, in a thread of its own: a browser of the tests may have its loop in this one."""
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    thread.join()


def test_all_that_a_run_says_at_once_wakes_the_event_loop_once(monkeypatch):
    """In its order, what is said later too, and an error loses nothing."""
    for owner, name in ((AppSession, "_call_soon_on_event_loop"), (Runtime, "_enqueued_some_message")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    streamlit_parts.wake_once()
    loop, heard, failed, wakes = asyncio.new_event_loop(), [], [], []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    wake = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *say: wakes.append(say) or wake(*say))
    session = SimpleNamespace(_event_loop=loop)

    def say(*words: int) -> None:
        for word in words:
            AppSession._call_soon_on_event_loop(session, lambda word=word: heard.append(1 / word))

    say(1, 0, 2, 4)
    loop.call_later(0.05, say, 8, 10)
    loop.call_later(0.1, loop.stop)
    run(loop)
    assert (heard, len(failed), len(wakes)) == ([1, 0.5, 0.25, 0.125, 0.1], 1, 2)

    asked = SimpleNamespace(need_send_data=asyncio.Event(), eventloop=loop)
    runtime = SimpleNamespace(_get_async_objs=lambda: asked)
    for _ in range(3):
        Runtime._enqueued_some_message(runtime)
        loop.call_soon(loop.stop)
        run(loop)
    assert (asked.need_send_data.is_set(), len(wakes)) == (True, 3)
    loop.close()


def themes() -> CustomThemeConfig:
    """What a run sends of the theme, as Streamlit fills it in."""
    message = ForwardMsg()
    theme = message.new_session.custom_theme
    for part in ("", ".light", ".dark", ".sidebar", ".light.sidebar", ".dark.sidebar"):
        place = theme
        for name in part.split(".")[1:]:
            place = getattr(place, name)
        app_session._populate_theme_msg(place, f"theme{part}")
    return theme


@pytest.mark.parametrize(
    ("option", "value"), [("light.primaryColor", "#123456"), ("sidebar.paddingTop", None)]
)
def test_the_theme_that_is_composed_once_is_that_of_every_run(monkeypatch, option, value):
    """And follows the settings when they are read anew; a part without settings is not sent."""
    name, compose = f"theme.{option}", app_session._populate_theme_msg
    monkeypatch.setattr(app_session, "_populate_theme_msg", compose)
    before, was = themes(), config.get_option(name)
    streamlit_parts.compose_themes_once()
    once = app_session._populate_theme_msg
    assert [themes(), themes()] == [before, before]
    try:
        config.set_option(name, value)
        config._on_config_parsed.send()
        changed = themes()
        monkeypatch.setattr(app_session, "_populate_theme_msg", compose)
        assert changed == themes() != before
    finally:
        config.set_option(name, was)
        config._on_config_parsed.send()
    monkeypatch.setattr(app_session, "_populate_theme_msg", once)
    assert themes() == before


def test_of_the_files_of_a_page_the_latest_are_held(monkeypatch):
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
    assert manager._total_bytes == 2 * most * 3


def test_of_the_files_of_all_pages_the_latest_are_held(monkeypatch):
    manager = MemoryUploadedFileManager("/files")
    monkeypatch.setattr(MemoryUploadedFileManager, "add_file", MemoryUploadedFileManager.add_file)
    streamlit_parts.hold_few_uploads(10)
    for page in "abcdef":  # three bytes each
        manager.add_file(page, UploadedFileRec(f"file of {page}", "a.safetensors", "", b"abc"))
        if page == "d":
            manager.remove_session_files("d")
    assert [page for page in "abcdef" if manager.get_files(page, [f"file of {page}"])] == ["c", "e", "f"]
    manager.add_file("g", UploadedFileRec("large", "a.safetensors", "", b"a" * 99))
    assert manager._total_bytes == 99  # the latest one is always there


def test_a_page_of_another_site_is_refused_without_asking_a_third_one(monkeypatch):
    monkeypatch.setattr(net_util, "get_external_ip", net_util.get_external_ip)
    monkeypatch.setattr(net_util, "_make_blocking_http_get", lambda *_, **__: pytest.fail("asked"))
    streamlit_parts.ask_no_other_site()
    assert not server_util.is_url_from_allowed_origins("http://evil.example")
    assert server_util.is_url_from_allowed_origins("http://localhost:8501")


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 1e999, 9.0, -1.0])
def test_a_number_that_a_field_cannot_have_is_its_own(monkeypatch, value):
    monkeypatch.setattr(NumberInputSerde, "deserialize", NumberInputSerde.deserialize)
    streamlit_parts.take_whole_numbers()
    field = NumberInputSerde(4, NumberInput.INT, 1, 8)
    assert field.deserialize(value) == 4
    assert field.deserialize(7.0) == 7
    assert field.deserialize(None) == 4
