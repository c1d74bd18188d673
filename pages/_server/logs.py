"""The log of the server: what failed and where, under the number that the visitor sees.

On a server for strangers it is JSON, one line for each event, without what people type. Of a message it
has only the template, of an error only its type and its places in the code: their words may quote a text.
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
TEMPLATES = (
    "headscope",
    "streamlit",
    "uvicorn",
)  # loggers whose templates quote nobody
ROOT = Path(__file__).resolve().parents[2]


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "at": f"{record.module}:{record.lineno}",
        }
        if record.name.split(".")[0] in TEMPLATES and isinstance(record.msg, str):
            line["event"] = record.msg
        line |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= _places(record.exc_info[1])
        return json.dumps(line, ensure_ascii=True)


def _places(error: BaseException) -> dict:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "error": type(error).__name__,
        "places": [f"{_relative(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames],
    }


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
    """Note an event; the facts are figures and names of ours, never what a visitor has typed."""
    LOG.info(name, extra={"facts": facts})


def failure(error: BaseException) -> str:
    """Note an error that is no refusal; the number under which it stands in the log."""
    number = token_hex(4)
    LOG.error("failure", exc_info=error, extra={"facts": {"id": number}})
    return number


def show_failure(error: BaseException) -> bool:
    """Note an error of a page and show its number there; True: Streamlit need not show the error."""
    st.error(t("error.failed", id=failure(error)), icon=":material/error:")
    return True
