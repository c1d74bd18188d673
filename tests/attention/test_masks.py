"""Masks hide exactly the right cells, and every accepted shape means the right axes."""

import pytest
import torch

from mha_core.attention import masks
from mha_core.errors import listed

# The last two queries of three and five keys, and squares, written out: 1 where a query may look.
WRITTEN = {
    ("causal", 3, 3): ["100", "110", "111"],
    ("causal", 2, 5): ["11110", "11111"],
    ("causal", 3, 2): ["00", "10", "11"],
    ("window:1", 5, 5): ["11000", "11100", "01110", "00111", "00011"],
    ("window:0", 3, 3): ["100", "010", "001"],
    ("window", 5, 5): ["11100", "11110", "11111", "01111", "00111"],
    ("window:1", 2, 5): ["00111", "00011"],
    ("streaming:1", 5, 5): ["10000", "11000", "11100", "10110", "10011"],
    ("streaming:0", 2, 3): ["110", "101"],
    ("prefix:3", 5, 5): ["11100", "11100", "11100", "11110", "11111"],
    ("prefix", 3, 3): ["110", "110", "111"],
    ("prefix:0", 3, 3): ["100", "110", "111"],
    ("padding:1", 2, 3): ["110", "110"],
    ("padding", 3, 5): ["11100", "11100", "11100"],
    ("padding:0", 2, 3): ["111", "111"],
    **{(f"window:{size}", 2, 3): ["111", "111"] for size in (10**9, 10**20)},
    **{(f"prefix:{size}", 2, 3): ["111", "111"] for size in (10**9, 10**20)},
    **{(f"padding:{size}", 2, 3): ["000", "000"] for size in (7, 10**9, 10**20)},
}


@pytest.mark.parametrize("case", WRITTEN, ids=str)
def test_a_named_mask_is_the_matrix_written_here(case):
    mask = masks.build(*case)
    assert mask.dtype == torch.bool
    assert ["".join("01"[cell] for cell in row) for row in mask.tolist()] == WRITTEN[case]
    for full in ("full", None):  # nothing hidden is no mask at all
        assert masks.build(full, 3, 5) is None


def test_every_name_is_written_out_above():
    written = {name.partition(":")[0] for name, *_ in WRITTEN}
    hiding = {name for name, make in masks.MASKS.items() if make is not None}
    assert hiding - written == set(), "write the matrix of each of these masks by hand, in WRITTEN above"
    assert written <= hiding


@pytest.mark.parametrize("lead", [(), (1,), (1, 1)], ids=str)
def test_a_drawn_mask_comes_back_as_query_by_key(lead, normal):
    drawn = normal(3, 5) > 0
    assert torch.equal(masks.build(drawn.reshape(*lead, 3, 5), 3, 5), drawn)
    assert torch.equal(masks.build(drawn.tolist(), 3, 5), drawn)


SIZES = {"batch": 2, "n_heads": 3, "n_query": 5, "n_key": 7}
ALL = (2, 3, 5, 7)
FORMS = {  # the shape, and which of (batch, head, query, key) its axes are
    "(L, S)": ((5, 7), lambda n, h, q, k: (q, k)),
    "(N, L, S)": ((2, 5, 7), lambda n, h, q, k: (n, q, k)),
    "(N, 1, L, S)": ((2, 1, 5, 7), lambda n, h, q, k: (n, 0, q, k)),
    "(N, h, L, S)": ((2, 3, 5, 7), lambda n, h, q, k: (n, h, q, k)),
}


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("form", [None, *FORMS], ids=str)
def test_each_accepted_shape_reaches_the_cells_it_names(form, padded, normal):
    shape, cell = FORMS.get(form, (None, None))
    mask = None if form is None else normal(*shape) > 0
    padding = normal(2, 7, seed=1) > 0 if padded else None
    combined = masks.combine(mask, padding, **SIZES)
    if form is None and not padded:
        assert combined is None
        return
    assert combined.dim() == 4
    if not padded or form is None:  # and a mask is not blown up
        assert combined.numel() == (mask if padding is None else padding).numel()
    whole = combined.expand(ALL)
    for n in range(2):
        for h in range(3):
            for q in range(5):
                for k in range(7):
                    seen = mask is None or mask[cell(n, h, q, k)]
                    assert whole[n, h, q, k] == (seen and (not padded or padding[n, k]))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("window:x", "The size of mask 'window:x' must be a whole number, as in 'window:3'."),
        ("prefix:-1", "The size of mask 'prefix:-1' must be a whole number, as in 'prefix:3'."),
        ("padding:1.5", "The size of mask 'padding:1.5' must be a whole number, as in 'padding:3'."),
        (torch.ones(5, 3).bool(), "The mask has shape (5, 3); expected (3, 5), (1, 3, 5) or (1, 1, 3, 5)."),
    ],
)
def test_a_name_that_means_nothing_and_a_drawing_that_does_not_fit_are_refused(mask, message, refused):
    assert str(refused(masks.build, mask, 3, 5)) == message


SHAPES = "(5, 7), (2, 5, 7), (2, 1, 5, 7) or (2, 3, 5, 7)"


@pytest.mark.parametrize(
    ("mask", "padding", "message"),
    [
        (torch.ones(5, 2, 7).bool(), None, f"mask has shape (5, 2, 7); expected {SHAPES}."),
        (None, torch.ones(3, 7).bool(), "key_padding has shape (3, 7); expected (2, 7)."),
        (torch.zeros(5, 7), None, "mask has dtype torch.float32; a mask is boolean, True where a query "),
        (None, torch.zeros(5, 7), "key_padding has dtype torch.float32; a mask is boolean, True where "),
    ],
)
def test_masks_of_other_shapes_or_of_numbers_are_refused(mask, padding, message, refused):
    assert str(refused(masks.combine, mask, padding, **SIZES)).startswith(f"The {message}")


def test_an_unknown_name_comes_with_the_known_ones(refused):
    error = refused(masks.build, "diagonal", 3, 3)
    known = listed(list(masks.MASKS), "or")
    assert str(error) == f"There is no mask called 'diagonal'; {known} can be used."
    assert [fix["mask"] for fix in error.fixes] == list(masks.MASKS)
    for fix in error.fixes:
        masks.build(fix["mask"], 3, 3)


def test_minus_one_among_chosen_blocks_chooses_none():
    blocks = torch.tensor([[2, -1], [-1, -1], [1, 2]])
    assert masks.of_blocks(blocks, 5, 2).int().tolist() == [[0, 0, 0, 0, 1], [0] * 5, [0, 0, 1, 1, 1]]
