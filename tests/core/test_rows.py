"""Rows in blocks, and the memory that is handed back after them."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from mha_core import rows
from mha_core.rows import CELLS, give_back, row_blocks


@pytest.mark.parametrize(("n_rows", "cells"), [(5, CELLS // 2), (7, 3 * CELLS), (4096, 12 * 4096), (3, 0)])
def test_blocks_are_neighbours_and_together_all_rows(n_rows, cells):
    blocks = row_blocks(n_rows, cells)
    assert [row for block in blocks for row in range(n_rows)[block]] == list(range(n_rows))
    assert all((b.stop - b.start) * cells <= CELLS or b.stop - b.start == 1 for b in blocks)


@pytest.mark.skipif(sys.platform != "linux" or rows._trim() is None, reason="not the GNU C library")
def test_memory_between_what_lives_on_is_handed_back_after_several_blocks():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    several = row_blocks(2, CELLS)
    held = [np.ones(100_000, np.uint8) for _ in range(2000)]
    del held[::2]  # 100 MB, in pieces
    before = resident()
    give_back(several[:1])
    assert before - resident() < 20e6
    give_back(several)
    assert before - resident() > 60e6
