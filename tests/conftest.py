"""For all tests: one thread, the same hypothesis examples everywhere, and refusals that can be read.

The tensors are small, and two threads on busy cores wait for each other.
"""

import hypothesis
import pytest
import torch

import mha_core as mha

torch.set_num_threads(1)

# The same examples on every machine, and no time limit on a busy one.
hypothesis.settings.register_profile(
    "all", deadline=None, derandomize=True, database=None, max_examples=40, print_blob=False
)
hypothesis.settings.load_profile("all")


@pytest.fixture(scope="session")
def refused():
    """Call, expect a refusal, and hand the `MhaError` back to be read."""

    def call(function, *args, **kwargs) -> mha.MhaError:
        with pytest.raises(mha.MhaError) as caught:
            function(*args, **kwargs)
        return caught.value

    return call
