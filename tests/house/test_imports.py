"""Imports only point down: every file follows the table of who may import whom."""

import ast
import subprocess
import sys
from fnmatch import fnmatchcase
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FLAT = (
    "mha_core.errors mha_core.cache mha_core.device mha_core.executor mha_core.executor.* mha_core.resources"
)
MATHS = f"{FLAT} mha_core.attention.*"
TRACES = f"{MATHS} mha_core.traces.* mha_core.focus.*"

# What each room may import besides the standard library and itself; of several rows that fit a file the
# longest one holds. `a.*` is all that lies below a; `late:` allows an import inside a function or for type
# checkers only, so that loading the file does not pay for it; `type:` allows it for type checkers only.
TABLE = {
    "mha_core/errors.py": "",
    "mha_core/cache.py": "",
    "mha_core/resources.py": "",
    "mha_core/device.py": "torch mha_core.errors",
    "mha_core/executor/*": "late:ray mha_core.errors mha_core.resources",
    "mha_core/attention/*": f"torch numpy jaxtyping {FLAT}",
    "mha_core/traces/*": f"torch numpy jaxtyping regex safetensors late:pandas late:xarray"
    f" type:plotly type:mha_core.export.head_view type:mha_core.interventions.ledger {MATHS}",
    "mha_core/traces/showing.py": "type:pandas type:plotly type:mha_core.focus.focus type:mha_core.traces.*"
    " late:mha_core.export.* late:mha_core.figures.* late:mha_core.interventions.* late:mha_core.scene.*"
    " late:mha_core.static.*",
    "mha_core/focus/*": f"{MATHS} mha_core.traces.*",
    "mha_core/export/*": f"torch numpy type:mha_core.interventions.ledger {TRACES}",
    "mha_core/training/*": f"torch numpy regex safetensors {TRACES}",
    "mha_core/training/workshop/*": f"torch numpy pandas {TRACES} mha_core.training.*"
    " mha_core.analysis.roles mha_core.atlases.*",
    "mha_core/capture/*": f"torch {TRACES}",
    "mha_core/capture/own_code/*": f"torch {TRACES} mha_core.capture.*",
    "mha_core/capture/special_layers/*": f"torch {TRACES} mha_core.capture.*",
    "mha_core/sources/*": f"torch regex {TRACES} mha_core.training.* mha_core.capture.*",
    "mha_core/sources/arrays.py": f"torch jaxtyping {TRACES} mha_core.export.head_view",
    "mha_core/sources/huggingface/*": "torch regex late:transformers late:huggingface_hub"
    f" {TRACES} mha_core.capture.* mha_core.sources.random_weights",
    "mha_core/analysis/*": f"numpy pandas {TRACES}",
    "mha_core/analysis/roles.py": f"numpy pandas {TRACES} mha_core.analysis.* mha_core.training.*",
    "mha_core/interventions/*": f"torch numpy pandas {TRACES} mha_core.capture.* mha_core.sources.*"
    " mha_core.analysis.* mha_core.training.*",
    "mha_core/differences/*": f"torch numpy {TRACES} mha_core.export.notebook",
    "mha_core/figures/*": "numpy pandas plotly",
    "mha_core/scene/*": f"numpy mha_core.export.* mha_core.sources mha_core.sources.*"
    f" mha_core.training.* {TRACES}",
    "mha_core/static/*": f"numpy mha_core.analysis.roles mha_core.export.* mha_core.scene.* mha_core.sources"
    f" mha_core.sources.* mha_core.training.* {TRACES}",
    "mha_core/lessons/*": f"numpy mha_core.scene.* mha_core.sources.* mha_core.training.* {TRACES}",
    "mha_core/atlases/*": f"torch numpy pandas regex late:pyarrow late:duckdb"
    f" mha_core.analysis.* mha_core.sources mha_core.sources.* mha_core.training.* {TRACES}",
    "mha_core/room/migrations/*": "sqlalchemy alembic mha_core.room.schema",
    "mha_core/room/*": f"sqlalchemy alembic segno mha_core.lessons.* mha_core.scene.* {TRACES}",
    "mha_core/__init__.py": "importlib mha_core.resources type:mha_core.*",
    "mha_core/__main__.py": f"mha_core late:numpy late:mha_core.traces.* late:mha_core.scene.*"
    f" late:mha_core.analysis.* late:mha_core.lessons.* late:mha_core.room.* late:segno"
    f" late:mha_core.atlases.* late:mha_core.static.* late:torch late:mha_core.differences.* {FLAT}",
    "pages/_server/*": "streamlit starlette mha_core mha_core.* pages._kit.text",
    "pages/_kit/*": "streamlit numpy pandas mha_core mha_core.* pages._server.*",
    "pages/[!_]*/_*/*": "streamlit numpy pandas mha_core mha_core.* pages._kit pages._kit.* pages._server.*",
    "pages/[!_]*/*": "streamlit pages._kit pages._kit.* mha_core.analysis.* mha_core.figures.*"
    " mha_core.scene.*",
    "pages/frame.py": "streamlit mha_core.scene.link pages._kit pages._kit.* pages._server.*",
    "app.py": "streamlit starlette mha_core mha_core.errors mha_core.resources mha_core.export.*"
    " mha_core.scene.page mha_core.static.* pages._server.*",
}
TIMES = ("", "late:", "type:")  # what may be imported at one time may also be at a later one
DOOR = "mha_core/traces/showing.py"  # the one file that imports, inside functions, what imports it
# An import by name (importlib) hides from this test: only public names have it (test_door.py).
STANDARD = sys.stdlib_module_names - {"importlib"}

TOP_LEVEL = {
    *("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt", "Dockerfile"),
    *("app.py", "mha_core", "pages", "assets", "tests"),
}


Tree = dict[str, str]  # each Python file that the table speaks about, relative to the root, and its text


@pytest.fixture(scope="module")
def tree() -> Tree:
    files = [*(ROOT / "mha_core").rglob("*.py"), *(ROOT / "pages").rglob("*.py"), ROOT / "app.py"]
    return {f.relative_to(ROOT).as_posix(): f.read_text(encoding="utf-8") for f in sorted(files)}


@cache
def statements(text: str) -> list[tuple[str, str, int, str]]:
    """Package, name and line of each import, and when it runs, as in `TABLE`; `.` starts a relative one."""
    rows = []

    def visit(node: ast.AST, when: str) -> None:
        if isinstance(node, ast.Import):
            rows.extend((name.name, "", node.lineno, when) for name in node.names)
        if isinstance(node, ast.ImportFrom) and node.level:
            rows.append(("." * node.level + (node.module or ""), "", node.lineno, when))
        elif isinstance(node, ast.ImportFrom):
            rows.extend((node.module, name.name, node.lineno, when) for name in node.names)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            when = "type:"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            when = when or "late:"
        for child in ast.iter_child_nodes(node):
            visit(child, when)

    visit(ast.parse(text), "")
    return rows


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(tree: Tree) -> dict[str, list[tuple[str, int, str]]]:
    """For each file its imported modules with their lines, and when they are imported.

    ``from package import name`` is the submodule `name` if there is one, else the package.
    """
    modules = {module_of(file) for file in tree}
    modules |= {module.rpartition(".")[0] for module in modules}
    return {
        file: list(
            dict.fromkeys(
                (f"{package}.{name}" if f"{package}.{name}" in modules else package, line, when)
                for package, name, line, when in statements(text)
            )
        )
        for file, text in tree.items()
    }


def row_of(file: str) -> str | None:
    """The row of the table for a file; None if there is none."""
    return max((pattern for pattern in TABLE if fnmatchcase(file, pattern)), key=len, default=None)


def violations(tree: Tree) -> list[str]:
    """The violations of the table, one readable line each."""
    broken = []
    for file, imported in imports(tree).items():
        row = row_of(file)
        if row is None:
            broken.append(f"{file} is in no room of the table")
            continue
        allowed = TABLE[row].split()
        for module, line, when in imported:
            if module.startswith("."):
                broken.append(f"{file}:{line} imports {module} relatively; write the full name")
            elif not (_is_own(module, file, row) or _may(module, allowed, when)):
                broken.append(f"{file}:{line} imports {module}; its room allows {TABLE[row] or 'nothing'}")
    return broken


def _is_own(module: str, file: str, row: str) -> bool:
    """Whether the module belongs to the file's own room; a page's room is the folder with its name."""
    folder = file.rpartition("/")[0]
    if folder.startswith("pages/") and "_" not in folder:
        folder = f"{folder}/_{Path(file).stem}"
    elif "/" not in folder:
        return False
    return row.endswith("*") and f"{module}.".startswith(f"{folder.replace('/', '.')}.")


def _may(module: str, allowed: list[str], when: str) -> bool:
    if module.split(".")[0] in STANDARD:
        return True
    ours = module.split(".")[0] in ("mha_core", "pages")
    name = module if ours else module.split(".")[0]
    times = TIMES[: TIMES.index(when) + 1]
    return any(fnmatchcase(f"{time}{name}", pattern) for time in times for pattern in allowed)


def cycle(tree: Tree) -> list[str]:
    """The modules of a ring of imports, those inside functions included; empty where there is none.

    Only the door may import, inside its functions, what imports it. An import for type checkers does not run,
    and a file that imports itself is no ring.
    """
    graph = {
        module_of(file): {module for module, _, when in rows if when in ran} - {module_of(file)}
        for file, rows in imports(tree).items()
        for ran in [TIMES[:1] if file == DOOR else TIMES[:2]]
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_file_imports_what_its_floor_does_not_allow(tree):
    assert violations(tree) == []


def test_every_row_of_the_table_has_files(tree):
    assert [pattern for pattern in TABLE if not any(fnmatchcase(file, pattern) for file in tree)] == []


def test_no_imports_form_a_ring(tree):
    assert cycle(tree) == []


def planted_in(tree: Tree, file: str, text: str) -> Tree:
    """The tree with a statement more at the end of a file, which may be new."""
    return tree | {file: f"{tree.get(file, '')}\n\n{text}\n"}


# One import of each kind that is told apart: who, what, where in the file and how it is written.
@pytest.mark.parametrize(
    ("file", "planted", "reported"),
    [
        ("mha_core/errors.py", "import torch", "imports torch"),
        ("mha_core/attention/masks.py", "from .module import cut", "imports .module relatively"),
        ("mha_core/traces/trace.py", "class Late:\n    import pandas", "imports pandas"),
        ("mha_core/traces/trace.py", "def frame():\n    import streamlit", "imports streamlit"),
        ("mha_core/analysis/frames.py", "from mha_core.sources import mini", "imports mha_core.sources.mini"),
        ("mha_core/__main__.py", "import importlib", "imports importlib"),
        ("mha_core/scene/scene.py", "if TYPE_CHECKING:\n    import streamlit", "imports streamlit"),
        ("pages/new.py", "", "in no room of the table"),
        ("pages/see/heads.py", "from pages.see._token import subject", "imports pages.see._token.subject"),
        ("pages/see/heads.py", "from pages.understand import steps", "imports pages.understand.steps"),
        ("app.py", "from pages._kit import text", "imports pages._kit.text"),
    ],
)
def test_a_planted_import_is_reported_and_nothing_else(tree, file, planted, reported):
    [line] = violations(planted_in(tree, file, planted))
    assert line.startswith(file)
    assert reported in line


def test_a_planted_ring_in_one_room_is_reported(tree):
    planted = "def late():\n    from mha_core.attention.module import AttentionSpec"
    ring = planted_in(tree, "mha_core/attention/masks.py", planted)
    assert violations(ring) == []
    assert set(cycle(ring)) == {"mha_core.attention.masks", "mha_core.attention.module"}


def test_only_the_frame_lies_directly_in_pages():
    # Until st.navigation has run once in a server's process, Streamlit is in its old multipage mode: it
    # takes every *.py in a folder `pages` beside the entry script for a page and, when a link to a page
    # is the first visit, runs that page without the frame, for everyone. Our entry script is
    # pages/frame.py itself (app.py only names it), so the folder that must not be is pages/pages; and if
    # app.py ever becomes the entry script, the old mode must find no more than the frame here.
    assert [file.name for file in (ROOT / "pages").glob("*.py")] == ["frame.py"]
    assert not (ROOT / "pages" / "pages").exists()


def test_the_top_level_has_only_the_agreed_files():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: there is no list of files that belong to the project")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    top = {path.split("/")[0] for path in listed}
    assert {name for name in top if not name.startswith(".")} - TOP_LEVEL == set()
