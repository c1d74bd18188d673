"""The private names of Streamlit that the app relies on: selectors of our style sheet, and files to preload.

A new version may rename them; then tests/pages/server/test_streamlit_parts.py fails. The selectors of the
scripts are in assets/components/streamlit.js.
"""

import base64
import gzip
import hashlib
import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cache, lru_cache
from pathlib import Path

import streamlit as st
import streamlit.logger
from streamlit import config, error_util, net_util
from streamlit.elements.widgets.number_input import NumberInputSerde
from streamlit.navigation.page import Page
from streamlit.proto.NewSession_pb2 import CustomThemeConfig
from streamlit.runtime import app_session
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.runtime import Runtime
from streamlit.runtime.scriptrunner_utils.script_run_context import get_script_run_ctx
from streamlit.runtime.state.common import is_element_id, is_keyed_element_id
from streamlit.runtime.state.session_state import SessionState, _is_internal_key
from streamlit.runtime.uploaded_file_manager import UploadedFileRec

from pages._kit.text import PAGES

SIDEBAR = '[data-testid="stSidebar"]'
PRIMARY = '[data-testid="stBaseButton-primary"]'
BUTTON = '[data-testid="stBaseButton-tertiary"]'
TAG = "[data-tag]"  # a chosen option of a multiselect
RADIO = '[role="radio"]'
CAPTION = '[data-testid="stCaptionContainer"]'
BOX = '[data-testid="stLayoutWrapper"]'  # around a container; it has the container's height
TOOLS = '[data-testid="stElementToolbar"]'  # buttons above a table; without a mouse they cover what is there
CHART = '[data-testid="stPlotlyChart"]'  # around a figure of plotly's
SKELETON = '[data-testid="stSkeleton"]'  # a grey bar in place of what is still loading
TITLE = '[data-testid="stMain"] [data-testid="stHeading"] h1'
COLUMN = '[data-testid="stColumn"]'
LINE = "color-mix(in srgb, currentColor 20%, transparent)"  # as Streamlit's between two parts of a page
KEYED = "st-key-"  # prefix of an element's key in its class
# In these lie the boxes around the links to the pages, one for each: at the top; on a phone in the sidebar.
TOP_LINKS, SIDE_LINKS = '[data-testid="stTopNav"]', '[data-testid="stSidebarNavItems"]'
EXPAND = '[data-testid="stExpandSidebarButton"]'
PHONE = "@media (max-width: 768px)"
TALL_PHONE = "@media (max-width: 640px) and (min-height: 560px)"  # as in head_view.css

INVISIBLE = ("address", "charts", "unseen", "look_link")
CARRIERS = ("_blob",)  # endings of the keys of components that hold data and show nothing
BUTTONS = (
    "apply_",
    "best_hops",
    "model_",
    "start",
    "take_",
    "try_",
    "use_",
)  # beginnings of the keys of buttons

# Files that Streamlit asks for when it needs them first: the font of headings, that of icons, whose names are
# written out until it is there, and what draws our style sheet and our components.
STATIC = Path(st.__file__).parent / "static" / "static"
EARLY = {
    "media/SourceSerifVariable-Roman.*.woff2": "preload; as=font; type=font/woff2",
    "media/MaterialSymbols-Rounded.*.woff2": "preload; as=font; type=font/woff2",
    "js/Html.*.js": "modulepreload",
    "js/purify.es.*.js": "modulepreload",
    "js/BidiComponent.*.js": "modulepreload",
}


def name_sections(sections: Mapping[int, str], *, menu: str) -> None:
    """The names of the navigation's sections, each by the number of its first page, from 1.

    `menu` is what the button is called that opens the navigation on a phone.
    """
    st.html(f"<style>{_navigation(sections, menu)}</style>")  # no user text in it


def _navigation(sections: Mapping[int, str], menu: str) -> str:
    """Each section by name before its pages: Streamlit's own sections are menus, which hide the pages."""
    boxes = f":is({TOP_LINKS}, {SIDE_LINKS})"
    names = [
        f"{boxes} > :nth-child({first})::before {{ content: {json.dumps(name)}; }}"
        for first, name in sections.items()
    ]
    return f"""{" ".join(names)}
{boxes} > ::before {{ font-size: 0.85rem; font-weight: 600; opacity: 0.7; }}
{TOP_LINKS} > * {{ display: flex; align-items: center; }}
{TOP_LINKS} > ::before {{ margin: 0 0.2rem 0 0.6rem; }}
{TOP_LINKS} a {{ padding-inline: 5px; }} /* all pages beside the sidebar on a screen of 1366 */
{SIDE_LINKS} > ::before {{ display: block; margin: 0.5rem 0 0 0.5rem; }}
{PHONE} {{ {EXPAND}::after {{ content: {json.dumps(menu)}; margin-left: 0.35rem; font-size: 1rem; }} }}
"""


def page(file: str, *, title: str, path: str | None) -> Page:
    """A page of the navigation by its file in pages, the first one where its path is ""."""
    return copy(_page(file, title, path))  # a run marks its own as the one that may be called


@cache
def _page(file: str, title: str, path: str | None) -> Page:
    """Its file is looked up once: Streamlit would do that for all pages in each run of one."""
    return st.Page(PAGES / file, title=title, url_path=path or None, default=path == "")


class LazyState(Mapping):
    """What a session's widgets and keys hold, each computed when it is asked for."""

    def __init__(self, state: SessionState):
        self.state = state

    def __getitem__(self, key: str):
        state = self.state
        # Most of what is asked for is not there, which Streamlit would look for everywhere.
        held = key in state._new_session_state or key in state._key_id_mapper or key in state._old_state
        if not held or is_element_id(key) or _is_internal_key(key):
            raise KeyError(key)
        return state[key]

    def __iter__(self):
        names = self.state._key_id_mapper.id_key_mapping
        for name in self.state._keys():
            if not is_element_id(name) and not _is_internal_key(name):
                yield name
            elif is_keyed_element_id(name) and name in names:
                yield names[name]

    def __len__(self) -> int:
        return sum(1 for _ in self)


def read_lazily() -> None:
    """Let Streamlit's controls look up their own value alone.

    Each of them would compute those of all widgets of the page, of which ours are the dearest: a sixth of the
    processor time of a visit.
    """
    SessionState.filtered_state = property(LazyState)


_soon = AppSession._call_soon_on_event_loop  # as Streamlit has it


class Waiting(deque):
    """What a session has to say, in order; `woken` while the event loop has been asked to hear it."""

    woken = False


def wake_once() -> None:
    """Let all that a run says at once wake the event loop once.

    Streamlit wakes it twice for each message: a tenth of the processor time of a visit.
    """

    def soon_together(session: AppSession, callback: Callable[[], None]) -> None:
        waiting = vars(session).setdefault("_headscope_waiting", Waiting())
        waiting.append(callback)
        if not waiting.woken:
            waiting.woken = True
            _soon(session, lambda: hear(session, waiting))

    def hear(session: AppSession, waiting: Waiting) -> None:
        waiting.woken = False  # first: what comes from now on asks anew
        while waiting:
            session._event_loop.call_soon(waiting.popleft())

    def sent(runtime: Runtime) -> None:
        asked = runtime._get_async_objs()
        if not asked.need_send_data.is_set():
            asked.eventloop.call_soon_threadsafe(asked.need_send_data.set)

    AppSession._call_soon_on_event_loop = soon_together
    Runtime._enqueued_some_message = sent


def compose_themes_once() -> None:
    """Let the colours and fonts that each run sends be composed once, and again when settings are read anew.

    Streamlit searches all its settings for them in each run, while nobody else is served: for 0.3 ms.
    """
    compose = app_session._populate_theme_msg

    @cache
    def composed(section: str) -> CustomThemeConfig:
        theme = CustomThemeConfig()
        compose(theme, section)
        return theme

    def copy_into(theme: CustomThemeConfig, section: str = "theme") -> None:
        if composed(section).ListFields():  # a part without settings is not sent
            theme.MergeFrom(composed(section))

    config.on_config_parsed(composed.cache_clear, force_connect=True)  # it has been parsed before
    app_session._populate_theme_msg = copy_into


# Files of one page: each is read when it comes, and there is one place for traces and one for models.
MAX_UPLOADS = 2


def hold_few_uploads(max_bytes: int | None) -> None:
    """Let Streamlit hold the latest files of a page, and of all pages the latest `max_bytes`.

    It would hold all that is sent until the page closes.
    """
    add, order = MemoryUploadedFileManager.add_file, deque()

    def add_and_drop(manager: MemoryUploadedFileManager, session_id: str, file: UploadedFileRec) -> None:
        add(manager, session_id, file)
        for older in list(manager.file_storage[session_id])[:-MAX_UPLOADS]:
            manager.remove_file(session_id, older)
        order.append((session_id, file.file_id))
        held = [(page, one) for page, one in order if one in manager.file_storage.get(page, ())]
        order.clear()
        order.extend(held)
        while max_bytes is not None and manager._total_bytes > max_bytes and len(order) > 1:
            manager.remove_file(*order.popleft())

    MemoryUploadedFileManager.add_file = add_and_drop


def ask_no_other_site() -> None:
    """Let Streamlit not ask a site on the internet for this machine's address, which is asked for nothing.

    It would at the start, and again for every page of another site that tries to connect: meanwhile nobody is
    served, for seconds where no answer can come.
    """
    net_util.get_external_ip = lambda: None


def take_whole_numbers() -> None:
    """Let a link's number that is not one, such as inf, be the field's own value: the page would fail."""
    read = NumberInputSerde.deserialize

    def read_or_own(field: NumberInputSerde, value: float | None) -> float | None:
        try:
            return read(field, value)
        except (OverflowError, ValueError):
            return field.value

    NumberInputSerde.deserialize = read_or_own


def after_history() -> bool:
    """Whether this run follows the browser's Back or Forward: the link is what the user has gone to."""
    run = get_script_run_ctx()
    return run is not None and run.is_history_navigation


def only(prefix: str, names: Iterable[str], chosen: str, *, within: str) -> None:
    """Of the containers whose keys are the prefix and a name show the chosen one.

    A script may then show another (`showOnly` in assets/components/streamlit.js). Until the rules are there,
    the container around them, whose key is `within`, has the height that it states, then that of the chosen
    one.
    """
    others = [_keyed(prefix + name) for name in names if name != chosen]
    st.html(f"<style>{_one_alone(others, within)}</style>")


def _one_alone(others: Sequence[str], within: str) -> str:
    around = f"{BOX}:has(> {_keyed(within)})"
    return f"""{", ".join(others) or "none"} {{ display: none; }}
{around} {{ height: auto; }}
{_keyed(within)} {{ overflow: visible; }}
{PHONE} {{ {around} {{ flex: none; }} }} /* a short one leaves no gap */
"""


def _rules() -> str:
    invisible = [
        *(_keyed(key) for key in INVISIBLE),
        *(f'[class*="{KEYED}"][class*="{end}"]' for end in CARRIERS),
    ]
    buttons = ", ".join(f'[class*="{KEYED}{start}"]' for start in BUTTONS)
    return f"""
{", ".join(invisible)} {{ display: none; }}
/* Streamlit's own grey is too light for small text (WCAG 2.2, 1.4.3). */
{CAPTION} {{ opacity: 0.75; }}
@media (prefers-reduced-motion: reduce) {{
  *, ::before, ::after {{
    animation-duration: 0.01ms !important;
    animation-iteration-count: 1 !important;
    transition-duration: 0.01ms !important;
    scroll-behavior: auto !important;
  }}
}}
{CHART} {{ position: relative; }} /* our menu stands at its corner */
@media (hover: none) {{ {TOOLS} {{ display: none; }} }}
/* Of a control with its label, unless said otherwise. */
{SKELETON} {{ min-height: var(--height, 68px); min-width: var(--width, 0); }}
{SIDEBAR} :is({_keyed("text")}, {_keyed("twin")}) {{ --height: 96px; }}
{SIDEBAR} {_keyed("example")} {{ --height: 40px; }}
{SIDEBAR} {_keyed("source")} {{ --height: 60px; }}
:is({buttons}) {{ --height: 40px; }}
{_keyed("apply_change")} {{ --width: 59px; }}
:is({_keyed("try_0")}, {_keyed("try_1")}) {{ --width: 16.2rem; }}
{_keyed("try_2")} {{ --width: 7.8rem; }}
{_keyed("try_3")} {{ --width: 12.1rem; }}
{_keyed("try_4")} {{ --width: 9.5rem; }}
{_keyed("axes")} {{ --height: 60px; --width: 107px; }}
{_keyed("tensors")} {{ --height: 443px; }}
{_keyed("figures")} {{ --height: 76px; --width: 143px; }}
{_keyed("vectors")} {COLUMN}:first-child {{ min-height: 520px; }} /* the map comes after the words */
{PHONE} {{
  {TITLE} {{ font-size: 1.5rem; }}
  {_keyed("classes")} {{ --height: 101px; }}
  {_keyed("tensors")} {{ --height: 986px; }}
}}
{_keyed("next")} {{ --height: 32px; margin-top: 1rem; padding-top: 1rem; border-top: 1px solid {LINE}; }}
:root {{ --headscope-top: 3.75rem; }} /* below Streamlit's header */
{_keyed("river")} {{ position: sticky; top: var(--headscope-top); z-index: 3; }}
{TALL_PHONE} {{
  {_keyed("chooser")}[style*="--above"] {{
    position: sticky;
    top: calc(var(--headscope-top) - var(--above));
    z-index: 3;
  }}
}}
/* the formula comes after the code below it */
{PHONE} {{ {_keyed("formula-project")} {{ min-height: 164px; }} }}
[class*="{KEYED}step-"] {{ min-height: 10rem; justify-content: center; }}
{SIDEBAR} {_keyed("source")} {RADIO} {{ padding: 0.25rem 0.45rem; }}
:is({_keyed("instead_text")}, {_keyed("instead_twin")}) {BUTTON} p {{ text-decoration: underline; }}
/* Streamlit writes white on its main colour, which is light in the dark theme. */
:is({PRIMARY}, {TAG}, {TAG} *) {{ color: light-dark(#ffffff, #14161b) !important; }}
"""


class FirstPaint:
    """Adds to Streamlit's page our style rules, and a `Link` header with files that it would ask for late.

    Rules that came with the first run would move what is drawn already; and without the files headings are
    drawn in another font first, break into other lines, and push what is below them.
    """

    def __init__(self, app):
        files = [(file, relation) for pattern, relation in EARLY.items() for file in STATIC.glob(pattern)]
        links = [
            f"<./static/{file.relative_to(STATIC).as_posix()}>; rel={relation}; crossorigin"
            for file, relation in files
        ]
        self.app, self.link = app, (b"link", ", ".join(links).encode())

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, parts = None, []

        async def send_page(message):
            nonlocal start
            if is_page(message):
                start = message
            elif start is None:
                await send(message)
            else:
                parts.append(message.get("body", b""))
                if not message.get("more_body"):
                    await send_whole(b"".join(parts))

        async def send_whole(body: bytes):
            headers = {name.lower(): value for name, value in start["headers"]}
            if body:
                body = _with_rules(body, headers.get(b"content-encoding") == b"gzip")
                headers[b"content-length"] = b"%d" % len(body)
            for name in (b"etag", b"last-modified"):  # of Streamlit's page without our rules
                headers.pop(name, None)
            await send(start | {"headers": [*headers.items(), self.link]})
            await send({"type": "http.response.body", "body": body})

        def is_page(message) -> bool:
            headers = {name.lower(): value for name, value in message.get("headers", ())}
            html = headers.get(b"content-type", b"").startswith(b"text/html")
            return html and not scope["path"].endswith(".html")  # those are files of ours

        await self.app(scope, receive, send_page)


@lru_cache(maxsize=4)  # Streamlit's page, packed and not
def _with_rules(page: bytes, packed: bool) -> bytes:
    text = gzip.decompress(page) if packed else page
    # In the body: of two rules of the same weight the later one holds, and Streamlit has its own in the head.
    text = text.replace(b"</body>", f"<style>{_rules()}</style></body>".encode(), 1)
    return gzip.compress(text) if packed else text


def inline_scripts() -> list[str]:
    """The scripts inside Streamlit's page, as a Content-Security-Policy names them: by their hashes."""
    page = (STATIC.parent / "index.html").read_text(encoding="utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = (hashlib.sha256(script.encode()).digest() for script in scripts)
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes]


def leave_lines_out() -> None:
    """Two lines less in the log.

    Streamlit's own of an error of a page has not the number that the visitor sees (`logs.show_failure` writes
    it). The server's says that a page of another site was refused, and calls it an error of ours.
    """
    lines = {
        error_util._LOGGER.name: "Uncaught app execution",
        "uvicorn.error": "ASGI callable returned without completing handshake.",
    }
    for name, line in lines.items():
        logging.getLogger(name).addFilter(lambda record, line=line: record.msg != line)


def log_to_root() -> None:
    """All that this process logs goes to the root logger, but the log of every request: it has sentences.

    Streamlit's loggers have handlers of their own; the web server's have lost theirs and would write plainly.
    """

    def to_root(logger: logging.Logger) -> None:
        logger.handlers.clear()
        logger.propagate = True

    streamlit.logger.setup_formatter = to_root  # of the loggers of modules that are imported later
    for logger in map(logging.getLogger, list(logging.root.manager.loggerDict)):
        if logger.name != "uvicorn.access":
            to_root(logger)


def _keyed(key: str) -> str:
    return f".{KEYED}{key}"
