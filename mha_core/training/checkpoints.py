"""Small models on disk, and the trained ones that come with Headscope.

The files are safetensors: nothing in them is ever executed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from mha_core import resources
from mha_core.errors import MhaError, Phrase, listed
from mha_core.traces.limits import FLOATS, Size, check_finite, described
from mha_core.traces.source import TrainedSource
from mha_core.traces.storage import file_sizes, open_file, write_file
from mha_core.training.fit import Plan
from mha_core.training.lexicon import lexicon
from mha_core.training.model import SmallModel
from mha_core.training.questions import QUESTIONS

FOLDER = ("assets", "weights")
MANIFEST = "manifest.json"
EDITION = "edition.txt"
BARE = 600  # first steps, with short sentences that all have a pronoun to resolve, the hardest question
GLASS_BOXES = (  # language, d_model, steps, and every h
    ("en", 32, 5_000, (1, 2, 4, 8, 16)),
    ("en", 64, 5_500, (1, 2, 4, 8, 16)),
    ("en", 128, 4_000, (1, 2, 4, 8, 16)),
    ("en", 256, 3_000, (4, 8, 16)),
    ("zh", 64, 7_000, (1, 2, 4, 8)),
    ("zh", 128, 5_000, (1, 2, 4, 8)),
)
SHARING = ("grouped-query", "multi-query", "latent")
OTHERS = (  # language, steps, and every architecture, with h 4 and d_model 64
    ("en", 5_500, ("standard", "one-layer", *SHARING)),
    ("zh", 7_000, ("standard", *SHARING)),
)
DECODERS = (  # language, architecture, h and d_model
    *(("en", "decoder", h, d_model) for h, d_model in ((4, 64), (8, 64), (8, 128))),
    *(("en", f"decoder-{sharing}", 4, 64) for sharing in SHARING),
    *(("zh", "decoder", h, 64) for h in (4, 8)),
)
PLANS = (
    *(
        Plan(h=h, d_model=d_model, language=language, steps=steps, bare=BARE)
        for language, d_model, steps, heads in GLASS_BOXES
        for h in heads
    ),
    # The sizes of a layer in Vaswani et al. 2017. With the rate of its width it finds fewer nouns, and with
    # seed 0 it looks at them with less weight.
    Plan(h=8, d_model=512, seed=1, steps=3_000, rate=0.0006, bare=BARE),
    *(
        Plan(architecture, language=language, steps=steps, bare=BARE)
        for language, steps, architectures in OTHERS
        for architecture in architectures
    ),
    *(
        Plan(architecture, h, d_model, language, steps=2_500)
        for language, architecture, h, d_model in DECODERS
    ),
)


def name(plan: Plan | TrainedSource) -> str:
    """The name of a model's file, from its plan or from the source of its trace."""
    return f"{plan.architecture}-{plan.language}-h{plan.h}-d{plan.d_model}"


def path(plan: Plan) -> Path:
    return resources.path(*FOLDER, f"{name(plan)}.safetensors")


@cache
def manifest() -> dict[str, dict]:
    """The facts about each shipped model, by its name: its plan, its scores, and how it was made."""
    return json.loads(resources.path(*FOLDER, MANIFEST).read_text(encoding="utf-8"))


@cache
def edition() -> int:
    """The edition of the shipped weights, a number that increases when any of them change."""
    return int(resources.path(*FOLDER, EDITION).read_text(encoding="ascii"))


HEADER = "headscope_model"
VERSION = 2
MAX_TEMPERATURE = 100


@dataclass(frozen=True, eq=False)
class Trained:
    """A model with its plan, the number of steps of the plan that were taken, and its measurements."""

    model: SmallModel
    plan: Plan
    step: int
    report: dict


def untrained(plan: Plan) -> Trained:
    """The model before the first step of its plan."""
    model = SmallModel(plan, len(lexicon(plan.language).vocabulary), seed=plan.seed)
    return Trained(model.requires_grad_(False).eval(), plan, 0, {})


def save_model(path: str | PathLike, trained: Trained) -> None:
    """Write a model in half precision, replacing an existing file in one step."""
    tensors = {name: tensor.half().contiguous() for name, tensor in trained.model.state_dict().items()}
    write(path, tensors, trained.plan, trained.step, trained.report, trained.model.temperatures)


def load_model(path: str | PathLike) -> Trained:
    """Read a model for inference, in single precision.

    Raises `MhaError` if the file is missing, damaged, something else, or was trained with another vocabulary.
    """
    tensors, header, plan = read(path)
    model = sized(plan)
    model.load_state_dict(tensors, assign=True)
    model.temperatures = header["temperatures"]
    return Trained(model.requires_grad_(False).eval(), plan, header["step"], header["report"])


def write(
    path: str | PathLike,
    tensors: dict[str, Tensor],
    plan: Plan,
    step: int,
    report: dict,
    temperatures: Mapping[str, float],
) -> None:
    """Write a file that `read` reads."""
    header = {
        "version": VERSION,
        "plan": asdict(plan),
        "questions": plan.questions,
        "vocabulary": lexicon(plan.language).digest,
        "step": step,
        "report": report,
        "temperatures": temperatures,
    }
    write_file(path, tensors, {HEADER: json.dumps(header)})


def sized(plan: Plan) -> SmallModel:
    """A model with the sizes of a plan, without numbers."""
    with torch.device("meta"):
        return SmallModel(plan, len(lexicon(plan.language).vocabulary), seed=None)


def read(path: str | PathLike, *, moments: Sequence[str] = ()) -> tuple[dict[str, Tensor], dict, Plan]:
    """The tensors of a file in single precision, its header and its plan.

    The header is checked against the shapes and dtypes of the tensors before a model of that size is made and
    before its numbers are read. An unfinished training has `moments` of each parameter, too.
    """
    with open_file(path, HEADER, kind=Phrase("a model of the small language")) as (header, file):
        header = described(header)
        if header["version"] == 1:
            raise MhaError(
                "it is of an earlier release, whose models knew other words and were asked about pronouns "
                "and hidden words alone; train it again on the page Train."
            )
        if header["version"] != VERSION:
            raise MhaError(
                "it has format version {version}; this release reads {known}.",
                version=header["version"],
                known=VERSION,
            )
        plan = Plan(**header["plan"])
        if header["vocabulary"] != lexicon(plan.language).digest:
            raise MhaError(
                "it was trained with another vocabulary ({vocabulary}); the words of "
                "this release are {known}.",
                vocabulary=header["vocabulary"],
                known=lexicon(plan.language).digest,
            )
        if {question: tuple(heads) for question, heads in header["questions"].items()} != plan.questions:
            raise ValueError(f"questions {header['questions']!r}")
        step = header["step"]
        if type(step) is not int or not 0 <= step <= plan.steps or type(header["report"]) is not dict:
            raise ValueError(f"step {step!r} of {plan.steps}, report {header['report']!r}")
        header.setdefault("temperatures", {})  # files of an earlier edition have none
        if not all(
            name in QUESTIONS and 1 <= t <= MAX_TEMPERATURE for name, t in header["temperatures"].items()
        ):
            raise ValueError(f"temperatures {header['temperatures']!r}")
        model = sized(plan)
        expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        for name, tensor in model.named_parameters() if step else ():  # there are none before the first
            expected |= {f"{moment}.{name}": tuple(tensor.shape) for moment in moments}
        _check_sizes(expected, file_sizes(file))
        tensors = {}
        for name in expected:
            tensors[name] = file.get_tensor(name)
            check_finite(name, tensors[name])
            tensors[name] = tensors[name].float()
        return tensors, header, plan


def _check_sizes(expected: dict[str, tuple[int, ...]], sizes: dict[str, Size]) -> None:
    """Raise `MhaError` for tensors that are missing or unexpected, or that have another shape."""
    for names, lacking in ((expected.keys() - sizes, True), (sizes.keys() - expected, False)):
        if names:
            raise MhaError(
                "it lacks {names}, {n:,} tensors in all."
                if lacking
                else "it has the unknown {names}, {n:,} tensors in all.",
                names=listed(sorted(names)[:4], "and"),
                n=len(names),
            )
    for name, shape in expected.items():
        size = sizes[name]
        if size.shape != shape or size.dtype not in FLOATS:
            raise MhaError(
                "{name} is {dtype} of shape {shape}; its plan needs {expected}.",
                name=name,
                dtype=size.dtype,
                shape=size.shape,
                expected=shape,
            )
