"""Hostile texts by every way in: no script runs, nothing is fetched, and they are shown as typed."""

import csv
import http.client
import io
import json
import math
import re
import xml.etree.ElementTree as ET
from urllib.parse import quote, urlencode, urlsplit

import pytest
import torch
from playwright.sync_api import expect

import mha_core as mha
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface.catalogue import hub_models
from pages._server.limits import STRANGERS
from tests.bench.chromium import Server
from tests.sources import tiny

EVIL = "evil.example"
SCRIPTS = (
    '<img src=x onerror="window.cracked=1">',
    "<svg onload=window.cracked=1>",
    '"></textarea></script><script>window.cracked=1</script>',
    f'<iframe src="//{EVIL}" srcdoc="<script>parent.cracked=1</script>"></iframe>',
    f'<a href="javascript:window.cracked=1">a</a><link rel=stylesheet href=//{EVIL}/a.css>',
    "${window.cracked=1} {{constructor.constructor('window.cracked=1')()}}",
)
MARKUP = (
    f"![a](https://{EVIL}/a.png) [a](javascript:window.cracked=1) <https://{EVIL}> www.{EVIL}",
    ":material/home: :red[a] **b** `c` # d > e | f |",
    rf"$\href{{https://{EVIL}}}{{a}}$ $$\includegraphics{{https://{EVIL}/a}}$$ \(\unicode{{97}}\)",
    "{text} {0.__class__} %s __NUMBERS__ __OLD__ {tokens} $& <!-- ]]> &lt;",
)
CELLS = (f'=HYPERLINK("https://{EVIL}") +1 -1 @SUM(1) ＝1+1 |a',)
PATHS = (
    "../../../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "file:///etc/passwd",
    "/etc/passwd",
    r"..\..\windows\win.ini",
    "\u202eegami\u202c",
)
FIRST, SECOND = " ".join((*SCRIPTS, *CELLS)), " ".join((*MARKUP, *PATHS))  # short enough for a list of words
TEXTS = [name for name, value in vars(Scene()).items() if value is None or isinstance(value, str)]
PAGES = (  # whose words come from a link
    "",
    "token",
    "steps?steps_view=layers",
    "steps?steps_view=order",
    "embeddings",
    "train",
    "model",
    "atlas",
)
SHAPES = "svg|g|defs|text|tspan|title|desc|style|path|line|rect|circle|polygon|image"
# Elements that only a hostile text can have made.
MADE = f"""img[src*="{EVIL}"], img[src="x"], a[href*="{EVIL}"]:not([href^="./"], [href^="http://127.0.0.1"]),
    a[href^="javascript"], iframe,
    link[href*="{EVIL}"], [onerror], [onload], .katex a, .katex:has-text('evil'), [data-testid=stException]"""


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """The address of a server for strangers, which has a model for them."""
    home = tmp_path_factory.mktemp("home")
    pinned = next(model for model in hub_models() if model.id == "openai-community/gpt2")
    tiny.module("gpt2").save_pretrained(
        home / "hub/models--openai-community--gpt2/snapshots" / pinned.revision
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HEADSCOPE_HOSTED", "1")
        environment.setenv("HF_HOME", str(home))
        server = Server()
    yield server.address
    server.stop()


@pytest.fixture
def harmless(visit, settled):
    """`harmless(address)`: that page in one tab; no text runs, creates an element or requests another site.

    A text that the Content-Security-Policy blocks fails the test, too: `visit` reads the console.
    """
    opened, requests = [], []

    def check() -> None:
        [page] = opened
        assert page.evaluate("window.cracked") is None
        made = page.locator(MADE).evaluate_all("all => all.map((one) => one.outerHTML.slice(0, 300))")
        assert made == []
        own = urlsplit(page.url).netloc
        assert [url for url in requests if urlsplit(url).netloc not in (own, "")] == []

    def open_(address: str):
        if opened:
            check()
            opened[0].goto(address)
            settled(opened[0])
            return opened[0]
        opened.append(page := visit(address))
        page.on("request", lambda request: requests.append(request.url))
        page.on("dialog", lambda dialog: requests.append(dialog.message))
        return page

    yield open_
    if opened:
        check()


def page_text(page) -> str:
    """The text of the page, without the characters that escape Markdown."""
    return page.locator("[data-testid=stApp]").inner_text().replace("\u2060", "")


def test_a_hostile_sentence_or_model_is_shown_as_typed_on_every_page(app, harmless, settled, eye):
    link = urlencode({"source": "random", "text": FIRST, "twin": SECOND, "token": 1, "layer": 1, "head": 1})
    page = harmless(f"{app}?{link}")
    for number, text in enumerate((FIRST, SECOND)):
        assert eye(page).words(number) == list(mha.words(text).labels)
    for name in ("token", "steps", "what-if", "compare"):
        page = harmless(f"{app}/{name}?{link}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_role("textbox", name="Sentence", exact=True)).to_have_value(FIRST)
    model = f"{SCRIPTS[0]} {MARKUP[0]}"
    page = harmless(f"{app}/model?{urlencode({'source': 'model', 'model': model})}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert model in page_text(page)
    expect(page.locator(".view")).to_have_count(0)


def test_any_text_in_any_field_of_a_link_is_harmless(strangers, harmless):
    fields = [name for name in TEXTS if name not in ("text", "twin")]
    fields += ["drawing", "side", "words", "token", "hop1"]
    fields += ["train_architecture", "width", "axes", "lang", "[]"]
    for number, page in enumerate(PAGES):
        payloads = (FIRST, SECOND) if number % 2 else (SECOND, FIRST)
        link = urlencode({name: payloads[at % 2] for at, name in enumerate(fields)})
        harmless(f"{strangers}/{page}{'&' if '?' in page else '?'}{link}")


def test_any_content_of_a_file_is_harmless(app, harmless, settled, eye, tmp_path):
    path = tmp_path / "trace.safetensors"
    q, k, v = torch.randn(3, 2, 3, 7, 5).unbind(0)
    tokens = [SCRIPTS[0], SCRIPTS[2], MARKUP[0], MARKUP[2], CELLS[0], PATHS[0], PATHS[5]]
    trace = mha.from_tensors(q=q, k=k, v=v, tokens=tokens, source={"name": SCRIPTS[0], MARKUP[0]: MARKUP[2]})
    trace.save(path)
    tokens = list(mha.load(path).tokens.labels)
    page = harmless(f"{app}/?source=file")
    upload = page.locator("input[type=file]")
    script = "<img src=x onerror=window.cracked=1>"  # browsers change quotes in the name of a file
    name = f"{script} {MARKUP[1]}.safetensors"
    upload.set_input_files({"name": name, "mimeType": "text/html", "buffer": path.read_bytes()})
    expect(page.get_by_text("A saved trace, opened from")).to_be_visible()
    settled(page)
    assert eye(page).words() == tokens
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    for content in ((2**63 - 1).to_bytes(8, "little"), len(header).to_bytes(8, "little") + header):
        refused = f"{len(content)} {script}.safetensors"
        upload.set_input_files({"name": refused, "mimeType": "text/html", "buffer": content})
        alert = page.get_by_test_id("stAlert").filter(has_text=str(len(content)))  # that before may fade out
        expect(alert).to_be_visible()
        assert f"{refused} cannot be read as a saved trace" in alert.inner_text().replace("\u2060", "")
        assert eye(page).words() == tokens  # what was open stays open


def test_a_file_opens_up_to_the_limit_on_its_label_and_a_larger_one_is_refused_in_words(
    strangers, visit, settled, eye, tmp_path
):
    megabytes = STRANGERS.upload_megabytes
    page = visit(f"{strangers}/?source=file")
    uploader = page.get_by_test_id("stFileUploader")
    expect(uploader).to_contain_text(f"{megabytes}MB per file")
    for words, d_model, least, most in (
        ("just small enough", 480, 0.8, 1),
        ("much too large", 640, 1.5, math.inf),
    ):
        path = tmp_path / f"{d_model}.safetensors"
        mha.trace(words, h=8, d_model=d_model).save(path)
        size = path.stat().st_size / 2**20
        assert least < size / megabytes < most
        uploader.locator("input[type=file]").set_input_files(path)
        if size < megabytes:
            expect(page.get_by_text("A saved trace, opened from")).to_be_visible()
            settled(page)
        else:
            expect(uploader).to_contain_text(f"must be {megabytes}.0MB or smaller")
        assert eye(page).words() == ["just", "small", "enough"]  # what was open stays open
    assert "AxiosError" not in page_text(page)


def test_saved_files_are_harmless_wherever_they_are_opened(app, browser, harmless, eye, alone, tmp_path):
    page = harmless(f"{app}?{urlencode({'source': 'random', 'text': FIRST, 'twin': '', 'token': 1})}")
    view, labels = eye(page), list(mha.words(FIRST).labels)

    def saved(item: str):
        menu = view.menu("Save")
        with page.expect_download() as download:
            menu.get_by_role("button", name=item).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        assert not {"/", "\\", ".."} & {path.name, path.stem}
        return path

    svg, png = saved("SVG"), saved("PNG")
    root = ET.fromstring(svg.read_text(encoding="utf-8"))
    assert all(re.fullmatch(SHAPES, element.tag.rpartition("}")[2]) for element in root.iter())
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    context = browser.new_context(offline=True)
    asked = []
    opened = context.new_page()
    opened.on("request", lambda request: asked.append(request.url))
    for file in (svg, png):
        opened.goto(file.as_uri())
        assert opened.evaluate("window.cracked") is None
    assert asked == [svg.as_uri(), png.as_uri()]
    context.close()
    view.listbox().press("Escape")
    rows = list(csv.DictReader(io.StringIO(saved("CSV").read_text(encoding="utf-8-sig"))))
    assert {row["query"].removeprefix("'") for row in rows} == {label.removeprefix("'") for label in labels}
    assert not [row for row in rows if row["query"][0] in "=+-@＝"]
    offline = eye(alone(saved("Page that works offline")))  # which asks nobody
    assert offline.words() == labels
    for drawing in ("text", "arcs", "matrix", "lines"):
        offline.button(drawing).click()
        offline.listbox().press("ArrowRight")
        if drawing in ("text", "lines"):
            seen = offline.stage().locator(f".token.{'token' if drawing == 'text' else 'query'}")
            texts = seen.evaluate_all("all => all.map((e) => [e.dataset.at, e.firstChild.textContent])")
            assert texts
            assert all(text == labels[int(at)] for at, text in texts)
        assert offline.page.evaluate("window.cracked") is None
        assert offline.page.locator(MADE).count() == 0


def test_another_site_cannot_connect_or_upload_and_no_path_leads_to_another_file(strangers):
    connection = http.client.HTTPConnection(urlsplit(strangers).netloc)

    def answered(method: str, path: str, **headers: str) -> tuple[int, bytes]:
        connection.request(method, path, headers=headers)
        with connection.getresponse() as answer:
            text = answer.read()
        assert answer.headers["X-Content-Type-Options"] == "nosniff", path
        assert answer.headers["Content-Security-Policy"], path
        return answer.status, text

    handshake = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Origin": "http://evil.example",
    }
    upload = {"Content-Type": "multipart/form-data; boundary=x"}
    for asked, headers in (
        (("GET", "/_stcore/stream"), handshake),
        (("PUT", "/_stcore/upload_file/a/b"), upload),
    ):
        assert answered(*asked, **headers)[0] == 403, asked
        connection.close()
    for folder in ("", "static/", "headscope/", "media/", "component/a/", "_stcore/bidi-components/a/"):
        for path in ("../pyproject.toml", "../../../../../../etc/passwd", "./app.py"):
            for way in (path, quote(path, safe=""), path.replace("../", "..%5c"), path.replace(".", "%2e")):
                _, text = answered("GET", f"/{folder}{way}")
                assert not [word for word in (b"root:", b"build-backend", b"st.App(") if word in text]
    connection.close()
