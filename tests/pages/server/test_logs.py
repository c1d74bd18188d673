"""The log of the server: an error once, with its number and its places, and no user text."""

import json
import logging

import pytest
import streamlit.logger

from pages._server import logs, streamlit_parts


@pytest.fixture
def log_records():
    """`log_records("headscope", …)`: the records of these loggers from now on."""
    handlers = []

    def record(*names: str) -> list[logging.LogRecord]:
        records, handler = [], logging.Handler()
        handler.emit = records.append
        for name in names:
            logging.getLogger(name).addHandler(handler)
            handlers.append((name, handler))
        return records

    yield record
    for name, handler in handlers:
        logging.getLogger(name).removeHandler(handler)


def test_the_log_of_strangers_has_the_places_of_an_error_and_no_word_of_a_text(log_records):
    text = "my secret text"
    records = log_records("headscope", "streamlit.test", "somebody")
    try:
        raise KeyError(text)
    except KeyError as error:
        number = logs.failure(error)
        logging.getLogger("streamlit.test").error("Bad %s", text, exc_info=error)
    logging.getLogger("somebody").error(f"{text} is bad")
    lines = [json.loads(logs.JsonLines().format(record)) for record in records]
    assert text not in json.dumps(lines)
    ours, streamlits, others = lines
    assert (ours["id"], ours["event"], ours["error"]) == (number, "failure", "KeyError")
    assert ours["places"][-1].startswith("tests/pages/server/test_logs.py:")
    assert streamlits["event"] == "Bad %s"
    assert "event" not in others


def test_the_log_has_messages_of_the_web_server_but_no_requests(monkeypatch):
    """Streamlit and the web server leave them so when the app is loaded."""
    loggers = {name: logging.Logger(name) for name in ("uvicorn", "uvicorn.error", "uvicorn.access")}
    for logger in loggers.values():
        logger.propagate = False
    monkeypatch.setattr(logging.root.manager, "loggerDict", dict(loggers))
    monkeypatch.setattr(streamlit.logger, "setup_formatter", streamlit.logger.setup_formatter)
    streamlit_parts.log_to_root()
    assert {name: logger.propagate for name, logger in loggers.items()} == {
        "uvicorn": True,
        "uvicorn.error": True,
        "uvicorn.access": False,
    }
