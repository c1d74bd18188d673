"""The READMEs are true: examples run, links lead somewhere, and the tree of the house is complete."""

import doctest
import importlib
import re
import textwrap
from pathlib import Path

import pytest

import mha_core as mha
from mha_core import __main__ as command
from mha_core.attention import masks
from mha_core.errors import listed
from mha_core.training.model import ARCHITECTURES
from tests.house import reference
from tests.sources import tiny

ROOT = Path(__file__).parents[2]
CHINESE = {"README.md": "assets/README.zh.md", "assets/deploy/README.md": "assets/deploy/README.zh.md"}
PAGES = [
    "README.md",
    *CHINESE.values(),
    "assets/lessons/README.md",
    "assets/lessons/README.zh.md",
    "mha_core/README.md",
    "mha_core/atlases/README.md",
    "assets/deploy/README.md",
    "mha_core/export/README.md",
    "mha_core/training/README.md",
    "tests/parity/README.md",
    "CHANGELOG.md",
    "mha_core/DECISIONS.md",
    ".github/CONTRIBUTING.md",
]
MAX_WORDS = 900  # of the README, for the person who wants to use it
# Modules whose docstrings have examples, in which `mha` is what a user imports by that name.
EXAMPLES = [
    "mha_core",
    "mha_core.attention.edits",
    "mha_core.differences.traces",
    "mha_core.interventions.attribution",
    "mha_core.interventions.effects",
    "mha_core.lessons.item",
    "mha_core.lessons.lesson",
    "mha_core.room.rooms",
    "mha_core.scene.scene",
    "mha_core.sources",
    "mha_core.sources.arrays",
    "mha_core.sources.decoding",
]
# Names in the examples, and the tiny models that stand for them in the working folder.
MODELS = {"gpt2": "gpt2", "openai-community/gpt2": "gpt2", "google-t5/t5-small": "t5"}

pytestmark = pytest.mark.skipif(not (ROOT / "README.md").exists(), reason="not a checkout: no README")


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text(page), re.MULTILINE | re.DOTALL)


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """A folder in which the names of models are folders with tiny ones."""
    monkeypatch.chdir(tmp_path)
    for name, family in MODELS.items():
        path = tmp_path / name
        tiny.module(family).save_pretrained(path)
        tiny.fast().save_pretrained(path)
    return tmp_path


@pytest.mark.slow
def test_each_example_of_the_readme_runs_on_its_own(working_folder):
    for example in examples("README.md"):
        names = {}
        exec(compile(example, "README.md", "exec"), names)
    recorded = names["recorder"].trace
    assert [(layer.n_heads, layer.n_query, layer.d_k) for layer in recorded.layers] == [(4, 5, 12)] * 2
    assert all(mha.against_torch(layer).passed for layer in recorded.layers)
    assert mha.load("mine.safetensors").tokens.pieces == tuple(names["tokens"])
    assert mha.load("trace.safetensors").tokens.labels[8] == "it"
    assert (working_folder / "view.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_examples_about_models_run(working_folder):
    for example in examples("tests/parity/README.md"):
        exec(compile(example, "tests/parity/README.md", "exec"), {"mha": mha})


def test_the_mask_of_the_contributing_guide_is_one(monkeypatch):
    [code] = re.findall(
        r"^   ```python\n(.*?)^   ```", text(".github/CONTRIBUTING.md"), re.MULTILINE | re.DOTALL
    )
    names = vars(masks) | {"MASKS": masks.MASKS.copy()}  # and nothing is imported while it is a mask
    exec(textwrap.dedent(code), names)
    monkeypatch.setattr(masks, "MASKS", names["MASKS"] | {"strided": names["strided"]})
    allowed = masks.build("strided:2", 5, 5)
    assert allowed.tolist() == [[(m - n) % 2 == 0 for n in range(5)] for m in range(5)]


@pytest.mark.parametrize("module", EXAMPLES)
def test_the_examples_of_docstrings_give_their_results(module):
    found = doctest.DocTestFinder().find(importlib.import_module(module), globs={"mha": mha})
    ran = [doctest.DocTestRunner().run(example) for example in found if example.examples]
    assert ran
    assert not sum(each.failed for each in ran)


def test_every_docstring_with_an_example_is_run():
    lines = re.compile("^ *>>> .*(?<!SKIP)$", re.MULTILINE)
    paths = [path for path in (ROOT / "mha_core").rglob("*.py") if lines.search(path.read_text("utf-8"))]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in paths]
    assert {".".join(part for part in each if part != "__init__") for each in parts} == set(EXAMPLES)


def test_the_readme_is_short():
    assert len(text("README.md").split()) <= MAX_WORDS


@pytest.mark.parametrize("page", CHINESE)
def test_a_chinese_page_has_the_same_code_and_the_same_figures_in_its_tables(page):
    """Its comments are Chinese."""

    def code(page: str) -> list[str]:
        blocks = re.findall(r"^```\w*\n(.*?)^```", text(page), re.MULTILINE | re.DOTALL)
        return [re.sub(r" *#.*", "", block) for block in blocks]

    def figures(page: str) -> list[list[str]]:
        rows = re.findall(r"^\|.*", text(page), re.MULTILINE)
        return [re.findall(r"\d(?:[\d,.]*\d)?", row) for row in rows]

    assert code(CHINESE[page]) == code(page)
    assert figures(CHINESE[page]) == figures(page)


@pytest.mark.parametrize("page", ["README.md", CHINESE["README.md"]])
def test_the_two_setup_commands_are_unchanged(page):
    """Before them comes the line for Linux without a GPU, which takes torch from the Dockerfile's index."""
    pip = "python3 -m venv .venv && .venv/bin/pip install"
    prefix, index = f"{pip} -c constraints.txt ", re.findall("TORCH_INDEX=(.*)", text("Dockerfile"))[-1]
    commands = re.findall(r"^```bash\n(python3 .*?)\n```", text(page), re.MULTILINE)
    assert commands == [
        f"{pip} --no-deps -c constraints.txt --index-url {index} torch",
        f"{prefix}. && .venv/bin/headscope",
        f'{prefix}-e ".[test]" && .venv/bin/pytest',
    ]


@pytest.mark.parametrize("page", [*PAGES, "mha_core/REFERENCE.md"])
def test_every_link_and_every_path_exists(page):
    links = re.findall(r"\]\(([^)#:]+)\)", text(page))
    missing = [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
    named = re.findall(r"`((?:mha_core|pages|assets|tests|\.streamlit)/[\w./-]+)`", text(page))
    assert [*missing, *(path for path in named if not (ROOT / path).exists())] == []


def test_every_architecture_of_the_small_models_is_named_where_one_can_be_chosen():
    names = listed(ARCHITECTURES, "or")
    assert command.SETTINGS["architecture"][1] == f"{names} (mini)"
    assert f"`architecture`: {names}." in " ".join(mha.trace.__doc__.split())
    items = re.findall(r"^- (\*.+?):", text("mha_core/training/README.md"), re.MULTILINE)
    assert re.findall(r"\*([\w-]+)\*", " ".join(items)) == list(ARCHITECTURES)


# The house


def drawn_paths() -> list[str]:
    """The paths of the tree, as `mha_core/README.md` draws it."""
    block = text("mha_core/README.md").split("## What is where\n\n```\n")[1].split("```")[0]
    return [line.split("  ")[0] for line in block.splitlines()]


def existing_paths() -> set[str]:
    """A path for each room, each file beside the rooms, each page, each folder of scripts, and the rest."""
    house = {f"mha_core/{path.name}" for path in (ROOT / "mha_core").glob("*.py")}
    house |= {f"mha_core/{path.parent.name}/" for path in (ROOT / "mha_core").glob("*/__init__.py")}
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pages").glob("*/*.py")}
    shared = {"pages/frame.py", "pages/_kit/", "pages/_server/"}
    pages = {path for path in pages if not path.startswith("pages/_")} | shared
    scripts = {path.relative_to(ROOT).as_posix() + "/" for path in (ROOT / "assets/components").glob("*/")}
    return house | pages | scripts | {"app.py", "assets/", "tests/"}


def test_the_tree_has_a_line_for_each_room_and_page_and_no_other():
    assert len(drawn_paths()) == len(set(drawn_paths()))
    assert set(drawn_paths()) == existing_paths()


# The reference


def test_the_reference_is_up_to_date():
    written = reference.PATH.read_text(encoding="utf-8")
    assert written == reference.text(), "write it again: python -m tests.house.reference"


def test_every_public_name_has_one_place_in_the_reference():
    names = [name for group in reference.GROUPS.values() for name in group]
    assert sorted(names) == sorted(mha.__all__)


def test_every_name_compared_with_transformer_lens_is_one_of_a_layer():
    layer = mha.trace("a b", h=2, d_model=4).layers[0]
    for ours, _, axes, _ in reference.NAMES:
        value = getattr(layer, ours)
        assert (value() if callable(value) else value).ndim == len(axes.split(", ")), ours
