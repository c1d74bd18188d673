"""A text, its target, and the sides of each kind of layer between them."""

from dataclasses import replace

import mha_core as mha

TEXT = replace(mha.words("die alte Katze sah den neuen Hund"), words=(0, 0, 1, 2, 3, 4, 5), special=(0, 6))
TARGET = mha.words("the old cat saw it")
SIDES = {
    "encoder": mha.Sides(TEXT, TEXT),
    "decoder": mha.Sides(TARGET, TARGET),
    "cross": mha.Sides(TARGET, TEXT),
}
