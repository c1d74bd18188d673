"""The reference of all public names, written from their signatures and docstrings: `mha_core/REFERENCE.md`.

``python -m tests.house.reference`` writes it; a test says when that has to be done again.
"""

import ast
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import get_overloads

import mha_core as mha
from mha_core import sources
from mha_core.sources.huggingface import model

PATH = Path(mha.__file__).with_name("REFERENCE.md")
INTRODUCTION = """\
# Reference

Written by `python -m tests.house.reference` from signatures and docstrings; never by hand.

`import mha_core as mha` loads nothing else; each name loads what it needs when it is first used, pandas and
plotly last. Heads, layers and positions count from 0. *Raises `MhaError`* is said of what a person can cause;
its message names what was asked, the rule and the nearest values that work.

A shape is a type: `Float[np.ndarray, 'head query d_k']` is an array of floats with these axes. An axis with a
star may be missing, or be several: `*head` is missing where you ask for one head.
"""
# What most people need.
TEN = {
    "trace": "run a text through random weights, a small trained model or a Hugging Face model",
    "record": "see the attention of any torch code as it runs",
    "view": "draw attention weights that you already have",
    "AttentionTrace": "what you get: tokens, layers, answers; `view`, `frame`, `figure`, `save`",
    "LayerTrace": "one layer: `q`, `k`, `v`, `scores`, `weights`, `output`, `contribution`",
    "metrics": "what each head does, as a table",
    "explain": "where one number comes from, down to its last product",
    "edits": "change attention and run again: hide a word, switch a head off, give your own weights",
    "effects": "how much an answer needs each head",
    "MultiHeadAttention": "the module itself, with every number in sight",
}
# Every public name, where a reader would look for it.
GROUPS = {
    "From a text to a trace": ("trace", "trace_many", "words"),
    "One token at a time": ("decode", "Decoding", "CacheCheck"),
    "From your own code and arrays": ("record", "Recorder", "from_tensors", "from_weights", "view"),
    "What a trace holds": (
        "AttentionTrace",
        "LayerTrace",
        "SparseIndex",
        "MixerTrace",
        "Tokens",
        "Sides",
        "load",
    ),
    "What heads do": ("metrics", "similarity", "rollout", "roles", "overview", "Overview"),
    "What heads do over many texts": ("atlas", "Atlas"),
    "Where a number comes from": (
        "explain",
        "Explanation",
        "attribution",
        "Attribution",
        "Writer",
        "ledger",
        "Ledger",
    ),
    "Experiments": ("edits", "effects", "mean_outputs"),
    "Pictures": ("HeadView", "figures", "Scene"),
    "The maths": ("attend", "MultiHeadAttention", "AttentionSpec", "Projections", "Attended", "ScoreRule"),
    "Checks and errors": ("difference", "Difference", "against_torch", "Check", "MhaError"),
}
PEERS = """\
## Our names and TransformerLens's

Theirs have a batch axis first, and position before head in q, k, v, z and result.

| ours | theirs | axes of ours | what differs |
|---|---|---|---|
"""
# Our name, theirs, the axes, what differs.
NAMES = (
    ("q", "q, rot_q", "head, query, d_k", "ours is the one that is multiplied, behind a rotary code"),
    ("k", "k, rot_k", "kv_head, key, d_k", "the same"),
    ("v", "v", "kv_head, key, d_v", ""),
    ("scores", "", "head, query, key", "q·k alone"),
    ("scaled", "", "head, query, key", "q·k times the scale"),
    (
        "masked",
        "attn_scores",
        "head, query, key",
        "what the softmax gets: scaled, capped, biased, masked; "
        "theirs is the pattern in BERT, RoBERTa, BART, OPT, GPT-J, GPT-Neo, XGLM and Llama 4",
    ),
    ("weights", "pattern", "head, query, key", ""),
    ("output", "z", "head, query, d_v", ""),
    ("contribution", "result", "head, query, d_model", "what one head adds; `result` is another thing here"),
    (
        "result",
        "attn_out",
        "query, d_model",
        "what all heads and the bias of W^O add; theirs has the residual, too, in BLOOM and BERT",
    ),
)


def text() -> str:
    """The whole page."""
    most = (f"| [`{name}`](#mha{name.lower()}) | {use} |\n" for name, use in TEN.items())
    head = "## Ten names are most of what you need\n\n| name | what it is for |\n|---|---|\n"
    parts = [INTRODUCTION, head + "".join(most)]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += _described(name, getattr(mha, name))
    rows = (f"| `layer.{ours}` | {theirs} | {axes} | {note} |\n" for ours, theirs, axes, note in NAMES)
    return "\n".join([*parts, PEERS + "".join(rows)])


def _described(name: str, value: object) -> Iterator[str]:
    yield f"### `mha.{name}`\n"
    if inspect.ismodule(value):
        yield f"{value.__doc__}\n"
        if not hasattr(value, "__path__"):
            for one in value.TYPES.values():
                yield f"#### `{name}.{one.__name__}`\n"
                signature = str(inspect.signature(one)).removesuffix(" -> None")
                yield _code(one.__name__ + signature.replace("collections.abc.", ""))
                yield _prose(one.__doc__)
            return
        for module in sorted(pkgutil.iter_modules(value.__path__), key=lambda found: found.name):
            first, *_ = _submodule_doc(value, module.name).split("\n")
            yield f"- `{name}.{module.name}`: {first}"
        yield ""
    elif inspect.isclass(value):
        yield from _of_class(value)
    else:
        several = get_overloads(value) or [value]
        if name == "trace":  # its built-in sources, and the models of transformers
            several = [*sources.SOURCES.values(), *get_overloads(sources.TraceFunction.__call__)[-2:]]
        yield _code("\n".join(_signature(_whole(one, name)) for one in several))
        yield _prose(value.__doc__)


def _submodule_doc(package, name: str) -> str:
    return ast.get_docstring(ast.parse(Path(package.__path__[0], f"{name}.py").read_text(encoding="utf-8")))


def _of_class(value: type) -> Iterator[str]:
    node = _parsed(value)
    fields, methods = [], []
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and not part.target.id.startswith("_"):
            if isinstance(part.value, ast.Subscript):  # read from a file
                part.value = ast.Constant(getattr(value, part.target.id))
            elif not isinstance(part.value, ast.Constant):
                part.value = None  # it says how the field is stored, not what it is
            fields.append(ast.unparse(part))
        elif isinstance(part, ast.FunctionDef) and (not part.name.startswith("_") or part.name == "__init__"):
            methods.append(part)
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    yield _code("\n".join([f"class {node.name}{bases}:", *(f"    {field}" for field in fields)]))
    yield _prose(value.__doc__)
    for method in methods:
        if method.name == "__init__" and not (ast.get_docstring(method) or method.args.defaults) and fields:
            continue
        yield _code(_signature(method))
        if said := ast.get_docstring(method):
            yield _prose(said)


def _parsed(value: object) -> ast.FunctionDef | ast.ClassDef:
    """The definition in the source, with annotations as written, in every Python."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    return Unquoted().visit(node)


def _whole(function: FunctionType, name: str) -> ast.FunctionDef:
    """The definition under this name, with `Reading` written out and the values of constants."""
    node = _parsed(function)
    node.name = name
    if node.args.kwarg and ast.unparse(node.args.kwarg.annotation) == "Unpack[model.Reading]":
        own = _parsed(model.follow).args
        defaults = {arg.arg: default for arg, default in zip(own.kwonlyargs, own.kw_defaults, strict=True)}
        for field in _parsed(model.Reading).body[1:]:
            node.args.kwonlyargs.append(ast.arg(field.target.id, field.annotation))
            node.args.kw_defaults.append(_valued(defaults[field.target.id], model.follow))
        node.args.kwarg = None
    node.args.kw_defaults = [_valued(default, function) for default in node.args.kw_defaults]
    return node


def _valued(default: ast.expr | None, function: FunctionType) -> ast.expr | None:
    value = function.__globals__.get(default.id) if isinstance(default, ast.Name) else None
    return ast.Name(f"{value:_}") if isinstance(value, int) else default


class Unquoted(ast.NodeTransformer):
    """Annotations without the quotation marks that late imports need."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = self._bare(node.annotation)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = self._bare(node.returns)
        return self.generic_visit(node)

    @staticmethod
    def _bare(annotation: ast.expr | None) -> ast.expr | None:
        quoted = isinstance(annotation, ast.Constant) and isinstance(annotation.value, str)
        return ast.parse(annotation.value, mode="eval").body if quoted else annotation


def _signature(node: ast.FunctionDef) -> str:
    """One line, or one for each argument where that would be long; a property is marked as one."""
    kinds = {ast.unparse(one).split(".")[-1] for one in node.decorator_list}
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    if kinds & {"property", "cached_property"}:
        return f"{node.name}{returns.replace(' -> ', ': ')}"
    arguments = [part for part in _arguments(node.args) if part not in ("self", "cls")]
    line = f"{node.name}({', '.join(arguments)}){returns}"
    if len(line) <= 100:
        return line
    return f"{node.name}(\n" + "".join(f"    {part},\n" for part in arguments) + f"){returns}"


def _arguments(given: ast.arguments) -> Iterator[str]:
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + given.defaults
    for argument, default in zip(plain, defaults, strict=True):
        yield _argument(argument, default)
    if given.vararg:
        yield f"*{ast.unparse(given.vararg)}"
    elif given.kwonlyargs:
        yield "*"
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _argument(argument, default)
    if given.kwarg:
        yield f"**{ast.unparse(given.kwarg)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    equals = " = " if argument.annotation else "="
    return ast.unparse(argument) + (f"{equals}{ast.unparse(default)}" if default is not None else "")


def _code(lines: str) -> str:
    return f"```python\n{lines}\n```\n"


def _prose(docstring: str) -> str:
    """A docstring as Markdown: examples and drawings as code, `<s>` no tag."""
    cleaned = inspect.cleandoc(docstring)
    parts = []
    for paragraph in re.split(r"\n\n+", cleaned):
        if paragraph.startswith(">>>"):
            paragraph = f"```python\n{paragraph}\n```"
        parts.append(paragraph)
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
