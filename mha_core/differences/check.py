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

from mha_core.differences import student
from mha_core.differences.flow import Flow, Operation, arranged
from mha_core.differences.formula import STAGES, Mistake, Products, stages, with_mistakes
from mha_core.differences.projections import projections
from mha_core.differences.search import causes, distance, fits, rounding
from mha_core.differences.student import Case, Form, Signature, Sizes
from mha_core.errors import MhaError, Phrase

DROPOUT = Mistake(
    "dropout",
    "on",
    Phrase("Dropout stays on in evaluation, so two runs of one text differ."),
    "F.dropout(weights, p, training=self.training), or nn.Dropout",
)


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
        """The report for a program."""
        values = asdict(self) | {"weights": self.weights, "notes": list(self.notes)}
        values["causes"] = [[mistake._asdict() for mistake in cause] for cause in self.causes]
        return values

    def __str__(self) -> str:
        names = sorted(self.weights, key="qkvo".find)
        weights = "; ".join(f"W^{name.upper()} = {', '.join(self.weights[name])}" for name in names)
        lines = [self.module, f"Weights: {weights}", *self.notes, ""]
        if self.equal:
            return "\n".join(
                [*lines, f"Equal to torch's attention with the same weights, in {self.runs} runs."]
            )
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
            lines.append(
                f"Tested: with this mistake torch's attention gives your numbers in all {self.runs} runs."
            )
        else:
            lines.append("Cause unknown: none of the known mistakes, and no two of them, give your numbers.")
        return "\n".join(lines)


class Call(NamedTuple):
    """A module, its file, and how it is called."""

    module: nn.Module
    file: str
    signature: Signature
    sizes: Sizes
    named: Mapping[str, str]  # the matrices that the reader has named, by parameter
    one_length: bool = False
    sequence_first: bool = False
    without_dropout: bool = False

    def cases(self, *, masked: bool = False, causal: bool = False) -> list[Case]:
        n = len(self.signature.inputs)
        return student.cases(self.sizes, n, masked=masked, causal=causal, one_length=self.one_length)

    def run(self, case: Case, mask: tuple[str, Tensor] | None = None) -> "Flowed":
        """Run the module; its file's code may raise anything."""
        dtype = next(self.module.parameters()).dtype
        inputs = tuple(one.to(dtype, copy=True) for one in case.inputs)
        given = tuple(one.transpose(0, 1) for one in inputs) if self.sequence_first else inputs
        arguments: dict[str, Any] = dict(zip(self.signature.inputs, given, strict=True))
        if mask is not None:
            name, tensor = mask
            arguments[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        if self.signature.causal is not None:
            arguments[self.signature.causal] = case.mask is not None and mask is None
        with torch.no_grad(), Flow(self.file, without_dropout=self.without_dropout) as flow:
            result = self.module(**arguments)
        results = list(result.values()) if isinstance(result, dict) else result
        for tensor in results if isinstance(results, list | tuple) else (results,):
            if isinstance(tensor, Tensor) and tensor.dim() == 3:
                output = tensor.transpose(0, 1) if self.sequence_first else tensor
                if output.shape[:2] == inputs[0].shape[:2]:
                    return Flowed(output, flow, inputs)
        raise MhaError(
            "forward returns no tensor of shape (batch, length, d_model) = {shape}.",
            shape=str(tuple(inputs[0].shape)),
        )


class Flowed(NamedTuple):
    """The output of a run (batch, query, width), its operations, and the inputs."""

    output: Tensor
    flow: Flow
    inputs: tuple[Tensor, ...]


class Attempt(NamedTuple):
    """Some runs in one way of calling a module: what was given and what came out; a note on that way."""

    given: list[Products]
    wanted: list[dict[str, Tensor]]
    flow: Flow
    weights: dict[str, list[str]]
    note: str | None

    def is_like(self, other: "Attempt") -> bool:
        """Whether another way of calling gave the same numbers with the same meaning, as True and 1 do."""
        mine, theirs = ([run[name] for run in one.wanted for name in run] for one in (self, other))
        return (
            self.note == other.note
            and len(mine) == len(theirs)
            and all(
                one.shape == two.shape and torch.allclose(one, two, equal_nan=True)
                for one, two in zip(mine, theirs, strict=True)
            )
        )

    def is_right(self, tolerance: float) -> bool:
        pairs = zip(self.given, self.wanted, strict=True)
        return all(fits(stages(given), wanted, tolerance) for given, wanted in pairs)


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
    of = student.sizes(kind, h, d_model, arguments or {})
    module, made_with = student.made(kind, of, arguments or {})
    named = {parameter: matrix for matrix, parameter in (weights or {}).items()}
    call, notes = _runnable(Call(module, str(file), student.signature(module), of, named))
    title = ", ".join(f"{key}={value}" for key, value in made_with.items())
    return _compared(call, f"{file.name}: {kind.__name__}({title})", notes, mask)


def _compared(call: Call, title: str, notes: list[str], meaning: str | None) -> Report:
    call, dropout = _repeatable(call)
    tolerance = rounding(next(call.module.parameters()).dtype)
    weights: dict[str, list[str]] = {}
    runs = 0
    for mask_name, attempts in _phases(call, meaning):
        tried: list[Attempt] = []
        right = None
        for attempt in attempts:
            if not any(attempt.is_like(other) for other in tried):
                tried.append(attempt)
            if attempt.is_right(tolerance):
                right = attempt
                break
        if tried:
            weights = tried[0].weights
        if right is not None:
            runs += len(right.given)
            notes += [right.note] if right.note and right.note not in notes else []
            if any(matrix.isnan().any() for run in right.wanted for matrix in run.values()):
                notes.append("A query that may look at no key gets NaN; torch's function gives it 0.")
        elif tried:
            report = Report(title, weights, False, len(tried[0].given), tolerance, tuple(notes))
            report = _explained(report, tried, call.file)
            more = (DROPOUT,) if dropout else ()
            return replace(report, causes=tuple((*cause, *more) for cause in report.causes))
        elif mask_name or not call.signature.masks:
            raise MhaError(
                "No mask of a usual form can be given as {name}: True for what may be seen or for what is "
                "hidden, or −∞ to add; for each query and key, or for each key.",
                name=mask_name or "forward",
            )
    report = Report(title, weights, not dropout, runs, tolerance, tuple(notes))
    if not dropout:
        return report
    code = linecache.getline(call.file, dropout)
    return replace(report, matrix="weights", causes=((DROPOUT,),), line=dropout, code=code)


def _explained(report: Report, attempts: Sequence[Attempt], file: str) -> Report:
    """The report with the first matrix that differs, and the causes of the first attempt that has any."""
    found: list[tuple[Mistake, ...]] = []
    attempt = attempts[0]
    for pairs, one in product((False, True), attempts):
        found = causes(one.given, one.wanted, report.rounding, pairs=pairs)
        if found:
            attempt = one
            break
    notes = (*report.notes, *([attempt.note] if attempt.note else []))
    report = replace(report, causes=tuple(found), notes=notes, runs=len(attempt.given))
    right = stages(attempt.given[0])
    right.setdefault("output", right["concat"])
    if not found:
        matrix, operation = _first_unknown(right, attempt.flow, report.rounding)
        share = distance(right["output"], attempt.wanted[0]["output"])
        return _at(replace(report, matrix=matrix, distance=share), operation, file)
    wrong = stages(attempt.given[0], with_mistakes(*found[0]))
    wrong.setdefault("output", wrong["concat"])
    shapes = {name: right[name].shape == wrong[name].shape for name in right}
    matrix = next(n for n in right if not shapes[n] or distance(right[n], wrong[n]) > report.rounding)
    operation = next(_made(wrong[matrix], attempt.flow, report.rounding), None)
    if shapes[matrix]:
        example = _example(wrong[matrix], right[matrix])
        report = replace(report, distance=distance(right[matrix], wrong[matrix]), example=example)
    return _at(replace(report, matrix=matrix), operation, file)


def _at(report: Report, operation: Operation | None, file: str) -> Report:
    if operation is None or operation.line is None:
        return report
    return replace(report, line=operation.line, code=linecache.getline(file, operation.line))


def _made(matrix: Tensor, flow: Flow, tolerance: float) -> Iterator[Operation]:
    """The operations whose result is a matrix, or its first head, with its axes in any order."""
    for operation in flow.operations:
        if operation.line is not None and not operation.value.dtype.is_complex:
            heads = [matrix, matrix[:, 0]] if matrix.dim() == 4 else [matrix]
            every = (one for head in heads for one in arranged(head, operation.value.shape))
            if any(distance(one, operation.value) <= tolerance for one in every):
                yield operation


def _first_unknown(right: Mapping[str, Tensor], flow: Flow, tolerance: float) -> tuple[str, Operation | None]:
    """The first right matrix that was not computed, after the last that was, and what came instead."""
    at = {name: next(_made(right[name], flow, tolerance), None) for name in right if name != "masked"}
    for name in ("q", "k", "v"):
        if at[name] is None:
            return name, None
    names = list(at)
    last = max(nth for nth, name in enumerate(names) if at[name] is not None)
    name, operation = names[min(last + 1, len(names) - 1)], at[names[last]]
    if operation is None:
        return name, None
    later = flow.operations[flow.operations.index(operation) + 1 :]
    count = right[name].numel()
    return name, next((one for one in later if one.line is not None and one.value.numel() == count), None)


def _example(wrong: Tensor, right: Tensor) -> str:
    """The number that differs most, with its place."""
    gap = (wrong - right).abs().nan_to_num(nan=-1.0, posinf=-1.0)
    gap = torch.where(wrong.isinf() != right.isinf(), torch.inf, gap)
    place = [int(one) for one in torch.unravel_index(gap.argmax(), gap.shape)]
    axes = ("text", "head", "row", "column") if gap.dim() == 4 else ("text", "token", "number")
    where = ", ".join(f"{axis} {at + 1}" for axis, at in zip(axes, place, strict=True))
    mine, theirs = (f"{one[tuple(place)].item():.4g}".replace("inf", "∞") for one in (wrong, right))
    return f"{where}: yours {mine}, should be {theirs}"


def _runnable(call: Call) -> tuple[Call, list[str]]:
    """The call in a way in which the module runs, and a note on what it cannot do."""
    errors: list[Exception] = []
    for single, one_length in product((False, True), (False, True)):
        if one_length and len(call.signature.inputs) == 1:
            continue
        if single:
            call.module.float()
        trial = call._replace(one_length=one_length)
        try:
            _output(trial)
        except MhaError:
            raise
        except Exception as error:  # the reader's code may raise anything
            errors.append(error)
            continue
        if not one_length:
            return trial, []
        said = student.said(errors[0])
        return trial, [f"With other numbers of queries and keys it stops: {said}."]
    raise MhaError("forward cannot be run: {error}.", error=student.said(errors[0])) from errors[0]


def _output(call: Call) -> Flowed:
    """A first run, with a mask where `forward` needs one."""
    try:
        return call.run(call.cases()[0])
    except (TypeError, AttributeError) as error:  # as where a mask is needed
        if not call.signature.masks:
            raise
        plain = error
    cases = call.cases(masked=True)
    ways = [
        (case, mask) for form in student.forms(cases) for case, mask in zip(cases, form.masks, strict=True)
    ]
    for case, mask in ways:
        if mask is not None:
            with suppress(Exception):  # the reader's code may raise anything for a mask of another form
                return call.run(case, (call.signature.masks[0], mask))
    raise plain


def _repeatable(call: Call) -> tuple[Call, int]:
    """The call without dropout where two runs differ by it, and then the line of the dropout; else 0."""
    one, other = _output(call), _output(call)
    if torch.allclose(one.output, other.output, equal_nan=True):
        return call, 0
    call = call._replace(without_dropout=True)
    one, other = _output(call), _output(call)
    if not torch.allclose(one.output, other.output, equal_nan=True):
        raise MhaError(
            "Two runs of one text differ although the module is in evaluation; no dropout is the cause."
        )
    return call, one.flow.dropout or 1


def _phases(call: Call, meaning: str | None) -> Iterator[tuple[str, Iterator[Attempt]]]:
    """First the module without a mask, then with each of its masks, by name; in all ways of calling it."""
    yield "", _attempts(call, [(call.cases(causal=causal), None) for causal in (False, True)])
    for name in call.signature.masks:
        of_one_length = call._replace(one_length=True).cases(masked=True)
        lists = (call.cases(masked=True), *([] if call.one_length else [of_one_length]))
        ways = [(cases, (name, form)) for cases in lists for form in student.forms(cases, meaning)]
        yield name, _attempts(call, ways)


def _attempts(call: Call, ways: Sequence[tuple[list[Case], tuple[str, Form] | None]]) -> Iterator[Attempt]:
    for sequence_first, (cases, masked) in product((False, True), ways):
        trial = call._replace(sequence_first=sequence_first)
        name, form = masked or ("", None)
        masks = form.masks if form else (None,) * len(cases)
        chosen = [(c, m) for c, m in zip(cases, masks, strict=True) if form is None or m is not None]
        try:
            flowed = [trial.run(case, None if mask is None else (name, mask)) for case, mask in chosen]
        except Exception:  # the reader's code may raise anything for a mask of another form
            continue
        of_padding = form is not None and form.of_padding
        cases_seen = [replace(case, mask=None) if of_padding else case for case, _ in chosen]
        learned = [projections(call.module, one.flow, one.inputs, call.named, call.sizes) for one in flowed]
        for layout in learned[0].layouts:
            given = [
                made.products(one.inputs, case, layout)
                for made, one, case in zip(learned, flowed, cases_seen, strict=True)
            ]
            wanted = [
                {"output" if one.output else "concat": run.output}
                for one, run in zip(given, flowed, strict=True)
            ]
            note = _note(name, form, sequence_first, layout, cases_seen[0])
            yield Attempt(given, wanted, flowed[0].flow, learned[0].names, note)


def _note(name: str, form: Form | None, sequence_first: bool, layout: str, case: Case) -> str | None:
    """The assumption in a way of calling that is not the usual one."""
    if sequence_first:
        return "It takes (length, batch, d_model)."
    if layout == "per head":
        return "The packed matrix has q, k and v of each head beside each other."
    if form is None:
        return "It is causal." if case.mask is not None else None
    match form.meaning:
        case "keep":
            return f"True or 1 in {name} means that a query may look."
        case "hide":
            return f"True or 1 in {name} hides a key."
    return f"{name} is added to the scores: −∞ hides a key."
