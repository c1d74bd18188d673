"""Each matrix of a layer has the symbol of the papers, with the number of its head."""

import mha_core as mha
from mha_core.traces.matrices import MATRICES

WRITTEN = {  # a head, counted from 0, and what is written of it
    "x": (0, "X"),
    "x_v": (7, "Y"),
    "q": (2, "Q₃"),
    "k": (0, "K₁"),
    "v": (9, "V₁₀"),
    "scores": (63, "S₆₄"),
    "scaled": (0, "S₁ / √d_k"),
    "masked": (1, "S₂ masked"),
    "weights": (3, "A₄"),
    "output": (11, "head₁₂"),
    "concat": (5, "concat"),
    "contribution": (1, "head₂ · Wᴼ₂"),
    "result": (0, "Z"),
}


def test_a_matrix_is_written_as_in_the_papers():
    layer = mha.trace("a", h=64, d_model=64).layers[0]
    found = {name: matrix.written(layer, WRITTEN[name][0]) for name, matrix in MATRICES.items()}
    assert found == {name: written for name, (_, written) in WRITTEN.items()}
