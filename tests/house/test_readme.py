"""What the README shows of recording does what it says."""

from pathlib import Path

import pytest

import mha_core as mha

README = Path(__file__).parents[2] / "README.md"
MARK = "<!-- this block runs as a test -->\n```python\n"


@pytest.fixture(scope="module")
def shown() -> str:
    """The block as it stands in the README."""
    if not README.exists():
        pytest.skip("not a checkout: there is no README")
    return README.read_text(encoding="utf-8").split(MARK)[1].split("```")[0]


def test_the_example_of_recording_runs_and_its_files_open(shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"mha": mha}
    exec(compile(shown, "README.md", "exec"), names)
    trace = names["rec"].trace
    assert [(layer.n_heads, layer.n_query, layer.d_k) for layer in trace.layers] == [(4, 5, 12)] * 2
    assert all(mha.against_torch(layer).passed for layer in trace.layers)
    assert mha.load(tmp_path / "mine.safetensors").tokens.pieces == tuple(names["tokens"])
    assert 'id="numbers"' in (tmp_path / "view.html").read_text(encoding="utf-16")
    assert "AttentionTrace" in trace._repr_html_()
