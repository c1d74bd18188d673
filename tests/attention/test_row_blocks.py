"""Rows in blocks, and the memory that is handed back after them."""

import pytest

from mha_core.attention.functional import CELLS, row_blocks


@pytest.mark.parametrize(("n_rows", "cells"), [(5, CELLS // 2), (7, 3 * CELLS), (4096, 12 * 4096), (3, 0)])
def test_blocks_are_neighbours_and_together_all_rows(n_rows, cells):
    blocks = row_blocks(n_rows, cells)
    assert [row for block in blocks for row in range(n_rows)[block]] == list(range(n_rows))
    assert all((b.stop - b.start) * cells <= CELLS or b.stop - b.start == 1 for b in blocks)
