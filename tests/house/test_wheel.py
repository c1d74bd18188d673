"""The wheel: one importable name, the app inside it, and a command that serves every page."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

from mha_core.analysis.derivation import STEPS
from mha_core.export import scripts
from mha_core.scene.page import HOME, PAGES
from pages._kit.text import catalogue

ROOT = Path(__file__).parents[2]
APP = "mha_core/_app"
WORKSHOP = "mha_core/training/workshop"
START_LIMIT = 60  # seconds until the server must answer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="written for the paths and signals of POSIX"),
]


def run(*command: object, **options) -> str:
    """The output of a command; a failure shows all of its output."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def clean() -> dict:
    """The environment without variables that would expose this checkout to another interpreter."""
    hidden = ("PYTHON", "STREAMLIT_")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built from an sdist built from this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, env=clean())
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """The interpreter of a new environment with this wheel, and its dependencies by one path file."""
    home = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", home)
    [site] = home.glob("lib/python*/site-packages")
    interpreter = home / "bin" / "python"
    options = ("--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", interpreter, "install", *options, wheel, env=clean())
    # A plain path: what .pth files of the other folder say, an editable install above all, stays there.
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return interpreter


@pytest.fixture(scope="module")
def server(python, tmp_path_factory):
    """The address of the app as the command `headscope` serves it, started far from the checkout."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"--server.headless true --server.port {port} --server.address 127.0.0.1".split()
    command = [python.with_name("headscope"), *options, "--browser.gatherUsageStats", "false"]
    log = (elsewhere / "log").open("w+", encoding="utf-8")
    with (
        subprocess.Popen(
            [*map(str, command)],
            cwd=elsewhere,
            env=clean() | {"HOME": str(elsewhere)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
        log,
    ):
        try:
            deadline = time.monotonic() + START_LIMIT
            while not is_healthy(port):
                log.seek(0)
                assert process.poll() is None, log.read()
                assert time.monotonic() < deadline, log.read()
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=20)


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5) as answer:
            return answer.read() == b"ok"
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def messages(server: str, page: str = "", link: str = "") -> list[ForwardMsg]:
    """Open a page as a browser does and return all that was sent until the script ended."""
    sent = []
    address = f"ws://{server}/_stcore/stream"
    with connect(address, subprotocols=["streamlit"], max_size=None, open_timeout=20) as socket:
        asked = BackMsg()
        asked.rerun_script.page_name = page
        asked.rerun_script.query_string = link
        socket.send(asked.SerializeToString())
        while not sent or sent[-1].WhichOneof("type") != "script_finished":
            sent.append(ForwardMsg.FromString(socket.recv(timeout=60)))
    assert sent[-1].script_finished == ForwardMsg.FINISHED_SUCCESSFULLY
    return sent


def visit(server: str, page: str = "", link: str = "") -> list:
    """The elements of a page; none of them may be an exception."""
    deltas = [sent.delta for sent in messages(server, page, link) if sent.WhichOneof("type") == "delta"]
    elements = [delta.new_element for delta in deltas if delta.WhichOneof("type") == "new_element"]
    assert [e.exception.message for e in elements if e.WhichOneof("type") == "exception"] == []
    return elements


def bodies(elements: list, kind: str) -> list[str]:
    return [getattr(e, kind).body for e in elements if e.WhichOneof("type") == kind]


def test_the_wheel_has_the_package_without_its_workshop_the_app_and_nothing_else(names):
    files = [ROOT / "app.py", ROOT / ".streamlit" / "config.toml"]
    files += [file for folder in ("pages", "assets") for file in (ROOT / folder).rglob("*") if file.is_file()]
    app = {f"{APP}/{file.relative_to(ROOT).as_posix()}" for file in files if "__pycache__" not in file.parts}
    modules = {file.relative_to(ROOT).as_posix() for file in (ROOT / "mha_core").rglob("*.py")}
    workshop = {name for name in modules if name.startswith(WORKSHOP)}
    assert f"{WORKSHOP}/__main__.py" in workshop
    expected = app | (modules - workshop) | {"mha_core/py.typed"}
    [metadata] = {name.split("/")[0] for name in names} - {"mha_core"}
    assert metadata.endswith(".dist-info")
    assert {name for name in names if not name.startswith(metadata)} == expected


def test_the_package_is_installed_and_the_app_is_not_importable(python, tmp_path):
    code = """
import importlib.util, json, mha_core, sys
from mha_core import resources
print(json.dumps({
    "file": mha_core.__file__,
    "app": str(resources.path("app.py")),
    "found": [n for n in ("pages", "app", "assets", "tests", "_app") if importlib.util.find_spec(n)],
    "loaded": [n for n in ("streamlit", "plotly", "pandas", "transformers") if n in sys.modules],
}))
"""
    told = json.loads(run(python, "-c", code, cwd=tmp_path, env=clean()))
    home = python.parents[1]
    assert Path(told["file"]).is_relative_to(home)
    assert Path(told["app"]).is_relative_to(home)
    assert Path(told["app"]).is_file()
    assert told["found"] == []
    assert told["loaded"] == []


def test_the_wheel_has_the_trained_weights_measures_roles_and_trains(python, tmp_path):
    code = """
import mha_core as mha
from mha_core.training import data, evaluation, queue
from mha_core.training.fit import Plan, Training
trace = mha.trace("The animal didn't cross the street because it was too wide", source="mini")
data.SENTENCES = 2 * data.BATCH
run = Training(Plan(h=2, d_model=8, steps=2))
run.advance(2)
print(trace.answers[8][0][0], len(mha.roles(trace)) > 0, run.finished, *evaluation.STAGES)
"""
    told = run(python, "-c", code, cwd=tmp_path, env=clean()).split()
    assert told == ["street", "True", "True", "neighbours", "grammar", "pronouns"]


def test_a_link_to_a_page_works_as_the_first_visit_to_a_fresh_server(server):
    # The very first request of all, before anybody has opened the home page: in Streamlit's old multipage
    # mode it would show the page alone. The frame must be there (the sentence) and so must the steps.
    elements = visit(server, page="steps", link="text=the+cat+sat&head=2")
    assert "text_area" in {e.WhichOneof("type") for e in elements}
    english = catalogue("en")
    expected = [f"{i}. {english[f'steps.{step.__name__}.title']}" for i, step in enumerate(STEPS, start=2)]
    assert [body for body in bodies(elements, "heading") if body in expected] == expected


def test_the_home_page_shows_its_result_without_an_error(server):
    elements = visit(server)
    assert catalogue("en")["heads.question"] in bodies(elements, "heading")
    sent = [e.bidi_component for e in elements if e.WhichOneof("type") == "bidi_component"]
    [view] = [json.loads(one.json)[0] for one in sent if '"matrices": true' in one.json]
    assert (view["layers"], view["heads"], len(view["answers"])) == (2, 4, 2)
    assert any(view["digest"].encode() in one.bytes and b"mha0" in one.bytes for one in sent)
    assert not [e for e in elements if e.WhichOneof("type") == "plotly_chart"]  # what is folded is not sent


def test_the_scripts_of_the_pages_are_served_from_it(server):
    folder = f"http://{server}/headscope/{scripts.digest()}"
    for name in scripts.order("streamlit/head_view.js"):
        with urllib.request.urlopen(f"{folder}/{name}", timeout=20) as answer:
            assert answer.headers["content-type"].startswith("text/javascript")
            assert answer.read() == scripts.asset(name).encode()


def test_the_wheel_has_the_apps_settings(server):
    # .streamlit/config.toml lies beside the entry file; without it Streamlit's own colours would be served.
    colour = re.search(r'primaryColor = "(#\w+)"', (ROOT / ".streamlit/config.toml").read_text("utf-8"))[1]
    [started] = [sent.new_session for sent in messages(server) if sent.WhichOneof("type") == "new_session"]
    assert colour in str(started)


@pytest.mark.parametrize("page", ["" if name == HOME else name for name in PAGES])
def test_every_page_opens_without_an_error(server, page):
    assert visit(server, page=page)
