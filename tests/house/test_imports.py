"""Imports only point down: the table of who may import whom is held by every file, and can be broken."""

import ast
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FLOOR_0 = (
    "mha_core.bundled mha_core.base85 mha_core.utf16 mha_core.errors mha_core.rows mha_core.spec"
    " mha_core.tokens mha_core.device mha_core.joined"
)
FLOOR_1 = "mha_core.masks mha_core.embed mha_core.rule mha_core.packed mha_core.attention"
FLOOR_2 = (
    "mha_core.recorded mha_core.layer mha_core.check mha_core.storage mha_core.normaliser mha_core.rounding"
    " mha_core.transport mha_core.trace mha_core.named mha_core.given"
)
TRAINING = "mha_core.training mha_core.training.*"
CAPTURE = "mha_core.capture mha_core.capture.*"
FLOOR_3 = f"{TRAINING} mha_core.sources mha_core.sources.*"

# What each file may import besides the standard library. `a.*` is all that lies below a;
# `late:` allows an import inside a function only, so that loading the file does not pay for it.
TABLE = {
    "mha_core/bundled.py": "",
    "mha_core/errors.py": "",
    "mha_core/rows.py": "",
    "mha_core/base85.py": "numpy",
    "mha_core/utf16.py": "numpy",
    "mha_core/spec.py": FLOOR_0,
    "mha_core/tokens.py": f"regex {FLOOR_0}",
    "mha_core/device.py": f"torch {FLOOR_0}",
    "mha_core/joined.py": "mha_core.tokens",
    "mha_core/masks.py": f"torch numpy {FLOOR_0} {FLOOR_1}",
    "mha_core/embed.py": f"torch numpy {FLOOR_0} {FLOOR_1}",
    "mha_core/rule.py": f"torch numpy {FLOOR_0} {FLOOR_1}",
    "mha_core/packed.py": f"torch numpy {FLOOR_0} {FLOOR_1}",
    "mha_core/attention.py": f"torch numpy {FLOOR_0} {FLOOR_1}",
    "mha_core/recorded.py": f"torch numpy {FLOOR_0} {FLOOR_1}",
    "mha_core/layer.py": f"torch numpy late:mha_core.preview {FLOOR_0} {FLOOR_1} {FLOOR_2}",
    "mha_core/check.py": f"torch numpy {FLOOR_0} {FLOOR_1} {FLOOR_2}",
    "mha_core/storage.py": f"torch numpy safetensors {FLOOR_0} {FLOOR_1} {FLOOR_2}",
    "mha_core/normaliser.py": "numpy torch mha_core.layer mha_core.rows",
    "mha_core/rounding.py": "numpy torch mha_core.attention mha_core.layer mha_core.rows",
    "mha_core/transport.py": f"numpy {FLOOR_0} {FLOOR_2}",
    "mha_core/view_page.py": "mha_core.base85 mha_core.bundled mha_core.utf16",
    "mha_core/head_view.py": f"{FLOOR_0} mha_core.layer mha_core.transport mha_core.view_page",
    "mha_core/preview.py": "numpy mha_core.tokens",
    "mha_core/trace.py": "torch numpy late:pandas late:mha_core.head_view late:mha_core.preview"
    f" {FLOOR_0} {FLOOR_1} {FLOOR_2}",
    "mha_core/named.py": FLOOR_0,
    "mha_core/given.py": f"torch {FLOOR_0} {FLOOR_1} {FLOOR_2}",
    "mha_core/training/*.py": f"torch numpy regex safetensors {FLOOR_0} {FLOOR_1} {FLOOR_2} {TRAINING}",
    "mha_core/capture/*.py": f"torch {FLOOR_0} {FLOOR_1} {FLOOR_2} {CAPTURE}",
    "mha_core/sources/*.py": f"torch regex {FLOOR_0} {FLOOR_1} {FLOOR_2} {CAPTURE} {FLOOR_3}",
    "mha_core/sources/huggingface/files.py": f"torch regex late:huggingface_hub {FLOOR_0}",
    "mha_core/sources/huggingface/model.py": f"torch late:transformers {FLOOR_0} {FLOOR_2} {CAPTURE}"
    " mha_core.sources.*",
    "mha_core/views.py": "numpy pandas mha_core.layer mha_core.trace",
    "mha_core/hops.py": "numpy pandas mha_core.blocks mha_core.errors mha_core.trace",
    "mha_core/rotation.py": "numpy pandas mha_core.errors mha_core.spec mha_core.layer",
    "mha_core/kept.py": "numpy mha_core.layer",
    "mha_core/token_views.py": "numpy pandas mha_core.errors mha_core.layer mha_core.normaliser"
    " mha_core.trace",
    "mha_core/formulas.py": "",
    "mha_core/steps.py": "numpy pandas mha_core.check mha_core.formulas mha_core.layer mha_core.trace"
    " mha_core.views",
    "mha_core/blocks.py": "numpy pandas mha_core.errors mha_core.layer mha_core.normaliser mha_core.rows",
    "mha_core/metrics.py": f"numpy pandas mha_core.blocks mha_core.errors mha_core.layer {TRAINING}",
    "mha_core/overview.py": "numpy pandas mha_core.blocks mha_core.metrics mha_core.trace",
    "mha_core/embeddings.py": "numpy pandas mha_core.errors",
    "mha_core/published.py": "numpy mha_core.blocks mha_core.bundled mha_core.errors mha_core.tokens"
    " mha_core.trace",
    "mha_core/ablation.py": "pandas",
    "mha_core/figures/*.py": "numpy pandas plotly mha_core.figures mha_core.figures.*",
    "mha_core/__init__.py": f"{FLOOR_0} {FLOOR_1} {FLOOR_2} {FLOOR_3}",
    "mha_core/__main__.py": "mha_core.bundled",
    "pages/_kit/*.py": "streamlit numpy pandas mha_core mha_core.* pages._kit pages._kit.*",
    "pages/[!_]*/*.py": "streamlit pages._kit pages._kit.*"
    " mha_core.views mha_core.steps mha_core.hops mha_core.metrics mha_core.embeddings mha_core.ablation"
    " mha_core.published"
    " mha_core.figures mha_core.figures.*",
    "pages/frame.py": "streamlit pages._kit pages._kit.*",
    "app.py": "streamlit mha_core mha_core.bundled",
}
# An import by name (importlib) hides from this test, so nobody has it.
STANDARD = sys.stdlib_module_names - {"importlib"}

TOP_LEVEL = {
    *("pyproject.toml", "README.md", "LICENSE", "constraints.txt", "Dockerfile"),
    *("app.py", "mha_core", "pages", "assets", "tests"),
}


def sources(root: Path) -> list[str]:
    """Every Python file that the table speaks about, relative to the root."""
    found = [*(root / "mha_core").rglob("*.py"), *(root / "pages").rglob("*.py"), root / "app.py"]
    return sorted(file.relative_to(root).as_posix() for file in found)


def imports(root: Path, file: str) -> list[tuple[str, int, bool]]:
    """Each imported module, its line, and whether that is inside a function; `.` starts a relative one."""
    found = []

    def visit(node: ast.AST, late: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend((name.name, node.lineno, late) for name in node.names)
        if isinstance(node, ast.ImportFrom) and node.level:
            found.append(("." * node.level + (node.module or ""), node.lineno, late))
        elif isinstance(node, ast.ImportFrom):
            found.extend((_module(root, node.module, name.name), node.lineno, late) for name in node.names)
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, late)

    visit(ast.parse((root / file).read_text(encoding="utf-8")), False)
    return list(dict.fromkeys(found))


def _module(root: Path, package: str, name: str) -> str:
    """``from package import name`` as a module: the submodule `name` where there is one, else the package."""
    below = root.joinpath(*package.split("."), name)
    return f"{package}.{name}" if below.is_dir() or below.with_suffix(".py").is_file() else package


def violations(root: Path) -> list[str]:
    """What breaks the table, one readable line each."""
    broken = []
    for file in sources(root):
        rows = [row for pattern, row in TABLE.items() if fnmatchcase(file, pattern)]
        rows = [TABLE[file]] if file in TABLE else rows  # a file's own row comes before that of its folder
        if len(rows) != 1:
            broken.append(f"{file} is covered by {len(rows)} rows of the table; it needs exactly one")
            continue
        allowed = rows[0].split()
        for module, line, late in imports(root, file):
            if module.startswith("."):
                broken.append(f"{file}:{line} imports {module} relatively; write the full name")
            elif not _may(module, allowed, late):
                broken.append(f"{file}:{line} imports {module}; its floor allows {rows[0] or 'nothing'}")
    return broken


def _may(module: str, allowed: list[str], late: bool) -> bool:
    if module.split(".")[0] in STANDARD:
        return True
    ours = module.split(".")[0] in ("mha_core", "pages")
    name = module if ours else module.split(".")[0]
    return any(fnmatchcase(name, p.removeprefix("late:")) for p in allowed if late or ":" not in p)


def cycle(root: Path) -> list[str]:
    """The modules of a ring of imports, which a floor by itself would allow; empty where there is none."""
    files = {f.removesuffix(".py").removesuffix("/__init__").replace("/", "."): f for f in sources(root)}
    graph = {name: {module for module, *_ in imports(root, file)} for name, file in files.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_file_imports_what_its_floor_does_not_allow():
    assert violations(ROOT) == []


def test_no_row_of_the_table_is_left_over():
    assert [pattern for pattern in TABLE if not any(fnmatchcase(f, pattern) for f in sources(ROOT))] == []


def test_no_file_reaches_itself_by_its_imports():
    assert cycle(ROOT) == []


@pytest.fixture
def copy(tmp_path) -> Path:
    """The tree that the table speaks about, to be spoilt."""
    for folder in ("mha_core", "pages"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "app.py", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "planted", "reported"),
    [
        ("mha_core/views.py", "import streamlit", "imports streamlit"),
        ("mha_core/views.py", "import streamlit.components.v2", "imports streamlit.components.v2"),
        ("mha_core/views.py", "from pages._kit import text", "imports pages._kit.text"),
        ("mha_core/errors.py", "import torch", "imports torch"),
        ("mha_core/attention.py", "from mha_core.trace import AttentionTrace", "imports mha_core.trace"),
        ("mha_core/attention.py", "from mha_core import trace", "imports mha_core.trace"),
        ("mha_core/attention.py", "from mha_core import MhaError", "imports mha_core;"),
        ("mha_core/attention.py", "import mha_core", "imports mha_core;"),
        ("mha_core/attention.py", "from .errors import MhaError", "imports .errors relatively"),
        ("mha_core/attention.py", "from . import errors", "imports . relatively"),
        ("mha_core/sources/toy.py", "from .. import errors", "imports .. relatively"),
        ("mha_core/sources/toy.py", "import transformers", "imports transformers"),
        ("mha_core/capture/collector.py", "def f():\n    import transformers", "imports transformers"),
        ("mha_core/sources/huggingface/model.py", "import transformers", "imports transformers"),
        ("mha_core/sources/huggingface/files.py", "import huggingface_hub", "imports huggingface_hub"),
        ("mha_core/trace.py", "def frame():\n    import plotly", "imports plotly"),
        ("mha_core/trace.py", "import pandas", "imports pandas"),
        ("mha_core/trace.py", "class Late:\n    import pandas", "imports pandas"),
        ("mha_core/layer.py", "def f():\n    import pandas as pd", "imports pandas"),
        ("mha_core/figures/heatmap.py", "from mha_core.views import picture", "imports mha_core.views"),
        ("mha_core/figures/heatmap.py", "import torch.nn", "imports torch.nn"),
        ("mha_core/__init__.py", "from mha_core.views import picture", "imports mha_core.views"),
        ("mha_core/__main__.py", "import streamlit", "imports streamlit"),
        ("mha_core/__main__.py", "import importlib", "imports importlib"),
        ("pages/see/heads.py", "import torch", "imports torch"),
        ("pages/see/heads.py", "if True:\n    import plotly.express as px", "imports plotly.express"),
        ("pages/see/heads.py", "from mha_core import trace", "imports mha_core.trace"),
        ("pages/see/heads.py", "from pages.understand import steps", "imports pages.understand.steps"),
        ("pages/_kit/show.py", "import plotly", "imports plotly"),
        ("pages/_kit/show.py", "import torch", "imports torch"),
        ("pages/_kit/show.py", "from pages.see import heads", "imports pages.see.heads"),
        ("pages/frame.py", "import mha_core", "imports mha_core;"),
        ("app.py", "from pages._kit import text", "imports pages._kit.text"),
    ],
)
def test_a_planted_import_is_reported_and_nothing_else(copy, file, planted, reported):
    with (copy / file).open("a", encoding="utf-8") as text:
        text.write(f"\n\n{planted}\n")
    [found] = violations(copy)
    assert found.startswith(f"{file}:")
    assert reported in found


def test_a_planted_ring_on_one_floor_is_reported(copy):
    with (copy / "mha_core" / "masks.py").open("a", encoding="utf-8") as text:
        text.write("\nfrom mha_core.attention import attend\n")
    assert violations(copy) == []
    assert set(cycle(copy)) == {"mha_core.masks", "mha_core.attention"}


@pytest.mark.parametrize(
    "planted", ["from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import streamlit", "import json"]
)
def test_what_is_imported_for_types_counts_and_the_standard_library_does_not(copy, planted):
    with (copy / "mha_core" / "views.py").open("a", encoding="utf-8") as text:
        text.write(f"\n{planted}\n")
    assert len(violations(copy)) == ("streamlit" in planted)


@pytest.mark.parametrize("file", ["mha_core/new.py", "pages/new.py", "mha_core/below/new.py"])
def test_a_new_file_needs_a_row(copy, file):
    (copy / file).parent.mkdir(exist_ok=True)
    (copy / file).touch()
    assert violations(copy) == [f"{file} is covered by 0 rows of the table; it needs exactly one"]


def test_only_the_frame_lies_directly_in_pages():
    # Until st.navigation has run once in a server's process, Streamlit is in its old multipage mode: it
    # takes every *.py in a folder `pages` beside the entry script for a page and, when a link to a page
    # is the first visit, runs that page without the frame, for everyone. Our entry script is
    # pages/frame.py itself (app.py only names it), so the folder that must not be is pages/pages; and if
    # app.py ever becomes the entry script, the old mode must find no more than the frame here.
    assert [file.name for file in (ROOT / "pages").glob("*.py")] == ["frame.py"]
    assert not (ROOT / "pages" / "pages").exists()


def test_the_top_level_holds_what_was_agreed_and_nothing_else():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: there is no list of files that belong to the project")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    top = {path.split("/")[0] for path in listed}
    assert {name for name in top if not name.startswith(".")} - TOP_LEVEL == set()
