"""A module of the reader's own: each planted fault is named, correct code is equal, the rest is refused."""

import json
import subprocess
import sys

import pytest
import torch

from mha_core import __main__ as command
from mha_core import resources
from mha_core.differences.check import check
from mha_core.errors import MhaError
from tests.differences.modules import EINSUM, FAULTS, HEADS, LINEAR, PACKED, VARIANTS, changed, solved


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def written(tmp_path):
    def write(code: str):
        path = tmp_path / "student.py"
        path.write_text(code, encoding="utf-8")
        return path

    return write


CASES = [(code, *fault) for code, faults in FAULTS.values() for fault in faults]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]} {case[2][:24]!r}")
def test_a_planted_fault_is_the_only_cause_that_is_named(written, case):
    code, mistake, *changes = case
    report = check(written(changed(code, *changes)))
    assert [" & ".join(f"{one.term}={one.value}" for one in cause) for cause in report.causes] == [mistake]
    assert not report.equal


@pytest.mark.parametrize("name", [*FAULTS, *VARIANTS])
def test_correct_code_is_equal_however_it_is_written(written, name):
    style, *changes = VARIANTS.get(name, (name,))
    report = check(written(changed(FAULTS[style][0], *changes)))
    assert (report.equal, report.causes) == (True, ())


IN_HALF = changed(
    LINEAR,
    "scores = torch",
    "q, k, v = (one.bfloat16() for one in (q, k, v))\n        scores = torch",
    "self.W_o(out)",
    "self.W_o(out.to(query))",
)
AUTOCAST = changed(
    LINEAR,
    "torch.matmul(q, k.transpose(-2, -1))",
    "torch.autocast('cpu', torch.bfloat16)(torch.matmul)(q.float(), k.transpose(-2, -1).float()).to(q)",
)


@pytest.mark.parametrize("cast", ["bfloat16()", "half()", "to(torch.bfloat16)", "to(dtype=torch.float16)"])
def test_half_precision_hides_no_error_of_the_scale(written, cast):
    code = changed(IN_HALF, "bfloat16()", cast)
    right, wrong = (check(written(one)) for one in (code, changed(code, "/ math.sqrt", "* 1.03 / math.sqrt")))
    assert (right.equal, wrong.equal) == (True, False)


def test_how_large_an_error_half_precision_could_hide_is_said(written):
    assert "below 4.0% of the largest number is not seen" in str(check(written(AUTOCAST)))


def test_two_faults_are_named_as_a_pair_with_the_line_of_the_first(written):
    code = changed(PACKED, "q, k, v = self", "k, q, v = self", " * (1.0 / math.sqrt(k.size(-1)))", "")
    report = check(written(code))
    [cause] = report.causes
    assert [one.value for one in cause] == ["kqv", "1"]
    assert (report.matrix, report.code.strip()[:10]) == ("q", "k, q, v = ")


@pytest.mark.parametrize(
    ("code", "old", "new", "line"),
    [
        (LINEAR, "math.sqrt(self.d_k)", "math.sqrt(self.d_model)", "scores = torch.matmul("),
        (LINEAR, "dim=-1", "dim=-2", "weights = torch.softmax(scores"),
        (LINEAR, "mask == 0", "mask.mT == 0", "scores = scores.masked_fill("),
        (
            changed(LINEAR, *VARIANTS["a fused function"][1:]),
            "mask)\n",
            "mask, scale=1.0)\n",
            "out = F.scaled",
        ),
        (HEADS, "in self.heads]", "in reversed(self.heads)]", "return self.linear_out("),
    ],
)
def test_the_line_that_made_the_matrix_is_shown_with_what_it_should_be(written, code, old, new, line):
    report = check(written(changed(code, old, new)))
    assert report.code.strip().startswith(line)
    assert str(report.line) in str(report)
    assert report.causes[0][0].correction in str(report)


@pytest.mark.parametrize(
    ("code", "old", "new", "matrix"),
    [
        (EINSUM, "scores.softmax(dim=-1)", "scores.relu()", "weights"),
        (EINSUM, "masked_fill(~keep,", "masked_fill(torch.ones(n, n).triu(3) > 0,", "weights"),
        (LINEAR, "return self.W_o(out)", "return query + self.W_o(out)", "output"),
        (LINEAR, "self.W_q(query)", "query @ self.W_q.weight.T + self.W_v.bias", "q"),
        (
            changed(PACKED, *VARIANTS["a causal module with padding"][1:]),
            "padding_mask[:,",
            "padding_mask[:1,",
            "weights",
        ),
    ],
)
def test_what_no_known_mistake_explains_is_said_to_be_unknown(written, code, old, new, matrix):
    report = check(written(changed(code, old, new)))
    assert (report.equal, report.causes, report.matrix) == (False, (), matrix)
    assert report.code == "" if matrix == "q" else new in report.code
    assert "Cause unknown" in str(report)


def test_the_meaning_of_a_mask_is_said_and_can_be_required(written):
    inverted = written(changed(LINEAR, "mask == 0", "mask == 1"))
    assert "hides a key" in str(check(inverted))
    report = check(inverted, mask="keep")
    assert report.causes[0][0].value == "inverted"


def test_a_row_without_keys_is_named_where_it_is_nan(written):
    notes = check(written(changed(LINEAR, "-1e9", 'float("-inf")'))).notes
    assert any("NaN" in note for note in notes)
    assert not any("NaN" in note for note in check(written(LINEAR)).notes)


@pytest.mark.parametrize(
    ("code", "options", "said"),
    [
        ("x = 1", {}, "0 classes"),
        ("import torch\nx = 1 /", {}, "SyntaxError"),
        (HEADS, {"name": "Tail"}, "its modules are Head and MultiHeadSelfAttention"),
        (LINEAR, {"h": 3, "d_model": 32}, "30 or 33 can"),
        (LINEAR, {"h": 0}, "h is a number of heads, at least 1; got 0"),
        (LINEAR, {"arguments": {"width": 2}}, "has no argument width"),
        (LINEAR, {"weights": {"q": "W_k"}}, "There is no weight called 'W_k'; W_q.weight"),
        (LINEAR, {"weights": {"query": "W_q.weight"}}, "There is no matrix called 'query'; qkv, kv, q"),
        (changed(LINEAR, "dropout=0.1):", "rank, dropout=0.1):"), {}, "--argument rank="),
        (changed(LINEAR, "return self.W_o(out)", "return out.sum()"), {}, "returns no tensor of shape"),
        (changed(LINEAR, "return self.W_o(out)", "return self.W_p(out)"), {}, "no attribute 'W_p'"),
        (changed(LINEAR, "self.d_k).transpose", "64).transpose"), {}, "(d_model=30, num_heads=3"),
        (changed(LINEAR, "self.W_o(out)", "self.W_o(out) + torch.randn(())"), {}, "no dropout is the cause"),
    ],
)
def test_what_cannot_be_checked_is_refused_with_what_would_help(written, code, options, said):
    with pytest.raises(MhaError) as error:
        check(written(code), **options)
    assert said in str(error.value)


def test_weights_of_other_names_are_found_by_their_order_or_given(written):
    code = changed(LINEAR, "self.W_q", "self.a", "self.W_k", "self.b", "self.W_v", "self.c")
    assert check(written(code)).equal
    swapped = {"q": "b.weight", "k": "a.weight", "v": "c.weight"}
    assert check(written(code), weights=swapped).causes[0][0].value == "kqv"


def test_the_command_prints_json_and_fails_for_a_fault(written, capsys):
    assert command.main(["check", str(written(LINEAR))]) == 0
    assert "Equal to torch's attention" in capsys.readouterr().out
    faulty = changed(LINEAR, "dim=-1", "dim=-2", "return self.W_o(out)", "print(out); return self.W_o(out)")
    assert command.main(["check", "--json", str(written(faulty))]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["causes"][0][0]["value"] == "queries"
    assert command.main(["check", "none.py"]) == 1
    assert "no Python file" in capsys.readouterr().err
    assert command.main(["check", str(written(f"{LINEAR}raise SystemExit"))]) == 1
    assert "ends the program" in capsys.readouterr().err


@pytest.mark.slow
def test_code_that_never_ends_is_stopped(written):
    run = [sys.executable, "-m", "mha_core", "check", "--timeout", "1", str(written("while True: pass"))]
    done = subprocess.run(run, capture_output=True, text=True, cwd=resources.path(), timeout=120)
    assert (done.returncode, "stopped after 1 seconds" in done.stderr) == (1, True)


@pytest.mark.parametrize("name", ["multi_head_attention", "grouped_query_attention"])
def test_an_exercise_is_red_until_its_holes_are_filled(written, name):
    code = resources.path("assets", "exercises", f"{name}.py").read_text(encoding="utf-8")
    with pytest.raises(MhaError, match="NotImplementedError"):
        check(written(code))
    assert check(written(solved(code))).equal
