"""The private parts of Streamlit that the app relies on, each with what a person would lose without it.

A new version may move any of them; then tests/pages/server/test_streamlit_parts.py fails. The private parts
that scripts touch are in assets/components/streamlit/adapter.js, its style rules in app.css beside it.
"""

import base64
import hashlib
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path

import streamlit as st
from streamlit import config, logger, net_util
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner_utils.script_run_context import get_script_run_ctx
from streamlit.runtime.state.session_state_proxy import get_session_state
from streamlit.runtime.uploaded_file_manager import UploadedFileRec

# `st.set_option` refuses server options: strangers could upload files as large as the owner's.
set_option = config.set_option
# Fonts that Streamlit requests late: until then headings wrap differently, and pages jump.
STATIC = Path(st.__file__).parent / "static" / "static"
FONTS = ("media/SourceSerifVariable-Roman.*.woff2", "media/MaterialSymbols-Rounded.*.woff2")
# Addresses that show what other visitors do; the guard closes them to strangers.
CLOSED = ("/_stcore/metrics", "/_stcore/agent")
# These contain a box for the link to each page: at the top, and on a phone in the sidebar.
LINKS = ':is([data-testid="stTopNav"], [data-testid="stSidebarNavItems"])'
EXPAND_ON_PHONE = '@media (max-width: 768px) {{ [data-testid="stExpandSidebarButton"]::after {} }}'
# Where Streamlit shows words of its own, and which: on a Chinese page they would be English. The catalogues
# have each under its name (`streamlit.upload`), the English one as Streamlit writes it (own_words.js).
OWN_WORDS = {
    '[data-testid="stTooltipHoverTarget"] > button': "help help_alone",
    '[data-testid="stSkipToContent"]': "skip",
    '[data-testid="stHeaderActionElements"]': "heading",
    '[data-testid="stTopNavSection"]': "more_pages",
    '[data-testid="stMarkdownContainer"] [role="img"]': "icon_check icon_straighten icon_short_text",
    '[data-testid="stFileUploaderDropzone"]': (
        "upload add_files icon_add drop file_field file_size remove error file_type file_large file_one"
    ),
    '[data-testid="stTooltipErrorContent"]': "file_type file_large file_one below above outside",
    '[data-testid="InputInstructions"]': "enter ctrl_enter command_enter",
    '[data-testid="stNumberInput"]': "decrement increment clear below above outside",
    ':is([data-testid="stSelectbox"], [data-testid="stMultiSelect"]) :is(button, input)': (
        "choose choose_several open clear clear_all remove"
    ),
    '[data-testid="stMultiSelectTagsContainer"]': "selected",
    ':is([data-testid="stSelectboxVirtualDropdown"], [data-testid="stMultiSelectDropdown"])': (
        "no_results select_all select_matches add most_chosen"
    ),
    ':is([data-testid="stElementToolbarButton"], [data-testid="stTooltipContent"])': (
        "fullscreen close_fullscreen search columns"
    ),
    ".gdg-search-bar": "type_to_search close_search previous_result next_result",
    '[data-testid^="stDataFrame"][data-testid$="Menu"], [data-testid="stDataFrameStatisticsContent"]': (
        "ascending descending statistics format autosize pin_column unpin_column hide_column copy_column "
        "column_menu select_all automatic localized plain compact dollar euro yen percent scientific "
        "accounting values empty distinct average median minimum maximum range sum deviation "
        "average_length minimum_length maximum_length"
    ),
    ".modebar-container, .plotly-notifier": (
        "zoom pan reset_axes orbit turntable reset_camera last_camera zoom_back fullscreen close_fullscreen"
    ),
    '[data-testid="stHeader"], [data-testid="stSidebar"]': (
        "pages logo home expand_sidebar collapse_sidebar sidebar main_menu"
    ),
    '[data-testid="stStatusWidget"], [data-testid="stConnectionStatus"]': (
        "running stop stopping connecting connecting_to not_connected"
    ),
    '[data-testid="stDialog"]': (
        "close connection_error not_running no_answer no_page no_page_why no_page_named copy copied"
    ),
}


def early_fonts() -> list[str]:
    """The files of `FONTS`, below Streamlit's folder of static files."""
    return [file.relative_to(STATIC).as_posix() for pattern in FONTS for file in STATIC.glob(pattern)]


def inline_scripts() -> list[str]:
    """The hashes of the scripts in Streamlit's page, which a policy has to name for a page to open."""
    page = (STATIC.parent / "index.html").read_text(encoding="utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = (hashlib.sha256(script.encode()).digest() for script in scripts)
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes]


def sections(names: Mapping[int, str], *, menu: str) -> None:
    """Show the names of the navigation's sections, each given with the number of its first page, from 1.

    `menu` names the button that opens the navigation on a phone, which otherwise has no name.
    """

    def content(name: str) -> str:
        return f"{{ content: {json.dumps(name, ensure_ascii=False)}; }}"

    rules = [f"{LINKS} > :nth-child({at})::before {content(name)}" for at, name in names.items()]
    rules.append(EXPAND_ON_PHONE.format(content(menu)))
    st.html(f"<style>{' '.join(rules)}</style>")  # no user text in it


# Files kept for a page. Each is read when it arrives; one uploader is for traces, one for models.
MAX_UPLOADS = 2


def hold_few_uploads(max_bytes: int | None) -> None:
    """Make Streamlit keep only the latest files of a page, and of all pages the latest `max_bytes`.

    It would keep every file until its page closes, or until memory runs out and everybody's page ends.
    """
    add = MemoryUploadedFileManager.add_file
    held: list[tuple[str, str]] = []

    def add_and_drop(manager: MemoryUploadedFileManager, session_id: str, file: UploadedFileRec) -> None:
        add(manager, session_id, file)
        for older in list(manager.file_storage[session_id])[:-MAX_UPLOADS]:
            manager.remove_file(session_id, older)
        held.append((session_id, file.file_id))
        held[:] = [(page, one) for page, one in held if one in manager.file_storage.get(page, ())]
        while max_bytes is not None and manager._total_bytes > max_bytes and len(held) > 1:
            manager.remove_file(*held.pop(0))

    MemoryUploadedFileManager.add_file = add_and_drop  # type: ignore[method-assign, assignment]  # it is replaced


def ask_no_other_site() -> None:
    """Keep Streamlit from asking another site for this machine's address, at each start and foreign page."""
    net_util.get_external_ip = lambda: None


def begin_with(name: str, value: str | None) -> None:
    """Make the control of that name start with this value instead of the link's; None is its own default.

    Streamlit would replace an invalid value by the default, but it would take any text as it is.
    """
    with get_session_state().query_params() as link:
        if value is not None:
            link._initial_query_params[name] = [value]
            link.set_corrected_value(name, value, "string_value")
        else:
            link._initial_query_params.pop(name, None)
            link.remove_param(name)


def after_history() -> bool:
    """Whether this run follows the browser's Back or Forward; then the link counts, not the session."""
    run = get_script_run_ctx()
    return run is not None and run.is_history_navigation


def log_to_root() -> None:
    """Send all logs of this process to the root logger, except that of requests, which contains sentences.

    Otherwise lines would have three formats, and some would quote what visitors typed.
    """

    def to_root(log: logging.Logger) -> None:
        log.handlers.clear()
        log.propagate = True

    # For the loggers of modules that are imported later.
    logger.setup_formatter = to_root  # type: ignore[assignment]  # its argument has another name
    for log in map(logging.getLogger, list(logging.root.manager.loggerDict)):
        if log.name != "uvicorn.access":
            to_root(log)
