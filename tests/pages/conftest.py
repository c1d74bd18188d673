"""Fixtures of the page tests: the app opened by a link, and readers of its screen."""

import base64
import contextlib
import functools
import html
import itertools
import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np
import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.testing.v1 import AppTest, local_script_runner
from streamlit.util import calc_hash

import mha_core as mha
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface import catalogue as models
from pages._kit import choice, compute, model_source
from pages._kit.text import catalogue
from pages._server import limits, quotas
from pages._server import rooms as server_rooms
from tests.conftest import six_matrices

ROOT = Path(__file__).parents[2]
FRAME = "pages/frame.py"
# The file of each page by its name in a link.
FILES = {
    **{name: f"see/{name}.py" for name in ("heads", "token", "compare")},
    **{name: f"understand/{name}.py" for name in ("steps", "embeddings", "cost")},
    **{name: f"learn/{name}.py" for name in ("train", "lessons", "cases")},
    "what-if": "understand/what_if.py",
    "model": "models/real.py",
    "atlas": "models/atlas.py",
}
# The pages about a trace, and all pages, each in each of its views.
OF_TRACE = ("see/heads.py", "see/token.py", "see/compare.py", "understand/steps.py", "understand/what_if.py")
OF_TRACE += ("understand/steps.py?steps_view=layers", "understand/embeddings.py")
PAGES = (*OF_TRACE, "understand/steps.py?steps_view=order", "understand/cost.py", "learn/train.py")
PAGES += ("learn/train.py?train_view=heads", "learn/cases.py", "learn/lessons.py")
PAGES += ("models/real.py", "models/atlas.py")
ADDRESSES = {"understand/what_if.py": "what-if", "models/real.py": "model"}  # of pages named otherwise


@pytest.fixture(scope="session", autouse=True)
def _no_run_fails():
    """Every run of a page in these tests, first or after an act, ends without an exception."""
    run = AppTest._run

    def checked(app: AppTest, *arguments: object, **named: object) -> AppTest:
        run(app, *arguments, **named)
        assert not app.exception
        return app

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AppTest, "_run", checked)
        yield


@pytest.fixture(scope="session", autouse=True)
def _begun_once():
    """Share between all runs, as a server does, what Streamlit's tester repeats for each, half of its work.

    It looks for components in every installed package, and compiles the frame and the page.
    """
    scripts = ScriptCache()
    with pytest.MonkeyPatch.context() as patch:
        found = functools.cache(manifest_scanner.scan_component_manifests)
        patch.setattr(manifest_scanner, "scan_component_manifests", found)
        patch.setattr(local_script_runner, "ScriptCache", lambda: scripts)
        yield


@pytest.fixture
def rooms(monkeypatch, tmp_path):
    """The rooms of a server that has them, in an empty database."""
    pytest.importorskip("sqlalchemy", reason="the extra [room] is not installed")
    from mha_core.room.rooms import DATABASE

    monkeypatch.setenv(server_rooms.ROOMS, "1")
    monkeypatch.setenv(DATABASE, f"sqlite:///{tmp_path / 'rooms.sqlite3'}")
    monkeypatch.setattr(server_rooms, "_opened", [])
    monkeypatch.setattr(quotas, "address", lambda: "198.51.100.7")  # Streamlit's tester has no visitor
    for quota in (server_rooms.WRONG_CODES, server_rooms.PLACES, server_rooms.OPENED):
        quota.times.clear()
    with contextlib.closing(server_rooms.rooms()) as opened:
        yield opened


# A link to random weights, which take any words, sizes, masks and positions, and to one sentence.
RANDOM = {"source": "random", "twin": "", "layer": 1, "head": 1, "token": 8}


def run(file: str, link: dict, page: str | None = None, folds: Sequence[str] = ()) -> AppTest:
    """The page may name a view of its own: ``understand/steps.py?steps_view=layers``."""
    app = AppTest.from_file(ROOT / file, default_timeout=600)
    page, _, view = (page or "").partition("?")
    link = dict(parse_qsl(view)) | link
    for fold in folds:
        app.session_state[fold] = True
    if page:
        app.switch_page(page)
        if page in ADDRESSES:  # before the first run Streamlit's hand knows the names of files alone
            app._page_hash = calc_hash(ADDRESSES[page])
    for key, value in link.items():
        app.query_params[key] = value if isinstance(value, list) else str(value)
    app.run()
    if page:
        assert app._finished_page_script_hash == app._page_hash  # and not that of Heads
    return app


def go_to(app: AppTest, page: str) -> None:
    """Go to a page, perhaps to a view of its own, in the same session."""
    page, _, view = page.partition("?")
    for field in ("steps_view", "train_view"):
        app.query_params.pop(field, None)
    for field, name in parse_qsl(view):
        app.query_params[field] = name
    app.switch_page(page).run()


def refused_by_link(app: AppTest) -> list[str]:
    """The lines about invalid values of the link, without marks of escape."""
    said = [caption.value for caption in app.caption if "The link says" in caption.value]
    return [line.replace("\\", "").replace("\u2060", "") for line in said]


def sent(app: AppTest, key: str) -> dict:
    """The input of one of our components, as JSON."""
    return json.loads(app.get_by_key(key).proto.json)[0]


def random_trace(**settings: object) -> mha.AttentionTrace:
    """The trace of the page on random weights with these settings."""
    return mha.trace(**(Scene(source="random").settings() | settings))


def texts(app: AppTest) -> list[str]:
    """The sentences of a page, as Markdown."""
    return [element.value for element in (*app.main.markdown, *app.main.caption)]


def codes(app: AppTest) -> list[str]:
    """The code on a page."""
    shown = "".join(one.body for one in app.get("html"))
    return [
        html.unescape(code)
        for code in re.findall(r'class="code-block.*?<pre.*?>(.*?)</pre>', shown, re.DOTALL)
    ]


def infos(app: AppTest) -> list[str]:
    return [info.value for info in app.info]


def keys(app: AppTest) -> list[str]:
    """The keys of the buttons."""
    return [button.key for button in app.button]


def figure(app: AppTest, key: str) -> dict:
    """A figure of Plotly."""
    return json.loads(app.get_by_key(key).proto.spec)


def numbers(values) -> np.ndarray:
    """Numbers of a Plotly figure, which it packs where they are many."""
    packed = isinstance(values, dict)
    return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]) if packed else np.array(values)


@pytest.fixture
def opened():
    """`opened("numbers", h=8, …)`: the app as of a link with these values, the folds of those keys open."""
    return lambda *folds, **link: run(FRAME, link, folds=folds)


@pytest.fixture
def opened_on_random():
    """As `opened`, on random weights; files about random weights use it as their `opened`."""
    return lambda *folds, **link: run(FRAME, RANDOM | link, folds=folds)


@pytest.fixture
def opened_on():
    """`opened_on("learn/train.py", "fold", h=2)`: a page in its frame, opened by a link."""
    return lambda page, *folds, **link: run(FRAME, link, page, folds)


@pytest.fixture
def on_page(opened_on, request):
    """`on_page("fold", h=2)`: the page that the file of the test is about, opened by a link."""
    return functools.partial(opened_on, request.module.PAGE)


@pytest.fixture(scope="session")
def english():
    """`english("heads.title")`: a text of the catalogue, its placeholders filled in."""
    return lambda key, /, **values: catalogue("en")[key].format(**values)


@pytest.fixture(scope="session")
def controls():
    """`controls(app)`: what the controls above the page are set to, by their fields."""

    def read(app: AppTest) -> dict[str, object]:
        kinds = ("text_area", "text_input", "number_input", "selectbox", "segmented_control", "toggle")
        above = app.get_by_key("controls")
        widgets = {widget.key: widget.value for kind in kinds for widget in getattr(above, kind)}
        return {key.removeprefix(choice.SHOWN): value for key, value in widgets.items()}

    return read


@pytest.fixture(scope="session")
def offers():
    """`offers(app)`: the buttons of a page, without those above it."""
    return lambda app: [one for one in app.button if one not in app.get_by_key("controls").button]


@pytest.fixture(scope="session")
def strip():
    """`strip(app)`: the sentence on a page where it is chosen from, or the other text: `strip(app, 1)`."""
    return lambda app, nth=0: sent(app, "chooser")["strips"][nth]


@pytest.fixture(scope="session")
def rows():
    """`rows(app)`: for each row above the sentence, by field, the chosen number and how many there are."""
    return lambda app: {
        row["field"]: (row["chosen"] + row["first"], row["count"]) for row in sent(app, "chooser")["rows"]
    }


@pytest.fixture(scope="session")
def choose(click):
    """`choose(app, head=2)`: the message of the browser when another place is chosen, from 0."""
    return lambda app, **chosen: click(app, "chooser", chosen)


@pytest.fixture(scope="session")
def eye():
    """`eye(app)`: the header of the head view and the panels of its payload with their weights."""

    def read(app: AppTest, key: str = "head_view") -> tuple[dict, list[dict]]:
        header = sent(app, key)
        said, blob = app.get_by_key(f"{key}_blob").proto.bytes.split(b"\n", 1)
        assert json.loads(said) == {"name": header["name"], "digest": header["digest"]}
        assert blob[:4] == b"mha0"
        (size,) = struct.unpack_from("<I", blob, 4)
        panels = json.loads(blob[8 : 8 + size])["panels"]
        for panel in panels:
            panel["layers"] = [_layer(blob[8 + size :], layer) for layer in panel["layers"]]
        return header, panels

    return read


def _layer(body: bytes, described: dict) -> dict:
    """A layer of a payload: its q, k and v where they were sent, and from them its scores and weights.

    The same arithmetic as in assets/components/payload.js; heads are those that were sent.
    """
    layer = {name: _array(body, at) if isinstance(at, dict) else at for name, at in described.items()}
    if "q" not in layer:
        return layer | {"weights": (layer["weights"] / 65535) ** 2}  # 16 bits of the square root
    layer["scores"] = layer["q"] @ layer["k"][layer["kv"]].transpose(0, 2, 1)
    scaled, n_query, n_key = layer["scores"] * layer["scale"], *layer["scores"].shape[1:]
    if cap := layer["soft_cap"]:
        scaled = cap * np.tanh(scaled / cap)
    scaled = scaled + layer.get("bias", 0)
    if "distance_bias" in layer:
        scaled += layer["distance_bias"][:, np.arange(n_key) - np.arange(n_query)[:, None] + n_query - 1]
    allowed = np.ones((1, n_query, n_key), bool)
    if "range" in layer:
        first, end = np.moveaxis(layer["range"], -1, 0)[..., None]
        allowed = (np.arange(n_key) >= first) & (np.arange(n_key) < end)
    if "visible" in layer:
        allowed = np.unpackbits(layer["visible"], axis=-1, count=n_key).astype(bool)
    with np.errstate(over="ignore"):  # where a mask hides everything
        weights = np.exp(scaled / layer["temperature"] - layer["lse"][..., None])
    return layer | {"weights": np.where(allowed, weights, 0), "allowed": allowed}


def _array(body: bytes, at: dict) -> np.ndarray:
    numbers = np.frombuffer(body, at["type"], int(np.prod(at["shape"])), at["at"]).reshape(at["shape"])
    return numbers.astype(np.float64) if at["type"] == "f4" else numbers


@pytest.fixture(scope="session")
def draws(eye):
    """`draws(app, trace, other)`: the panels of a head view have the tokens and weights of these traces."""

    def compare(app: AppTest, *traces: mha.AttentionTrace, key: str = "head_view") -> None:
        for panel, trace in zip(eye(app, key)[1], traces, strict=True):
            assert panel["tokens"] == [*trace.tokens.labels]
            for layer in panel["layers"]:
                expected = trace.layers[layer["number"]].weights()
                np.testing.assert_allclose(layer["weights"], expected, atol=2e-5)

    return compare


@pytest.fixture(scope="session")
def six(eye):
    """`six(app)`: the six matrices of the chosen head on the page Heads, NaN where a mask hides.

    For a layer with weights only, just those; `nth=1` for the second sentence.
    """

    def read(app: AppTest, nth: int = 0) -> dict[str, np.ndarray]:
        header, panels = eye(app)
        [layer] = [each for each in panels[nth]["layers"] if each["number"] == header["layer"]]
        at = layer["heads"].index(header["head"])
        weights = layer["weights"][at]
        if "q" not in layer:
            return {"weights": weights}
        kv = layer["kv"][at]
        allowed = np.broadcast_to(layer["allowed"], layer["weights"].shape)[at]
        return {
            "q": layer["q"][at],
            "k": layer["k"][kv],
            "v": layer["v"][kv],
            "scores": layer["scores"][at],
            "weights": np.where(allowed, weights, np.nan),
            "output": weights @ layer["v"][kv],
        }

    return read


@pytest.fixture(scope="session")
def shows(six):
    """`shows(app, trace, layer=0, head=0)`: the six matrices on the Heads page are those of this trace."""

    def compare(app: AppTest, trace: mha.AttentionTrace, *, layer: int = 0, head: int = 0) -> None:
        expected = six_matrices(trace.layers[layer], head)
        drawn = six(app)
        for name, matrix in expected.items():
            np.testing.assert_allclose(drawn[name], matrix, rtol=2e-5, atol=2e-5, err_msg=name)

    return compare


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """`folder("gpt2")`: the path of a folder with a tiny model of that architecture, made once."""
    from tests.sources import tiny  # transformers

    return tiny.folders(tmp_path_factory)


@pytest.fixture
def no_other_model(monkeypatch):
    """Hide the models of this machine, and block the network."""
    monkeypatch.setattr(models, "in_hub_cache", list)
    monkeypatch.setattr(models, "package", lambda: None)
    monkeypatch.delenv(limits.HOSTED, raising=False)
    monkeypatch.delenv(model_source.FOLDERS, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model_source.models_in.clear()
    yield
    model_source.models_in.clear()


@pytest.fixture
def on_folder(opened_on, no_other_model, monkeypatch):
    """`on_folder(path, "see/heads.py", head=2)`: a page on the model of that folder, opened by a link."""

    def open_(path: str, page: str, **link: object) -> AppTest:
        monkeypatch.setenv(model_source.FOLDERS, path)
        model_source.models_in.clear()
        return opened_on(page, source="model", model=path, **link)

    return open_


def _with(app: AppTest, message: WidgetState) -> AppTest:
    """The app after a message of a component, in Streamlit's wire format, since AppTest cannot send one."""
    widgets = app._tree.get_widget_states()
    widgets.widgets.append(message)
    return app._run(widgets)


@pytest.fixture(scope="session")
def move():
    """`move(app, head=3)`: the message of a browser whose focus has moved, with the names in a link.

    Values set on the page since the last run are in the same message.
    """
    count = itertools.count(1)

    def send(app: AppTest, **chosen: object) -> AppTest:
        address = app.get_by_key("address").proto
        link = json.loads(address.json)[0]["focus"] | {name: str(value) for name, value in chosen.items()}
        state = WidgetState(id=address.id)
        state.json_value = json.dumps({"focus": {"count": next(count), "link": link}})
        return _with(app, state)

    return send


@pytest.fixture(scope="session")
def place():
    """`place(app)`: layer, head and token that the Heads page looks at, from 0."""
    return lambda app: tuple(sent(app, "head_view")[name] for name in ("layer", "head", "token"))


@pytest.fixture(scope="session")
def tokens(eye):
    """`tokens(app)`: of each sentence on the Heads page its tokens."""
    return lambda app: [panel["tokens"] for panel in eye(app)[1]]


@pytest.fixture(scope="session")
def component():
    """`component(app, "river")`: the input of one of our components, as JSON."""
    return sent


@pytest.fixture(scope="session")
def heatmaps():
    """`heatmaps(app, "steps")`: the matrices of a component by name, as described and with their `values`."""

    def read(app: AppTest, key: str) -> dict[str, dict]:
        data = sent(app, key)
        name, blob = app.get_by_key(f"{key}_blob").proto.bytes.split(b"\n", 1)
        assert json.loads(name) == {"name": key, "digest": data["digest"]}
        assert len({matrix["name"] for matrix in data["matrices"]}) == len(data["matrices"])
        for matrix in data["matrices"]:
            if isinstance(matrix["columns"], int):
                matrix["columns"] = [str(at) for at in range(1, matrix["columns"] + 1)]
            shape = len(matrix["rows"]), len(matrix["columns"])
            matrix["values"] = np.frombuffer(blob, np.float32, shape[0] * shape[1]).reshape(shape)
            blob = blob[4 * shape[0] * shape[1] :]
        for matrix in [matrix for matrix in data["matrices"] if matrix["masked"]]:
            values = matrix["values"]
            hidden = np.frombuffer(blob, np.uint8, values.size).reshape(values.shape)
            matrix["values"], blob = np.where(hidden, np.float32(np.nan), values), blob[values.size :]
        assert blob == b""
        return {matrix["name"]: matrix for matrix in data["matrices"]}

    return read


@pytest.fixture(scope="session")
def drawn(heatmaps):
    """`drawn(app, "short-k")`: the numbers of the one matrix of a component, NaN where they are hidden."""
    return lambda app, key: next(iter(heatmaps(app, key).values()))["values"]


@pytest.fixture(scope="session")
def said():
    """`said(app)`: every text on the screen that is rendered as Markdown."""
    kinds = ("markdown", "caption", "title", "header", "error", "warning")
    return lambda app: [
        *(element.value for kind in kinds for element in getattr(app, kind)),
        *(button.label for button in app.button),
    ]


@pytest.fixture(scope="session")
def click():
    """`click(app, "chooser", {"token": 2})`: the message of the browser when a component reports a choice."""

    def send(app: AppTest, key: str, picked: object, event: str = "picked") -> AppTest:
        component = app.get_by_key(key).proto.id
        state = WidgetState(id=f"$$STREAMLIT_INTERNAL_KEY_{component}__events")
        state.json_trigger_value = json.dumps([{"event": event, "value": picked}])
        return _with(app, state)

    return send


@pytest.fixture(scope="session")
def main_text():
    """`main_text(app)`: the texts of the page."""
    kinds = ("markdown", "caption", "info")
    return lambda app: "\n".join(element.value for kind in kinds for element in getattr(app.main, kind))


# One text that looks at another: 7 tokens at 11 others


@pytest.fixture(scope="session")
def translation(cross_trace, projected_cross):
    """A trace of two layers of 6 heads; of the second one both inputs and all matrices are known."""
    [known] = projected_cross.layers
    source = {"name": "random", "h": 6, "d_model": 13, "seed": 0}
    return mha.AttentionTrace(known.sides.queries, (cross_trace.layers[0], known), source)


@pytest.fixture
def on_translation(opened_on, translation, monkeypatch):
    """`on_translation("see/heads.py")`: the page on that trace, at layer 2, head 3 and the sixth token."""
    monkeypatch.setattr(compute, "trace", lambda scene, **settings: translation)
    link = {"source": "random", "twin": "", "layer": 2, "head": 3, "token": 6}
    return lambda page, *folds, **more: opened_on(page, *folds, **(link | more))
