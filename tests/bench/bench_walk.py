"""How many of the project's files one enters to follow a run of Heads.

Run it with ``python tests/bench/bench_walk.py``; the last lines are one JSON object each. A file counts if
one of its functions, or the page itself, is run; each number is of one run of the page without a browser,
after a first run that filled the caches. `CEILINGS` are the most files that each walk may enter
(tests/pages/test_walk.py): they fall when a walk gets shorter, and files are not merged to reach them.
"""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
ROOMS = tuple(str(ROOT / room) + "/" for room in ("mha_core", "pages"))
SENTENCE = "The dog chased the cat because it was hungry."
LINK = {"d_model": "9000", "head": "9", "token": "nowhere"}  # three values that Heads cannot have
CEILINGS = {"cached": 30, "new_sentence": 48, "link": 40}


def opened(link: dict[str, str] | None = None) -> AppTest:
    """Heads, opened by a link; the run has not begun."""
    app = AppTest.from_file(ROOT / "pages" / "frame.py", default_timeout=600)
    for name, value in (link or {}).items():
        app.query_params[name] = value
    return app


def entered(run: Callable[[], AppTest]) -> list[str]:
    """The files of the project that a run of the app enters, in order."""
    files: dict[str, None] = {}

    def note(frame, event: str, _) -> None:
        if event == "call" and (file := frame.f_code.co_filename).startswith(ROOMS):
            files.setdefault(str(Path(file).relative_to(ROOT)))

    threading.setprofile(note)  # a page runs in a thread of its own
    try:
        app = run()
    finally:
        threading.setprofile(None)
    assert not app.exception
    return list(files)


def walks() -> dict[str, list[str]]:
    """The files of each walk: everything cached, a sentence that is new, and a link with wrong values."""
    app = opened().run()
    found = {"cached": entered(app.run)}
    app.text_area(key="text").set_value(SENTENCE)
    found["new_sentence"] = entered(app.run)
    opened(LINK).run()
    return found | {"link": entered(opened(LINK).run)}


def main() -> None:
    found = walks()
    for name, files in found.items():
        print(f"walk_heads_{name}", *files, sep="\n  ")
    for name, files in found.items():
        print(json.dumps({"name": f"walk_heads_{name}", "value": len(files), "target": CEILINGS[name]}))


if __name__ == "__main__":
    main()
