"""Our scripts are ES modules: the modules that one imports, and all of them as one text for a saved page.

A module is called by its path in assets/components, `view/grid.js`, and imports by names alone,
`import { a, b } from "../page/c.js"`. What one declares on its top level no other
one declares, so that modules in one text mean what they mean apart.
"""

import posixpath
import re
from functools import cache
from hashlib import blake2b

from mha_core import resources

FOLDER = resources.path("assets", "components")
IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.{1,2}/[\w./]+)";\n', re.MULTILINE)
DECLARATION = r"(?:async function|function|class|const|let|var)\b"
DECLARED = re.compile(rf"^(?:export )?{DECLARATION} ?(\w*)", re.MULTILINE)
EXPORTED = re.compile(rf"^export {DECLARATION} (\w+)", re.MULTILINE)
EXPORT = re.compile(rf"^export (?={DECLARATION})", re.MULTILINE)
UNSUPPORTED = re.compile(r"^(?:import|export)\b.*|\bimport\(.*", re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)\n", re.MULTILINE)
INDENT = re.compile(r"^\s+", re.MULTILINE)


def asset(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def digest() -> str:
    """The digest of all scripts and style sheets: a changed one has a new address, an old one is not used."""
    state = blake2b(digest_size=8)
    for path in sorted([*FOLDER.rglob("*.js"), *FOLDER.rglob("*.css")]):
        state.update(f"{path.relative_to(FOLDER).as_posix()} {path.stat().st_size}\n".encode())
        state.update(path.read_bytes())
    return state.hexdigest()


def imports(name: str) -> dict[str, list[str]]:
    """The names that a module imports, by the files that it imports them from."""
    return {
        posixpath.normpath(posixpath.join(posixpath.dirname(name), path)): [
            part for part in (part.strip() for part in names.split(",")) if part
        ]
        for names, path in IMPORT.findall(asset(name))
    }


@cache
def order(name: str) -> tuple[str, ...]:
    """All modules that one needs, each behind those that it imports, itself last.

    Raises `ValueError` for modules that import each other in a circle.
    """
    files: list[str] = []

    def visit(file: str, above: tuple[str, ...]) -> None:
        if file in above:
            raise ValueError(f"{' imports '.join([*above[above.index(file) :], file])}: a circle.")
        if file not in files:
            for imported in imports(file):
                visit(imported, (*above, file))
            files.append(file)

    visit(name, ())
    return tuple(files)


def merged(name: str) -> str:
    """A module and all that it imports as one module text, which imports nothing and exports nothing.

    Raises `ValueError` where that text would mean something else than the modules do: for imports of another
    kind or of what is not exported, for a default export, and for two modules that declare one name.
    """
    texts, exports, owners = [], {}, {}
    for file in order(name):
        for other, names in imports(file).items():
            if missing := set(names) - exports[other]:
                raise ValueError(f"{file} imports {', '.join(sorted(missing))}, not exported by {other}.")
        text = IMPORT.sub("", asset(file))
        for declared in DECLARED.findall(text):
            if not declared:
                raise ValueError(f"{file} declares several names at once; one by one they can be told apart.")
            if declared in owners:
                raise ValueError(f"{declared} is declared in {owners[declared]} and in {file}.")
            owners[declared] = file
        exports[file] = set(EXPORTED.findall(text))
        text = EXPORT.sub("", text)
        if statement := UNSUPPORTED.search(COMMENT.sub("", text)):
            raise ValueError(f"{file} has {statement[0]!r}, which cannot stand in one text with others.")
        texts.append(text)
    return "".join(texts)


def bare(text: str) -> str:
    """A script or style without comments on lines of their own and without indents."""
    return INDENT.sub("", COMMENT.sub("", text))
