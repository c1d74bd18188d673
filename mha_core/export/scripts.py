"""Our scripts, which are ES modules: the imports of each, and all of them merged for a saved page.

A module is named by its path in assets/components, `view/grid.js`, and has named imports only, `import { a, b
} from "../page/c.js"`. No two modules declare the same name on their top level, and none import each other in
a circle, so that they can be merged into one text without a change of meaning (tests/js/test_modules.py).
"""

import posixpath
import re
from functools import cache
from hashlib import blake2b

from mha_core import resources

FOLDER = resources.path("assets", "components")
IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.{1,2}/[\w./]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let|var)\b)", re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)\n", re.MULTILINE)
CAST = re.compile(r"/\*\* @type [^*]*\*/ ")
INDENT = re.compile(r"^\s+", re.MULTILINE)


def asset(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def digest() -> str:
    """The digest of all scripts and style sheets, a part of their address: a change gives a new one."""
    state = blake2b(digest_size=8)
    for path in sorted([*FOLDER.rglob("*.js"), *FOLDER.rglob("*.css")]):
        state.update(f"{path.relative_to(FOLDER).as_posix()} {path.stat().st_size}\n".encode())
        state.update(path.read_bytes())
    return state.hexdigest()


def imports(name: str) -> dict[str, list[str]]:
    """The names that a module imports, by the file that they come from."""
    return {
        posixpath.normpath(posixpath.join(posixpath.dirname(name), path)): [
            part for part in (part.strip() for part in names.split(",")) if part
        ]
        for names, path in IMPORT.findall(asset(name))
    }


@cache
def order(name: str) -> tuple[str, ...]:
    """A module and all that it needs, each after those that it imports, itself last."""
    files: list[str] = []

    def visit(file: str) -> None:
        if file not in files:
            for imported in imports(file):
                visit(imported)
            files.append(file)

    visit(name)
    return tuple(files)


def merged(name: str) -> str:
    """A module and all that it imports as one module text, which imports nothing and exports nothing."""
    return "".join(EXPORT.sub("", IMPORT.sub("", asset(file))) for file in order(name))


def bare(text: str) -> str:
    """A script or style sheet without indents, types, and lines that are only a comment."""
    return INDENT.sub("", CAST.sub("", COMMENT.sub("", text)))
