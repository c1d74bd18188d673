"""The public names: their list, the cost of importing them, and their types for editors."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_overloads

import pytest

import mha_core as mha
from mha_core.sources import SOURCES, TraceFunction
from mha_core.sources.huggingface import model as huggingface

HEAVY = ("torch", "numpy", "pandas", "plotly", "transformers", "streamlit", "huggingface_hub")
PACKAGE = Path(mha.__file__).parent


# Code that runs one after the other in a process, and what is loaded then.
LOADED = {
    "import mha_core; dir(mha_core); mha_core.__all__; mha_core.MhaError": [],
    "mha_core.trace('a b', h=1, d_model=4).view().html()": ["torch", "numpy"],
    "from mha_core import metrics, similarity, roles, rollout, overview": ["torch", "numpy", "pandas"],
}


@pytest.mark.parametrize("steps", [LOADED, {"from mha_core import figures": ["numpy", "pandas", "plotly"]}])
def test_a_name_loads_what_it_needs_and_nothing_else(steps):
    told = f"print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    code = "\n".join(["import json, sys", *(line for step in steps for line in (step, told))])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [*steps.values()]


def typed_names() -> dict[str, str]:
    """Each name that type checkers see, with its module."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    return {alias.name: node.module for node in block.body for alias in node.names}


def test_type_checkers_and_python_see_the_same_names():
    typed = typed_names()
    assert sorted(typed) == sorted(mha.__all__)
    for name, module in typed.items():
        value = getattr(mha, name)
        if isinstance(value, ModuleType):
            assert value.__name__ == f"{module}.{name}"
        else:
            assert value is getattr(sys.modules[module], name), name
    assert (PACKAGE / "py.typed").is_file()


def test_dir_lists_the_public_names():
    assert {name for name in dir(mha) if not name.startswith("__")} == set(mha.__all__)
    assert "__version__" in dir(mha)
    namespace = {}
    exec("from mha_core import *", namespace)
    assert set(mha.__all__) <= set(namespace)


def test_no_public_name_is_also_a_module():
    """`mha_core.x` is one thing: a name that is also a file would be whichever was imported last."""
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert set(mha.__all__) & modules == {"figures"}


def test_every_module_of_figures_is_an_attribute_of_it():
    stems = {path.stem for path in (PACKAGE / "figures").glob("*.py")} - {"__init__"}
    assert set(mha.figures.__all__) == stems
    assert all(hasattr(mha.figures, stem) for stem in stems)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'mha_core' has no attribute 'trances'"):
        _ = mha.trances


def test_the_signatures_of_trace_are_those_of_the_sources():
    """Those of the built-in ones are taken from them; the others have the same names and defaults."""
    for name, function in SOURCES.items():
        annotation = inspect.signature(function).parameters["source"].annotation
        assert str(annotation) == f"typing.Literal['{name}']"
    own = inspect.signature(huggingface.trace).parameters
    named, in_memory = (
        inspect.signature(one).parameters for one in get_overloads(TraceFunction.__call__)[-2:]
    )
    assert {*named, *in_memory} - {"self"} == {*own}
    for argument, parameter in (*named.items(), *in_memory.items()):
        assert argument == "self" or parameter.default == own[argument].default
    reading = {*inspect.signature(huggingface.follow).parameters} - {"model", "text"}
    assert reading == {*huggingface.Reading.__annotations__}


# Values of a wrong type

TRACE = mha.trace("The animal didn't cross", h=2, d_model=8, layers=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mha.trace(None), "The text must be a string; got None."),
        (lambda: mha.trace("a", bias="no"), "bias is True or False; got 'no'."),
        (lambda: mha.trace("a", mask=["a"]), "The mask is a list and no array of truth values."),
        (lambda: mha.trace("a", source="mini", trained="no"), "trained is True or False; got 'no'."),
        (lambda: mha.trace_many(["a"], reduce=3), "reduce is a function of one trace"),
        (lambda: mha.words(None), "The text must be a string; got None."),
        (lambda: mha.load(None), "A file is named by its path, as in 'trace.safetensors'; got None."),
        (lambda: TRACE.save(""), "A file is named by its path, as in 'trace.safetensors'; got ''."),
        (lambda: TRACE.view(token="a"), "There is no token 'a'; there is The, animal, didn't and cross."),
        (lambda: TRACE.view(heads=1), "heads are a list of heads, as in heads=[0, 2]; got 1."),
        (lambda: TRACE.view(titles=1), "titles are a list with a title for each trace, here 1; got 1."),
        (lambda: TRACE.view(beside="b"), "beside is a second trace; got a str."),
        (lambda: mha.against_torch(TRACE), "One layer is compared, as in trace.layers[0]; got a AttentionTr"),
        (
            lambda: mha.metrics(None),
            "A trace is needed, as mha.trace(text) returns it, or one of its layers;",
        ),
        (lambda: mha.metrics(TRACE, without=None), "without is 'special' or a list of positions; got None."),
        (lambda: mha.rollout(TRACE, residual=None), "residual None is out of range; 0 to 1 work."),
        (lambda: mha.rollout(TRACE.layers[0]), "A whole trace is needed, as mha.trace(text) returns it;"),
        (lambda: mha.overview(TRACE.layers[0]), "A whole trace is needed, as mha.trace(text) returns it;"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_without_a_traceback(call, message, refused):
    assert str(refused(call)).startswith(message)
