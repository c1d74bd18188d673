"""The notebooks run from top to bottom, and what they say of their results is so."""

import ast
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "assets" / "notebooks"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="not a checkout: no notebooks")


def cells(name: str) -> list[tuple[str, str]]:
    """The cells of a notebook in order: "code" or "markdown", and the text."""
    first, *parts = re.split(r"^# %%", (FOLDER / f"{name}.py").read_text("utf-8"), flags=re.MULTILINE)
    assert not first
    return [("markdown", p.partition("\n")[2]) if p.startswith(" [markdown]") else ("code", p) for p in parts]


def run(name: str) -> dict[str, object]:
    """The names that a notebook has at its end. Its results are drawn as Jupyter does it."""
    names: dict[str, object] = {}
    for kind, text in cells(name):
        if kind == "markdown":
            assert all(line.startswith("#") for line in text.splitlines() if line)
            continue
        body = ast.parse(text).body
        shown = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), name, "exec"), names)
        if shown is not None:
            result = eval(compile(ast.Expression(shown.value), name, "eval"), names)
            assert getattr(result, "_repr_html_", result.__repr__)()
    return names


def test_a_sentence_and_its_heads():
    names = run("1_a_sentence_and_its_heads")
    it = names["it"]
    assert names["looked_at"] == names["trace"].answers[it][0][0] == "animal"
    assert names["wide"].answers[it][0][0] == "street"
    assert names["difference"] < 1e-6


def test_your_own_module():
    names = run("2_your_own_module")
    assert [layer.name for layer in names["trace"].layers] == ["0", "1"]
    assert names["gap"] < 1e-5
    [skipped] = names["recorder"].trace.source.skipped
    assert skipped.startswith("1:")  # the convolution


def test_ablating_a_head():
    names = run("3_ablating_a_head")
    it = names["it"]
    first = {
        name: names[name].answers[it][0][0]
        for name in ("trace", "without", "no_animal", "no_tired", "forced")
    }
    assert first == {
        "trace": "animal",
        "without": "[CLS]",
        "no_animal": "street",
        "no_tired": "animal",
        "forced": "street",
    }
    most = names["effects"].iloc[0]
    assert (most["layer"], most["head"]) == (1, 0)
    assert most["effect"] < 0
