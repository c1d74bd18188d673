"""The server's log: what failed and where, under the number that the visitor sees.

On a server for strangers it is JSON, one line for each event, without anything that people type. A message is
logged as its template, an error as its type and its places in the code, because their words may quote a text.
"""

import json
import logging
import traceback
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

import streamlit as st

from pages._kit.text import t
from pages._server import limits, streamlit_parts

LOG = logging.getLogger("headscope")
TEMPLATES = ("headscope", "streamlit", "uvicorn")  # loggers whose templates contain no user text
ROOT = Path(__file__).resolve().parents[2]


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "at": f"{record.module}:{record.lineno}",
        }
        if record.name.split(".")[0] in TEMPLATES and isinstance(record.msg, str):
            line["event"] = record.msg
        line |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            frames = traceback.extract_tb(error.__traceback__)
            line["error"] = type(error).__name__
            line["places"] = [f"{_relative(one.filename)}:{one.lineno} {one.name}" for one in frames]
        return json.dumps(line, ensure_ascii=True)


def _relative(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else "/".join(path.parts[-2:])


def begin() -> None:
    """Write every log of this process as JSON lines, on a server for strangers."""
    if not limits.current().hosted:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.captureWarnings(True)
    streamlit_parts.log_to_root()


def event(name: str, **facts: int | float | str) -> None:
    """Log an event; the facts are numbers and names of our own, never what a visitor has typed."""
    LOG.info(name, extra={"facts": facts})


def failure(error: BaseException) -> str:
    """Log an unexpected error; returns the number under which it stands in the log."""
    number = token_hex(4)
    LOG.error("failure", exc_info=error, extra={"facts": {"id": number}})
    return number


def show_failure(error: BaseException) -> bool:
    """Log an error of a page and show its number there; True tells Streamlit that it has been shown."""
    st.error(t("error.failed", id=failure(error)), icon=":material/error:")
    return True
