"""The number of the project's files that a run of Heads executes.

Run it with ``python tests/bench/bench_walk.py``; the last lines are one JSON object each. A file counts if
one of its functions, or the page itself, is run; each number is of one run of the page without a browser,
after a first run that filled the caches. The targets are how much one has to read to follow a run; files are
not merged to reach them.
"""

import json
import sys
import threading
from pathlib import Path

from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
ROOMS = tuple(str(ROOT / room) + "/" for room in ("mha_core", "pages"))
SENTENCE = "The dog chased the cat because it was hungry."
MAX_CACHED, MAX_NEW = 25, 35  # files


def executed(app: AppTest) -> list[str]:
    """The files of the project that a run of the app executes, in order."""
    files: dict[str, None] = {}

    def note(frame, event: str, _) -> None:
        if event == "call" and (file := frame.f_code.co_filename).startswith(ROOMS):
            files.setdefault(str(Path(file).relative_to(ROOT)))

    threading.setprofile(note)  # a page runs in a thread of its own
    try:
        app.run()
    finally:
        threading.setprofile(None)
    assert not app.exception
    return list(files)


def main() -> None:
    app = AppTest.from_file(ROOT / "pages" / "frame.py", default_timeout=600).run()
    walks = {"walk_heads_cached": (executed(app), MAX_CACHED)}
    app.text_area(key="text").set_value(SENTENCE)
    walks["walk_heads_new_sentence"] = executed(app), MAX_NEW
    for name, (files, _) in walks.items():
        print(name, *files, sep="\n  ")
    for name, (files, target) in walks.items():
        print(json.dumps({"name": name, "value": len(files), "target": target}))


if __name__ == "__main__":
    main()
