"""The scripts as modules: their own tests, the linter, and one merged text with the same meaning."""

import os
import re
import shutil
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from mha_core.export import scripts

ROOT = Path(__file__).parents[2]
PROGRAMS = ("page/model_program.js", "page/program.js")
ENTRIES = (*PROGRAMS, "page/start.js")  # run in a page as soon as they are loaded
DECLARED = re.compile(r"^(?:export )?(?:async function|function|class|const|let|var)\b ?(\w*)", re.MULTILINE)
UNSUPPORTED = re.compile(r"^(?:import|export)\b.*|\bimport\(.*", re.MULTILINE)
SCRIPTS = sorted(path.relative_to(scripts.FOLDER).as_posix() for path in scripts.FOLDER.rglob("*.js"))
MODULES = [name for name in SCRIPTS if name not in ENTRIES]
PAGES = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "pages").rglob("*.py"))
MOUNTED = {name for name in MODULES if f'"{name}"' in PAGES}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """`folder(a="…", b="…")`: a folder with these modules in place of ours."""
    monkeypatch.setattr(scripts, "FOLDER", tmp_path)

    def write(**texts: str) -> None:
        scripts.order.cache_clear()
        for name, text in texts.items():
            (tmp_path / f"{name}.js").write_text(text, encoding="utf-8")

    yield write
    scripts.order.cache_clear()


# Our modules


def test_node_loads_every_module_and_what_it_imports(node):
    # A name that is not exported where it is imported from is an error before anything runs.
    addresses = [(scripts.FOLDER / name).as_uri() for name in MODULES]
    code = f"for (const file of {addresses}) await import(file);"
    done = subprocess.run(
        [node, "--input-type=module", "-e", code], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(MODULES) > 20


def test_the_tests_in_node_pass(node):
    """`node --test tests/js/*.test.js` runs them without Python, and with --watch after each change."""
    files = sorted(Path(__file__).parent.glob("*.test.js"))
    done = subprocess.run(
        [node, "--test", *files], capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^\D*pass (\d+)$", done.stdout, re.MULTILINE)
    assert int(passed[1]) > len(files) > 5  # each of them was found and has tests


def test_every_module_is_needed_by_one_that_a_page_mounts_or_is():
    needed = {file for name in (*MOUNTED, *PROGRAMS) for file in scripts.order(name)}
    assert needed == {*MODULES, *PROGRAMS}


def test_every_mounted_module_has_a_mount_function():
    for name in MODULES:
        mounts = re.search(r"^export default (async )?function \(", scripts.asset(name), re.MULTILINE)
        assert bool(mounts) == (name in MOUNTED)


def test_no_two_modules_declare_one_name():
    owners = {}
    for name in (*MODULES, "page/program.js"):
        for declared in DECLARED.findall(scripts.asset(name)):
            assert declared, name  # several names at once cannot be told apart
            assert owners.setdefault(declared, name) == name, declared


def test_the_modules_of_a_page_import_and_export_names_alone():
    for program in PROGRAMS:
        imports = {name: scripts.imports(name) for name in scripts.order(program)}
        TopologicalSorter(imports).prepare()  # refuses a circle
        names = [name for files in imports.values() for each in files.values() for name in each]
        assert not [name for name in names if " " in name]  # `b as c`
        statement = UNSUPPORTED.search(scripts.COMMENT.sub("", scripts.merged(program)))
        assert statement is None, statement[0]


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{name} is missing; .ci/run installs it.")
        pytest.skip(f"{name} is not installed (tests/js/package.json)")
    return found


def run(*command: object) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_linter_finds_nothing():
    run(
        tool("biome"),
        "check",
        "--config-path=.biome.json",
        "--error-on-warnings",
        "assets/components",
        "tests/js",
    )


@pytest.mark.slow
def test_types_fit():
    run(tool("tsc"), "-p", "tests/js")


# Where they come from


def test_another_script_has_another_address(folder):
    digests = []
    for texts in ({"a": "1;"}, {"a": "2;"}, {"b": ""}, {"b": "1;"}):
        folder(**texts)
        scripts.digest.cache_clear()
        digests.append(scripts.digest())
    scripts.digest.cache_clear()
    assert len(set(digests)) == 4
    assert all(re.fullmatch(r"[0-9a-f]{16}", digest) for digest in digests)


# Modules in one text


def test_a_module_is_merged_once_after_its_imports(folder):
    folder(
        a='import { b } from "./b.js";\nimport {\n  c,\n  d,\n} from "./c.js";\nb(c);\n',
        b='import { c } from "./c.js";\n\nexport const b = () => c;\n',
        c="// Three.\nexport const c = 3;\nexport async function d() {}\nclass Own {}\n",
    )
    assert scripts.order("a.js") == ("c.js", "b.js", "a.js")
    assert scripts.bare(scripts.merged("a.js")) == (
        "const c = 3;\nasync function d() {}\nclass Own {}\nconst b = () => c;\nb(c);\n"
    )


def test_comments_are_left_out_of_the_page():
    text = "/**\n * A doc.\n */\nconst a = 1; // why\n\n  // a remark\n  /* one line */\n  b();\n"
    assert scripts.bare(text) == "const a = 1; // why\nb();\n"
    assert scripts.bare("const a = /** @type {B | null} */ (b);\n") == "const a = (b);\n"
    assert "/**" not in scripts.bare(scripts.merged("page/program.js"))
    # No string of ours goes on over lines, where what looks like a remark or an indent would be part of it.
    for name in (*MODULES, *ENTRIES):
        for line in scripts.asset(name).splitlines():
            if not line.lstrip().startswith("//"):
                assert line.count("`") % 2 == 0, (name, line)


def test_the_text_of_a_page_is_a_module_by_itself(node, tmp_path):
    (tmp_path / "page.mjs").write_text(scripts.bare(scripts.merged("page/program.js")), encoding="utf-8")
    done = subprocess.run(
        [node, "--check", tmp_path / "page.mjs"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
