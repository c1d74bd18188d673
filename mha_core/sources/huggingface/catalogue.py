"""Models to choose from: those on this machine, and well-known ones of the Hugging Face hub."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mha_core import resources
from mha_core.errors import MhaError
from mha_core.sources.huggingface.files import PACKAGE, Folder, package


@dataclass(frozen=True)
class LocalModel:
    """A model on this machine: its name for `load`, its folder, the bytes of its weights, and its type."""

    name: str
    origin: str  # "package", "hub" or "folder"
    path: Path
    bytes: int
    family: str | None
    revision: str | None = None


@dataclass(frozen=True)
class HubModel:
    """A well-known model of the Hugging Face hub: its sizes (`bytes` of its files) and its licence.

    `revision` is the commit that a public server offers; None where it does not offer the model.
    """

    id: str
    layers: int
    heads: int
    parameters: int
    bytes: int
    licence: str
    gated: bool = False
    revision: str | None = None


def local_models(folders: Iterable[str | Path] = ()) -> tuple[LocalModel, ...]:
    """The models on this machine: of the package, of the hub's cache, and of the folders.

    A folder has the files of one model, or contains folders of models. Models without safetensors or without
    a configuration are left out, and so is a package whose weights are not the expected ones.
    """
    models = []
    with suppress(MhaError):  # `find` gives the reason
        if (folder := package()) is not None:
            models += _described(PACKAGE, "package", folder, None)
    newest = {name: (folder, revision) for name, folder, revision in reversed(in_hub_cache())}
    for name, (folder, revision) in sorted(newest.items()):
        models += _described(name, "hub", folder, revision)
    for place in folders:  # with the name as given, as in links
        models += _in_folder(place) or [model for inner in _inner(place) for model in _in_folder(inner)]
    return tuple(models)


def pinned_models() -> tuple[LocalModel, ...]:
    """The model of the package, and those in the hub's cache whose revision is pinned in `hub_models`."""
    pinned = {model.id: model.revision for model in hub_models()}
    models = [model for model in local_models() if model.origin == "package"]
    for name, folder, revision in in_hub_cache():
        if revision == pinned.get(name):
            models += _described(name, "hub", folder, revision)
    return tuple(models)


def hub_models() -> tuple[HubModel, ...]:
    """The well-known models that the app offers, small ones of each kind first."""
    entries = json.loads(resources.path("assets", "models.json").read_text(encoding="utf-8"))
    return tuple(HubModel(**entry) for entry in entries)


def _in_folder(folder: str | Path) -> list[LocalModel]:
    return _described(str(folder), "folder", Path(folder), None)


def _inner(folder: str | Path) -> list[Path]:
    """The folders in a folder; empty if it is missing or cannot be read."""
    with suppress(OSError):
        return sorted(inner for inner in Path(folder).iterdir() if inner.is_dir())
    return []


def _described(name: str, origin: str, folder: Path, revision: str | None) -> list[LocalModel]:
    """The model of a folder; empty without weights or configuration."""
    files = Folder(name, folder, revision)
    try:
        family = files.config.get("model_type")
    except MhaError:
        return []
    return [LocalModel(name, origin, folder, files.weight_bytes, family, revision)] if files.weights else []


def in_hub_cache() -> list[tuple[str, Path, str]]:
    """Name, folder and revision of each model in the hub's cache, with its newest revision first."""
    try:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound
    except ImportError:
        return []
    try:
        repositories = scan_cache_dir().repos
    except (CacheNotFound, OSError, ValueError):
        return []
    return [
        (repository.repo_id, revision.snapshot_path, revision.commit_hash)
        for repository in repositories
        if repository.repo_type == "model"
        for revision in sorted(repository.revisions, key=lambda one: one.last_modified, reverse=True)
    ]
