"""Pages without a server: one file with small models inside, or a folder for any static host."""

from base64 import b64encode
from collections.abc import Iterable
from hashlib import blake2b
from os import PathLike
from pathlib import Path

from mha_core import resources
from mha_core.errors import MhaError, listed
from mha_core.export import head_view
from mha_core.scene.scene import Scene
from mha_core.sources import mini
from mha_core.static import parts
from mha_core.traces.storage import replacing
from mha_core.training import checkpoints
from mha_core.training.fit import Plan
from mha_core.training.lexicon import LANGUAGES

PARTS = "parts"  # the folder beside the page with the files that it loads
# A page does not know yet where it will be, and in a sandboxed frame it has no origin: its script allows the
# folder beside it alone before it loads anything (assets/components/page/parts.js).
SOURCES = " file: http: https:"
OURS = 'id="files"'  # in an index.html of this module


def page(link: str = "") -> str:
    """A page that opens at a link of a small model, with that model inside and the default of each language.

    Raises `MhaError` for a link of another source, and for a model that is not shipped.
    """
    names = [checkpoints.name(Plan(language=language)) for language in LANGUAGES]
    inside = {"texts": parts.texts()}
    if link:
        inside["link"] = link.encode()
        names.insert(0, checkpoints.name(_plan_of(link)))
    shipped = {checkpoints.name(plan): plan for plan in checkpoints.PLANS}
    return head_view.with_parts(inside | _parts(shipped[name] for name in dict.fromkeys(names)))


def _plan_of(link: str) -> Plan:
    scene = Scene.of_link(link).scene
    if scene.source != "mini":
        raise MhaError(
            "A page can compute the small models alone; this is of the source {source}. "
            "A page with the numbers of a trace takes any: trace.view().save(path).",
            source=scene.source,
            fixes=({"source": "mini"},),
        )
    return mini.find(mini.language(scene.text), scene.architecture, scene.h, scene.d_model)


def save_page(path: str | PathLike, link: str = "") -> None:
    """Write `page` as one file, replacing an existing file in one step. Raises as `page` does."""
    text = page(link)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_folder(folder: str | PathLike) -> int:
    """Write a folder for any static host, with all shipped models; returns the number of its files.

    A file that has changed has another name. Files of an earlier version are removed; raises `MhaError` if
    the folder has anything else.
    """
    folder = Path(folder)
    files = {name: _file(name, data) for name, data in _parts(checkpoints.PLANS).items()}
    unknown = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    unknown = [name for name in unknown if name not in ("index.html", PARTS, ".nojekyll")]
    index = folder / "index.html"
    if index.is_file() and OURS not in index.read_text(encoding="utf-8", errors="replace"):
        unknown.append(index.name)
    if unknown or folder.is_file():
        raise MhaError(
            "{folder} has files of something else, such as {names}; name a new or empty folder.",
            folder=str(folder),
            names=listed(sorted(unknown)[:3] or [folder.name], "and"),
        )
    (folder / PARTS).mkdir(parents=True, exist_ok=True)
    for old in set((folder / PARTS).glob("*-*.*.js")) - {folder / name for name, _ in files.values()}:
        old.unlink()
    for name, text in files.values():
        (folder / name).write_text(text, encoding="ascii")
    (folder / ".nojekyll").touch()  # GitHub Pages serves the files as they are
    names = parts.as_json({name: file for name, (file, _) in files.items()}).decode()
    listing = f'<script type="text/plain" {OURS}>{names}</script>\n</head>'
    icon = b64encode(resources.path("assets", "icon.svg").read_bytes()).decode()
    listing = f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">\n{listing}'
    text = head_view.with_parts({"texts": parts.texts()}, SOURCES).replace("</head>", listing, 1)
    with replacing(index) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return len(files) + 2


def _parts(plans: Iterable[Plan]) -> dict[str, bytes]:
    """The models and the words of their languages, by the names of their parts."""
    plans = list(plans)
    words = {f"words-{language}": parts.words(language) for language in {plan.language: 0 for plan in plans}}
    return words | {checkpoints.name(plan): parts.model(plan) for plan in plans}


def _file(name: str, data: bytes) -> tuple[str, str]:
    """The name of a part's file, with a digest of its content, and the script in it."""
    digest = blake2b(data, digest_size=6).hexdigest()
    return f"{PARTS}/{name}.{digest}.js", f'headscopeFiles["{name}"]="{head_view.packed(data)}"\n'
