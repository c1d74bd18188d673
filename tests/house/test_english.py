"""Docstrings, and comments of scripts, begin with the noun or the verb that they are about."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "app.py", *ROOT.glob("mha_core/**/*.py"), *ROOT.glob("pages/**/*.py")]
FILES += ROOT.glob("assets/components/**/*.[jc]s*")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
COMMENT = re.compile(r"^[ \t]*(?://.*(?:\n[ \t]*//.*)*|/\*[\s\S]*?\*/)", re.MULTILINE)
REFUSED = re.compile(r"[\s/*]*(Of|Whose|Let|What)\b(?![^.!?]*\?)")  # a question may begin so


def refused(name: str, code: str) -> list[str]:
    """The texts of a file that begin with their end, as in "Of a head what it does"."""
    if name.endswith(".py"):
        nodes = (node for node in ast.walk(ast.parse(code)) if isinstance(node, DOCUMENTED))
        texts = [ast.get_docstring(node) or "" for node in nodes]
    else:
        texts = COMMENT.findall(code)
    return [text.strip("/* \n").partition("\n")[0] for text in texts if REFUSED.match(text)]


def test_no_text_begins_with_its_end():
    found = {file.relative_to(ROOT).as_posix(): refused(file.name, file.read_text("utf-8")) for file in FILES}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_a_text_that_begins_with_its_end_is_found():
    code = '"""The sum."""\ndef f():\n    """What a head does. Is it so?"""'
    assert refused("a.py", code) == ["What a head does. Is it so?"]
    assert len(refused("a.js", "/**\n * Whose numbers these are.\n */")) == 1
    assert refused("a.py", '"""What does a head look at? At its row."""') == []
