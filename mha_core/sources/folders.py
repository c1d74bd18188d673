"""The folder with a model's files: what is in it, and why it cannot be used."""

import json
from dataclasses import dataclass
from pathlib import Path

import regex

from mha_core.errors import MhaError

WEIGHTS = regex.compile(r"model(-\d+-of-\d+)?\.safetensors")
PICKLES = regex.compile(r".*\.(bin|pt|pth|ckpt|pkl|h5|msgpack)")


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


def refuse_quantised(folder: Folder) -> None:
    """Raise `MhaError` if the configuration says that the weights are not ordinary numbers."""
    config = folder.config.get("quantization_config")
    if config is not None:
        method = config.get("quant_method", "somehow") if isinstance(config, dict) else "somehow"
        raise MhaError(
            f"{folder.name} is quantised ({method}); what its attention computes cannot be shown exactly. "
            f"The original model can be used."
        )


def usable(folder: Folder) -> Folder:
    """The folder, if its model can be loaded without running anything that it brings along."""
    refuse_quantised(folder)
    if not folder.weights:
        raise MhaError(no_weights(folder.name, [file.name for file in folder.path.iterdir()]))
    if (torn := torn_part(folder)) is not None:
        raise MhaError(f"{folder.name} is incomplete: {torn} is missing.")
    return folder


def no_weights(name: str, files: list[str]) -> str:
    if any(PICKLES.fullmatch(file) for file in files):
        return (
            f"The weights of {name} come as a pickle, which can run any program when it is opened; only "
            f"safetensors are loaded. Many models have them in a newer revision, or converted."
        )
    if any(file.endswith(".gguf") for file in files):
        return f"The weights of {name} are a GGUF file, mostly quantised; a model in safetensors can be used."
    return f"{name} has no weights: no model.safetensors."


def torn_part(folder: Folder) -> str | None:
    """The first file with weights that the index names and that is not there."""
    index = folder.path / "model.safetensors.index.json"
    if (folder.path / "model.safetensors").exists() or not index.exists():
        return None
    try:
        named = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise MhaError(f"The index of the weights of {folder.name} is damaged.") from None
    return next((file for file in named if not (folder.path / file).exists()), None)
