"""Finished models in a folder, which outlive the server and are shared by servers with the same folder."""

import contextlib
import logging
import os
import re
from pathlib import Path

from mha_core.errors import MhaError
from mha_core.traces.storage import named
from mha_core.training import checkpoints
from mha_core.training.checkpoints import Trained
from mha_core.training.fit import Plan

LOG = logging.getLogger("headscope")
MAX_RUNS = 500
MAX_BYTES = 1 << 30  # of all files together
NAME = re.compile(r"[A-Za-z0-9_-]{1,120}")


class Runs:
    """A folder of finished models, each in a file of its name (format: `checkpoints.save_model`).

    A file is complete or does not exist, whenever the process ends. Beyond `MAX_RUNS` models or `MAX_BYTES`
    bytes those are deleted that nobody has looked at for the longest time.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def save(self, name: str, trained: Trained) -> None:
        """Write a model. Raises `MhaError` if the folder cannot be written to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            checkpoints.save_model(self._path(name), trained)
        except OSError as error:
            LOG.error("a model cannot be saved", exc_info=error)  # the path is for the log, not for visitors
            raise MhaError(
                "{name} cannot be saved: {reason}.",
                name=name,
                reason=error.strerror or type(error).__name__,
            ) from None
        self._remove_oldest()

    def load(self, name: str) -> Trained | None:
        """The model of that name; None if there is none.

        Raises `MhaError` for a file that is not a model, or whose sizes are not those in its name.
        """
        path = self._path(name)
        if not path.is_file():
            return None
        with named(path, name):
            trained = checkpoints.load_model(path)
        prefix = title(trained.plan)
        if name != prefix and not name.startswith(f"{prefix}-"):
            raise MhaError(
                "The file of {name} has another model in it, {prefix}; it is not opened.",
                name=name,
                prefix=prefix,
            )
        return trained

    def touch(self, name: str) -> None:
        """Note that somebody looks at the model of that name, if it is in this folder."""
        with contextlib.suppress(OSError):  # no such file, or a read-only folder
            os.utime(self._path(name))

    def _path(self, name: str) -> Path:
        # Names come from links: a path to another folder is not a name.
        return self.folder / (f"{name}.safetensors" if NAME.fullmatch(name) else ".none")

    def _remove_oldest(self) -> None:
        files = []
        for path in self.folder.glob("*.safetensors"):
            with contextlib.suppress(OSError):  # another server removed it
                state = path.stat()
                files.append((state.st_mtime_ns, state.st_size, path))
        total = 0
        for count, (_, size, path) in enumerate(sorted(files, reverse=True), start=1):
            total += size
            if count > MAX_RUNS or (total > MAX_BYTES and count > 1):
                path.unlink(missing_ok=True)


def title(plan: Plan) -> str:
    """The beginning of a model's name: its architecture, language, sizes and seed."""
    return f"{checkpoints.name(plan)}-s{plan.seed}"
