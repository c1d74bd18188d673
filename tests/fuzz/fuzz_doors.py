"""A coverage-guided fuzzer at the doors: `mha.trace`, `from_tensors`, links, files of traces and of models.

    pip install atheris && python tests/fuzz/fuzz_doors.py -runs=10000

What comes out is right or an `MhaError`. An input that takes more than 10 s or 2 GB ends the run, and so does
any other exception: libFuzzer then writes the input to a file, which this program takes as an argument to
repeat it. Atheris has wheels for Linux and some versions of Python alone, so the tests draw hostile values
with hypothesis (tests/sources/test_hostile.py), and this is run by hand.
"""

import json
import logging
import sys
import tempfile
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]
LIMITS = (
    "-timeout=10",
    "-rss_limit_mb=2000",
    "-max_len=4096",
    "-len_control=0",
)  # long inputs from the start

import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save  # noqa: E402

with atheris.instrument_imports(include=["mha_core", "pages"]):
    import mha_core as mha
    from mha_core.scene import changes
    from mha_core.scene.focus import Focus
    from mha_core.sources.arrays import from_tensors
    from mha_core.traces import storage
    from mha_core.training import checkpoints
    from mha_core.training.fit import Plan
    from mha_core.training.runs import Runs
    from pages._kit import controls, state, uploads
from tests.sources.test_hostile import NAMES, changed, numbers, places  # noqa: E402

torch.set_num_threads(1)
logging.disable(logging.WARNING)  # Streamlit's, of a program without a page
TRACE = mha.trace("it saw [MASK]", source="mini", h=4, d_model=32, trained=False)
MODEL = checkpoints.untrained(Plan(h=2, d_model=8))
FOLDER = tempfile.TemporaryDirectory()
FILE = Path(FOLDER.name) / "file"
RUNS = Runs(Path(FOLDER.name))
LINK = [*state.CONTROLS, *Focus().link()]


def kinds() -> list[tuple]:
    """Of both kinds of files the key of the header, header and tensors, and what reads them."""
    text, tensors = storage.packed(TRACE._parts())
    checkpoints.save_model(FILE, MODEL)
    with storage.open_file(FILE, checkpoints.HEADER, kind="a model") as (described, file):
        of_model = json.loads(described), {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    return [
        (storage.HEADER, json.loads(text), tensors, mha.load),
        (checkpoints.HEADER, *of_model, checkpoints.load_model),
    ]


KINDS = kinds()


def odd(data: atheris.FuzzedDataProvider):
    """Any value of JSON."""
    return data.PickValueInList(
        [
            lambda: None,
            data.ConsumeBool,
            lambda: data.ConsumeIntInRange(-3, 70),
            lambda: data.ConsumeInt(9),
            data.ConsumeFloat,
            lambda: data.ConsumeUnicode(12),
            lambda: [data.ConsumeIntInRange(0, 3) for _ in range(data.ConsumeIntInRange(0, 4))],
            lambda: {data.ConsumeUnicode(3): data.ConsumeInt(2)},
            lambda: data.PickValueInList(["causal", "window:3", "rotary", "alibi", "mini", 2**31, 10**400]),
        ]
    )()


def traced(data: atheris.FuzzedDataProvider) -> None:
    settings = {data.PickValueInList(NAMES): odd(data) for _ in range(data.ConsumeIntInRange(0, 4))}
    source = data.PickValueInList(["random", "mini"])
    if source == "random":
        settings = {"d_model": 8, "h": 2, "max_bytes": 10**7} | settings
    numbers(mha.trace(data.ConsumeUnicode(200), source=source, **settings))


def linked(data: atheris.FuzzedDataProvider) -> None:
    link = {data.PickValueInList(LINK): data.ConsumeUnicode(30) for _ in range(data.ConsumeIntInRange(1, 5))}
    focus = Focus.of_link(link)
    assert Focus.of_link(focus.link()) == focus
    for name, (value, taken) in controls.refused(link).items():
        assert link[name] == value != taken


PARTS = [*changes.KINDS, *changes.PLACES, "by", "code", ",", "=", ";", "-", "causal", "window:2", "rotary"]


def edited(data: atheris.FuzzedDataProvider) -> None:
    """What a link to What if names is taken or refused part by part; what is taken acts, or is refused."""
    parts = [
        data.PickValueInList(PARTS) if data.ConsumeBool() else str(odd(data))
        for _ in range(data.ConsumeIntInRange(1, 30))
    ]
    chosen, refused = changes.read("".join(parts))
    assert changes.read(changes.write(chosen)) == (chosen, ())
    assert len(chosen) + len(refused) <= "".join(parts).count(";") + 1
    edits = [change for change in chosen if changes.kind_of(change) != "swap"]
    numbers(mha.trace("a b c", h=2, d_model=4, edits=edits))


def given(data: atheris.FuzzedDataProvider) -> None:
    """Arrays of odd shapes, number types and numbers; mostly of those that fit each other."""
    sizes = [4 - data.ConsumeIntInRange(0, 4) for _ in range(4)]
    kinds, arrays = [torch.float32, torch.float64, torch.float16, torch.int64, torch.bool], {}
    for name, width in (("q", 2), ("k", 2), ("v", 3)):
        shape = [*sizes[:2], sizes[width]][data.ConsumeIntInRange(0, 99) == 99 :]
        number = data.PickValueInList([1.0, -1e30, 1e20, 6e4, float("nan")])
        arrays[name] = torch.full(shape, number).to(kinds[max(data.ConsumeIntInRange(-40, 4), 0)])
    tokens = [str(at) for at in range(sizes[1])]
    settings = {name: odd(data) for name in ("scale", "mask", "bias") if data.ConsumeIntInRange(0, 9) == 9}
    if data.ConsumeBool():
        settings["w_o"] = torch.full([data.ConsumeIntInRange(0, 4) * size for size in (sizes[0], 1)], 0.5)
    numbers(from_tensors(**arrays, tokens=tokens, **settings))


def changed_file(data: atheris.FuzzedDataProvider) -> None:
    """A file of the right form with one value or tensor changed."""
    key, header, tensors, load = data.PickValueInList(KINDS)
    if data.ConsumeBool():
        all_places = list(places(header))
        header = changed(header, data.PickValueInList(all_places), ... if data.ConsumeBool() else odd(data))
    else:
        name = data.PickValueInList(sorted(tensors))
        shape = [data.ConsumeIntInRange(0, 5) for _ in range(data.ConsumeIntInRange(0, 4))]
        kind = data.PickValueInList([torch.float32, torch.float64, torch.float16, torch.bool, torch.int64])
        number = np.clip(np.nan_to_num(data.ConsumeFloat()), -1e4, 1e4)
        tensors = tensors | {name: torch.full(shape or tensors[name].shape, number).to(kind)}
    FILE.write_bytes(save(tensors, {key: json.dumps(header)}))
    loaded = load(FILE)
    if load is mha.load:
        numbers(loaded)


def any_file(data: atheris.FuzzedDataProvider) -> None:
    """Bytes that are handed in as a file."""
    content = data.ConsumeBytes(4096)
    if data.ConsumeBool():  # behind the length that the format wants
        content = len(content).to_bytes(8, "little") + content
    FILE.write_bytes(content)
    name = data.ConsumeUnicode(9)
    for read in (
        lambda: uploads.read("a", content),
        lambda: checkpoints.load_model(FILE),
        lambda: RUNS.load(name),
    ):
        try:
            read()
        except mha.MhaError:
            continue


DOORS = [traced, given, linked, edited, changed_file, any_file]


def one_input(content: bytes) -> None:
    data = atheris.FuzzedDataProvider(content)
    try:
        data.PickValueInList(DOORS)(data)
    except mha.MhaError:
        return


if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *LIMITS, *sys.argv[1:]], one_input)
    atheris.Fuzz()
