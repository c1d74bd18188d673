"""A reader's own module beside torch's attention with the same weights: where and why they differ."""

import linecache
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.module import AttentionSpec
from mha_core.differences import student
from mha_core.differences.flow import Flow, Run
from mha_core.differences.formula import DROPOUT, MISTAKES, STAGES, Mistake, Products, stages
from mha_core.differences.projections import ROLES, Learned, learned_matrices, products
from mha_core.differences.search import HIDING, ROUNDING, causes, distance, gives, rounding
from mha_core.differences.student import BATCH, Case, Form, Signature
from mha_core.errors import MhaError, one_of

NOTES = {
    "keep": "True or 1 in {name} means that a query may look.",
    "hide": "True or 1 in {name} hides a key.",
    "added": "{name} is added to the scores: −∞ hides a key.",
    "causal": "It is causal.",
}
# How the inputs lie in memory.
LAYOUTS = {
    "batch": "",
    "sequence": "It takes (length, batch, d_model).",
    "text": "It takes one text at a time, (length, d_model).",
}
HIDDEN = "A query that may look at no key gets NaN; torch's function gives it 0."
WIDENED = "Where it asks for half precision it was run in single: smaller errors show, an overflow does not."
COARSE = "It computes in half precision: a difference below {share:.1%} of the largest number is not seen."
UNSCALED = next(mistake for mistake in MISTAKES if mistake[:2] == ("scale", "1"))


@dataclass(frozen=True)
class Report:
    """The result of a comparison: equal, or the first matrix that differs and the tested causes.

    `causes` are lists of mistakes that together give the module's numbers in every run; several lists if
    these inputs do not tell them apart, none if the cause is unknown. `distance` is the largest difference as
    a share of the matrix's largest number; `example` is one number: its place, the module's, the right one.
    """

    module: str
    weights: dict[str, list[str]]
    equal: bool
    runs: int
    rounding: float
    notes: tuple[str, ...] = ()
    matrix: str | None = None
    causes: tuple[tuple[Mistake, ...], ...] = ()
    distance: float | None = None
    line: int | None = None
    code: str = ""
    example: str = ""

    def to_json(self) -> dict[str, Any]:
        """The report for a program; JSON has no infinite distance: None."""
        values = asdict(self) | {"weights": self.weights, "notes": list(self.notes)}
        values["distance"] = None if self.distance == float("inf") else self.distance
        values["causes"] = [[mistake._asdict() for mistake in cause] for cause in self.causes]
        return values

    def noting(self, *notes: str) -> "Report":
        """The report with more notes, each said once."""
        said = dict.fromkeys((*self.notes, *filter(None, notes)))
        return replace(self, notes=tuple(said))

    def __str__(self) -> str:
        names = sorted(self.weights, key="qkvo".find)
        weights = "; ".join(f"W^{name.upper()} = {', '.join(self.weights[name])}" for name in names)
        lines = [self.module, f"Weights: {weights}", *self.notes, ""]
        if self.equal:
            lines.append(f"Equal to torch's attention with the same weights, in {self.runs} runs.")
            return "\n".join(lines)
        lines.append("Different from torch's attention with the same weights.")
        where = f" (line {self.line})" if self.line else ""
        lines.append(f"First difference: {STAGES[self.matrix or 'output']}{where}.")
        if self.code:
            lines.append(f"  {self.line} | {self.code.strip()}")
        if self.example:
            lines.append(f"  {self.example}")
        for nth, cause in enumerate(self.causes):
            lines.append("Reason:" if not nth else "Or, which these inputs do not tell apart:")
            for mistake in cause:
                lines += [f"  {mistake.sentence}", f"  It should be: {mistake.correction}."]
        if self.causes:
            what = "both mistakes" if len(self.causes[0]) > 1 else "this mistake"
            lines.append(f"Tested: with {what} torch's attention gives your numbers in all {self.runs} runs.")
        else:
            lines.append("Cause unknown: none of the known mistakes, and no two of them, give your numbers.")
        return "\n".join(lines)


@dataclass(frozen=True)
class Call:
    """A module, its file, and how it is called."""

    module: nn.Module
    file: str
    signature: Signature
    spec: AttentionSpec
    one_length: bool = False
    layout: str = "batch"
    without_dropout: bool = False
    is_causal: bool | None = None  # what its constructor was told, if it asks

    @property
    def dtype(self) -> torch.dtype:
        return next(self.module.parameters()).dtype

    def cases(self, *, masked: bool = False) -> list[Case]:
        n = len(self.signature.inputs)
        return student.cases(self.spec, n, masked=masked, one_length=self.one_length)

    def run(self, case: Case, name: str = "", mask: Tensor | None = None) -> Run:
        """Run the module; its file's code may raise anything."""
        inputs = [one.to(self.dtype, copy=True) for one in case.inputs]
        if self.layout != "text":
            given = [one.transpose(0, 1) for one in inputs] if self.layout == "sequence" else inputs
            output, flow = self._called(given, case, name, mask)
            return Run(case, output.transpose(0, 1) if self.layout == "sequence" else output, flow)
        runs = []
        for nth, one in enumerate(zip(*inputs, strict=True)):
            own = mask if mask is None or len(mask) > BATCH else mask[min(nth, len(mask) - 1)]
            runs.append(self._called(one, case, name, own))
        outputs, flows = zip(*runs, strict=True)
        return Run(case, torch.stack(outputs), Flow.stacked(flows))

    def _called(
        self, given: Sequence[Tensor], case: Case, name: str, mask: Tensor | None
    ) -> tuple[Tensor, Flow]:
        """The output for these inputs, and the flow."""
        arguments: dict[str, Any] = dict(zip(self.signature.inputs, given, strict=True))
        arguments |= {mask: None for mask, needed in self.signature.masks.items() if needed}
        if mask is not None:
            arguments[name] = mask.to(self.dtype) if mask.is_floating_point() else mask
        if self.signature.causal is not None:
            arguments[self.signature.causal] = case.mask is not None and mask is None
        with torch.no_grad(), Flow(self.file, without_dropout=self.without_dropout) as flow:
            result = self.module(**arguments)
        results = list(result.values()) if isinstance(result, dict) else result
        results = results if isinstance(results, list | tuple) else [results]
        shape = given[0].shape
        rows = [one for one in results if isinstance(one, Tensor) and one.shape[:-1] == shape[:-1]]
        if rows:
            return min(rows, key=lambda one: one.shape != shape).double(), flow  # no mean weights
        raise MhaError(
            "forward returns no tensor of shape (batch, length, d_model) = {shape}.",
            shape=str(tuple(shape)),
        )


class Attempt(NamedTuple):
    """The runs in one way of calling a module: what was given, what came out, and a note on that way."""

    given: list[Products]
    wanted: list[dict[str, Tensor]]
    flow: Flow
    note: str


def check(
    file: Path,
    *,
    name: str | None = None,
    h: int | None = None,
    d_model: int | None = None,
    arguments: Mapping[str, Any] | None = None,
    weights: Mapping[str, str] | None = None,
    mask: str | None = None,
) -> Report:
    """Compare the attention in a Python file with torch's, with the same weights. The file's code is run.

    `name` is its class, `arguments` are of its constructor, `weights` say which parameter is q, k, v or o,
    and `mask` whether True in a mask means "keep" or "hide". What is not given is found and reported.
    Raises `MhaError` for a file that cannot be run, and for a module that is not understood.
    """
    file = Path(file).resolve()
    kind = student.attention_class(file, name)
    module, spec, made_with = student.made(kind, h, d_model, arguments or {})
    settings = ", ".join(f"{key}={value}" for key, value in made_with.items())
    title = f"{kind.__name__}({settings})"
    causal = next((value for key, value in made_with.items() if student.meaning(key) == "causal"), None)
    call = Call(module, str(file), student.signature(module), spec, is_causal=causal)
    call, run, notes = _runnable(call, title)
    tolerance = rounding(torch.float32, *(result.value.dtype for result in run.flow.results))
    named = {parameter: matrix for matrix, parameter in (weights or {}).items()}
    for parameter, matrix in named.items():
        one_of("matrix", matrix, ROLES, parameter="weights")
        one_of("weight", parameter, dict(module.named_parameters()), parameter="weights")
    learned = learned_matrices(module, run, named, spec, tolerance)
    report = Report(f"{file.name}: {title}", learned.names, True, 0, tolerance, notes).noting(
        WIDENED if run.flow.is_widened else "",
        COARSE.format(share=tolerance) if tolerance > ROUNDING[torch.float32] else "",
    )
    for argument in ("", *call.signature.masks):
        for forms in _phases(call, argument, mask, is_causal=NOTES["causal"] in report.notes):
            if report.equal:
                report = _compared(report, call, learned, argument, forms)
            elif report.causes:
                with suppress(MhaError):  # a second mistake may show only with a mask
                    both = _compared(report, call, learned, argument, forms)
                    if any({*one} < {*two} for one, two in product(report.causes, both.causes)):
                        report = both
    if not call.without_dropout:
        return report
    if report.equal:
        report = _at(report, run.flow.dropout, call.file)
        return replace(report, equal=False, matrix="weights", causes=((DROPOUT,),))
    return replace(report, causes=tuple((*cause, DROPOUT) for cause in report.causes))


def _compared(report: Report, call: Call, learned: Learned, name: str, forms: Sequence[Form]) -> Report:
    """The report after the runs in all ways of giving the mask `name`; the first right one is enough."""
    tried: dict[Any, Attempt] = {}
    for attempt in _attempts(call, learned, name, forms):
        if gives(attempt.given, attempt.wanted, [], report.rounding):
            is_open = any(matrix.isnan().any() for run in attempt.wanted for matrix in run.values())
            report = report.noting(attempt.note, HIDDEN if is_open else "")
            return replace(report, runs=report.runs + len(attempt.given))
        tensors = [matrix for run in attempt.wanted for matrix in run.values()]
        tensors += [one.mask for one in attempt.given if one.mask is not None]
        way = attempt.note, *(one.numpy().tobytes() for one in tensors)  # equal for True and 1
        tried.setdefault(way, attempt)
    if tried:
        return _explained(report, list(tried.values()), call.file)
    if name or not call.signature.masks:
        raise MhaError(
            "No mask of a usual form can be given as {name}: True for what may be seen or for what is "
            "hidden, or −∞ to add; for each query and key, or for each key.",
            name=name or "forward",
        )
    return report


def _explained(report: Report, attempts: Sequence[Attempt], file: str) -> Report:
    """The report with the first matrix that differs, and the causes of the first attempt that has any."""
    for pairs, attempt in product((False, True), attempts):
        if found := causes(attempt.given, attempt.wanted, report.rounding, pairs=pairs):
            break
    else:  # the way of calling the module that explains most of its code
        attempt = max(attempts, key=lambda one: (_is_computed(one), _first_unknown(one, report.rounding)))
    report = replace(report, equal=False, causes=tuple(found), runs=len(attempt.given))
    report = report.noting(attempt.note)
    right = stages(attempt.given[0])
    right.setdefault("output", right["concat"])
    if not found:
        stage, at = _first_unknown(attempt, report.rounding)
        [output] = attempt.wanted[0].values()
        report = replace(report, matrix=list(right)[stage], distance=distance(right["output"], output))
        return _at(report, attempt.flow.results[at].line if at >= 0 else None, file)
    wrong = stages(attempt.given[0], *found[0])
    wrong.setdefault("output", wrong["concat"])
    matrix = next(name for name in right if distance(right[name], wrong[name]) > report.rounding)
    if right[matrix].shape == wrong[matrix].shape:
        share, example = distance(right[matrix], wrong[matrix]), _example(wrong[matrix], right[matrix])
        report = replace(report, distance=share, example=example)
    later = list(wrong)[list(wrong).index(matrix) :]  # a fused function computes several at once
    made = [[wrong[name]] for name in later]
    if matrix == "masked" and not torch.equal(wrong["masked"], wrong["scaled"]):  # or before the scale
        made[0].append(stages(attempt.given[0], *found[0], UNSCALED)["masked"])
    places = (_place(matrices, attempt.flow, report.rounding) for matrices in made)
    place = next((place for place in places if place is not None), None)
    line = None if place is None else attempt.flow.results[place].line
    return _at(replace(report, matrix=matrix), line, file)


def _at(report: Report, line: int | None, file: str) -> Report:
    return report if line is None else replace(report, line=line, code=linecache.getline(file, line))


def _place(matrices: Sequence[Tensor], flow: Flow, tolerance: float) -> int | None:
    """The first result that is one of the matrices, its first head, or its heads before they are repeated."""
    whole = [matrix for matrix in matrices if matrix.dim() == 4]
    parts = [part for matrix in whole for part in (matrix[:, 0], matrix.unique_consecutive(dim=1))]
    places = [flow.place(one, tolerance) for one in (*matrices, *parts)]
    return min((place for place in places if place is not None), default=None)


def _first_unknown(attempt: Attempt, tolerance: float) -> tuple[int, int]:
    """The first right matrix that was not computed, after the last that was, and what came instead.

    The first is the number of a stage, the second one of a result of the run, or −1 where none fits.
    """
    right = stages(attempt.given[0])
    names, results = [name for name in right if name != "masked"], attempt.flow.results
    at = [_place([right[name]], attempt.flow, tolerance) for name in names]
    if None in at[:3]:
        return at.index(None), -1
    last = max(nth for nth, place in enumerate(at) if place is not None)
    name = names[min(last + 1, len(names) - 1)]
    fitting = {
        place: value
        for place, (value, _) in enumerate(results)
        if place > (at[last] or 0) and value.numel() == right[name].numel() and value.is_floating_point()
    }
    hidden = {place: int((value < HIDING).sum()) for place, value in fitting.items()}
    whole = int((right["masked"] < HIDING).sum())
    for place, value in fitting.items():
        goes_on = hidden[place] == whole or hidden[place] < max(hidden.values())  # with the next of two masks
        if not (goes_on and _hides_rightly(value, right, tolerance)):
            return list(right).index(name), place
    return list(right).index(name), -1


def _is_computed(attempt: Attempt) -> bool:
    """Whether the module gives numbers in every run, as it may not for a mask that has another form."""
    runs = zip(attempt.given, attempt.wanted, strict=True)
    return all(
        distance(stages(given)[name], one) < torch.inf for given, run in runs for name, one in run.items()
    )


def _hides_rightly(value: Tensor, right: Mapping[str, Tensor], tolerance: float) -> bool:
    """Whether a result is the scores without keys that are to be hidden, all of them or some."""
    if value.shape != right["masked"].shape:
        return False
    hidden = value < HIDING
    scores = (right[name].masked_fill(hidden, -torch.inf) for name in ("raw", "scaled"))
    is_allowed = not (hidden & (right["masked"] >= HIDING)).any()
    return is_allowed and any(distance(one, value) <= tolerance for one in scores)


def _example(wrong: Tensor, right: Tensor) -> str:
    """The number that differs most, with its place."""
    gap = (wrong - right).abs().nan_to_num(nan=-1.0, posinf=-1.0)
    gap = torch.where(wrong.isinf() != right.isinf(), torch.inf, gap)
    place = [int(one) for one in torch.unravel_index(gap.argmax(), gap.shape)]
    axes = ("text", "head", "row", "column") if gap.dim() == 4 else ("text", "token", "number")
    where = ", ".join(f"{axis} {at + 1}" for axis, at in zip(axes, place, strict=True))
    mine, theirs = (f"{one[tuple(place)].item():.4g}".replace("inf", "∞") for one in (wrong, right))
    return f"{where}: yours {mine}, should be {theirs}"


def _runnable(call: Call, title: str) -> tuple[Call, Run, tuple[str, ...]]:
    """The call in a way in which the module runs, without dropout if it is on, and what it cannot do."""
    errors: list[Exception] = []
    ways = product(("batch", "text"), (torch.float64, torch.float32), (False, True))
    for layout, dtype, one_length in ways:
        call.module.to(dtype)
        for without_dropout in (False, True):
            trial = replace(call, layout=layout, one_length=one_length, without_dropout=without_dropout)
            try:
                run, again = _first_run(trial), _first_run(trial)
            except MhaError:
                raise
            except Exception as error:  # the reader's code may raise anything
                errors.append(error)
                break
            if torch.allclose(run.output, again.output, equal_nan=True):
                if not one_length:
                    return trial, run, ()
                stopped = student.said(errors[-1])
                return trial, run, (f"With other numbers of queries and keys it stops: {stopped}.",)
        else:
            raise MhaError(
                "Two runs of one text differ although the module is in evaluation; no dropout is the cause."
            )
    raise MhaError(
        "forward of {module} cannot be run: {error}. --h, --d-model and --argument choose other sizes.",
        module=title,
        error=student.said(errors[0]),
    ) from errors[0]


def _first_run(call: Call) -> Run:
    """A first run, with a mask where `forward` needs one."""
    try:
        return call.run(call.cases()[0])
    except (TypeError, AttributeError):  # as where a mask is needed
        for name, form in product(call.signature.masks, student.forms(call.cases(masked=True))):
            for case, mask in form.runs:
                with suppress(Exception):  # the reader's code may raise anything for a mask of another form
                    return call.run(case, name, mask)
        raise


def _phases(call: Call, name: str, meaning: str | None, *, is_causal: bool) -> list[list[Form]]:
    """The runs with the mask `name`, in all its forms, or without one; those of one list mean the same."""
    square = replace(call, one_length=True)
    if not name:
        plain = Form("", [(case, None) for case in call.cases()])
        causal = Form("causal", [(case.causal(), None) for case in square.cases()])
        if call.is_causal is not None:
            return [[causal if call.is_causal else plain]]
        return [[plain], [causal]] if call.signature.causal else [[plain, causal]]
    calls = (call,) if call.one_length else (call, square)
    forms = [form for one in calls for form in student.forms(one.cases(masked=True), meaning)]
    if is_causal:
        forms += [Form(form.meaning, [(case.causal(), mask) for case, mask in form.runs]) for form in forms]
    return [forms]


def _attempts(call: Call, learned: Learned, name: str, forms: Sequence[Form]) -> Iterator[Attempt]:
    """The runs in all forms of a mask and in all orders of axes, and what they should start from."""
    layouts = ("text",) if call.layout == "text" else ("batch", "sequence")
    for layout, form in product(layouts, forms):
        trial = replace(call, layout=layout)
        try:
            runs = [trial.run(case, name, mask) for case, mask in form.runs]
        except Exception:  # the reader's code may raise anything for a mask of another form
            continue
        for packing, matrices in learned.layouts.items():
            given = [products(matrices, case, call.spec.n_heads) for case, _ in form.runs]
            matrix = "concat" if matrices.w_o is None else "output"
            note = packing or LAYOUTS[layout] or NOTES.get(form.meaning, "").format(name=name)
            yield Attempt(given, [{matrix: run.output} for run in runs], runs[0].flow, note)
