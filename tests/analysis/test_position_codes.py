"""Position encodings: the formulas of the papers, and their effect on scores, which depends on distance."""

import math

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.position_codes import PositionCode, alibi, of_vectors, rotary, sinusoidal
from mha_core.sources import mini
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import lexicon
from tests.conftest import assert_close


def by_distance(code) -> np.ndarray:
    """The first row of the meetings, after every other row was found to be the same, shifted."""
    meeting = code.effect.to_numpy()
    for row in range(len(meeting)):
        np.testing.assert_allclose(meeting[row, row:], meeting[0, : len(meeting) - row], atol=1e-4)
        np.testing.assert_allclose(meeting[row, row::-1], meeting[0, : row + 1], atol=1e-4)
    return meeting[0]


def test_the_sinusoidal_code_is_that_of_the_paper():
    code = sinusoidal(7, 10)
    assert code.table.loc[4, 3] == pytest.approx(math.sin(3 / 10000 ** (2 / 10)), abs=1e-6)
    assert code.table.loc[4, 4] == pytest.approx(math.cos(3 / 10000 ** (2 / 10)), abs=1e-6)
    meeting = by_distance(code)
    assert meeting[0] == pytest.approx(5)
    assert meeting[3] == pytest.approx(sum(math.cos(3 / 10000 ** (2 * i / 10)) for i in range(5)), abs=1e-5)


def test_the_rotary_effect_depends_on_distance_only():
    code = rotary(7, 10)
    assert code.table.shape == (7, 5)
    assert code.table.loc[3, 2] == pytest.approx(math.cos(2 / 10000 ** (2 / 10)), abs=1e-6)
    meeting = by_distance(code)
    assert meeting[0] == pytest.approx(1)
    assert meeting[2] == pytest.approx(
        sum(math.cos(2 / 10000 ** (2 * i / 10)) for i in range(5)) / 5, abs=1e-5
    )


def test_the_alibi_bias_falls_linearly_with_the_heads_slope():
    code = alibi(5, 8, head=1)
    np.testing.assert_allclose(code.table.to_numpy()[:, 1], [-(2.0**-n) for n in range(1, 9)])
    np.testing.assert_allclose(by_distance(code), [0, -0.25, -0.5, -0.75, -1.0])


def test_the_effect_of_learned_vectors_is_their_products():
    vectors = np.array([[1.0, 2.0, 0.0], [0.5, -1.0, 3.0]])
    code = of_vectors(vectors)
    np.testing.assert_allclose(code.effect, [[5, -1.5], [-1.5, 10.25]])
    assert code.table.index.name == "position"


def test_an_odd_width_cannot_be_rotated(refused):
    error = refused(rotary, 4, 7)
    assert "the width must be even; got 7" in str(error)
    assert error.fixes == ({"width": 6}, {"width": 8})


# The code of each, run on the numbers of a trace


SENTENCE = "the cat saw the dog"


def run_code(code: PositionCode, **values: torch.Tensor) -> dict[str, torch.Tensor]:
    names = {"torch": torch} | values
    exec(code.code, names)
    return names


@pytest.mark.parametrize("width", [12, 7, 1])
def test_the_code_in_torch_of_the_sinusoidal_code_adds_what_a_trace_has(width):
    with_code, without = (
        mha.trace(SENTENCE, d_model=width, h=1, position=position).layers[0].x
        for position in ("sinusoidal", "none")
    )
    code = sinusoidal(5, width)
    made = run_code(code, x=torch.from_numpy(without.copy()))
    assert_close(made["pe"], code.table.to_numpy())
    assert_close(made["x"], with_code)


def test_the_code_in_torch_of_the_learned_code_adds_what_a_trace_has():
    model = mini.model(mini.find("en", "glass-box", 4, 64)).model
    words = torch.tensor(lexicon("en").cut(SENTENCE, limit=MAX_WORDS)[1])
    code = of_vectors(model.position.detach().numpy())
    made = run_code(code, embedding=model.embedding.detach(), position=model.position.detach(), words=words)
    normed = model.layers[0].norm(made["x"]).detach()  # as each layer does with its input
    assert_close(normed, mha.trace(SENTENCE, source="mini").layers[0].x)


def test_the_code_in_torch_of_the_rotary_code_rotates_as_a_trace_does():
    turned, straight = (
        mha.trace(SENTENCE, d_model=12, h=2, position=position).layers[0] for position in ("rotary", "none")
    )
    made = run_code(
        rotary(5, 6), q=torch.from_numpy(straight.q.copy()), k=torch.from_numpy(straight.k.copy())
    )
    assert_close(made["q"], turned.q)
    assert_close(made["k"], turned.k)
    alike = torch.full((1, 5, 6), 6**-0.5)
    made = run_code(rotary(5, 6), q=alike, k=alike)
    assert_close((made["q"] @ made["k"].mT)[0], rotary(5, 6).effect.to_numpy())


@pytest.mark.parametrize("h", [1, 4, 6])
def test_the_code_in_torch_of_alibi_adds_what_a_trace_has(h):
    layer = mha.trace(SENTENCE, d_model=12, h=h, position="alibi").layers[0]
    made = run_code(alibi(5, h, 0), scores=torch.from_numpy(layer.scaled().copy()))
    assert_close(made["scores"], layer.masked())


def test_the_formula_of_alibi_says_the_rates_of_any_number_of_heads():
    assert "r_j = 2^{-8j/h}" in alibi(5, 4, 0).formula
    assert r"2^{-8j/4} & j \le 4 \\ 2^{-8(2(j - 4) - 1)/8} & j > 4" in alibi(5, 6, 0).formula
    rates = [2 ** (-8 * j / 4) for j in range(1, 5)] + [2 ** (-8 * (2 * (j - 4) - 1) / 8) for j in (5, 6)]
    np.testing.assert_allclose(-alibi(5, 6, 0).table["1"], rates)
